//! The runner: starts runs of workers, limits them and records their results.

mod run;
mod slot;
#[cfg(test)]
mod tests;
mod ticks;
mod view;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use prometheus_client::registry::Registry;
use s3o_catalog::{Catalog, Locks};
use s3o_model::clock::Clock;
use s3o_model::entropy::Entropy;
use s3o_model::ids::{IdSource, InstanceId};
use s3o_model::names::BackendName;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::budget::Budget;
use crate::clock_guard::ClockGuard;
use crate::metrics::WorkerMetrics;
use crate::report::{Report, RunReport};
use crate::schedule::Scheduled;
use crate::{Error, Event};

use run::Trigger;
use slot::{WorkerSlot, supervise};
pub use view::WorkerView;

/// Background work of one kind.
#[async_trait]
pub trait Worker: Send + Sync {
    /// Name in settings, metrics and the admin API.
    fn name(&self) -> &'static str;

    /// Does one bounded batch and adds to `report` after every step, so that a failed tick still
    /// reports what it did. The runner may cancel it at any await: its claims then expire.
    async fn tick(&self, report: &mut Report) -> Result<(), Error>;

    /// Called at the beginning of each run, before its first tick.
    fn begin_run(&self) {}

    /// The same for a run that an operator started.
    fn begin_manual_run(&self) {
        self.begin_run();
    }

    /// True if the worker deletes by time: the runner then skips it while the clock is not trusted.
    fn is_time_dependent(&self) -> bool {
        false
    }

    /// True if the worker pauses between full batches while requests arrive.
    fn yields_to_requests(&self) -> bool {
        false
    }
}

/// Is notified of every run that did something or failed, and of its audit events.
#[async_trait]
pub trait RunObserver: Send + Sync {
    /// Called with the audit events of a tick; the run continues when this returns.
    async fn happened(&self, worker: &'static str, run_id: &str, events: Vec<Event>);

    /// Called at the end of a notable run, before a manual run is answered.
    async fn observed(&self, run: &RunReport);
}

/// Discards every notification; for tests and tools that run no server.
#[async_trait]
impl RunObserver for () {
    async fn happened(&self, _worker: &'static str, _run_id: &str, _events: Vec<Event>) {}

    async fn observed(&self, _run: &RunReport) {}
}

/// Constructor arguments of [`Runner`].
pub struct RunnerParts {
    /// The workers and their schedules.
    pub workers: Vec<Scheduled>,
    /// State and history of runs in the catalog.
    pub runs: Arc<Catalog>,
    /// Locks between instances.
    pub locks: Arc<dyn Locks>,
    /// Concurrency budget shared with requests.
    pub budget: Arc<Budget>,
    /// Is notified of runs.
    pub observer: Arc<dyn RunObserver>,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
    /// Clock guard; `None` where the database's clock decides.
    pub clock_guard: Option<Arc<ClockGuard>>,
    /// Source of jitter.
    pub entropy: Arc<dyn Entropy>,
    /// Identifier of this process in the run history.
    pub instance: InstanceId,
    /// Longest time that a shutdown waits for runs in progress.
    pub drain_max: Duration,
}

/// Runs the workers on their schedules and on request.
#[derive(Clone)]
pub struct Runner {
    state: Arc<RunnerState>,
}

struct RunnerState {
    slots: Vec<Arc<WorkerSlot>>,
    /// Without the workers, which are in `slots`.
    deps: RunnerParts,
    ids: IdSource,
    metrics: WorkerMetrics,
    stopping: AtomicBool,
}

impl Runner {
    /// A runner for these workers; `serve` starts them.
    #[must_use]
    pub fn new(mut parts: RunnerParts) -> Self {
        let ids = IdSource::new(Arc::clone(&parts.clock), Arc::clone(&parts.entropy));
        let metrics = WorkerMetrics::default();
        let workers = std::mem::take(&mut parts.workers).into_iter();
        let slots = workers.map(|scheduled| {
            metrics.init_worker(scheduled.worker.name());
            Arc::new(WorkerSlot::new(scheduled))
        });
        let slots = slots.collect();
        let stopping = AtomicBool::new(false);
        Self { state: Arc::new(RunnerState { slots, deps: parts, ids, metrics, stopping }) }
    }

