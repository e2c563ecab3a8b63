//! One worker in the runner: its loop, and when its next run is due.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex as Lock;
use s3o_catalog::WorkerState;
use s3o_model::clock::Timestamp;
use s3o_model::shared::Shared;
use tokio::sync::{Mutex, Notify, watch};
use tokio::task::JoinSet;

use super::RunnerState;
use super::run::{FinishedRun, Trigger};
use crate::report::{RunOutcome, RunReport};
use crate::schedule::{Schedule, Scheduled};

/// Delay before a loop that panicked is restarted.
const RESTART_DELAY: Duration = Duration::from_secs(1);
/// Notifications within this time after a run start one run together.
const COALESCE: Duration = Duration::from_millis(100);
/// Delay after a run that used up its time budget with work left.
const UNFINISHED_DELAY: Duration = Duration::from_millis(100);

pub(super) struct WorkerSlot {
    pub name: &'static str,
    /// The current worker and schedule; a tick keeps the ones that it began with.
    pub scheduled: Shared<Scheduled>,
    /// Runs of one worker do not overlap in one process.
    pub turn: Mutex<()>,
    /// Notified when the worker was resumed or replaced.
    pub nudged: Notify,
    /// Consecutive failed runs.
    pub failures: AtomicU32,
    /// Runs recorded by this process.
    pub recorded: AtomicU32,
    status: Lock<SlotStatus>,
}

/// What the status of a worker shows of this process.
#[derive(Default)]
pub(super) struct SlotStatus {
    pub last_run: Option<RunReport>,
    pub next_due_at: Option<Timestamp>,
}

/// When the loop of a worker takes its next turn.
struct NextTurn {
    delay: Duration,
    /// Run then even if another run was less than an interval ago.
    forced: bool,
    /// Whether a notification may end the delay early.
    wakeable: bool,
}

impl WorkerSlot {
    pub(super) fn new(scheduled: Scheduled) -> Self {
        Self {
            name: scheduled.worker.name(),
            scheduled: Shared::new(scheduled),
            turn: Mutex::default(),
            nudged: Notify::new(),
            failures: AtomicU32::new(0),
            recorded: AtomicU32::new(0),
            status: Lock::default(),
        }
    }

    pub(super) fn schedule(&self) -> Schedule {
        self.scheduled.current().schedule.clone()
    }

    pub(super) fn with_status<T>(&self, access: impl FnOnce(&mut SlotStatus) -> T) -> T {
        access(&mut self.status.lock())
    }

    pub(super) fn state_in<'a>(&self, states: &'a [WorkerState]) -> Option<&'a WorkerState> {
        states.iter().find(|state| state.worker == self.name)
    }

    fn next_turn(&self, finished: &FinishedRun, unit: f64) -> NextTurn {
        let schedule = self.schedule();
        match finished.report.outcome {
            RunOutcome::Ok if finished.unfinished => {
                NextTurn { delay: UNFINISHED_DELAY.min(schedule.interval), forced: true, wakeable: false }
            }
            RunOutcome::Ok => NextTurn { delay: schedule.interval, forced: false, wakeable: true },
            RunOutcome::Skipped => NextTurn { delay: schedule.delay_after_skip(unit), forced: false, wakeable: false },
            RunOutcome::Error | RunOutcome::Panicked => {
                let failures = self.failures.load(Ordering::Relaxed);
                NextTurn { delay: schedule.delay_after_failure(failures, unit), forced: false, wakeable: false }
            }
        }
    }

    /// Completes when the schedule's notification arrives; never, without one or if not `wakeable`.
    async fn notified(&self, wakeable: bool) {
        match self.schedule().bell.filter(|_| wakeable) {
            Some(bell) => {
                tokio::time::sleep(COALESCE).await;
                bell.notified().await;
            }
            None => std::future::pending().await,
        }
    }
}

/// Restarts the loop of one worker after a panic of the runner or of an observer.
pub(super) async fn supervise(runner: Arc<RunnerState>, slot: Arc<WorkerSlot>, shutdown: watch::Receiver<bool>) {
    loop {
        // Dropping the set aborts the task in it.
        let mut task = JoinSet::new();
        let (state, served, mut stop) = (Arc::clone(&runner), Arc::clone(&slot), shutdown.clone());
        task.spawn(async move { state.serve_one(&served, &mut stop).await });
        match task.join_next().await {
            Some(Err(error)) => tracing::error!(worker = slot.name, %error, "worker loop panicked, restarting it"),
            Some(Ok(())) | None => return,
        }
        tokio::time::sleep(RESTART_DELAY).await;
    }
}

impl RunnerState {
    async fn serve_one(self: &Arc<Self>, slot: &Arc<WorkerSlot>, shutdown: &mut watch::Receiver<bool>) {
        let mut next = NextTurn { delay: self.first_delay(slot).await, forced: false, wakeable: true };
        loop {
            let due = self.deps.clock.now().after(next.delay);
            slot.with_status(|status| status.next_due_at = Some(due));
            let forced = tokio::select! {
                biased;
                // A dropped sender is a shutdown, too.
                _ = shutdown.wait_for(|stop| *stop) => return,
                () = tokio::time::sleep(next.delay) => next.forced,
                () = slot.notified(next.wakeable) => true,
                () = slot.nudged.notified() => false,
            };
            next = self.take_turn(slot, forced).await;
        }
    }

    async fn first_delay(&self, slot: &WorkerSlot) -> Duration {
        let unit = self.deps.entropy.next_unit();
        let states = self.deps.runs.worker_states().await.unwrap_or_else(|error| {
            tracing::warn!(worker = slot.name, %error, "cannot read last run, delaying first run at random");
            Vec::new()
        });
        let state = slot.state_in(&states);
        if let Some(moment) = state.and_then(|state| state.last_success_at) {
            self.metrics.succeeded(slot.name, moment);
        }
        slot.schedule().first_delay(state, unit)
    }

    /// Runs the worker if it is due and not paused; returns when to try next.
    async fn take_turn(self: &Arc<Self>, slot: &Arc<WorkerSlot>, forced: bool) -> NextTurn {
        let _turn = slot.turn.lock().await;
        let schedule = slot.schedule();
        if !schedule.enabled {
            return NextTurn { delay: schedule.interval, forced: false, wakeable: false };
        }
        let unit = self.deps.entropy.next_unit();
        let states = match self.deps.runs.worker_states().await {
            Ok(states) => states,
            Err(error) => {
                tracing::warn!(worker = slot.name, %error, "cannot read worker state, retrying");
                self.metrics.not_run(slot.name, RunOutcome::Error);
                return NextTurn { delay: schedule.delay_after_skip(unit), forced, wakeable: false };
            }
        };
        let state = slot.state_in(&states);
        if state.is_some_and(|state| state.paused) {
            self.metrics.not_run(slot.name, RunOutcome::Skipped);
            return NextTurn { delay: schedule.interval, forced: false, wakeable: false };
        }
        if let Some(delay) = schedule.delay_until_due(state).filter(|_| !forced) {
            return NextTurn { delay, forced: false, wakeable: true };
        }
        let finished = self.run(slot, Trigger::Schedule(state)).await;
        slot.next_turn(&finished, unit)
    }
}
