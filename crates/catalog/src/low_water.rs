//! Where looks into a queue begin.
//!
//! Rows leave a queue at its old end. While any session of a PostgreSQL holds a snapshot that could see them, their
//! entries stay in the index, and a look from the start reads through all of them. So a look begins where the last one
//! ended. That is a hint and no more: what lies before it (a row of a slow transaction, a claim that somebody else
//! freed) is found by the next sweep.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use s3o_model::clock::Timestamp;
use s3o_model::names::BackendName;

/// How much earlier than the mark a look begins: rows appear when their transaction ends, a little after the moment
/// they carry.
const SLACK_MILLIS: i64 = 5_000;
/// Every so many looks, one is a sweep.
const SWEEP_LOOKS: u32 = 10;
/// A look this long after the last sweep is one, too: where looks are rare, the tenth is far away.
const SWEEP_MILLIS: i64 = 5 * 60_000;

/// One look into a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    /// Nothing before this moment is looked at.
    pub from: i64,
    sweep: bool,
}

/// Where the next look into one queue begins.
#[derive(Debug, Default)]
pub(crate) struct LowWater {
    /// Nothing older waits, as far as this process knows.
    mark: Option<i64>,
    looks: u32,
    looked_at: i64,
    swept_at: i64,
}

impl LowWater {
    /// The next look: from the mark with some slack, or from the start.
    pub(crate) fn look(&mut self) -> Look {
        self.looks += 1;
        let overdue = self.looks >= SWEEP_LOOKS || self.looked_at.saturating_sub(self.swept_at) >= SWEEP_MILLIS;
        match self.mark.filter(|_| !overdue) {
            Some(mark) => Look { from: mark.saturating_sub(SLACK_MILLIS), sweep: false },
            None => Look { from: 0, sweep: true },
        }
    }

    /// What a look at the moment `now` came to: nothing between its beginning and `mark` is left.
    pub(crate) fn reached(&mut self, look: Look, now: Timestamp, mark: Timestamp) {
        self.looked_at = now.millis();
        if look.sweep {
            (self.looks, self.swept_at) = (0, now.millis());
        }
        // A clock that was set back takes the mark with it.
        self.swept_at = self.swept_at.min(now.millis());
        self.mark = Some(mark.min(now).millis());
    }

    /// Where whoever follows a look begins: at the first row it found.
    pub(crate) fn from(&self) -> i64 {
        self.mark.unwrap_or(0)
    }

    /// A row of that moment waits again.
    pub(crate) fn lower(&mut self, moment: Timestamp) {
        self.mark = self.mark.map(|mark| mark.min(moment.millis()));
    }
}

/// The queues that this process looks into.
#[derive(Debug, Clone, Default)]
pub(crate) struct LowWaters(Arc<Mutex<HashMap<Queue, LowWater>>>);

/// A queue with an old end.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Queue {
    /// Cleanups of one backend, by when they are due.
    Lane(BackendName),
    /// Claimed cleanups, by when they were claimed.
    Claims,
    /// Intents, by the end of their lease.
    Leases,
    /// Condemned whole contents, by when that happened.
    Condemned,
    /// Objects, by when they expire.
    Expiries,
}

impl LowWaters {
    /// The next look into a queue.
    pub(crate) fn look(&self, queue: Queue) -> Look {
        self.of(queue, LowWater::look)
    }

    /// Where whoever follows a look into a queue begins.
    pub(crate) fn from(&self, queue: Queue) -> i64 {
        self.of(queue, |water| water.from())
    }

    /// Tells where a queue stands.
    pub(crate) fn of<T>(&self, queue: Queue, act: impl FnOnce(&mut LowWater) -> T) -> T {
        act(self.0.lock().entry(queue).or_default())
    }
}

#[cfg(test)]
mod tests {
    use s3o_model::clock::Timestamp;

    use super::{LowWater, SLACK_MILLIS, SWEEP_MILLIS};

    const NOON: i64 = 1_700_000_000_000;

    /// A look at a moment that leaves nothing older than `mark`; where it began.
    fn look(water: &mut LowWater, now: i64, mark: i64) -> i64 {
        let look = water.look();
        water.reached(look, Timestamp::from_millis(now), Timestamp::from_millis(mark));
        look.from
    }

    #[test]
    fn a_look_begins_where_the_last_one_ended_with_some_slack() {
        let mut water = LowWater::default();
        assert_eq!(look(&mut water, NOON, NOON - 60_000), 0, "nothing is known yet");
        assert_eq!(look(&mut water, NOON + 1, NOON + 1), NOON - 60_000 - SLACK_MILLIS);
        assert_eq!(look(&mut water, NOON + 2, NOON + 2), NOON + 1 - SLACK_MILLIS);
    }

    #[test]
    fn every_tenth_look_is_from_the_start() {
        let mut water = LowWater::default();
        let sweeps = (0..41).filter(|second| look(&mut water, NOON + second, NOON) == 0).collect::<Vec<_>>();
        assert_eq!(sweeps, [0, 10, 20, 30, 40]);
    }

    #[test]
    fn rare_looks_sweep_by_the_clock() {
        let mut water = LowWater::default();
        let minute =
            |water: &mut LowWater, minute: i64| look(water, NOON + minute * 60_000, NOON + minute * 60_000) == 0;
        let sweeps = (0..13).filter(|number| minute(&mut water, *number)).collect::<Vec<_>>();
        assert_eq!(sweeps, [0, 6, 12], "the clock is that of the last look");
        assert!(!minute(&mut water, 13));
        assert!(!minute(&mut water, 13 + 2 * SWEEP_MILLIS / 60_000));
        assert!(minute(&mut water, 14 + 2 * SWEEP_MILLIS / 60_000));
    }

    #[test]
    fn a_sweep_that_failed_is_tried_again() {
        let mut water = LowWater::default();
        for _ in 0..10 {
            look(&mut water, NOON, NOON);
        }
        assert_eq!((water.look().from, water.look().from), (0, 0));
    }

    #[test]
    fn a_row_that_waits_again_is_looked_for() {
        let mut water = LowWater::default();
        water.lower(Timestamp::from_millis(7));
        assert_eq!(look(&mut water, NOON, NOON), 0);
        water.lower(Timestamp::from_millis(NOON - 600_000));
        water.lower(Timestamp::from_millis(NOON + 600_000));
        assert_eq!(look(&mut water, NOON, NOON), NOON - 600_000 - SLACK_MILLIS);
    }

    #[test]
    fn a_clock_that_was_set_back_takes_the_mark_with_it() {
        let mut water = LowWater::default();
        look(&mut water, NOON, NOON);
        look(&mut water, NOON - 600_000, NOON);
        assert_eq!(look(&mut water, NOON - 600_000, NOON), NOON - 600_000 - SLACK_MILLIS);
    }
}
