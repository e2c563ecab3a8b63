//! Stored bytes that change: the scrubber finds them, a good copy replaces them, and wrong bytes are never removed
//! without one. A reader that changes bytes accuses no copy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use bytes::Bytes;
use s3o_backend::layers::{Fault, FaultPlan};
use s3o_catalog::{Mode, ScrubState};
use s3o_engine::{Declared, Error, PutObject};
use s3o_model::etag;
use s3o_model::intent::DeclaredDigests;
use s3o_tests::environment::{Environment, TestBackend};
use s3o_tests::harness::{Expected, Harness, get};
use s3o_tests::process::SCRUB;
use s3o_workers::{Report, ScrubSettings, VerifyScope, Worker};
use sha2::{Digest as _, Sha256};

const BODY: &[u8] = b"a body that is stored twice";
const FLIPPED: &[u8] = b"a body that is st0red twice";
const CYCLE: Duration = Duration::from_hours(6);

/// Two copies on three backends.
async fn harness() -> Harness {
    let harness = Harness::with_bucket(Environment::new(1 << 20).with_copies(2, 1 << 20), Mode::Inline).await;
    harness.store("a", BODY).await.expect("stored");
    harness
}

fn intact() -> Expected {
    Expected::from([("a", vec![Some(BODY.to_vec())])])
}

/// The physical keys on a backend.
fn bodies(backend: &TestBackend) -> Vec<String> {
    backend.memory.keys().into_iter().filter(|key| !key.starts_with(".s3o/")).collect()
}

fn flip(backend: &TestBackend) {
    for key in bodies(backend) {
        backend.memory.corrupt(&key, Some(Bytes::from_static(FLIPPED)));
    }
}

async fn tick(harness: &Harness, worker: &str) -> Report {
    harness.tick_after(harness.process.worker(worker), Duration::ZERO).await
}

/// Reads everything in a new pass.
async fn scrub(harness: &Harness) -> Report {
    harness.tick_after(harness.process.worker("scrubber"), CYCLE).await
}

async fn state(harness: &Harness) -> ScrubState {
    harness.catalog.scrub_state().await.expect("a query")
}

async fn states(harness: &Harness) -> Vec<String> {
    harness.texts("SELECT state FROM object_locations ORDER BY state").await
}

/// The backends that answer reads with a wrong body.
fn wrong_bodies(harness: &Harness) -> usize {
    let wrong =
        |backend: &&TestBackend| bodies(backend).iter().any(|key| backend.memory.bytes(key) != Some(BODY.into()));
    harness.environment.backends.iter().filter(wrong).count()
}

/// Changes every response to a read, each one in another way, or all in the same way.
struct ChangingProxy(AtomicU8, u8);

impl FaultPlan for ChangingProxy {
    fn next_fault(&self, operation: &'static str, _key: &str) -> Option<Fault> {
        (operation == "get").then(|| Fault::Corrupt(self.0.fetch_add(self.1, Ordering::Relaxed)))
    }
}

fn put_proxy(harness: &Harness, step: u8) {
    for backend in &harness.environment.backends {
        backend.flaky.set_fault_plan(Some(Arc::new(ChangingProxy(AtomicU8::new(1), step))));
    }
}

/// Runs the scrubber as `s3o scrub` does.
async fn scrub_manually(harness: &Harness) -> Report {
    let scrubber = harness.process.worker("scrubber");
    scrubber.begin_manual_run();
    let report = harness.tick_after(scrubber, Duration::ZERO).await;
    scrubber.begin_run();
    report
}

#[tokio::test]
async fn flipped_copy_is_replaced_by_a_good_one() {
    for flipped in [0, 1] {
        let harness = harness().await;
        flip(&harness.environment.backends[flipped]);
        let report = scrub(&harness).await;
        assert_eq!((report.items["mismatches"], report.items["read"]), (1, 1), "{report:?}");
        assert_eq!(report.events[0].name, "scrub.mismatch");
        assert_eq!(harness.read("a").await.as_deref(), Some(BODY), "the wrong copy is not served");
        let mut repairs = Vec::new();
        for worker in ["replicator", "over_replication", "replicator", "over_replication"] {
            repairs.extend(tick(&harness, worker).await.events);
        }
        assert_eq!(repairs.iter().filter(|event| event.name == "scrub.repaired").count(), 1, "{repairs:?}");
        harness.check(&intact()).await;
        assert_eq!(wrong_bodies(&harness), 0);
    }
}

