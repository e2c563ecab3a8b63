//! Time: the timestamp type, the clock trait, the system clock and a manual clock for tests.

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Timestamp(i64);

impl Timestamp {
    /// A timestamp from milliseconds since the epoch.
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

    /// This timestamp plus a duration.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(millis_of(duration)))
    }

    /// Time since `earlier`; zero if it is not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// A duration in milliseconds, the unit of the catalog.
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

/// Longest time for reading both clocks.
const READING_MAX: Duration = Duration::from_secs(1);

/// The only source of time.
pub trait Clock: Send + Sync {
    /// The wall-clock time.
    fn now(&self) -> Timestamp;

    /// Time since boot, including suspended time. This clock cannot be set.
    fn since_boot(&self) -> Duration;

    /// Both clocks at one moment. If the process was stopped between the two reads, it reads again, because the clocks
    /// would seem to differ by the stopped time.
    fn reading(&self) -> Reading {
        loop {
            let (before, wall, boot) = (self.since_boot(), self.now(), self.since_boot());
            if boot.saturating_sub(before) <= READING_MAX {
                return Reading { wall, boot };
            }
        }
    }
}

/// The wall clock and the time since boot at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// Wall-clock time, which can be set.
    pub wall: Timestamp,
    /// Time since boot.
    pub boot: Duration,
}

impl Reading {
    /// Both clocks after this duration, if the wall clock is not set.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self { wall: self.wall.after(duration), boot: self.boot.saturating_add(duration) }
    }

    /// True if either clock has reached its value in `end`.
    #[must_use]
    pub fn has_reached(self, end: Self) -> bool {
        self.wall >= end.wall || self.boot >= end.boot
    }
}

/// The clocks of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "this is the one place that reads wall time")]
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        Timestamp(since_epoch.map_or(0, millis_of))
    }

    fn since_boot(&self) -> Duration {
        let time = rustix::time::clock_gettime(BOOT_CLOCK);
        let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
        Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanos)
    }
}

/// Counts from boot, also while the machine is suspended.
#[cfg(target_os = "linux")]
const BOOT_CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
/// Other systems have no such clock, or their monotonic clock counts suspended time.
#[cfg(not(target_os = "linux"))]
const BOOT_CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;

/// A clock that only tests advance.
#[derive(Debug)]
pub struct ManualClock {
    wall_millis: AtomicI64,
    boot_millis: AtomicU64,
}

impl ManualClock {
    /// A clock at `start`, with zero time since boot.
    #[must_use]
    pub fn starting_at(start: Timestamp) -> Self {
        Self { wall_millis: AtomicI64::new(start.0), boot_millis: AtomicU64::new(0) }
    }

    /// Advances both clocks.
    pub fn advance(&self, duration: Duration) {
        self.wall_millis.fetch_add(millis_of(duration), Ordering::SeqCst);
        self.boot_millis.fetch_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Sets the wall clock as an operator would; the time since boot does not change.
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
    fn manual_clock_changes_only_by_advance() {
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
        assert!(clock.reading().has_reached(before.after(Duration::from_hours(1))), "the wall clock reached it");
    }

    /// The clock of a process that is stopped for an hour between its first two reads.
    struct StoppedProcess(ManualClock, std::sync::atomic::AtomicBool);

    impl Clock for StoppedProcess {
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
    fn stopped_process_reads_both_clocks_again() {
        let start = Timestamp::from_millis(5);
        let reading = StoppedProcess(ManualClock::starting_at(start), false.into()).reading();
        assert_eq!((reading.wall, reading.boot), (start.after(Duration::from_hours(1)), Duration::from_hours(1)));
    }

    #[test]
    fn system_clock_counts_since_boot() {
        let (first, second) = (SystemClock.since_boot(), SystemClock.since_boot());
        assert!(first > Duration::ZERO && second >= first, "{first:?}, {second:?}");
    }

    #[test]
    fn since_is_never_negative() {
        let (early, late) = (Timestamp::from_millis(10), Timestamp::from_millis(30));
        assert_eq!(late.since(early), Duration::from_millis(20));
        assert_eq!(early.since(late), Duration::ZERO);
    }

    #[test]
    fn timestamps_print_as_rfc_3339() {
        assert_eq!(Timestamp::from_millis(1_500).to_string(), "1970-01-01T00:00:01.5Z");
    }
}
