//! The runner: when workers tick, how long a run goes on, what is recorded of it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use s3o_model::clock::Clock;
use s3o_model::entropy::Entropy;
use s3o_model::ids::IdSource;
use tokio::sync::{Mutex, Notify, watch};
use tokio::time::Instant;

use crate::Error;
use crate::report::{Outcome, Report, RunReport};

/// How long one run may go on while full batches come back.
const RUN_BUDGET: Duration = Duration::from_mins(1);

/// Something that happens by itself.
#[async_trait]
pub trait Worker: Send + Sync {
    /// Its name, as the outside world knows it.
    fn name(&self) -> &'static str;

    /// Does one bounded batch.
    async fn tick(&self) -> Result<Report, Error>;
}

/// A worker and when it ticks.
pub struct Scheduled {
    /// The worker.
    pub worker: Arc<dyn Worker>,
    /// How long it rests between runs.
    pub interval: Duration,
    /// Wakes it before its interval is over.
    pub bell: Option<Arc<Notify>>,
}

struct Slot {
    scheduled: Scheduled,
    /// Runs of one worker do not overlap in one process.
    turn: Mutex<()>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    worker: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Status {
    status: &'static str,
}

#[derive(Default)]
struct Counters {
    runs: Family<Labels, Counter>,
    items: Family<Labels, Counter>,
    cleanups: Family<Status, Counter>,
}

/// Runs the workers.
pub struct Runner {
    slots: Vec<Arc<Slot>>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    ids: IdSource,
    counters: Counters,
}

impl Runner {
    /// A runner of these workers.
    #[must_use]
    pub fn new(workers: Vec<Scheduled>, clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>) -> Self {
        let ids = IdSource::new(Arc::clone(&clock), Arc::clone(&entropy));
        let slots = workers.into_iter().map(|scheduled| Arc::new(Slot { scheduled, turn: Mutex::new(()) })).collect();
        Self { slots, clock, entropy, ids, counters: Counters::default() }
    }

    /// Shows what the workers do to whoever reads the metrics.
    pub fn register(&self, registry: &mut Registry) {
        let Counters { runs, items, cleanups } = &self.counters;
        registry.register("s3o_worker_runs", "Runs of each worker by outcome", runs.clone());
        registry.register("s3o_worker_items", "Items that each worker brought to an end, by outcome", items.clone());
        registry.register("s3o_cleanup_queue_processed", "Cleanups by what became of them", cleanups.clone());
    }

    /// Runs every worker on its schedule until the shutdown begins; runs under way are finished.
    pub async fn serve(self: Arc<Self>, shutdown: watch::Receiver<bool>) {
        let mut loops = tokio::task::JoinSet::new();
        for slot in &self.slots {
            let (runner, slot, shutdown) = (Arc::clone(&self), Arc::clone(slot), shutdown.clone());
            loops.spawn(async move { runner.serve_one(&slot, shutdown).await });
        }
        while loops.join_next().await.is_some() {}
    }

    async fn serve_one(&self, slot: &Arc<Slot>, mut shutdown: watch::Receiver<bool>) {
        // Instances that start together must not tick together.
        let mut rest = slot.scheduled.interval.mul_f64(self.entropy.next_unit() / 2.0);
        while !stopped_while(&mut shutdown, rest_or_bell(slot, rest)).await {
            self.run(slot).await;
            rest = slot.scheduled.interval;
        }
    }

    /// Runs one worker now; `None` if there is none of that name.
    pub async fn run_now(&self, name: &str) -> Option<RunReport> {
        let slot = self.slots.iter().find(|slot| slot.scheduled.worker.name() == name)?;
        Some(self.run(slot).await)
    }

    async fn run(&self, slot: &Arc<Slot>) -> RunReport {
        let _turn = slot.turn.lock().await;
        let worker = slot.scheduled.worker.name();
        let started_at = self.clock.now();
        // A task of its own: a panic ends the run, not the runner.
        let task = tokio::spawn(ticks(Arc::clone(&slot.scheduled.worker)));
        let (outcome, report, error) = match task.await {
            Ok((report, None)) => (Outcome::Ok, report, None),
            Ok((report, Some(error))) => (Outcome::Error, report, Some(error.to_string())),
            Err(panic) => (Outcome::Panicked, Report::default(), Some(panic.to_string())),
        };
        let report = RunReport {
            worker,
            run_id: self.ids.fresh().as_simple().to_string(),
            outcome,
            items: report.items,
            started_at: started_at.to_string(),
            finished_at: self.clock.now().to_string(),
            error,
        };
        self.record(&report);
        report
    }

    fn record(&self, report: &RunReport) {
        let worker = report.worker;
        let Counters { runs, items, cleanups } = &self.counters;
        runs.get_or_create(&Labels { worker, outcome: report.outcome.as_str() }).inc();
        for (outcome, count) in &report.items {
            items.get_or_create(&Labels { worker, outcome }).inc_by(*count);
            if worker == "cleanup" {
                cleanups.get_or_create(&Status { status: outcome }).inc_by(*count);
            }
        }
        if let Some(error) = &report.error {
            tracing::warn!(worker, run_id = report.run_id, error, "worker run failed");
        } else if !report.items.is_empty() {
            tracing::info!(worker, run_id = report.run_id, items = ?report.items, "worker run");
        }
    }
}

/// Ticks until a batch comes back short, a tick fails, or the budget is spent.
async fn ticks(worker: Arc<dyn Worker>) -> (Report, Option<Error>) {
    let started = Instant::now();
    let mut run = Report::default();
    loop {
        match worker.tick().await {
            Ok(report) => run.absorb(report),
            Err(error) => return (run, Some(error)),
        }
        if !run.more || started.elapsed() > RUN_BUDGET {
            return (run, None);
        }
    }
}

async fn rest_or_bell(slot: &Slot, rest: Duration) {
    match &slot.scheduled.bell {
        Some(bell) => {
            // Whether the bell or the clock was first does not matter.
            tokio::time::timeout(rest, bell.notified()).await.unwrap_or_default();
        }
        None => tokio::time::sleep(rest).await,
    }
}

/// Waits for `wait` or the shutdown; says whether it was the shutdown.
async fn stopped_while(shutdown: &mut watch::Receiver<bool>, wait: impl Future<Output = ()>) -> bool {
    tokio::select! {
        () = wait => false,
        // A sender that went away is a shutdown, too.
        _ = shutdown.wait_for(|stop| *stop) => true,
    }
}
