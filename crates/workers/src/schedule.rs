//! When workers run: pure decisions about delays, from the last runs that the catalog recorded.

use std::sync::Arc;
use std::time::Duration;

use s3o_catalog::WorkerState;
use s3o_model::clock::Timestamp;
use serde::Serialize;
use tokio::sync::Notify;

use crate::Worker;

/// Longest start-up jitter of a run that is already due.
const DUE_JITTER_MAX: Duration = Duration::from_mins(1);
/// Shortest time between two records of idle runs.
const RECORD_INTERVAL_MIN: Duration = Duration::from_mins(1);
/// Longest delay after a skipped run.
const RETRY_MAX: Duration = Duration::from_mins(1);
/// Number of consecutive failures after which the delay stops growing.
const DOUBLINGS_MAX: u32 = 4;
/// Longest delay after failures, in intervals.
const BACKOFF_INTERVALS_MAX: u32 = 10;
/// Largest clock difference between instances: a recorded run may be this far in the future.
const CLOCK_SKEW_MAX: Duration = Duration::from_mins(1);
/// Pause for each request that arrived during the tick.
const PAUSE_PER_REQUEST: Duration = Duration::from_millis(100);
/// Longest pause for requests, in multiples of the tick's duration: a busy process must still delete.
const PAUSE_TICKS_MAX: u32 = 6;
/// Longest pause for requests.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Work that has been due for this long is not paused: a queue that requests fill must not grow without bound.
const OVERDUE_AFTER: Duration = Duration::from_mins(10);

/// How instances share the work of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Every instance runs the worker for itself.
    PerInstance,
    /// Instances work on one backlog concurrently; claims keep them apart.
    Shared,
    /// One instance at a time, under a lock.
    Locked,
}

/// When and how long a worker runs.
#[derive(Debug, Clone)]
pub struct Schedule {
    /// Time between runs.
    pub interval: Duration,
    /// How instances share the work.
    pub kind: Kind,
    /// Notified when there is work before the interval has passed.
    pub bell: Option<Arc<Notify>>,
    /// Longest duration of one tick; a longer one is cancelled.
    pub deadline: Duration,
    /// False if it runs only on request.
    pub enabled: bool,
}

/// A worker with its schedule.
pub struct Scheduled {
    /// The worker that the runner ticks.
    pub worker: Arc<dyn Worker>,
    /// When it runs.
    pub schedule: Schedule,
}

