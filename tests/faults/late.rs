//! Late events: deletes of bytes whose key was written again, writes that were never sent or take effect after their
//! intent was abandoned, work for backends that are not configured any more.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use s3o_backend::{Fleet, Memory};
use s3o_catalog::{Mode, Stage};
use s3o_model::cleanup::Selection;
use s3o_model::etag::Md5;
use s3o_model::ids::{InstanceId, IntentId, WriteId};
use s3o_model::intent::{DeclaredDigests, Draft, Intent, IntentKind};
use s3o_model::shared::Shared;
use s3o_workers::{CleanupWorker, PendingReaperWorker, Verifier, VerifierParts, VerifyScope};

use s3o_tests::harness::{Expected, Harness, bucket, key};
use s3o_tests::process::{LEASE, LONGEST};

async fn harness() -> Harness {
    Harness::new(1 << 20, Mode::Inline).await
}

async fn put(harness: &Harness, bytes: &[u8]) {
    harness.store("a", bytes).await.expect("stored");
}

fn holds(bytes: Option<&[u8]>) -> Expected {
    Expected::from([("a", vec![bytes.map(<[u8]>::to_vec)])])
}

/// An announced write of `a` whose writer died before it sent a byte.
async fn announce(harness: &Harness, size_bytes: u64, draft: Option<Draft>) -> Intent {
    let id = uuid::Uuid::from_u128(0x0195_0000_0000_7000_8000_0000_0000_0001);
    let intent = Intent {
        id: IntentId::new(id),
        write: WriteId::new(id),
        kind: IntentKind::Object,
        bucket: harness.catalog.bucket(&bucket()).await.expect("a query").expect("the bucket").id,
        key: key("a"),
        backend: "memory".parse().expect("a name"),
        physical_key: format!("bucket/a~{}", id.as_simple()),
        size_bytes,
        draft,
    };
    let stage = Stage { intent, owner: InstanceId::new(id), lease: LEASE };
    harness.catalog.stage(&stage).await.expect("staged");
    stage.intent
}

fn declared(md5: [u8; 16]) -> Draft {
    let declared = DeclaredDigests { md5: Some(Md5(md5)), ..DeclaredDigests::default() };
    Draft { declared, ..Draft::default() }
}

#[tokio::test]
async fn late_delete_keeps_later_writes() {
    let harness = harness().await;
    put(&harness, b"first").await;
    harness.delete("a").await;
    put(&harness, b"second").await;
    put(&harness, b"third").await;
    let rows = harness.catalog.queued_cleanups(&Selection::default(), 0, 10).await.expect("a page");
    assert_eq!(rows.len(), 2, "a delete and an overwrite are queued");
    assert_eq!(harness.clean_after(Duration::ZERO).await.items["success"], 2);
    harness.check(&holds(Some(b"third"))).await;
}

#[tokio::test]
async fn abandoned_overwrite_is_not_confused_with_the_object_it_replaces() {
    let harness = harness().await;
    put(&harness, b"old body").await;
    // As long as the old body, so that only the physical key differs.
    announce(&harness, 8, Some(declared([7; 16]))).await;
    assert_eq!(harness.reap_after(LEASE).await.items.into_iter().collect::<Vec<_>>(), [("dropped", 1)]);
    harness.check(&holds(Some(b"old body"))).await;
}

#[tokio::test]
async fn bytes_stored_after_their_write_was_abandoned_are_deleted() {
    for wait in [Duration::ZERO, Duration::from_mins(59)] {
        let harness = harness().await;
        let intent = announce(&harness, 4, None).await;
        assert_eq!(harness.reap_after(LEASE).await.items["dropped"], 1);
        assert_eq!(harness.clean_after(Duration::ZERO).await.items["deferred"], 1, "absence is not final yet");
        harness.clock.advance(wait);
        harness.memory.plant(&intent.physical_key, Bytes::from_static(b"late"));
        harness.check(&holds(None)).await;
    }
}

#[tokio::test]
async fn work_for_unconfigured_backend_waits_for_it() {
    let harness = harness().await;
    put(&harness, b"12345").await;
    harness.delete("a").await;
    announce(&harness, 3, Some(declared([7; 16]))).await;
    let elsewhere = Arc::new(Memory::new("elsewhere".parse().expect("a name")));
    let fleet = Arc::new(Fleet::new(vec![elsewhere]).expect("a fleet"));
    let reaper = PendingReaperWorker { fleet: fleet.clone(), ..harness.process.pending_reaper() };
    let cleanup = CleanupWorker { fleet: fleet.clone(), ..harness.process.cleanup_over(harness.catalog.clone()) };
    assert_eq!(harness.tick_after(&reaper, LEASE).await.items.into_iter().collect::<Vec<_>>(), [("ambiguous", 1)]);
    for _ in 0..50 {
        let report = harness.tick_after(&cleanup, Duration::from_hours(1)).await;
        assert!(report.items.is_empty(), "no row of an unconfigured backend is settled");
    }
    let rows = harness.catalog.queued_cleanups(&Selection::default(), 0, 10).await.expect("a page");
    assert!(rows.len() == 1 && rows[0].cleanup.attempts == 0, "{rows:?}");
    let quotas = harness.catalog.quota_usage().await.expect("a query");
    let held: (u64, u64) = quotas.iter().fold((0, 0), |sum, q| (sum.0 + q.orphan_bytes, sum.1 + q.reserved_bytes));
    assert_eq!(held, (5, 3), "the bytes still count");
    let verifier = Verifier::new(VerifierParts {
        verification: harness.catalog.clone(),
        quotas: harness.catalog.clone(),
        fleet,
        identity: harness.process.identity.clone(),
        ahead: harness.catalog.clone(),
        longest: Shared::new(LONGEST),
    });
    let report = verifier.verify(VerifyScope::DEEP).await;
    assert!(!report.holds && report.unchecked.iter().any(|left_out| left_out.what == "backend memory"), "{report:#?}");
    harness.check(&holds(None)).await;
}
