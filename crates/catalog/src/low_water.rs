//! Low-water marks: where queries of a queue begin.
//!
//! Rows leave a queue at its old end. While a PostgreSQL session holds a snapshot that could see them, their entries
//! stay in the index, and a query from the start reads all of them. So a query begins where the last one ended. The
//! mark is only a hint: rows before it (of a slow transaction, or of a claim that another instance freed) are found by
//! the next sweep, which begins at the start.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use s3o_model::clock::Timestamp;
use s3o_model::names::BackendName;

/// How much earlier than the mark a query begins: rows become visible when their transaction commits, a little after
/// the time that they carry.
const SLACK_MILLIS: i64 = 5_000;
/// Every query with this number is a sweep.
const SWEEP_QUERIES: u32 = 10;
/// A query this long after the last sweep is a sweep, too, for queues that are rarely queried.
const SWEEP_MILLIS: i64 = 5 * 60_000;

/// Bounds of one read of a queue, made by [`LowWater::begin`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueQuery {
    /// Rows before this time are not read.
    pub from: i64,
    sweep: bool,
}

/// Where the next query of one queue begins.
#[derive(Debug, Default)]
pub(crate) struct LowWater {
    /// No older row waits, as far as this process knows.
    mark: Option<i64>,
    /// Number of queries since the last sweep.
    queries: u32,
    queried_at: i64,
    swept_at: i64,
}

impl LowWater {
    /// The next query: from the mark with some slack, or from the start.
    pub(crate) fn begin(&mut self) -> QueueQuery {
        self.queries += 1;
        let overdue = self.queries >= SWEEP_QUERIES || self.queried_at.saturating_sub(self.swept_at) >= SWEEP_MILLIS;
        match self.mark.filter(|_| !overdue) {
            Some(mark) => QueueQuery { from: mark.saturating_sub(SLACK_MILLIS), sweep: false },
            None => QueueQuery { from: 0, sweep: true },
        }
    }

    /// Records that a query at the time `now` found no row between its beginning and `mark`.
    pub(crate) fn reached(&mut self, query: QueueQuery, now: Timestamp, mark: Timestamp) {
        self.queried_at = now.millis();
        if query.sweep {
            (self.queries, self.swept_at) = (0, now.millis());
        }
        // A clock that was set back also sets the marks back.
        self.swept_at = self.swept_at.min(now.millis());
        self.mark = Some(mark.min(now).millis());
    }

    /// Where statements after a query begin: at the first row that it found.
    pub(crate) fn from(&self) -> i64 {
        self.mark.unwrap_or(0)
    }

    /// Lowers the mark to a row that waits again.
    pub(crate) fn lower(&mut self, time: Timestamp) {
        self.mark = self.mark.map(|mark| mark.min(time.millis()));
    }
}

/// The marks of all queues that this process queries.
#[derive(Debug, Clone, Default)]
pub(crate) struct LowWaters(Arc<Mutex<HashMap<Queue, LowWater>>>);

/// A set of rows that are processed in the order of a time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Queue {
    /// Cleanups of one backend, by `due`.
    Lane(BackendName),
    /// Claimed cleanups, by `claimed_at`.
    Claims,
    /// Intents, by the end of their lease.
    Leases,
    /// Condemned whole contents, by `condemned_at`.
    Condemned,
    /// Objects, by `expires_at`.
    Expiries,
}

impl LowWaters {
    /// The next query of a queue.
    pub(crate) fn begin(&self, queue: Queue) -> QueueQuery {
        self.of(queue, LowWater::begin)
    }

    /// Where statements after a query of the queue begin.
    pub(crate) fn from(&self, queue: Queue) -> i64 {
        self.of(queue, |water| water.from())
    }

    /// Calls `act` with the mark of a queue.
    pub(crate) fn of<T>(&self, queue: Queue, act: impl FnOnce(&mut LowWater) -> T) -> T {
        act(self.0.lock().entry(queue).or_default())
    }
}

#[cfg(test)]
mod tests {
    use s3o_model::clock::Timestamp;

    use super::{LowWater, SLACK_MILLIS, SWEEP_MILLIS};

    const NOON: i64 = 1_700_000_000_000;

    /// Runs a query that finds no row older than `mark`, and returns where it began.
    fn query(water: &mut LowWater, now: i64, mark: i64) -> i64 {
        let query = water.begin();
        water.reached(query, Timestamp::from_millis(now), Timestamp::from_millis(mark));
        query.from
    }

    #[test]
    fn query_begins_where_the_last_one_ended_with_some_slack() {
        let mut water = LowWater::default();
        assert_eq!(query(&mut water, NOON, NOON - 60_000), 0, "nothing is known yet");
        assert_eq!(query(&mut water, NOON + 1, NOON + 1), NOON - 60_000 - SLACK_MILLIS);
        assert_eq!(query(&mut water, NOON + 2, NOON + 2), NOON + 1 - SLACK_MILLIS);
    }

    #[test]
    fn every_tenth_query_is_from_the_start() {
        let mut water = LowWater::default();
        let sweeps = (0..41).filter(|second| query(&mut water, NOON + second, NOON) == 0).collect::<Vec<_>>();
        assert_eq!(sweeps, [0, 10, 20, 30, 40]);
    }

    #[test]
    fn rare_queries_sweep_by_the_clock() {
        let mut water = LowWater::default();
        let minute =
            |water: &mut LowWater, minute: i64| query(water, NOON + minute * 60_000, NOON + minute * 60_000) == 0;
        let sweeps = (0..13).filter(|number| minute(&mut water, *number)).collect::<Vec<_>>();
        assert_eq!(sweeps, [0, 6, 12], "the time is that of the last query");
        assert!(!minute(&mut water, 13));
        assert!(!minute(&mut water, 13 + 2 * SWEEP_MILLIS / 60_000));
        assert!(minute(&mut water, 14 + 2 * SWEEP_MILLIS / 60_000));
    }

    #[test]
    fn failed_sweep_is_repeated() {
        let mut water = LowWater::default();
        for _ in 0..10 {
            query(&mut water, NOON, NOON);
        }
        assert_eq!((water.begin().from, water.begin().from), (0, 0));
    }

    #[test]
    fn lowered_mark_is_where_the_next_query_begins() {
        let mut water = LowWater::default();
        water.lower(Timestamp::from_millis(7));
        assert_eq!(query(&mut water, NOON, NOON), 0);
        water.lower(Timestamp::from_millis(NOON - 600_000));
        water.lower(Timestamp::from_millis(NOON + 600_000));
        assert_eq!(query(&mut water, NOON, NOON), NOON - 600_000 - SLACK_MILLIS);
    }

    #[test]
    fn clock_that_was_set_back_sets_the_mark_back() {
        let mut water = LowWater::default();
        query(&mut water, NOON, NOON);
        query(&mut water, NOON - 600_000, NOON);
        assert_eq!(query(&mut water, NOON - 600_000, NOON), NOON - 600_000 - SLACK_MILLIS);
    }
}
