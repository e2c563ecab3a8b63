//! Time: one moment type, one trait to read it, and a clock that tests move by hand.

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// A moment, in milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The moment that many milliseconds after the epoch.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the epoch.
    #[must_use]
    pub const fn millis(self) -> i64 {
        self.0
    }

    /// Whole seconds since the epoch.
    #[must_use]
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// This moment, later by a duration.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(millis_of(duration)))
    }

    /// How long ago `earlier` was; zero if it is not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// A duration in the unit that the catalog counts in.
#[must_use]
pub fn millis_of(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0) * 1_000_000)
            .ok()
            .and_then(|moment| moment.format(&Rfc3339).ok());
        match text {
            Some(text) => f.write_str(&text),
            None => write!(f, "{}ms", self.0),
        }
    }
}

/// How long it may take to read both clocks.
const READING_MAX: Duration = Duration::from_secs(1);

/// The one way to learn the time.
pub trait Clock: Send + Sync {
    /// The present moment, as the wall clock shows it.
    fn now(&self) -> Timestamp;

    /// The time since the machine started, suspended time included. This clock cannot be set.
    fn since_boot(&self) -> Duration;

    /// What both clocks show at one moment. A process that was stopped between the two reads reads again, or the clocks
    /// would seem to differ by the time for which it was stopped.
    fn reading(&self) -> Reading {
        loop {
            let (before, wall, boot) = (self.since_boot(), self.now(), self.since_boot());
            if boot.saturating_sub(before) <= READING_MAX {
                return Reading { wall, boot };
            }
        }
    }
}

/// What the wall clock and the clock that counts from the start of the machine show at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// The wall clock, which people and programs can set.
    pub wall: Timestamp,
    /// The time since the machine started.
    pub boot: Duration,
}

impl Reading {
    /// What both clocks show after this duration, if the wall clock is not set.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self { wall: self.wall.after(duration), boot: self.boot.saturating_add(duration) }
    }

    /// Whether either clock has reached what it shows in `end`.
    #[must_use]
    pub fn has_reached(self, end: Self) -> bool {
        self.wall >= end.wall || self.boot >= end.boot
    }
}

/// The clock of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "this is the one place that reads wall time")]
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        Timestamp(since_epoch.map_or(0, millis_of))
    }

    fn since_boot(&self) -> Duration {
        let shown = rustix::time::clock_gettime(BOOT_CLOCK);
        let nanos = u32::try_from(shown.tv_nsec).unwrap_or(0);
        Duration::new(u64::try_from(shown.tv_sec).unwrap_or(0), nanos)
    }
}

/// The clock that counts from the start of the machine and goes on while the machine is suspended.
#[cfg(target_os = "linux")]
const BOOT_CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
/// Other systems have no such clock, or their monotonic clock is one.
#[cfg(not(target_os = "linux"))]
const BOOT_CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;

/// A clock that stands still until a test moves it.
#[derive(Debug)]
pub struct ManualClock {
    wall_millis: AtomicI64,
    boot_millis: AtomicU64,
}

impl ManualClock {
    /// A clock that shows `start`.
    #[must_use]
    pub fn starting_at(start: Timestamp) -> Self {
        Self { wall_millis: AtomicI64::new(start.0), boot_millis: AtomicU64::new(0) }
    }

    /// Lets time pass.
    pub fn advance(&self, duration: Duration) {
        self.wall_millis.fetch_add(millis_of(duration), Ordering::SeqCst);
        self.boot_millis.fetch_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Sets the wall clock, as an operator does: no time passes.
    pub fn set(&self, moment: Timestamp) {
        self.wall_millis.store(moment.0, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.wall_millis.load(Ordering::SeqCst))
    }

    fn since_boot(&self) -> Duration {
        Duration::from_millis(self.boot_millis.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::{Clock, ManualClock, SystemClock, Timestamp};
    use std::time::Duration;

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = ManualClock::starting_at(Timestamp::from_millis(5));
        assert_eq!(clock.now(), clock.now());
        clock.advance(Duration::from_secs(1));
        assert_eq!(clock.now().millis(), 1005);
    }

    #[test]
    fn setting_the_wall_clock_does_not_change_the_time_since_boot() {
        let clock = ManualClock::starting_at(Timestamp::from_millis(5));
        clock.advance(Duration::from_secs(1));
        let before = clock.reading();
        clock.set(Timestamp::from_millis(9_000_000));
        assert_eq!(clock.since_boot(), before.boot);
        assert!(clock.reading().has_reached(before.after(Duration::from_hours(1))), "the wall clock has");
    }

    /// A process that is stopped for an hour between two reads, once.
    struct Stopped(ManualClock, std::sync::atomic::AtomicBool);

    impl Clock for Stopped {
        fn now(&self) -> Timestamp {
            let shown = self.0.now();
            if !self.1.swap(true, std::sync::atomic::Ordering::SeqCst) {
                self.0.advance(Duration::from_hours(1));
            }
            shown
        }

        fn since_boot(&self) -> Duration {
            self.0.since_boot()
        }
    }

    #[test]
    fn a_process_that_was_stopped_between_two_reads_reads_again() {
        let start = Timestamp::from_millis(5);
        let reading = Stopped(ManualClock::starting_at(start), false.into()).reading();
        assert_eq!((reading.wall, reading.boot), (start.after(Duration::from_hours(1)), Duration::from_hours(1)));
    }

    #[test]
    fn the_machine_has_a_clock_that_counts_from_its_start() {
        let (first, second) = (SystemClock.since_boot(), SystemClock.since_boot());
        assert!(first > Duration::ZERO && second >= first, "{first:?}, {second:?}");
    }

    #[test]
    fn since_never_goes_below_zero() {
        let (early, late) = (Timestamp::from_millis(10), Timestamp::from_millis(30));
        assert_eq!(late.since(early), Duration::from_millis(20));
        assert_eq!(early.since(late), Duration::ZERO);
    }

    #[test]
    fn moments_print_as_rfc_3339() {
        assert_eq!(Timestamp::from_millis(1_500).to_string(), "1970-01-01T00:00:01.5Z");
    }
}
