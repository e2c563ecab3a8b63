//! What waits while the clock is in doubt, and what does not.

use std::sync::Arc;

use s3o_catalog::Identities as _;
use s3o_model::clock::Clock as _;

use super::house::{Act, HOUR, House, MINUTE, Probe, SECOND};
use crate::testing::scene;
use crate::{ClockGuard, ClockGuardParts, KernelClock, Kind, Outcome};

/// The kernel of a machine whose clock nothing disciplines.
struct Undisciplined;

impl KernelClock for Undisciplined {
    fn is_synchronised(&self) -> bool {
        false
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_time_decides_waits_while_the_clock_is_in_doubt() {
    let (mut house, scene) = (House::new(), scene());
    let catalog = Arc::new(scene.catalog.clone());
    catalog.cluster_id("cluster").await.expect("a name");
    let guard = Arc::new(ClockGuard::new(ClockGuardParts {
        clock: scene.clock.clone(),
        kernel: Arc::new(Undisciplined),
        store: Arc::default(),
        notes: catalog,
        alarm: Arc::new(()),
    }));
    guard.accept().await.expect("accepted");
    house.clock_guard = Some(guard.clone());
    let full = [Act::Full(SECOND), Act::Full(SECOND), Act::Did(1)];
    let (held, free) = (Probe::new("lifecycle", full), Probe::new("cleanup", full));
    let runner = house.runner(vec![held.on(Kind::Locked, HOUR), free.on(Kind::Shared, HOUR)], 7);
    let jumps = async {
        tokio::time::sleep(SECOND / 2).await;
        scene.clock.set(scene.clock.now().after(HOUR));
    };
    let (run, ()) = tokio::join!(runner.run_now("lifecycle"), jumps);
    assert_eq!(
        run.map(|run| (run.outcome, run.items["success"])),
        Some((Outcome::Ok, 1)),
        "the run ends after its tick"
    );
    let run = runner.run_now("lifecycle").await.expect("a worker");
    assert_eq!((run.outcome, run.error.as_deref()), (Outcome::Skipped, None));
    assert!(run.reason.is_some_and(|reason| reason.contains("jumped ahead by 3600 s")));
    assert!(house.history().await[0].error.as_deref().is_some_and(|error| error.contains("jumped ahead")));
    let run = runner.run_now("cleanup").await.expect("a worker");
    assert_eq!((run.outcome, run.items["success"]), (Outcome::Ok, 3), "nothing else waits");
    guard.accept().await.expect("accepted");
    scene.clock.advance(MINUTE);
    let run = runner.run_now("lifecycle").await.expect("a worker");
    assert_eq!((run.outcome, run.items["success"], run.reason), (Outcome::Ok, 2, None));
}
