//! One run: the lock, the ticks, and what is recorded of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use s3o_catalog::{Lock, Locked, RunRow, WorkerState};
use s3o_model::clock::Timestamp;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, timeout};

use super::{Room, Slot, state_of};
use crate::report::{Outcome, Report, RunReport};
use crate::schedule::rest_for_requests;
use crate::{Error, Kind, Schedule};

/// How long one run may go on while full batches come back.
const RUN_BUDGET: Duration = Duration::from_mins(1);
/// How long runs are remembered.
const HISTORY_KEPT: Duration = Duration::from_hours(30 * 24);
/// How many runs of one worker are remembered.
const HISTORY_ROWS_MAX: usize = 10_000;
/// After how many recorded runs old ones are forgotten.
const FORGET_EVERY: u32 = 64;

/// Why there is a run.
pub(super) enum Asked<'a> {
    /// It was its time; where the worker stood.
    BySchedule(Option<&'a WorkerState>),
    /// Somebody wants it.
    ByHand,
}

/// A run that has ended.
pub(super) struct Ended {
    pub report: RunReport,
    /// Whether its budget was spent before its work was.
    pub unfinished: bool,
}

/// What a run came to.
struct Came {
    outcome: Outcome,
    work: Report,
    error: Option<String>,
    holder: Option<String>,
    reason: Option<String>,
}

/// Why ticking ended early.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    Tick(#[from] Error),
    #[error("a tick took longer than {0:?}")]
    TooLong(Duration),
    #[error("the lock was lost")]
    LockLost,
}

impl Room {
    /// Runs a worker whose turn it is, and records it.
    pub(super) async fn run(self: &Arc<Self>, slot: &Arc<Slot>, asked: Asked<'_>) -> Ended {
        let run_id = self.ids.fresh().as_simple().to_string();
        let heeds_pause = matches!(asked, Asked::BySchedule(_));
        let locked = self.lock(slot).await;
        // Asking for the lock is not yet running: recorded runs of a locked worker do not overlap.
        let started_at = self.parts.clock.now();
        // Held until the run is recorded, so that whoever gets it next knows of this run.
        let (lock, result) = match (self.held(slot), locked) {
            (Some(reason), _) => (None, Came::held(reason)),
            (None, Ok(Some(Locked::By(holder)))) => (None, Came::skipped(holder)),
            (None, Ok(Some(Locked::Held(lock)))) => {
                let lock = Arc::new(lock);
                (Some(Arc::clone(&lock)), self.work(slot, &run_id, Some(lock), heeds_pause).await)
            }
            (None, Ok(None)) => (None, self.work(slot, &run_id, None, heeds_pause).await),
            (None, Err(error)) => (None, Came::failed(&error)),
        };
        let Came { outcome, work, error, holder, reason } = result;
        let finished_at = self.parts.clock.now();
        let report = RunReport {
            worker: slot.name,
            run_id,
            outcome,
            items: work.items.clone(),
            started_at: started_at.to_string(),
            finished_at: finished_at.to_string(),
            error,
            holder,
            reason,
        };
        slot.count(outcome);
        self.metrics.ran(&report, &work);
        if outcome == Outcome::Ok {
            self.metrics.succeeded(slot.name, finished_at);
        }
        self.record(slot, &report, (started_at, finished_at), &asked).await;
        drop(lock);
        Ended { report, unfinished: work.more }
    }

    /// What is said of a run that ended by a fault outside its ticks.
    pub(super) fn cut_off(&self, worker: &'static str, error: &JoinError) -> RunReport {
        tracing::error!(worker, %error, "worker run was cut off");
        let now = self.parts.clock.now().to_string();
        RunReport {
            worker,
            run_id: self.ids.fresh().as_simple().to_string(),
            outcome: Outcome::Panicked,
            items: BTreeMap::new(),
            started_at: now.clone(),
            finished_at: now,
            error: Some(error.to_string()),
            holder: None,
            reason: None,
        }
    }

