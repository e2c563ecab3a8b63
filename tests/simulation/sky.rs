//! The clock of a simulation: it follows the paused clock of the runtime, jumps when told, and
//! goes on where it stood when a new life begins in a new runtime. It remembers where it has been.

use std::ops::RangeInclusive;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use s3o_model::clock::{Clock, Timestamp, millis_of};
use tokio::time::Instant;

struct Shown {
    millis: i64,
    /// How long all lives before this one took.
    lived: Duration,
    since: Option<Instant>,
    /// From where to where it jumped back, each time.
    turns: Vec<(i64, i64)>,
}

/// A moment in the history of the clock: what it showed, and how often it had been set back by then.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    millis: i64,
    turns: usize,
}

/// A clock over all lives.
pub struct Sky(Mutex<Shown>);

impl Default for Sky {
    fn default() -> Self {
        Self(Mutex::new(Shown { millis: 1_700_000_000_000, lived: Duration::ZERO, since: None, turns: Vec::new() }))
    }
}

impl Shown {
    fn now(&self) -> i64 {
        self.millis + self.since.map_or(0, |since| millis_of(since.elapsed()))
    }

    fn lived(&self) -> Duration {
        self.lived + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

impl Sky {
    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.0.lock()
    }

    /// A runtime begins.
    pub fn rise(&self) {
        self.shown().since = Some(Instant::now());
    }

    /// A runtime ends.
    pub fn set(&self) {
        let mut shown = self.shown();
        (shown.millis, shown.lived, shown.since) = (shown.now(), shown.lived(), None);
    }

    /// Jumps ahead.
    pub fn jump(&self, ahead: Duration) {
        self.shown().millis += millis_of(ahead);
    }

    /// Jumps back.
    pub fn jump_back(&self, back: Duration) {
        let mut shown = self.shown();
        let from = shown.now();
        shown.turns.push((from, from - millis_of(back)));
        shown.millis -= millis_of(back);
    }

    /// This moment.
    pub fn mark(&self) -> Mark {
        let shown = self.shown();
        Mark { millis: shown.now(), turns: shown.turns.len() }
    }

    /// The earliest and the latest that it has shown since.
    pub fn shown_since(&self, mark: Mark) -> RangeInclusive<Timestamp> {
        let shown = self.shown();
        let turns = &shown.turns[mark.turns..];
        let low = turns.iter().map(|(_, to)| *to).fold(mark.millis, i64::min);
        let high = turns.iter().map(|(from, _)| *from).fold(shown.now(), i64::max);
        Timestamp::from_millis(low)..=Timestamp::from_millis(high)
    }
}

impl Clock for Sky {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.shown().now())
    }

    fn since_boot(&self) -> Duration {
        self.shown().lived()
    }
}
