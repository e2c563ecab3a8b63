//! Tests of the runner while the clock is not trusted.

use std::sync::Arc;

use s3o_catalog::conformance::fixture::Fixture;
use s3o_model::clock::Clock as _;

use super::harness::{Act, HOUR, Harness, MINUTE, SECOND, ScriptedWorker};
use crate::testing::fixture;
use crate::{ClockGuard, ClockGuardParts, KernelClock, Kind, RunOutcome};

/// A kernel clock that no time service synchronises.
struct UnsynchronisedKernel;

impl KernelClock for UnsynchronisedKernel {
    fn is_synchronised(&self) -> bool {
        false
    }
}

/// A guard that trusts the clock because an operator confirmed it.
async fn trusting_guard(fixture: &Fixture) -> Arc<ClockGuard> {
    let catalog = Arc::new(fixture.catalog.clone());
    catalog.cluster_id("cluster").await.expect("a name");
    let guard = Arc::new(ClockGuard::new(ClockGuardParts {
        clock: fixture.clock.clone(),
        kernel: Arc::new(UnsynchronisedKernel),
        store: Arc::default(),
        notes: catalog,
        alarm: Arc::new(()),
    }));
    guard.accept().await.expect("accepted");
    guard
}

#[tokio::test(start_paused = true)]
async fn time_dependent_worker_waits_while_the_clock_is_not_trusted() {
    let (mut harness, fixture) = (Harness::new(), fixture());
    let guard = trusting_guard(&fixture).await;
    harness.clock_guard = Some(guard.clone());
    let full = [Act::Full(SECOND), Act::Full(SECOND), Act::Did(1)];
    let (held, free) = (ScriptedWorker::new("lifecycle", full), ScriptedWorker::new("cleanup", full));
    let runner = harness.runner(vec![held.on(Kind::Locked, HOUR), free.on(Kind::Shared, HOUR)], 7);
    let jumps = async {
        tokio::time::sleep(SECOND / 2).await;
        fixture.clock.set(fixture.clock.now().after(HOUR));
    };
    let (run, ()) = tokio::join!(runner.run_now("lifecycle"), jumps);
    assert_eq!(
        run.map(|run| (run.outcome, run.items["success"])),
        Some((RunOutcome::Ok, 1)),
        "the run ends after its tick"
    );
    let run = runner.run_now("lifecycle").await.expect("a worker");
    assert_eq!((run.outcome, run.error.as_deref()), (RunOutcome::Skipped, None));
    assert!(run.reason.is_some_and(|reason| reason.contains("jumped ahead by 3600 s")));
    assert!(harness.history().await[0].error.as_deref().is_some_and(|error| error.contains("jumped ahead")));
    let run = runner.run_now("cleanup").await.expect("a worker");
    assert_eq!(
        (run.outcome, run.items["success"]),
        (RunOutcome::Ok, 3),
        "workers that do not depend on time still run"
    );
    guard.accept().await.expect("accepted");
    fixture.clock.advance(MINUTE);
    let run = runner.run_now("lifecycle").await.expect("a worker");
    assert_eq!((run.outcome, run.items["success"], run.reason), (RunOutcome::Ok, 2, None));
}
