//! The clock of a simulation: it follows the paused clock of the runtime, jumps when told, and
//! goes on where it stood when a new life begins in a new runtime.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use s3o_model::clock::{Clock, Timestamp, millis_of};
use tokio::time::Instant;

struct Shown {
    millis: i64,
    since: Option<Instant>,
}

/// A clock over all lives.
pub struct Sky(Mutex<Shown>);

impl Default for Sky {
    fn default() -> Self {
        Self(Mutex::new(Shown { millis: 1_700_000_000_000, since: None }))
    }
}

impl Shown {
    fn now(&self) -> i64 {
        self.millis + self.since.map_or(0, |since| millis_of(since.elapsed()))
    }
}

impl Sky {
    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A runtime begins.
    pub fn rise(&self) {
        self.shown().since = Some(Instant::now());
    }

    /// A runtime ends.
    pub fn set(&self) {
        let mut shown = self.shown();
        *shown = Shown { millis: shown.now(), since: None };
    }

    /// Jumps ahead.
    pub fn jump(&self, ahead: Duration) {
        self.shown().millis += millis_of(ahead);
    }

    /// Jumps back.
    pub fn jump_back(&self, back: Duration) {
        self.shown().millis -= millis_of(back);
    }
}

impl Clock for Sky {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.shown().now())
    }
}