    /// Registers the metrics; the series of these backends start at 0.
    pub fn register(&self, registry: &mut Registry, backends: impl Iterator<Item = BackendName>) {
        self.state.metrics.init_backends(backends);
        self.state.metrics.register(registry);
    }

    /// Runs every worker on its schedule until the shutdown begins. Runs in progress finish their
    /// tick; those that take longer than `drain_max` are cancelled.
    pub async fn serve(self: Arc<Self>, mut shutdown: watch::Receiver<bool>) {
        let state = &self.state;
        let names: Vec<&str> = state.slots.iter().map(|slot| slot.name).collect();
        if let Err(error) = state.deps.runs.insert_workers(&names).await {
            tracing::warn!(%error, "cannot record worker names in the catalog");
        }
        let mut loops = JoinSet::new();
        for slot in &state.slots {
            loops.spawn(supervise(Arc::clone(state), Arc::clone(slot), shutdown.clone()));
        }
        // A dropped sender is a shutdown, too.
        shutdown.wait_for(|stop| *stop).await.map(drop).unwrap_or_default();
        state.stopping.store(true, Ordering::SeqCst);
        let drained = async {
            while loops.join_next().await.is_some() {}
            for slot in &state.slots {
                drop(slot.turn.lock().await);
            }
        };
        if tokio::time::timeout(state.deps.drain_max, drained).await.is_err() {
            tracing::warn!(timeout = ?state.deps.drain_max, "worker runs cancelled, shutdown timeout exceeded");
        }
    }

    /// Runs one worker, paused or not, after its current run; `None` if no worker has this name. The
    /// run continues if the caller stops waiting.
    pub async fn run_now(&self, name: &str) -> Option<RunReport> {
        let slot = Arc::clone(self.slot(name)?);
        let (state, worker) = (Arc::clone(&self.state), slot.name);
        let run = tokio::spawn(async move {
            let _turn = slot.turn.lock().await;
            state.run(&slot, Trigger::Manual).await
        });
        Some(run.await.map_or_else(|error| self.state.cut_off(worker, &error), |finished| finished.report))
    }

    /// Suspends a worker's scheduled runs on every instance until it is resumed; false if no worker has
    /// this name.
    pub async fn pause(&self, name: &str) -> Result<bool, Error> {
        self.set_paused(name, true).await
    }

    /// Resumes a worker on every instance; false if no worker has this name.
    pub async fn resume(&self, name: &str) -> Result<bool, Error> {
        self.set_paused(name, false).await
    }

    async fn set_paused(&self, name: &str, paused: bool) -> Result<bool, Error> {
        let Some(slot) = self.slot(name) else { return Ok(false) };
        self.state.deps.runs.set_paused(slot.name, paused).await?;
        tracing::info!(worker = name, "worker {}", if paused { "paused" } else { "resumed" });
        if !paused {
            slot.nudged.notify_one();
        }
        Ok(true)
    }

    /// Replaces workers by name, from their next tick on; unknown names are ignored.
    pub fn replace(&self, workers: Vec<Scheduled>) {
        for scheduled in workers {
            if let Some(slot) = self.slot(scheduled.worker.name()) {
                slot.scheduled.replace(scheduled);
                slot.nudged.notify_one();
            }
        }
    }

    /// The status of every worker.
    pub async fn list(&self) -> Result<Vec<WorkerView>, Error> {
        let states = self.state.deps.runs.worker_states().await?;
        Ok(self.state.slots.iter().map(|slot| slot.view(slot.state_in(&states))).collect())
    }

    fn slot(&self, name: &str) -> Option<&Arc<WorkerSlot>> {
        self.state.slots.iter().find(|slot| slot.name == name)
    }
}
