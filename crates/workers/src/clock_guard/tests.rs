//! Tests of the clock guard on a real catalog with a manual clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use s3o_catalog::conformance::fixture::Fixture;
use s3o_model::clock::Clock as _;
use s3o_model::clock_hold::{STEADY, StoreTime};

use super::{ClockAlarm, ClockGuard, ClockGuardParts, KernelClock};
use crate::testing::fixture;

const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);

#[derive(Default)]
struct ScriptedKernel(AtomicBool);

impl KernelClock for ScriptedKernel {
    fn is_synchronised(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

#[derive(Default)]
struct RecordingAlarm(Mutex<Vec<String>>);

impl RecordingAlarm {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock())
    }
}

impl ClockAlarm for RecordingAlarm {
    fn clock_frozen(&self, reason: &str) {
        self.0.lock().push(format!("frozen: {reason}"));
    }

    fn clock_accepted(&self, confirmed_by: &str) {
        self.0.lock().push(format!("accepted: {confirmed_by}"));
    }
}

struct GuardFixture {
    fixture: Fixture,
    kernel: Arc<ScriptedKernel>,
    store: Arc<StoreTime>,
    alarm: Arc<RecordingAlarm>,
    guard: ClockGuard,
}

impl GuardFixture {
    /// A guard after its first check; the kernel reports the clock as synchronised or not.
    async fn start(fixture: Fixture, is_synchronised: bool) -> Self {
        let kernel = Arc::new(ScriptedKernel(AtomicBool::new(is_synchronised)));
        let (store, alarm) = (Arc::new(StoreTime::default()), Arc::new(RecordingAlarm::default()));
        let catalog = Arc::new(fixture.catalog.clone());
        catalog.cluster_id("cluster").await.expect("a name");
        let guard = ClockGuard::new(ClockGuardParts {
            clock: fixture.clock.clone(),
            kernel: kernel.clone(),
            store: store.clone(),
            notes: catalog,
            alarm: alarm.clone(),
        });
        guard.observe().await.expect("checked");
        Self { fixture, kernel, store, alarm, guard }
    }

    /// A clock that was synchronised at the start and no longer is.
    async fn trusted() -> Self {
        let fixture = Self::start(fixture(), true).await;
        fixture.kernel.0.store(false, Ordering::SeqCst);
        fixture
    }

    async fn after(&self, time: Duration) -> bool {
        self.fixture.clock.advance(time);
        self.guard.observe().await.expect("checked");
        self.guard.held().is_some()
    }
}

#[tokio::test]
async fn clock_jump_holds_until_another_clock_confirms_it() {
    let fixture = GuardFixture::trusted().await;
    assert!(!fixture.after(HOUR).await, "elapsed time is no jump");
    fixture.fixture.clock.set(fixture.fixture.clock.now().after(HOUR));
    assert!(fixture.guard.held().is_some_and(|hold| hold.reason.contains("jumped ahead by 3600 s")));
    assert_eq!(fixture.alarm.take(), ["frozen: the clock jumped ahead by 3600 s"]);
    assert!(fixture.after(2 * HOUR).await, "the hold does not end by itself");
    fixture.store.note(fixture.fixture.clock.now(), fixture.fixture.clock.since_boot());
    assert!(!fixture.after(MINUTE).await);
    assert_eq!(fixture.alarm.take(), ["accepted: the date of a store agrees with the clock"]);
}

#[tokio::test]
async fn time_is_recorded_every_minute_while_the_clock_is_trusted() {
    let fixture = GuardFixture::trusted().await;
    let start = fixture.fixture.clock.now();
    let recorded = async || fixture.fixture.catalog.newest_time().await.expect("checked");
    assert_eq!(recorded().await, Some(start));
    fixture.after(MINUTE / 2).await;
    assert_eq!(recorded().await, Some(start));
    fixture.after(MINUTE / 2).await;
    assert_eq!(recorded().await, Some(start.after(MINUTE)));
    fixture.fixture.clock.set(start.after(HOUR));
    fixture.after(MINUTE).await;
    assert_eq!(recorded().await, Some(start.after(MINUTE)), "an untrusted time is not recorded");
}

#[tokio::test]
async fn start_behind_the_newest_time_in_the_catalog_holds_until_accepted() {
    let before = GuardFixture::trusted().await;
    assert!(!before.after(HOUR).await);
    let fixture = before.fixture;
    let millis = fixture.clock.now().millis() - 2 * 3_600_000;
    fixture.clock.set(s3o_model::clock::Timestamp::from_millis(millis));
    let fixture = GuardFixture::start(fixture, false).await;
    let held = fixture.guard.held().expect("held");
    assert!(held.reason.contains("7200 s behind the newest time in the catalog"), "{held:?}");
    assert!(fixture.after(2 * STEADY).await, "the hold does not end by itself");
    assert_eq!(fixture.guard.accept().await.expect("accepted").map(|hold| hold.reason), Some(held.reason));
    assert!(!fixture.after(MINUTE).await);
    let again = GuardFixture::start(fixture.fixture, true).await;
    assert!(again.guard.held().is_none(), "the accepted time is now the newest");
}

/// A catalog whose last server stopped a day ago.
async fn stopped_a_day_ago() -> Fixture {
    let before = GuardFixture::trusted().await;
    before.fixture.clock.advance(24 * HOUR);
    before.fixture
}

#[tokio::test]
async fn hold_of_an_unsynchronised_start_ends_by_time_or_by_the_kernel() {
    let fixture = GuardFixture::start(stopped_a_day_ago().await, false).await;
    assert!(fixture.after(14 * MINUTE).await);
    assert!(!fixture.after(MINUTE).await);
    let fixture = GuardFixture::start(stopped_a_day_ago().await, false).await;
    fixture.kernel.0.store(true, Ordering::SeqCst);
    assert!(!fixture.after(MINUTE).await);
    assert_eq!(
        fixture.alarm.take().last().map(String::as_str),
        Some("accepted: the kernel reports the clock as synchronised")
    );
}