#[tokio::test]
async fn good_copies_are_read_once_per_cycle() {
    let harness = harness().await;
    assert_eq!(scrub(&harness).await.items["read"], 2);
    for time in [Duration::ZERO, CYCLE - Duration::from_secs(1)] {
        let report = harness.tick_after(harness.process.worker("scrubber"), time).await;
        assert!(report.items.is_empty(), "{report:?}");
    }
    let report = harness.tick_after(harness.process.worker("scrubber"), Duration::from_secs(1)).await;
    assert_eq!(report.items["read"], 2);
}

#[tokio::test]
async fn content_without_a_good_copy_is_lost_and_keeps_its_bytes() {
    let harness = harness().await;
    for backend in &harness.environment.backends {
        flip(backend);
    }
    let report = scrub(&harness).await;
    assert_eq!((report.items["mismatches"], report.items["lost"]), (2, 1), "{report:?}");
    assert!(matches!(harness.engine.get_object(get("a")).await, Err(Error::Damaged(_))));
    for worker in ["replicator", "over_replication", "cleanup", "scrubber"] {
        assert!(harness.tick_after(harness.process.worker(worker), CYCLE).await.events.is_empty());
    }
    assert_eq!((wrong_bodies(&harness), states(&harness).await), (2, vec!["lost".to_owned(); 2]));
    let verified = harness.process.verifier.verify(VerifyScope::DEEP).await;
    assert_eq!((verified.holds, verified.lost.contents), (true, 1), "{verified:#?}");
    harness.check_now().await;
}

#[tokio::test]
async fn lost_content_is_readable_again_once_a_copy_proves_good() {
    let harness = harness().await;
    let second = &harness.environment.backends[1];
    for backend in &harness.environment.backends {
        flip(backend);
    }
    scrub(&harness).await;
    second.memory.corrupt(&bodies(second)[0], Some(Bytes::from_static(BODY)));
    let report = scrub(&harness).await;
    assert_eq!((report.items["proven"], report.items["still_wrong"]), (1, 1), "{report:?}");
    assert_eq!(harness.read("a").await.as_deref(), Some(BODY));
    harness.check(&intact()).await;
    assert_eq!(wrong_bodies(&harness), 0);
}

#[tokio::test]
async fn reader_that_changes_bytes_each_time_stops_the_scrub_and_accuses_no_copy() {
    let harness = harness().await;
    flip(&harness.environment.backends[0]);
    put_proxy(&harness, 1);
    harness.clock.advance(CYCLE);
    let mut report = Report::default();
    let failed = harness.process.worker("scrubber").tick(&mut report).await.expect_err("a stop");
    assert!(failed.to_string().contains("two reads gave the digests"), "{failed}");
    assert_eq!(states(&harness).await, ["present", "present"]);
    assert!(state(&harness).await.stopped.is_some());
    put_proxy(&harness, 0);
    assert!(scrub(&harness).await.items.is_empty(), "it waits for an operator");
    harness.environment.backends.iter().for_each(|backend| backend.flaky.clear());
    let report = scrub_manually(&harness).await;
    assert_eq!((report.items["mismatches"], state(&harness).await.stopped), (1, None), "{report:?}");
    harness.check(&intact()).await;
}

#[tokio::test]
async fn reader_that_changes_all_bytes_alike_stops_the_scrub_after_a_hundred_copies() {
    let harness = Harness::new(1 << 20, Mode::Inline).await;
    for number in 0..120 {
        harness.store(&format!("k{number}"), BODY).await.expect("stored");
    }
    put_proxy(&harness, 0);
    harness.clock.advance(CYCLE);
    let mut report = Report::default();
    let failed = harness.process.worker("scrubber").tick(&mut report).await.expect_err("a stop");
    assert!(failed.to_string().contains("100 of 100 copies"), "{failed}");
    assert_eq!((report.items["mismatches"], report.items["lost"]), (99, 99));
    harness.flaky.clear();
    // The copy that was not accused is read again after its delay.
    harness.clock.advance(CYCLE);
    let report = scrub_manually(&harness).await;
    assert_eq!(report.items["passes"], 1, "{report:?}");
    let report = scrub(&harness).await;
    assert_eq!(report.items["proven"], 99, "{report:?}");
    harness.check(&Expected::from([("k0", vec![Some(BODY.to_vec())]), ("k99", vec![Some(BODY.to_vec())])])).await;
}

#[tokio::test]
async fn copy_that_cannot_be_read_does_not_stop_the_pass() {
    let harness = Harness::new(1 << 20, Mode::Inline).await;
    for name in ["a", "b"] {
        harness.store(name, BODY).await.expect("stored");
    }
    harness.flaky.fail_call(harness.flaky.calls() + 1, Fault::Cut(3));
    let report = scrub(&harness).await;
    assert_eq!((report.items["unreadable"], report.items["read"], report.items["passes"]), (1, 1, 1), "{report:?}");
    assert!(tick(&harness, "scrubber").await.items.is_empty());
    let report = harness.tick_after(harness.process.worker("scrubber"), Duration::from_mins(5)).await;
    assert_eq!(report.items["read"], 1, "{report:?}");
    assert_eq!(states(&harness).await, ["present", "present"]);
}

