//! When workers run: pure decisions about rests, from what the catalog knows of their last runs.

use std::sync::Arc;
use std::time::Duration;

use s3o_catalog::WorkerState;
use s3o_model::clock::Timestamp;
use serde::Serialize;
use tokio::sync::Notify;

use crate::Worker;

/// The most that start-up jitter puts off a run that is due.
const DUE_JITTER_MAX: Duration = Duration::from_mins(1);
/// How often where a worker stands is noted while it has nothing to do, at most.
const NOTE_INTERVAL_MIN: Duration = Duration::from_mins(1);
/// How soon a run that was not possible is tried again, at most.
const RETRY_MAX: Duration = Duration::from_mins(1);
/// After how many failures in a row the rest grows no more.
const DOUBLINGS_MAX: u32 = 4;
/// How many intervals a worker that keeps failing rests at most.
const BACKOFF_INTERVALS_MAX: u32 = 10;
/// How far ahead of the catalog's clock a run may lie because the clocks of instances differ.
const CLOCKS_DIFFER_MAX: Duration = Duration::from_mins(1);
/// How much rest each request is owed that came while a tick was under way.
const REST_PER_REQUEST: Duration = Duration::from_millis(100);
/// How many times as long as its tick a worker rests for requests at most: a busy store must still delete.
const REST_TICKS_MAX: u32 = 6;
/// How long it rests for requests at most.
const REST_MAX: Duration = Duration::from_secs(1);
/// What has been due for so long rests for nobody: a queue that requests fill must not grow for ever.
const PATIENCE: Duration = Duration::from_mins(10);

/// Where instances stand to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Every instance does its own work.
    PerInstance,
    /// Instances work on one backlog side by side, kept apart by claims.
    Shared,
    /// One instance at a time.
    Locked,
}

/// When a worker runs.
#[derive(Debug, Clone)]
pub struct Schedule {
    /// How long it rests between runs.
    pub interval: Duration,
    /// Where instances stand to each other.
    pub kind: Kind,
    /// Wakes it before its interval is over.
    pub bell: Option<Arc<Notify>>,
    /// How long one tick may take before it is given up.
    pub deadline: Duration,
}

/// A worker and when it runs.
pub struct Scheduled {
    /// The worker.
    pub worker: Arc<dyn Worker>,
    /// When it runs.
    pub schedule: Schedule,
}

impl Schedule {
    /// The rest before the first run after a start; `unit` is a random number from 0 to 1.
    ///
    /// Instances that start together must not tick together, so there is always some jitter. It
    /// counts from when the worker was first seen, so that restarts do not put the first run off
    /// for ever, and a run that is due waits for a moment only.
    pub(crate) fn first_rest(&self, state: Option<&WorkerState>, unit: f64) -> Duration {
        let half = self.interval / 2;
        let Some(state) = state.filter(|_| self.kind != Kind::PerInstance) else { return half.mul_f64(unit) };
        match self.last_run(state) {
            None => {
                let waited = state.read_at.since(state.seen_at);
                half.mul_f64(unit).min(half.saturating_sub(waited))
            }
            Some(last) => {
                let waited = state.read_at.since(last);
                self.interval.saturating_sub(waited).max(half.min(DUE_JITTER_MAX).mul_f64(unit))
            }
        }
    }

    /// From when the interval counts. A locked worker rests after the end of a run: counted from its start, a run that
    /// takes longer than the interval would be followed by one of another instance at once, and so on.
    fn last_run(&self, state: &WorkerState) -> Option<Timestamp> {
        let last = match self.kind {
            Kind::Locked => state.last_finished_at,
            Kind::PerInstance | Kind::Shared => state.last_started_at,
        };
        last.filter(|last| is_past(*last, state))
    }

    /// How long a locked worker must still rest because an instance, this or another, ran it.
    pub(crate) fn rest_until_due(&self, state: Option<&WorkerState>) -> Option<Duration> {
        let state = state.filter(|_| self.kind == Kind::Locked)?;
        let waited = state.read_at.since(self.last_run(state)?);
        let rest = self.interval.saturating_sub(waited);
        (rest > self.slack()).then_some(rest)
    }

    /// Whether an idle run is to be noted: due times of long intervals depend on it, short ones
    /// can do with less.
    pub(crate) fn is_note_due(&self, state: Option<&WorkerState>) -> bool {
        if self.kind == Kind::PerInstance {
            return false;
        }
        let Some((state, last)) = state.and_then(|state| Some((state, state.last_started_at?))) else { return true };
        if !is_past(last, state) {
            return true;
        }
        state.read_at.since(last) + self.slack() >= self.interval.max(NOTE_INTERVAL_MIN)
    }

