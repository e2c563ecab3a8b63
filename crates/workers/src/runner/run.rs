//! One run of a worker: takes the lock, runs the ticks, records the result.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use s3o_catalog::{Lock, Locked, RunRow, WorkerState};
use s3o_model::clock::Timestamp;
use tokio::task::{JoinError, JoinSet};

use super::RunnerState;
use super::slot::WorkerSlot;
use super::ticks::Ticks;
use crate::report::{Report, RunOutcome, RunReport};
use crate::{Error, Kind};

/// How long the history keeps runs.
const HISTORY_KEPT: Duration = Duration::from_hours(30 * 24);
/// How many runs of one worker the history keeps.
const HISTORY_ROWS_MAX: usize = 10_000;
/// Number of recorded runs between two deletions of old history.
const FORGET_EVERY: u32 = 64;

/// What started a run.
pub(super) enum Trigger<'a> {
    /// The schedule; with the state of the worker before the run.
    Schedule(Option<&'a WorkerState>),
    /// `run_now`.
    Manual,
}

pub(super) struct FinishedRun {
    pub report: RunReport,
    /// True if the time budget ended before the work.
    pub unfinished: bool,
}

struct RunResult {
    outcome: RunOutcome,
    work: Report,
    error: Option<String>,
    holder: Option<String>,
    reason: Option<String>,
}

/// Why a run ended before its work was done.
#[derive(Debug, thiserror::Error)]
pub(super) enum RunFault {
    #[error(transparent)]
    Tick(#[from] Error),
    #[error("a tick took longer than {0:?} and was cancelled")]
    TooLong(Duration),
    #[error("the lock was lost")]
    LockLost,
}

impl RunnerState {
    /// Runs a worker and records the result. The caller holds `slot.turn`.
    pub(super) async fn run(self: &Arc<Self>, slot: &Arc<WorkerSlot>, trigger: Trigger<'_>) -> FinishedRun {
        let run_id = self.ids.fresh().as_simple().to_string();
        let stops_on_pause = matches!(trigger, Trigger::Schedule(_));
        let locked = self.lock(slot).await;
        // Waiting for the lock is not part of the run: recorded runs of a locked worker do not overlap.
        let started_at = self.deps.clock.now();
        let skipped = || RunResult::new(RunOutcome::Skipped);
        // The lock is released after the run is recorded, so that its next holder sees this run.
        let (lock, result) = match (self.clock_hold(slot), locked) {
            (Some(reason), _) => (None, RunResult { reason: Some(reason), ..skipped() }),
            (None, Ok(Some(Locked::By(holder)))) => (None, RunResult { holder: Some(holder), ..skipped() }),
            (None, Ok(Some(Locked::Held(lock)))) => {
                let lock = Arc::new(lock);
                (Some(Arc::clone(&lock)), self.work(slot, &run_id, Some(lock), stops_on_pause).await)
            }
            (None, Ok(None)) => (None, self.work(slot, &run_id, None, stops_on_pause).await),
            (None, Err(error)) => {
                (None, RunResult { error: Some(error.to_string()), ..RunResult::new(RunOutcome::Error) })
            }
        };
        let finished_at = self.deps.clock.now();
        let (report, work) = result.into_report(slot.name, run_id, (started_at, finished_at));
        slot.count_failures(report.outcome);
        self.metrics.ran(&report, &work);
        if report.outcome == RunOutcome::Ok {
            self.metrics.succeeded(slot.name, finished_at);
        }
        self.record(slot, &report, (started_at, finished_at), &trigger).await;
        drop(lock);
        FinishedRun { report, unfinished: work.more }
    }

    /// The report of a run that panicked outside its ticks.
    pub(super) fn cut_off(&self, worker: &'static str, error: &JoinError) -> RunReport {
        tracing::error!(worker, %error, "worker run panicked outside a tick");
        let now = self.deps.clock.now().to_string();
        RunReport {
            worker,
            run_id: self.ids.fresh().as_simple().to_string(),
            outcome: RunOutcome::Panicked,
            items: BTreeMap::new(),
            started_at: now.clone(),
            finished_at: now,
            error: Some(error.to_string()),
            holder: None,
            reason: None,
        }
    }

    /// Why a time-dependent worker must wait; `None` if it may run.
    pub(super) fn clock_hold(&self, slot: &WorkerSlot) -> Option<String> {
        let guard = self.deps.clock_guard.as_ref().filter(|_| slot.scheduled.current().worker.is_time_dependent())?;
        guard.held().map(|hold| hold.reason)
    }

