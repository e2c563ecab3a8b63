//! Tests of concurrent batches.

use std::sync::Arc;
use std::time::Duration;

use s3o_backend::layers::{Fault, FaultPlan, Flaky};
use s3o_backend::{Fleet, Memory};
use s3o_catalog::conformance::fixture::Fixture;
use s3o_model::backoff::Backoff;
use s3o_model::cleanup::Retries;
use s3o_model::entropy::SeededEntropy;
use s3o_model::ids::InstanceId;
use tokio::time::Instant;

use super::{BATCHES_MAX, BatchConcurrency, CleanupSettings, CleanupWorker};
use crate::testing::{counted, fixture, ids};
use crate::{Budget, IdentityParts, IdentitySettings, IdentityWorker, Report, Worker as _};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);
const BATCH: usize = 2;

/// Delays every batch delete by a second.
struct SlowDeletes;

impl FaultPlan for SlowDeletes {
    fn next_fault(&self, operation: &'static str, _key: &str) -> Option<Fault> {
        (operation == "delete_batch").then_some(Fault::Delay(SECOND))
    }
}

struct CleanupHarness {
    fixture: Fixture,
    store: Arc<Flaky>,
    worker: CleanupWorker,
}

impl CleanupHarness {
    /// A worker with so many full batches in its queue.
    async fn with(batches: usize) -> Self {
        let fixture = fixture();
        let bucket = fixture.bucket("gone").await;
        for number in 0..batches * BATCH {
            let key = format!("k{number}");
            fixture.put(bucket, &key, 5).await;
            assert!(fixture.delete(bucket, &key).await);
        }
        let store = Arc::new(Flaky::new(Arc::new(Memory::new("disk".parse().expect("a name")))));
        let worker = worker(&fixture, &store).await;
        store.set_fault_plan(Some(Arc::new(SlowDeletes)));
        Self { fixture, store, worker }
    }

    /// Runs one tick; returns its duration, its counts, and whether more is waiting.
    async fn tick(&self) -> (Duration, Vec<(&'static str, u64)>, bool) {
        let (mut report, began) = (Report::default(), Instant::now());
        self.worker.tick(&mut report).await.expect("a tick");
        (began.elapsed(), counted(&report), report.more)
    }

    async fn queued(&self) -> u64 {
        self.fixture.catalog.depths().await.expect("depths").cleanups
    }

    fn delete_calls(&self) -> usize {
        self.store.log().iter().filter(|call| call.operation == "delete_batch").count()
    }
}

async fn worker(fixture: &Fixture, store: &Arc<Flaky>) -> CleanupWorker {
    let catalog = Arc::new(fixture.catalog.clone());
    let fleet = Arc::new(Fleet::new(vec![store.clone()]).expect("a fleet"));
    let identity = Arc::new(IdentityWorker::new(IdentityParts {
        identities: catalog.clone(),
        records: catalog.clone(),
        fleet: fleet.clone(),
        ids: ids(fixture),
        clock: fixture.clock.clone(),
        cluster: "ours".to_owned(),
        host: "host:9000".to_owned(),
        alarm: Arc::new(()),
        settings: IdentitySettings::default(),
    }));
    assert!(identity.attach().await);
    let ids = ids(fixture);
    CleanupWorker {
        cleanups: catalog.clone(),
        contents: catalog,
        fleet,
        identity,
        instance: InstanceId::new(ids.fresh()),
        ids,
        entropy: Arc::new(SeededEntropy::new(1)),
        settings: CleanupSettings {
            batch_size: BATCH,
            concurrency: 8,
            claim_grace_period: MINUTE,
            reader_grace: MINUTE,
            retries: Retries { backoff: Backoff { min: MINUTE, max: MINUTE }, max_attempts: 10 },
        },
        budget: Budget::new(9),
        batch_concurrency: BatchConcurrency::default(),
        clock_guard: None,
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_batches_grow_while_batches_settle_rows() {
    let harness = CleanupHarness::with(BATCHES_MAX).await;
    let (took, counted, _) = harness.tick().await;
    assert_eq!(counted, [("success_absent", (BATCHES_MAX * BATCH) as u64)]);
    // Per second: 1, 2, 4, 4, 4 batches and the last one.
    assert_eq!((took, harness.delete_calls(), harness.queued().await), (6 * SECOND, BATCHES_MAX, 0));
}

#[tokio::test(start_paused = true)]
async fn tick_runs_a_bounded_number_of_batches() {
    let harness = CleanupHarness::with(BATCHES_MAX + 1).await;
    let (_, _, more) = harness.tick().await;
    assert!(more);
    assert_eq!(harness.queued().await, BATCH as u64);
}

#[tokio::test(start_paused = true)]
async fn one_batch_at_a_time_while_requests_are_in_progress() {
    let harness = CleanupHarness::with(1 + 2).await;
    let request = harness.worker.budget.request();
    assert_eq!(harness.tick().await, (SECOND, vec![("success_absent", BATCH as u64)], true));
    drop(request);
    let (took, _, more) = harness.tick().await;
    assert_eq!((took, more, harness.queued().await), (SECOND, false, 0), "the other batches run concurrently");
}

#[tokio::test(start_paused = true)]
async fn unavailable_store_gets_one_batch_per_tick() {
    let harness = CleanupHarness::with(BATCHES_MAX).await;
    harness.store.refuse_deletes(true);
    let (_, counted, more) = harness.tick().await;
    assert_eq!((more, harness.delete_calls()), (false, 1), "{counted:?}");
    assert_eq!(harness.queued().await, (BATCHES_MAX * BATCH) as u64);
}