    /// The rest after that many failures in a row: doubled each time, with jitter.
    pub(crate) fn rest_after_failure(&self, failures: u32, unit: f64) -> Duration {
        let intervals = (1 << failures.min(DOUBLINGS_MAX)).min(BACKOFF_INTERVALS_MAX);
        (self.interval * intervals).mul_f64(0.5 + unit / 2.0)
    }

    /// The rest after a run that did not take place: whoever holds the lock may be gone soon.
    pub(crate) fn rest_after_skip(&self, unit: f64) -> Duration {
        self.interval.min(RETRY_MAX).mul_f64(0.5 + unit / 2.0)
    }

    /// Clocks and timers never agree to the millisecond.
    fn slack(&self) -> Duration {
        (self.interval / 20).min(Duration::from_secs(1))
    }
}

/// Whether a run lies in the past. A clock that was ahead noted runs in the future: a worker that waited for them to be an
/// interval ago would stand still for as long as the clock was ahead.
fn is_past(run: Timestamp, state: &WorkerState) -> bool {
    run.since(state.read_at) <= CLOCKS_DIFFER_MAX
}

/// The rest between two full batches, for the requests that came during the first: a backlog of a million rows must not
/// cost them much, and costs nobody anything where there are none. The longer the work has waited, the shorter the rest.
pub(crate) fn rest_for_requests(took: Duration, came: u64, waited: Duration) -> Duration {
    let owed = REST_PER_REQUEST.saturating_mul(u32::try_from(came).unwrap_or(u32::MAX));
    let rest = owed.min(took.saturating_mul(REST_TICKS_MAX)).min(REST_MAX);
    rest.mul_f64(PATIENCE.saturating_sub(waited).div_duration_f64(PATIENCE))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use s3o_catalog::WorkerState;
    use s3o_model::clock::Timestamp;

    use super::{Kind, PATIENCE, REST_MAX, REST_PER_REQUEST, REST_TICKS_MAX, Schedule, rest_for_requests};

    const HOUR: Duration = Duration::from_hours(1);

    fn schedule(interval: Duration, kind: Kind) -> Schedule {
        Schedule { interval, kind, bell: None, deadline: HOUR }
    }

    /// A worker that was seen and that ran so long ago.
    fn state(seen: Duration, ran: Option<Duration>) -> WorkerState {
        let now = Timestamp::from_millis(1_700_000_000_000);
        let ago = |age: Duration| Timestamp::from_millis(now.millis() - i64::try_from(age.as_millis()).expect("small"));
        WorkerState {
            worker: "w".to_owned(),
            paused: false,
            seen_at: ago(seen),
            last_started_at: ran.map(ago),
            last_finished_at: ran.map(ago),
            last_success_at: None,
            read_at: now,
        }
    }

    #[test]
    fn start_up_jitter_stays_below_half_the_interval() {
        let schedule = schedule(HOUR, Kind::Locked);
        let fresh = state(Duration::ZERO, None);
        for step in 0..100 {
            let unit = f64::from(step) / 100.0;
            assert!(schedule.first_rest(Some(&fresh), unit) < HOUR / 2);
            assert_eq!(schedule.first_rest(None, unit), (HOUR / 2).mul_f64(unit));
        }
        assert!(schedule.first_rest(Some(&fresh), 0.9) > HOUR / 3, "it is spread");
    }

    #[test]
    fn restarts_do_not_put_the_first_run_off_for_ever() {
        let schedule = schedule(HOUR, Kind::Shared);
        let seen = |minutes| state(Duration::from_mins(minutes), None);
        assert_eq!(schedule.first_rest(Some(&seen(20)), 0.99), Duration::from_mins(10));
        assert_eq!(schedule.first_rest(Some(&seen(40)), 0.99), Duration::ZERO);
    }

    #[test]
    fn a_restart_neither_doubles_nor_starves_a_long_interval() {
        let schedule = schedule(HOUR, Kind::Locked);
        let ran = |minutes| state(HOUR, Some(Duration::from_mins(minutes)));
        assert_eq!(schedule.first_rest(Some(&ran(15)), 0.5), Duration::from_mins(45));
        assert_eq!(schedule.first_rest(Some(&ran(500)), 0.5), Duration::from_secs(30));
        assert!(schedule.first_rest(Some(&ran(500)), 0.999) < Duration::from_mins(1));
    }

    #[test]
    fn a_locked_worker_rests_for_what_another_instance_did() {
        let ran = state(HOUR, Some(Duration::from_mins(15)));
        assert_eq!(schedule(HOUR, Kind::Locked).rest_until_due(Some(&ran)), Some(Duration::from_mins(45)));
        assert_eq!(schedule(HOUR, Kind::Shared).rest_until_due(Some(&ran)), None, "its instances work side by side");
        let almost = state(HOUR, Some(Duration::from_millis(3_599_100)));
        assert_eq!(schedule(HOUR, Kind::Locked).rest_until_due(Some(&almost)), None);
    }

    #[test]
    fn interval_of_a_locked_worker_counts_from_the_end_of_its_last_run() {
        let mut ran = state(3 * HOUR, Some(2 * HOUR));
        ran.last_finished_at = Some(Timestamp::from_millis(ran.read_at.millis() - 600_000));
        let (locked, shared) = (schedule(HOUR, Kind::Locked), schedule(HOUR, Kind::Shared));
        assert_eq!(locked.rest_until_due(Some(&ran)), Some(Duration::from_mins(50)));
        assert_eq!(locked.first_rest(Some(&ran), 0.0), Duration::from_mins(50));
        assert_eq!(shared.first_rest(Some(&ran), 0.0), Duration::ZERO);
    }

    #[test]
    fn a_run_that_a_clock_noted_in_the_future_stops_no_worker() {
        let mut ran = state(HOUR, Some(Duration::ZERO));
        let later = Timestamp::from_millis(ran.read_at.millis() + 31_536_000_000);
        (ran.last_started_at, ran.last_finished_at, ran.seen_at) = (Some(later), Some(later), later);
        for kind in [Kind::Locked, Kind::Shared] {
            let schedule = schedule(HOUR, kind);
            assert_eq!(schedule.rest_until_due(Some(&ran)), None);
            assert!(schedule.first_rest(Some(&ran), 0.5) < HOUR);
            assert!(schedule.is_note_due(Some(&ran)));
        }
    }

    #[test]
    fn idle_runs_are_noted_once_an_interval_and_at_most_once_a_minute() {
        let ran = |seconds| state(HOUR, Some(Duration::from_secs(seconds)));
        let short = schedule(Duration::from_secs(5), Kind::Shared);
        assert!(!short.is_note_due(Some(&ran(30))));
        assert!(short.is_note_due(Some(&ran(60))));
        assert!(!schedule(HOUR, Kind::Shared).is_note_due(Some(&ran(1800))));
        assert!(schedule(HOUR, Kind::Shared).is_note_due(Some(&ran(3600))));
        assert!(schedule(HOUR, Kind::Shared).is_note_due(None));
        assert!(!schedule(HOUR, Kind::PerInstance).is_note_due(None));
    }

    #[test]
    fn rests_after_failures_double_up_to_ten_intervals() {
        let schedule = schedule(HOUR, Kind::Shared);
        let range = |failures| (schedule.rest_after_failure(failures, 0.0), schedule.rest_after_failure(failures, 1.0));
        assert_eq!(range(1), (HOUR, HOUR * 2));
        assert_eq!(range(2), (HOUR * 2, HOUR * 4));
        assert_eq!(range(3), (HOUR * 4, HOUR * 8));
        assert_eq!(range(4), (HOUR * 5, HOUR * 10));
        assert_eq!(range(4_000_000), (HOUR * 5, HOUR * 10));
    }

    #[test]
    fn a_run_that_was_not_possible_is_tried_again_soon() {
        assert!(schedule(HOUR, Kind::Locked).rest_after_skip(0.99) < Duration::from_mins(1));
        assert!(schedule(Duration::from_secs(2), Kind::Locked).rest_after_skip(0.5) < Duration::from_secs(2));
    }

    #[test]
    fn requests_that_come_during_a_backlog_are_owed_some_rest() {
        let took = Duration::from_millis(100);
        let rest_for_requests = |took, came| super::rest_for_requests(took, came, Duration::ZERO);
        assert_eq!(rest_for_requests(took, 0), Duration::ZERO, "nobody is kept waiting");
        assert_eq!(rest_for_requests(took, 1), REST_PER_REQUEST, "a few cost a little");
        assert_eq!(rest_for_requests(took, 1000), took * REST_TICKS_MAX, "many never stop it");
        assert_eq!(rest_for_requests(HOUR, u64::MAX), REST_MAX);
    }

    #[test]
    fn what_has_waited_long_rests_less_and_less() {
        let rest = |waited| rest_for_requests(Duration::from_millis(100), 1000, waited);
        assert_eq!(rest(PATIENCE / 2) * 2, rest(Duration::ZERO));
        assert_eq!((rest(PATIENCE), rest(HOUR)), (Duration::ZERO, Duration::ZERO));
    }
}