    async fn lock(&self, slot: &WorkerSlot) -> Result<Option<Locked>, Error> {
        match slot.schedule().kind {
            Kind::PerInstance | Kind::Shared => Ok(None),
            Kind::Locked => Ok(Some(self.deps.locks.try_lock(slot.name).await?)),
        }
    }

    async fn work(
        self: &Arc<Self>,
        slot: &Arc<WorkerSlot>,
        run_id: &str,
        lock: Option<Arc<Lock>>,
        stops_on_pause: bool,
    ) -> RunResult {
        let progress = Arc::new(Mutex::default());
        let (runner, slot) = (Arc::clone(self), Arc::clone(slot));
        let ticks = Ticks { runner, slot, lock, stops_on_pause, progress: Arc::clone(&progress) };
        // In a task of its own a panic ends the run, not the runner. Dropping the set aborts the task.
        let mut task = JoinSet::new();
        task.spawn(ticks.run(run_id.to_owned()));
        let (outcome, error) = match task.join_next().await {
            Some(Ok(Ok(()))) | None => (RunOutcome::Ok, None),
            Some(Ok(Err(fault))) => (RunOutcome::Error, Some(fault.to_string())),
            Some(Err(panic)) => (RunOutcome::Panicked, Some(panic.to_string())),
        };
        let work = std::mem::take(&mut *progress.lock());
        if let Some(why) = work.yields.filter(|_| outcome == RunOutcome::Ok && work.items.is_empty()) {
            return RunResult { reason: Some(why.to_owned()), ..RunResult::new(RunOutcome::Skipped) };
        }
        RunResult { work, error, ..RunResult::new(outcome) }
    }

    async fn record(
        &self,
        slot: &WorkerSlot,
        report: &RunReport,
        (started_at, finished_at): (Timestamp, Timestamp),
        trigger: &Trigger<'_>,
    ) {
        let (worker, run_id) = (report.worker, &report.run_id);
        match (&report.error, report.outcome) {
            (Some(error), _) => tracing::warn!(worker, run_id, error, "worker run failed"),
            (None, RunOutcome::Skipped) => {
                tracing::debug!(worker, run_id, holder = report.holder, reason = report.reason, "worker run skipped");
            }
            (None, _) if !report.items.is_empty() => {
                tracing::info!(worker, run_id, items = ?report.items, "worker run finished");
            }
            (None, _) => {}
        }
        slot.with_status(|status| status.last_run = Some(report.clone()));
        let runs = &self.deps.runs;
        let written = match trigger {
            Trigger::Schedule(state) if !report.is_notable() => {
                if report.outcome == RunOutcome::Ok && slot.schedule().is_record_due(*state) {
                    runs.note_run(worker, finished_at.since(started_at)).await
                } else {
                    Ok(())
                }
            }
            Trigger::Schedule(_) | Trigger::Manual => {
                let row = row(report, (started_at, finished_at), self.deps.instance.to_string());
                self.record_row(slot, &row).await
            }
        };
        if let Err(error) = written {
            tracing::warn!(worker, run_id, %error, "cannot record worker run in the catalog");
        }
        if report.is_notable() {
            self.deps.observer.observed(report).await;
        }
    }

    async fn record_row(&self, slot: &WorkerSlot, row: &RunRow) -> Result<(), s3o_catalog::Error> {
        self.deps.runs.record_run(row).await?;
        if slot.recorded.fetch_add(1, Ordering::Relaxed).is_multiple_of(FORGET_EVERY) {
            self.deps.runs.forget_runs(slot.name, HISTORY_KEPT, HISTORY_ROWS_MAX).await?;
        }
        Ok(())
    }
}

impl WorkerSlot {
    fn count_failures(&self, outcome: RunOutcome) {
        match outcome {
            RunOutcome::Ok => self.failures.store(0, Ordering::Relaxed),
            RunOutcome::Error | RunOutcome::Panicked => {
                self.failures.fetch_add(1, Ordering::Relaxed);
            }
            RunOutcome::Skipped => {}
        }
    }
}

impl RunResult {
    fn new(outcome: RunOutcome) -> Self {
        Self { outcome, work: Report::default(), error: None, holder: None, reason: None }
    }

    fn into_report(
        self,
        worker: &'static str,
        run_id: String,
        (started_at, finished_at): (Timestamp, Timestamp),
    ) -> (RunReport, Report) {
        let Self { outcome, work, error, holder, reason } = self;
        let report = RunReport {
            worker,
            run_id,
            outcome,
            items: work.items.clone(),
            started_at: started_at.to_string(),
            finished_at: finished_at.to_string(),
            error,
            holder,
            reason,
        };
        (report, work)
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
