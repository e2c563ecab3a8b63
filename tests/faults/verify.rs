//! What verify reports: damage by invariant, an unreachable backend as unchecked, and no violation for requests that
//! are still running.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use s3o_backend::Backend as _;
use s3o_backend::layers::Fault;
use s3o_catalog::Mode;
use s3o_model::verify::Invariant;

use s3o_tests::harness::Harness;
use s3o_workers::VerifyScope;

const STRAY: &str = "bucket/stray~0123456789abcdef0123456789abcdef";

/// Three objects and no queued work.
async fn harness() -> Harness {
    let harness = Harness::new(u64::MAX, Mode::Inline).await;
    for key in ["a", "b", "c"] {
        harness.store(key, b"eleven byte").await.expect("stored");
    }
    harness.settle().await;
    harness
}

/// The invariants that a deep verify reports.
async fn broken(harness: &Harness) -> Vec<Invariant> {
    let report = harness.process.verifier.verify(VerifyScope::DEEP).await;
    assert!(report.unchecked.is_empty(), "{report:#?}");
    let broken = report.checks.iter().filter(|check| check.violations > 0);
    let numbers: Vec<_> = broken.map(|check| check.invariant).collect();
    assert_eq!(report.holds, numbers.is_empty());
    numbers
}

fn key_of(harness: &Harness) -> String {
    harness.memory.keys().into_iter().find(|key| !key.starts_with(".s3o/")).expect("an object")
}

#[tokio::test]
async fn sound_store_passes() {
    let harness = harness().await;
    assert_eq!(broken(&harness).await, []);
    let report = harness.process.verifier.verify(VerifyScope::DEEP).await;
    let held = &report.backends[0];
    assert_eq!((held.objects, held.bytes, held.foreign, held.accounted_bytes), (3, 33, 0, Some(33)));
    assert!(!harness.process.verifier.progress().running);
}

#[tokio::test]
async fn missing_bytes_are_found() {
    let harness = harness().await;
    harness.memory.corrupt(&key_of(&harness), None);
    assert_eq!(broken(&harness).await, [Invariant::I2, Invariant::I7]);
}

#[tokio::test]
async fn truncated_bytes_are_found() {
    let harness = harness().await;
    harness.memory.corrupt(&key_of(&harness), Some(Bytes::from_static(b"eleven")));
    assert_eq!(broken(&harness).await, [Invariant::I1, Invariant::I7]);
}

#[tokio::test]
async fn unnamed_bytes_are_found_and_foreign_files_are_counted() {
    let harness = harness().await;
    harness.memory.plant("bucket/holiday.jpg", Bytes::from_static(b"theirs"));
    harness.memory.plant(".s3o/identity.bak", Bytes::from_static(b"own"));
    assert_eq!(broken(&harness).await, []);
    assert_eq!(harness.process.verifier.verify(VerifyScope::DEEP).await.backends[0].foreign, 1);
    harness.memory.plant(STRAY, Bytes::from_static(b"ours"));
    assert_eq!(broken(&harness).await, [Invariant::I3, Invariant::I7]);
}

#[tokio::test]
async fn verify_and_workers_never_turn_unnamed_bytes_into_objects() {
    let harness = harness().await;
    let deleted = key_of(&harness);
    harness.delete("a").await;
    harness.settle().await;
    harness.memory.plant(&deleted, Bytes::from_static(b"eleven byte"));
    harness.memory.plant(STRAY, Bytes::from_static(b"ours"));
    assert_eq!(broken(&harness).await, [Invariant::I3, Invariant::I7]);
    harness.settle().await;
    assert_eq!(harness.read("a").await, None);
    assert_eq!(harness.read("stray").await, None);
}

#[tokio::test]
async fn temporary_files_and_unfinished_uploads_are_found() {
    let harness = harness().await;
    harness.memory.plant(".s3o/tmp/0123456789abcdef0123456789abcdef", Bytes::new());
    assert_eq!(broken(&harness).await, [Invariant::I3]);
    harness.memory.corrupt(".s3o/tmp/0123456789abcdef0123456789abcdef", None);
    let upload = harness.memory.start_upload(STRAY).await.expect("an upload");
    assert_eq!(broken(&harness).await, [Invariant::I3]);
    harness.memory.abort_upload(STRAY, &upload).await;
    assert_eq!(broken(&harness).await, []);
}

#[tokio::test]
async fn lost_location_is_found_by_shallow_verify() {
    let harness = harness().await;
    harness.change("UPDATE object_locations SET state = 'lost'").await;
    let report = harness.process.verifier.verify(VerifyScope::default()).await;
    let lost: Vec<_> = report.checks.iter().filter(|check| check.violations == 3).collect();
    assert_eq!(lost.iter().map(|check| check.invariant).collect::<Vec<_>>(), [Invariant::I2]);
    assert!(!report.deep && report.backends.is_empty());
}

#[tokio::test]
async fn verify_reads_more_than_one_page() {
    let harness = harness().await;
    for number in 0..2500 {
        harness.memory.plant(&format!("bucket/{number:04}~{number:032x}"), Bytes::new());
    }
    let report = harness.process.verifier.verify(VerifyScope::DEEP).await;
    let stray = report.checks.iter().find(|check| check.violations > 0).expect("found");
    assert_eq!((stray.invariant, stray.violations, stray.samples.len()), (Invariant::I3, 2500, 10));
    assert_eq!(report.backends[0].objects, 2503);
}

#[tokio::test]
async fn unreachable_backend_is_unchecked_and_not_a_violation() {
    let harness = harness().await;
    harness.memory.corrupt(&key_of(&harness), None);
    // The calls: identity, listing, second probe, drafts, uploads, identity. Each fails once.
    for (offset, proven) in [(1, false), (2, false), (3, false), (4, true), (5, true), (6, false)] {
        harness.flaky.fail_call(harness.flaky.calls() + offset, Fault::Before);
        let report = harness.process.verifier.verify(VerifyScope::DEEP).await;
        let broken = report.checks.iter().any(|check| check.violations > 0);
        assert!(!report.holds && report.unchecked.len() == 1, "{offset}: {report:#?}");
        assert_eq!(broken, proven, "{offset}: {report:#?}");
    }
    harness.flaky.go_away();
    assert!(!harness.process.verifier.verify(VerifyScope::DEEP).await.unchecked.is_empty());
    assert!(harness.process.verifier.verify(VerifyScope::default()).await.holds, "the catalog is sound");
}

/// Overwrites and deletes a few keys again and again.
async fn write_and_delete(harness: Arc<Harness>, lane: usize) {
    for round in 0..60 {
        let key = format!("{lane}/{}", round % 3);
        harness.store(&key, b"eleven byte").await.expect("stored");
        if round % 4 == 3 {
            harness.delete(&key).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_requests_cause_no_violation() {
    let harness = Arc::new(Harness::new(u64::MAX, Mode::Threaded).await);
    let busy: Vec<_> = (0..6).map(|lane| tokio::spawn(write_and_delete(harness.clone(), lane))).collect();
    let mut runs = 0;
    while !busy.iter().all(tokio::task::JoinHandle::is_finished) {
        let (report, _) =
            tokio::join!(harness.process.verifier.verify(VerifyScope::DEEP), harness.clean_after(Duration::ZERO));
        assert!(report.holds, "{report:#?}");
        runs += 1;
    }
    for lane in busy {
        lane.await.expect("no lane failed");
    }
    assert!(runs >= 5, "too few runs of verify: {runs}");
    harness.settle().await;
    assert_eq!(broken(&harness).await, []);
}