    /// Why a worker whose work time decides has to wait.
    fn held(&self, slot: &Slot) -> Option<String> {
        let guard = self.parts.clock_guard.as_ref().filter(|_| slot.scheduled.current().worker.is_decided_by_time())?;
        guard.held().map(|hold| hold.reason)
    }

    async fn lock(&self, slot: &Slot) -> Result<Option<Locked>, Error> {
        match slot.schedule().kind {
            Kind::PerInstance | Kind::Shared => Ok(None),
            Kind::Locked => Ok(Some(self.parts.locks.try_lock(slot.name).await?)),
        }
    }

    async fn work(
        self: &Arc<Self>,
        slot: &Arc<Slot>,
        run_id: &str,
        lock: Option<Arc<Lock>>,
        heeds_pause: bool,
    ) -> Came {
        let progress = Arc::new(Mutex::default());
        let (room, slot) = (Arc::clone(self), Arc::clone(slot));
        let ticks = Ticks { room, slot, lock, heeds_pause, progress: Arc::clone(&progress) };
        // A task of its own: a panic ends the run, not the runner; dropping the set ends the task.
        let mut task = JoinSet::new();
        task.spawn(ticks.go_on(run_id.to_owned()));
        let (outcome, error) = match task.join_next().await {
            Some(Ok(Ok(()))) | None => (Outcome::Ok, None),
            Some(Ok(Err(fault))) => (Outcome::Error, Some(fault.to_string())),
            Some(Err(panic)) => (Outcome::Panicked, Some(panic.to_string())),
        };
        let work = std::mem::take(&mut *progress.lock());
        Came { outcome, work, error, holder: None, reason: None }
    }

    async fn record(
        &self,
        slot: &Slot,
        report: &RunReport,
        (started_at, finished_at): (Timestamp, Timestamp),
        asked: &Asked<'_>,
    ) {
        let (worker, run_id) = (report.worker, &report.run_id);
        match (&report.error, report.outcome) {
            (Some(error), _) => tracing::warn!(worker, run_id, error, "worker run failed"),
            (None, Outcome::Skipped) => {
                tracing::debug!(worker, run_id, holder = report.holder, reason = report.reason, "worker run skipped");
            }
            (None, _) if !report.items.is_empty() => {
                tracing::info!(worker, run_id, items = ?report.items, "worker run");
            }
            (None, _) => {}
        }
        slot.seen(|seen| seen.last_run = Some(report.clone()));
        let runs = &self.parts.runs;
        let written = match asked {
            Asked::BySchedule(state) if !report.is_notable() => {
                if report.outcome == Outcome::Ok && slot.schedule().is_note_due(*state) {
                    runs.note_run(worker, finished_at.since(started_at)).await
                } else {
                    Ok(())
                }
            }
            Asked::BySchedule(_) | Asked::ByHand => {
                let row = row(report, (started_at, finished_at), self.parts.instance.to_string());
                self.keep(slot, &row).await
            }
        };
        if let Err(error) = written {
            tracing::warn!(worker, run_id, %error, "worker run not recorded");
        }
        if report.is_notable() {
            self.parts.observer.observed(report).await;
        }
    }

    async fn keep(&self, slot: &Slot, row: &RunRow) -> Result<(), s3o_catalog::Error> {
        self.parts.runs.record_run(row).await?;
        if slot.recorded.fetch_add(1, Ordering::Relaxed).is_multiple_of(FORGET_EVERY) {
            self.parts.runs.forget_runs(slot.name, HISTORY_KEPT, HISTORY_ROWS_MAX).await?;
        }
        Ok(())
    }
}

impl Slot {
    fn count(&self, outcome: Outcome) {
        match outcome {
            Outcome::Ok => self.failures.store(0, Ordering::Relaxed),
            Outcome::Error | Outcome::Panicked => {
                self.failures.fetch_add(1, Ordering::Relaxed);
            }
            Outcome::Skipped => {}
        }
    }
}

