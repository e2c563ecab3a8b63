//! The clock of a simulation: it follows the paused clock of the runtime, jumps on request, and continues in the
//! runtime of the next process. It records every jump back.

use std::ops::RangeInclusive;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use s3o_model::clock::{Clock, Timestamp, millis_of};
use tokio::time::Instant;

struct SimulatedTime {
    millis: i64,
    /// Duration of all processes before this one.
    elapsed_before: Duration,
    since: Option<Instant>,
    /// Each jump back: the time before it and the time after it.
    jumps_back: Vec<(i64, i64)>,
}

/// A point in the history of the clock: its time and the number of jumps back before it.
#[derive(Debug, Clone, Copy)]
pub struct ClockMark {
    millis: i64,
    jumps_back: usize,
}

/// The clock of all processes of one seed.
pub struct SimulatedClock(Mutex<SimulatedTime>);

impl Default for SimulatedClock {
    fn default() -> Self {
        Self(Mutex::new(SimulatedTime {
            millis: 1_700_000_000_000,
            elapsed_before: Duration::ZERO,
            since: None,
            jumps_back: Vec::new(),
        }))
    }
}

impl SimulatedTime {
    fn now(&self) -> i64 {
        self.millis + self.since.map_or(0, |since| millis_of(since.elapsed()))
    }

    fn elapsed(&self) -> Duration {
        self.elapsed_before + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

impl SimulatedClock {
    fn state(&self) -> MutexGuard<'_, SimulatedTime> {
        self.0.lock()
    }

    /// Follows the current runtime from now on.
    pub fn resume(&self) {
        self.state().since = Some(Instant::now());
    }

    /// Keeps its time until the next runtime.
    pub fn pause(&self) {
        let mut state = self.state();
        (state.millis, state.elapsed_before, state.since) = (state.now(), state.elapsed(), None);
    }

    /// Adds to the time at once.
    pub fn jump(&self, ahead: Duration) {
        self.state().millis += millis_of(ahead);
    }

    /// Subtracts from the time at once.
    pub fn jump_back(&self, back: Duration) {
        let mut state = self.state();
        let from = state.now();
        state.jumps_back.push((from, from - millis_of(back)));
        state.millis -= millis_of(back);
    }

    /// Marks the current time, for `range_since`.
    pub fn mark(&self) -> ClockMark {
        let state = self.state();
        ClockMark { millis: state.now(), jumps_back: state.jumps_back.len() }
    }

    /// The earliest and the latest time since the mark, jumps included.
    pub fn range_since(&self, mark: ClockMark) -> RangeInclusive<Timestamp> {
        let state = self.state();
        let jumps = &state.jumps_back[mark.jumps_back..];
        let low = jumps.iter().map(|(_, to)| *to).fold(mark.millis, i64::min);
        let high = jumps.iter().map(|(from, _)| *from).fold(state.now(), i64::max);
        Timestamp::from_millis(low)..=Timestamp::from_millis(high)
    }
}

impl Clock for SimulatedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.state().now())
    }

    fn since_boot(&self) -> Duration {
        self.state().elapsed()
    }
}
