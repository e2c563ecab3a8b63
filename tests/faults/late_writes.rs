//! Bytes that land when somebody has already looked for them.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use s3o_backend::layers::Fault;
use s3o_catalog::{Cleanups as _, Mode};
use s3o_engine::{Error, Orphan, OrphanAlarm, PutObject};
use s3o_model::conditions::WriteCondition;
use s3o_model::etag::ETag;
use s3o_tests::process::{LATE, LEASE};
use s3o_tests::rest::tick_all;

use s3o_tests::house::{Expected, Ground, House};

const MINUTE: Duration = Duration::from_mins(1);

fn holds_nothing() -> Expected {
    Expected::from([("a", vec![None])])
}

#[tokio::test(start_paused = true)]
async fn a_write_that_lands_behind_a_slow_look_is_still_found() {
    let house = House::new(u64::MAX, Mode::Inline).await;
    let client = Arc::new(());
    house.flaky.fail_call(house.flaky.calls() + 1, Fault::Late(LATE / 2));
    house.engine.put_object(house.put("a", b"late", &client)).await.expect_err("no answer");
    // Identity and probe are quick; the delete behind an absent probe is not.
    house.flaky.fail_call(house.flaky.calls() + 3, Fault::Delay(Duration::from_mins(1)));
    let passes = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        house.clock.advance(LATE * 2);
    };
    tokio::join!(tick_all(&house.process.workers), passes);
    house.check(&holds_nothing()).await;
}

/// Stores a body with a fault that takes a minute, while the reaper takes the intent and cleanup has long looked for
/// its bytes.
async fn put_behind_everybody(house: &House, put: PutObject, fault: Fault) -> Result<(), Error> {
    house.flaky.fail_call(house.flaky.calls() + 1, fault);
    let everybody = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        house.clock.advance(LEASE);
        tick_all(&house.process.workers).await;
        house.clock.advance(LATE);
        tick_all(&house.process.workers).await;
    };
    tokio::join!(house.engine.put_object(put), everybody).0.map(drop)
}

#[tokio::test(start_paused = true)]
async fn a_fenced_write_whose_condition_fails_leaves_nothing() {
    let house = House::new(u64::MAX, Mode::Inline).await;
    let client = Arc::new(());
    house.engine.put_object(house.put("a", b"old body", &client)).await.expect("stored");
    let old: ETag = house.engine.head_object(&s3o_tests::house::get("a")).await.expect("there").object.etag;
    let put = PutObject { condition: WriteCondition::IfMatch(Some(old)), ..house.put("a", b"new body", &client) };
    let deleted = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let condition = WriteCondition::None;
        let (bucket, key) = (s3o_tests::house::bucket(), s3o_tests::house::key("a"));
        house.engine.delete_object(s3o_engine::DeleteObject { bucket, key, condition }).await
    };
    let (stored, deleted) = tokio::join!(put_behind_everybody(&house, put, Fault::Stall(MINUTE)), deleted);
    deleted.expect("deleted");
    stored.expect_err("the condition failed, and the intent was gone");
    house.check(&holds_nothing()).await;
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_starts_behind_its_fence_is_aborted() {
    let house = House::new(5, Mode::Inline).await;
    let client = Arc::new(());
    let put = house.put("a", b"longer than five", &client);
    put_behind_everybody(&house, put, Fault::Delay(MINUTE)).await.expect_err("the intent was gone");
    house.check(&holds_nothing()).await;
}

/// The store begins to read the body when the lease has long ended.
#[tokio::test(start_paused = true)]
async fn a_writer_past_its_lease_never_takes_the_last_step() {
    let house = House::new(u64::MAX, Mode::Inline).await;
    let client = Arc::new(());
    let put = house.put("a", b"too late", &client);
    put_behind_everybody(&house, put, Fault::Delay(MINUTE)).await.expect_err("the lease had ended");
    assert_eq!(house.bytes_stored(), 0, "the last chunk was never handed over");
    house.check(&holds_nothing()).await;
}

/// The same for a body that goes in parts: the call that joins them is the last step.
#[tokio::test(start_paused = true)]
async fn a_writer_past_its_lease_does_not_join_the_parts_it_stored() {
    let house = House::new(5, Mode::Inline).await;
    let client = Arc::new(());
    // Four parts; the last of them takes a minute.
    house.flaky.fail_call(house.flaky.calls() + 5, Fault::Stall(MINUTE));
    let passes = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        house.clock.advance(LEASE + LATE);
    };
    let (stored, ()) = tokio::join!(house.engine.put_object(house.put("a", b"longer than five", &client)), passes);
    stored.expect_err("the lease had ended");
    let joined = house.flaky.log().iter().any(|call| call.operation == "finish_upload");
    assert!(!joined, "{:?}", house.flaky.log());
    house.check(&holds_nothing()).await;
}

/// What the engine says of bytes that it could not queue.
#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl OrphanAlarm for Heard {
    fn orphaned(&self, orphan: &Orphan<'_>) {
        let Orphan { backend, size_bytes, bucket, key, .. } = orphan;
        self.0.lock().push(format!("{backend} {size_bytes} {bucket} {key}"));
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_of_a_fenced_write_are_queued_however_long_the_catalog_refuses() {
    let heard = Arc::new(Heard::default());
    let ground = Ground::new(u64::MAX).with_alarm(heard.clone());
    let house = House::with_bucket(&ground, Mode::Inline).await;
    let client = Arc::new(());
    house.points.refuse_unit(Some("requeue"));
    let put = house.put("a", b"landed", &client);
    put_behind_everybody(&house, put, Fault::Stall(MINUTE)).await.expect_err("the intent was gone");
    assert_eq!(house.bytes_stored(), 6, "they landed when nobody looked for them any more");
    assert_eq!(*heard.0.lock(), ["memory 6 bucket a"]);
    let mut registry = Registry::default();
    house.process.metrics.register(&mut registry, std::iter::empty());
    let mut page = String::new();
    prometheus_client::encoding::text::encode(&mut page, &registry).expect("a page");
    let failures = r#"s3o_cleanup_enqueue_failures_total{backend="memory",reason="put_orphan",stage="enqueue"} 1"#;
    assert!(page.contains(failures), "{page}");
    let queued = async {
        tokio::time::sleep(MINUTE * 10).await;
        assert!(house.catalog.depths().await.expect("depths").cleanups == 0, "the catalog still refuses");
        house.points.refuse_unit(None);
        while house.catalog.depths().await.expect("depths").cleanups == 0 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = house.engine.keep_leases() => {}
        queued = tokio::time::timeout(MINUTE * 20, queued) => queued.expect("queued in the end"),
    }
    assert_eq!(heard.0.lock().len(), 1, "it is told once");
    house.check(&holds_nothing()).await;
}