impl Schedule {
    /// The delay before the first run after a start; `unit` is a random number from 0 to 1.
    ///
    /// Instances that start together must not tick together, so there is always some jitter. The delay
    /// counts from when the worker was first recorded, so that repeated restarts do not postpone the
    /// first run forever. A run that is due waits for the jitter only.
    pub(crate) fn first_delay(&self, state: Option<&WorkerState>, unit: f64) -> Duration {
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

    /// The moment from which the interval counts. For a locked worker that is the end of the last run: counted from its
    /// start, another instance would start a run immediately after one that took longer than the interval.
    fn last_run(&self, state: &WorkerState) -> Option<Timestamp> {
        let last = match self.kind {
            Kind::Locked => state.last_finished_at,
            Kind::PerInstance | Kind::Shared => state.last_started_at,
        };
        last.filter(|last| is_past(*last, state))
    }

    /// How long a locked worker must still wait because this or another instance ran it; `None` if it is due.
    pub(crate) fn delay_until_due(&self, state: Option<&WorkerState>) -> Option<Duration> {
        let state = state.filter(|_| self.kind == Kind::Locked)?;
        let waited = state.read_at.since(self.last_run(state)?);
        let delay = self.interval.saturating_sub(waited);
        (delay > self.slack()).then_some(delay)
    }

    /// Whether to record an idle run. The due times of long intervals depend on the record; for
    /// short intervals one record a minute is enough.
    pub(crate) fn is_record_due(&self, state: Option<&WorkerState>) -> bool {
        if self.kind == Kind::PerInstance {
            return false;
        }
        let Some((state, last)) = state.and_then(|state| Some((state, state.last_started_at?))) else { return true };
        if !is_past(last, state) {
            return true;
        }
        state.read_at.since(last) + self.slack() >= self.interval.max(RECORD_INTERVAL_MIN)
    }

    /// The delay after so many consecutive failures: doubled each time, with jitter.
    pub(crate) fn delay_after_failure(&self, failures: u32, unit: f64) -> Duration {
        let intervals = (1 << failures.min(DOUBLINGS_MAX)).min(BACKOFF_INTERVALS_MAX);
        (self.interval * intervals).mul_f64(0.5 + unit / 2.0)
    }

    /// The delay after a skipped run: the instance that holds the lock may release it soon.
    pub(crate) fn delay_after_skip(&self, unit: f64) -> Duration {
        self.interval.min(RETRY_MAX).mul_f64(0.5 + unit / 2.0)
    }

    /// Tolerance for timers that fire slightly early.
    fn slack(&self) -> Duration {
        (self.interval / 20).min(Duration::from_secs(1))
    }
}

/// Whether a recorded run is in the past. A clock that was ahead recorded runs in the future: a worker that waited
/// until such a run is an interval old would not run for as long as the clock was ahead.
fn is_past(run: Timestamp, state: &WorkerState) -> bool {
    run.since(state.read_at) <= CLOCK_SKEW_MAX
}

/// The pause between two full batches, so that a large backlog does not slow requests down. It grows with the requests
/// that arrived during the first batch, is zero without requests, and shrinks the longer the work has waited.
pub(crate) fn pause_for_requests(took: Duration, requests: u64, waited: Duration) -> Duration {
    let by_requests = PAUSE_PER_REQUEST.saturating_mul(u32::try_from(requests).unwrap_or(u32::MAX));
    let pause = by_requests.min(took.saturating_mul(PAUSE_TICKS_MAX)).min(PAUSE_MAX);
    pause.mul_f64(OVERDUE_AFTER.saturating_sub(waited).div_duration_f64(OVERDUE_AFTER))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use s3o_catalog::WorkerState;
    use s3o_model::clock::Timestamp;

    use super::{Kind, OVERDUE_AFTER, PAUSE_MAX, PAUSE_PER_REQUEST, PAUSE_TICKS_MAX, Schedule, pause_for_requests};

    const HOUR: Duration = Duration::from_hours(1);

    fn schedule(interval: Duration, kind: Kind) -> Schedule {
        Schedule { interval, kind, bell: None, deadline: HOUR, enabled: true }
    }

    /// A worker that was first recorded `seen` ago and ran `ran` ago.
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
            assert!(schedule.first_delay(Some(&fresh), unit) < HOUR / 2);
            assert_eq!(schedule.first_delay(None, unit), (HOUR / 2).mul_f64(unit));
        }
        assert!(schedule.first_delay(Some(&fresh), 0.9) > HOUR / 3, "the jitter is spread");
    }

    #[test]
    fn restarts_do_not_postpone_the_first_run_forever() {
        let schedule = schedule(HOUR, Kind::Shared);
        let seen = |minutes| state(Duration::from_mins(minutes), None);
        assert_eq!(schedule.first_delay(Some(&seen(20)), 0.99), Duration::from_mins(10));
        assert_eq!(schedule.first_delay(Some(&seen(40)), 0.99), Duration::ZERO);
    }

    #[test]
    fn first_delay_counts_from_the_last_recorded_run() {
        let schedule = schedule(HOUR, Kind::Locked);
        let ran = |minutes| state(HOUR, Some(Duration::from_mins(minutes)));
        assert_eq!(schedule.first_delay(Some(&ran(15)), 0.5), Duration::from_mins(45));
        assert_eq!(schedule.first_delay(Some(&ran(500)), 0.5), Duration::from_secs(30));
        assert!(schedule.first_delay(Some(&ran(500)), 0.999) < Duration::from_mins(1));
    }

    #[test]
    fn locked_worker_waits_an_interval_after_a_run_of_another_instance() {
        let ran = state(HOUR, Some(Duration::from_mins(15)));
        assert_eq!(schedule(HOUR, Kind::Locked).delay_until_due(Some(&ran)), Some(Duration::from_mins(45)));
        assert_eq!(
            schedule(HOUR, Kind::Shared).delay_until_due(Some(&ran)),
            None,
            "instances of a shared worker run concurrently"
        );
        let almost = state(HOUR, Some(Duration::from_millis(3_599_100)));
        assert_eq!(schedule(HOUR, Kind::Locked).delay_until_due(Some(&almost)), None);
    }

    #[test]
    fn interval_of_a_locked_worker_counts_from_the_end_of_its_last_run() {
        let mut ran = state(3 * HOUR, Some(2 * HOUR));
        ran.last_finished_at = Some(Timestamp::from_millis(ran.read_at.millis() - 600_000));
        let (locked, shared) = (schedule(HOUR, Kind::Locked), schedule(HOUR, Kind::Shared));
        assert_eq!(locked.delay_until_due(Some(&ran)), Some(Duration::from_mins(50)));
        assert_eq!(locked.first_delay(Some(&ran), 0.0), Duration::from_mins(50));
        assert_eq!(shared.first_delay(Some(&ran), 0.0), Duration::ZERO);
    }

    #[test]
    fn run_recorded_in_the_future_does_not_block_a_worker() {
        let mut ran = state(HOUR, Some(Duration::ZERO));
        let later = Timestamp::from_millis(ran.read_at.millis() + 31_536_000_000);
        (ran.last_started_at, ran.last_finished_at, ran.seen_at) = (Some(later), Some(later), later);
        for kind in [Kind::Locked, Kind::Shared] {
            let schedule = schedule(HOUR, kind);
            assert_eq!(schedule.delay_until_due(Some(&ran)), None);
            assert!(schedule.first_delay(Some(&ran), 0.5) < HOUR);
            assert!(schedule.is_record_due(Some(&ran)));
        }
    }

    #[test]
    fn idle_runs_are_recorded_once_an_interval_and_at_most_once_a_minute() {
        let ran = |seconds| state(HOUR, Some(Duration::from_secs(seconds)));
        let short = schedule(Duration::from_secs(5), Kind::Shared);
        assert!(!short.is_record_due(Some(&ran(30))));
        assert!(short.is_record_due(Some(&ran(60))));
        assert!(!schedule(HOUR, Kind::Shared).is_record_due(Some(&ran(1800))));
        assert!(schedule(HOUR, Kind::Shared).is_record_due(Some(&ran(3600))));
        assert!(schedule(HOUR, Kind::Shared).is_record_due(None));
        assert!(!schedule(HOUR, Kind::PerInstance).is_record_due(None));
    }

    #[test]
    fn delay_after_failures_doubles_up_to_ten_intervals() {
        let schedule = schedule(HOUR, Kind::Shared);
        let range =
            |failures| (schedule.delay_after_failure(failures, 0.0), schedule.delay_after_failure(failures, 1.0));
        assert_eq!(range(1), (HOUR, HOUR * 2));
        assert_eq!(range(2), (HOUR * 2, HOUR * 4));
        assert_eq!(range(3), (HOUR * 4, HOUR * 8));
        assert_eq!(range(4), (HOUR * 5, HOUR * 10));
        assert_eq!(range(4_000_000), (HOUR * 5, HOUR * 10));
    }

    #[test]
    fn skipped_run_is_retried_within_a_minute() {
        assert!(schedule(HOUR, Kind::Locked).delay_after_skip(0.99) < Duration::from_mins(1));
        assert!(schedule(Duration::from_secs(2), Kind::Locked).delay_after_skip(0.5) < Duration::from_secs(2));
    }

    #[test]
    fn pause_between_batches_grows_with_requests_up_to_a_bound() {
        let took = Duration::from_millis(100);
        let pause_for_requests = |took, requests| super::pause_for_requests(took, requests, Duration::ZERO);
        assert_eq!(pause_for_requests(took, 0), Duration::ZERO, "no requests, no pause");
        assert_eq!(pause_for_requests(took, 1), PAUSE_PER_REQUEST, "one request, one share");
        assert_eq!(pause_for_requests(took, 1000), took * PAUSE_TICKS_MAX, "bounded by the tick's duration");
        assert_eq!(pause_for_requests(HOUR, u64::MAX), PAUSE_MAX);
    }

    #[test]
    fn pause_shrinks_the_longer_work_is_overdue() {
        let pause = |waited| pause_for_requests(Duration::from_millis(100), 1000, waited);
        assert_eq!(pause(OVERDUE_AFTER / 2) * 2, pause(Duration::ZERO));
        assert_eq!((pause(OVERDUE_AFTER), pause(HOUR)), (Duration::ZERO, Duration::ZERO));
    }
}