impl Came {
    fn nothing(outcome: Outcome) -> Self {
        Self { outcome, work: Report::default(), error: None, holder: None, reason: None }
    }

    fn skipped(holder: String) -> Self {
        Self { holder: Some(holder), ..Self::nothing(Outcome::Skipped) }
    }

    fn held(reason: String) -> Self {
        Self { reason: Some(reason), ..Self::nothing(Outcome::Skipped) }
    }

    fn failed(error: &Error) -> Self {
        Self { error: Some(error.to_string()), ..Self::nothing(Outcome::Error) }
    }
}

fn row(report: &RunReport, (started_at, finished_at): (Timestamp, Timestamp), instance: String) -> RunRow {
    RunRow {
        run_id: report.run_id.clone(),
        worker: report.worker.to_owned(),
        instance,
        started_at,
        finished_at,
        outcome: report.outcome.as_str().to_owned(),
        items: report.items.iter().map(|(outcome, count)| ((*outcome).to_owned(), *count)).collect(),
        error: report
            .error
            .clone()
            .or_else(|| report.holder.as_ref().map(|holder| format!("held by {holder}")))
            .or_else(|| report.reason.clone()),
    }
}

/// The ticks of one run.
struct Ticks {
    room: Arc<Room>,
    slot: Arc<Slot>,
    lock: Option<Arc<Lock>>,
    /// Whether a pause ends it; a run by hand goes on.
    heeds_pause: bool,
    /// What was done, whatever happens.
    progress: Arc<Mutex<Report>>,
}

impl Ticks {
    /// Ticks until a batch comes back short, a tick fails, the budget is spent, the worker is paused, or the process stops.
    async fn go_on(self, run_id: String) -> Result<(), Fault> {
        let started = Instant::now();
        loop {
            let more = self.considerate_tick(&run_id).await?;
            let is_over = started.elapsed() > RUN_BUDGET || self.room.stopping.load(Ordering::SeqCst);
            if !more || is_over || self.room.held(&self.slot).is_some() || self.is_paused().await {
                return Ok(());
            }
        }
    }

    /// Whether somebody, on whatever instance, wants no further batch. Where that cannot be told, the next tick shows why.
    async fn is_paused(&self) -> bool {
        if !self.heeds_pause {
            return false;
        }
        let states = self.room.parts.runs.worker_states().await.unwrap_or_default();
        state_of(&self.slot, &states).is_some_and(|state| state.paused)
    }

    /// One tick, and the rest behind it that requests are owed; says whether another should follow.
    async fn considerate_tick(&self, run_id: &str) -> Result<bool, Fault> {
        let budget = &self.room.parts.budget;
        let (started, requests) = (Instant::now(), budget.requests_begun());
        let (more, waited) = self.tick(run_id).await?;
        let rest = rest_for_requests(started.elapsed(), budget.requests_begun() - requests, waited);
        if more && !rest.is_zero() && self.slot.scheduled.current().worker.is_patient() {
            tokio::time::sleep(rest).await;
        }
        Ok(more)
    }

    /// One tick; says whether another should follow at once, and how long its work had waited.
    async fn tick(&self, run_id: &str) -> Result<(bool, Duration), Fault> {
        let scheduled = self.slot.scheduled.current();
        let Schedule { kind, deadline, .. } = scheduled.schedule;
        // Between ticks others get their turn.
        let permit = self.room.parts.budget.background(kind).await;
        if self.lock.as_ref().is_some_and(|lock| lock.is_lost()) {
            return Err(Fault::LockLost);
        }
        let mut report = Report::default();
        let ticked = timeout(deadline, scheduled.worker.tick(&mut report)).await;
        drop(permit);
        let (more, waited, events) = (report.more, report.waited, std::mem::take(&mut report.events));
        self.progress.lock().absorb(report);
        if !events.is_empty() {
            self.room.parts.observer.happened(self.slot.name, run_id, events).await;
        }
        ticked.map_err(|_| Fault::TooLong(deadline))??;
        Ok((more, waited))
    }
}