#[tokio::test]
async fn frozen_backend_is_not_read_and_holds_up_no_other() {
    let harness = harness().await;
    let (first, second) = (&harness.environment.backends[0], &harness.environment.backends[1]);
    harness.process.fleet().set_frozen(&first.name(), Some("another store".to_owned()));
    assert_eq!(scrub(&harness).await.items["read"], 1);
    let passes = state(&harness).await.passes;
    assert!(passes.iter().all(|pass| pass.backend != first.name()));
    assert!(passes.iter().any(|pass| pass.backend == second.name() && pass.finished_at.is_some()));
    harness.process.fleet().set_frozen(&first.name(), None);
    assert_eq!(tick(&harness, "scrubber").await.items["read"], 1);
}

#[tokio::test]
async fn missing_copy_is_suspect_and_replaced() {
    let harness = harness().await;
    let first = &harness.environment.backends[0];
    first.memory.corrupt(&bodies(first)[0], None);
    let report = scrub(&harness).await;
    assert_eq!((report.items["missing"], report.items["read"]), (1, 1), "{report:?}");
    assert_eq!(states(&harness).await, ["present", "suspect"]);
    harness.check(&intact()).await;
}

/// One slice fits into a tick.
#[tokio::test]
async fn read_of_a_large_copy_outlasts_a_tick() {
    let harness = Harness::new(1 << 20, Mode::Inline).await;
    let body = vec![7; 5000];
    harness.store("large", &body).await.expect("stored");
    harness.store("small", BODY).await.expect("stored");
    let key = bodies(&harness.environment.backends[0]).remove(0);
    let slow = ScrubSettings { slice_bytes: 1000, tick_time: Duration::ZERO, batch_size: 1, ..SCRUB };
    let scrubber = harness.process.scrubber(slow);
    let mut wrong = body.clone();
    wrong[4321] ^= 1;
    harness.memory.corrupt(&key, Some(wrong.into()));
    let (mut ticks, mut items) = (0, Report::default());
    harness.clock.advance(CYCLE);
    loop {
        let report = harness.tick_after(&scrubber, Duration::ZERO).await;
        (ticks, items.more) = (ticks + 1, report.more);
        items.absorb(report);
        if !items.more {
            break;
        }
    }
    assert!(ticks >= 10, "two reads of five slices: {ticks}");
    assert_eq!((items.items["mismatches"], items.items["read"], items.items["passes"]), (1, 1, 1), "{items:?}");
}

/// Its digest is known, but no copy has its bytes.
#[tokio::test]
async fn known_bytes_of_lost_content_are_uploaded_again() {
    let harness = Harness::with_bucket(Environment::new(1 << 20).with_dedup(true), Mode::Inline).await;
    harness.store("a", BODY).await.expect("stored");
    flip(&harness.environment.backends[0]);
    assert_eq!(scrub(&harness).await.items["lost"], 1);
    let sha256 = Some(etag::Sha256(Sha256::digest(BODY).into()));
    let declared =
        Declared { digests: DeclaredDigests { sha256, ..DeclaredDigests::default() }, ..Declared::default() };
    let client = Arc::new(());
    let put = PutObject { declared, ..harness.put("b", BODY, &client) };
    let before = harness.memory.calls("put");
    harness.engine.put_object(put).await.expect("stored");
    assert_eq!(harness.memory.calls("put"), before + 1, "the bytes are uploaded");
    let both = [("a", vec![Some(BODY.to_vec())]), ("b", vec![Some(BODY.to_vec())])];
    harness.check(&Expected::from(both)).await;
    assert_eq!(wrong_bodies(&harness), 0);
}

/// A probe finds both copies; only a read tells that the one to keep is wrong, too.
#[tokio::test]
async fn wrong_copy_is_not_removed_because_others_are_present() {
    let harness = harness().await;
    flip(&harness.environment.backends[0]);
    scrub(&harness).await;
    harness.catalog.set_factors(1, &[]).await.expect("stored");
    flip(&harness.environment.backends[1]);
    for worker in ["replicator", "replicator", "over_replication", "over_replication", "cleanup"] {
        harness.tick_after(harness.process.worker(worker), Duration::from_hours(1)).await;
    }
    assert_eq!(wrong_bodies(&harness), 2, "both keys are kept");
    scrub(&harness).await;
    assert_eq!(states(&harness).await, ["lost", "lost"]);
}
