//! The ticks of one run.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use s3o_catalog::Lock;
use tokio::time::{Instant, timeout};

use super::RunnerState;
use super::run::RunFault;
use super::slot::WorkerSlot;
use crate::Schedule;
use crate::report::Report;
use crate::schedule::pause_for_requests;

/// Longest time that one run continues with full batches.
const RUN_BUDGET: Duration = Duration::from_mins(1);

pub(super) struct Ticks {
    pub runner: Arc<RunnerState>,
    pub slot: Arc<WorkerSlot>,
    pub lock: Option<Arc<Lock>>,
    /// True if a pause ends the run between batches; a manual run ignores it.
    pub stops_on_pause: bool,
    /// What the ticks did; the caller reads it also after a panic.
    pub progress: Arc<Mutex<Report>>,
}

impl Ticks {
    /// Ticks until a batch is short, a tick fails, the budget is used up, the worker must wait, or the process stops.
    pub(super) async fn run(self, run_id: String) -> Result<(), RunFault> {
        let started = Instant::now();
        let worker = Arc::clone(&self.slot.scheduled.current().worker);
        if self.stops_on_pause {
            worker.begin_run()
        } else {
            worker.begin_manual_run()
        }
        loop {
            let more = self.tick_and_pause(&run_id).await?;
            let is_over = started.elapsed() > RUN_BUDGET || self.runner.stopping.load(Ordering::SeqCst);
            if !more || is_over || self.runner.clock_hold(&self.slot).is_some() || self.is_paused().await {
                return Ok(());
            }
        }
    }

    /// Whether the worker was paused, on any instance. If the catalog fails, the next tick reports why.
    async fn is_paused(&self) -> bool {
        if !self.stops_on_pause {
            return false;
        }
        let states = self.runner.deps.runs.worker_states().await.unwrap_or_default();
        self.slot.state_in(&states).is_some_and(|state| state.paused)
    }

    /// One tick, and the pause after it for requests; true if another should follow.
    async fn tick_and_pause(&self, run_id: &str) -> Result<bool, RunFault> {
        let budget = &self.runner.deps.budget;
        let (started, requests) = (Instant::now(), budget.requests_begun());
        let (more, waited) = self.tick(run_id).await?;
        let pause = pause_for_requests(started.elapsed(), budget.requests_begun() - requests, waited);
        if more && !pause.is_zero() && self.slot.scheduled.current().worker.yields_to_requests() {
            tokio::time::sleep(pause).await;
        }
        Ok(more)
    }

    /// One tick; returns whether more work is waiting, and how long the work had been due.
    async fn tick(&self, run_id: &str) -> Result<(bool, Duration), RunFault> {
        let scheduled = self.slot.scheduled.current();
        let Schedule { kind, deadline, .. } = scheduled.schedule;
        // Acquired for each tick, so that other workers get a slot in between.
        let permit = self.runner.deps.budget.background(kind).await;
        if self.lock.as_ref().is_some_and(|lock| lock.is_lost()) {
            return Err(RunFault::LockLost);
        }
        let mut report = Report::default();
        let ticked = timeout(deadline, scheduled.worker.tick(&mut report)).await;
        drop(permit);
        let (more, waited, events) = (report.more, report.waited, std::mem::take(&mut report.events));
        self.progress.lock().absorb(report);
        if !events.is_empty() {
            self.runner.deps.observer.happened(self.slot.name, run_id, events).await;
        }
        ticked.map_err(|_| RunFault::TooLong(deadline))??;
        Ok((more, waited))
    }
}
