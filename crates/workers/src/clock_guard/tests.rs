//! What the guard holds, notes and reports, on a real catalog with a clock that the tests set.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use s3o_catalog::conformance::scene::Scene;
use s3o_catalog::{ClockNotes as _, Identities as _};
use s3o_model::clock::Clock as _;
use s3o_model::clock_hold::{STEADY, StoreTime};

use super::{ClockAlarm, ClockGuard, ClockGuardParts, KernelClock};
use crate::testing::scene;

const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);

#[derive(Default)]
struct Kernel(AtomicBool);

impl KernelClock for Kernel {
    fn is_synchronised(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl Heard {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock())
    }
}

impl ClockAlarm for Heard {
    fn clock_frozen(&self, reason: &str) {
        self.0.lock().push(format!("frozen: {reason}"));
    }

    fn clock_accepted(&self, witness: &str) {
        self.0.lock().push(format!("accepted: {witness}"));
    }
}

struct Watched {
    scene: Scene,
    kernel: Arc<Kernel>,
    store: Arc<StoreTime>,
    heard: Arc<Heard>,
    guard: ClockGuard,
}

impl Watched {
    /// A guard of a clock that the kernel calls synchronised, or not, after its first look.
    async fn start(scene: Scene, is_synchronised: bool) -> Self {
        let kernel = Arc::new(Kernel(AtomicBool::new(is_synchronised)));
        let (store, heard) = (Arc::new(StoreTime::default()), Arc::new(Heard::default()));
        let catalog = Arc::new(scene.catalog.clone());
        catalog.cluster_id("cluster").await.expect("a name");
        let guard = ClockGuard::new(ClockGuardParts {
            clock: scene.clock.clone(),
            kernel: kernel.clone(),
            store: store.clone(),
            notes: catalog,
            alarm: heard.clone(),
        });
        guard.observe().await.expect("a look");
        Self { scene, kernel, store, heard, guard }
    }

    /// One that was synchronised at the start and is so no longer.
    async fn trusted() -> Self {
        let watched = Self::start(scene(), true).await;
        watched.kernel.0.store(false, Ordering::SeqCst);
        watched
    }

    async fn after(&self, time: Duration) -> bool {
        self.scene.clock.advance(time);
        self.guard.observe().await.expect("a look");
        self.guard.held().is_some()
    }
}

#[tokio::test]
async fn a_clock_that_was_set_holds_until_a_witness_agrees() {
    let watched = Watched::trusted().await;
    assert!(!watched.after(HOUR).await, "time that passes is no jump");
    watched.scene.clock.set(watched.scene.clock.now().after(HOUR));
    assert!(watched.guard.held().is_some_and(|hold| hold.reason.contains("jumped ahead by 3600 s")));
    assert_eq!(watched.heard.take(), ["frozen: the clock jumped ahead by 3600 s"]);
    assert!(watched.after(2 * HOUR).await, "it does not end by itself");
    watched.store.note(watched.scene.clock.now(), watched.scene.clock.since_boot());
    assert!(!watched.after(MINUTE).await);
    assert_eq!(watched.heard.take(), ["accepted: the date of a store agrees with the clock"]);
}

#[tokio::test]
async fn the_time_is_noted_every_minute_unless_it_is_in_doubt() {
    let watched = Watched::trusted().await;
    let start = watched.scene.clock.now();
    let noted = async || watched.scene.catalog.newest_time().await.expect("a look");
    assert_eq!(noted().await, Some(start));
    watched.after(MINUTE / 2).await;
    assert_eq!(noted().await, Some(start));
    watched.after(MINUTE / 2).await;
    assert_eq!(noted().await, Some(start.after(MINUTE)));
    watched.scene.clock.set(start.after(HOUR));
    watched.after(MINUTE).await;
    assert_eq!(noted().await, Some(start.after(MINUTE)), "a time in doubt is not noted");
}

#[tokio::test]
async fn a_start_behind_the_newest_time_in_the_catalog_holds_until_it_is_accepted() {
    let before = Watched::trusted().await;
    assert!(!before.after(HOUR).await);
    let scene = before.scene;
    let millis = scene.clock.now().millis() - 2 * 3_600_000;
    scene.clock.set(s3o_model::clock::Timestamp::from_millis(millis));
    let watched = Watched::start(scene, false).await;
    let held = watched.guard.held().expect("held");
    assert!(held.reason.contains("7200 s behind the newest time in the catalog"), "{held:?}");
    assert!(watched.after(2 * STEADY).await, "it does not end by itself");
    assert_eq!(watched.guard.accept().await.expect("accepted").map(|hold| hold.reason), Some(held.reason));
    assert!(!watched.after(MINUTE).await);
    let again = Watched::start(watched.scene, true).await;
    assert!(again.guard.held().is_none(), "what was accepted is the newest time now");
}

/// A catalog that was last served a day ago.
async fn stopped_a_day_ago() -> Scene {
    let before = Watched::trusted().await;
    before.scene.clock.advance(24 * HOUR);
    before.scene
}

#[tokio::test]
async fn an_unsynchronised_start_ends_by_itself_or_by_the_kernel() {
    let watched = Watched::start(stopped_a_day_ago().await, false).await;
    assert!(watched.after(14 * MINUTE).await);
    assert!(!watched.after(MINUTE).await);
    let watched = Watched::start(stopped_a_day_ago().await, false).await;
    watched.kernel.0.store(true, Ordering::SeqCst);
    assert!(!watched.after(MINUTE).await);
    assert_eq!(
        watched.heard.take().last().map(String::as_str),
        Some("accepted: the kernel calls the clock synchronised")
    );
}
