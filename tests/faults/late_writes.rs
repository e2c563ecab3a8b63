//! Bytes that are stored after cleanup has already probed their key.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use s3o_backend::layers::Fault;
use s3o_catalog::Mode;
use s3o_engine::{Error, Orphan, OrphanAlarm, PutObject};
use s3o_model::conditions::WriteCondition;
use s3o_model::etag::ETag;
use s3o_tests::environment::Environment;
use s3o_tests::harness::{Expected, Harness, delete, get};
use s3o_tests::invariants::tick_all;
use s3o_tests::process::{LATE, LEASE};

const MINUTE: Duration = Duration::from_mins(1);

fn holds_nothing() -> Expected {
    Expected::from([("a", vec![None])])
}

#[tokio::test(start_paused = true)]
async fn write_that_takes_effect_behind_slow_cleanup_is_deleted() {
    let harness = Harness::new(u64::MAX, Mode::Inline).await;
    let client = Arc::new(());
    harness.flaky.fail_call(harness.flaky.calls() + 1, Fault::Late(LATE / 2));
    harness.engine.put_object(harness.put("a", b"late", &client)).await.expect_err("no answer");
    // Reading the identity and probing are quick; the delete after them is slow.
    harness.flaky.fail_call(harness.flaky.calls() + 3, Fault::Delay(Duration::from_mins(1)));
    let passes = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        harness.clock.advance(LATE * 2);
    };
    tokio::join!(tick_all(&harness.process.workers), passes);
    harness.check(&holds_nothing()).await;
}

/// Stores a body with a fault that takes a minute, while `pending_reaper` takes the intent and cleanup probes the key
/// for the last time.
async fn put_after_fence(harness: &Harness, put: PutObject, fault: Fault) -> Result<(), Error> {
    harness.flaky.fail_call(harness.flaky.calls() + 1, fault);
    let workers = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        harness.clock.advance(LEASE);
        tick_all(&harness.process.workers).await;
        harness.clock.advance(LATE);
        tick_all(&harness.process.workers).await;
    };
    tokio::join!(harness.engine.put_object(put), workers).0.map(drop)
}

#[tokio::test(start_paused = true)]
async fn fenced_write_with_failed_condition_leaves_no_bytes() {
    let harness = Harness::new(u64::MAX, Mode::Inline).await;
    let client = Arc::new(());
    harness.engine.put_object(harness.put("a", b"old body", &client)).await.expect("stored");
    let old: ETag = harness.engine.head_object(&get("a")).await.expect("found").object.etag;
    let put = PutObject { condition: WriteCondition::IfMatch(Some(old)), ..harness.put("a", b"new body", &client) };
    let deleted = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        harness.engine.delete_object(delete("a")).await
    };
    let (stored, deleted) = tokio::join!(put_after_fence(&harness, put, Fault::Stall(MINUTE)), deleted);
    deleted.expect("deleted");
    stored.expect_err("the condition failed, and the intent was taken");
    harness.check(&holds_nothing()).await;
}

#[tokio::test(start_paused = true)]
async fn upload_started_after_fence_is_aborted() {
    let harness = Harness::new(5, Mode::Inline).await;
    let client = Arc::new(());
    let put = harness.put("a", b"longer than five", &client);
    put_after_fence(&harness, put, Fault::Delay(MINUTE)).await.expect_err("the intent was taken");
    harness.check(&holds_nothing()).await;
}

/// The store starts to read the body after the lease expired.
#[tokio::test(start_paused = true)]
async fn writer_past_lease_never_sends_last_chunk() {
    let harness = Harness::new(u64::MAX, Mode::Inline).await;
    let client = Arc::new(());
    let put = harness.put("a", b"too late", &client);
    put_after_fence(&harness, put, Fault::Delay(MINUTE)).await.expect_err("the lease had expired");
    assert_eq!(harness.bytes_stored(), 0, "the last chunk was never sent");
    harness.check(&holds_nothing()).await;
}

/// For a body in parts, the last step is the call that completes the upload.
#[tokio::test(start_paused = true)]
async fn writer_past_lease_does_not_complete_its_upload() {
    let harness = Harness::new(5, Mode::Inline).await;
    let client = Arc::new(());
    // Four parts; the last of them takes a minute.
    harness.flaky.fail_call(harness.flaky.calls() + 5, Fault::Stall(MINUTE));
    let passes = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        harness.clock.advance(LEASE + LATE);
    };
    let (stored, ()) = tokio::join!(harness.engine.put_object(harness.put("a", b"longer than five", &client)), passes);
    stored.expect_err("the lease had expired");
    let completed = harness.flaky.log().iter().any(|call| call.operation == "finish_upload");
    assert!(!completed, "{:?}", harness.flaky.log());
    harness.check(&holds_nothing()).await;
}

/// Records notifications of bytes that could not be queued.
#[derive(Default)]
struct RecordingAlarm(Mutex<Vec<String>>);

impl OrphanAlarm for RecordingAlarm {
    fn orphaned(&self, orphan: &Orphan<'_>) {
        let Orphan { backend, size_bytes, object, .. } = orphan;
        let (bucket, key) = object.expect("bytes of an object");
        self.0.lock().push(format!("{backend} {size_bytes} {bucket} {key}"));
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_of_fenced_write_are_queued_however_long_catalog_refuses() {
    let alarm = Arc::new(RecordingAlarm::default());
    let environment = Environment::new(u64::MAX).with_alarm(alarm.clone());
    let harness = Harness::with_bucket(environment, Mode::Inline).await;
    let client = Arc::new(());
    harness.points.refuse_unit(Some("requeue"));
    let put = harness.put("a", b"stored", &client);
    put_after_fence(&harness, put, Fault::Stall(MINUTE)).await.expect_err("the intent was taken");
    assert_eq!(harness.bytes_stored(), 6, "they were stored after the last probe");
    assert_eq!(*alarm.0.lock(), ["memory 6 bucket a"]);
    let mut registry = Registry::default();
    harness.process.metrics.register(&mut registry, std::iter::empty());
    let mut page = String::new();
    prometheus_client::encoding::text::encode(&mut page, &registry).expect("a page");
    let failures = r#"s3o_cleanup_enqueue_failures_total{backend="memory",reason="put_orphan",stage="enqueue"} 1"#;
    assert!(page.contains(failures), "{page}");
    let queued = async {
        tokio::time::sleep(MINUTE * 10).await;
        assert!(harness.catalog.depths().await.expect("depths").cleanups == 0, "the catalog still refuses");
        harness.points.refuse_unit(None);
        while harness.catalog.depths().await.expect("depths").cleanups == 0 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = harness.engine.keep_leases() => {}
        queued = tokio::time::timeout(MINUTE * 20, queued) => queued.expect("queued eventually"),
    }
    assert_eq!(alarm.0.lock().len(), 1, "the alarm is notified once");
    harness.check(&holds_nothing()).await;
}
