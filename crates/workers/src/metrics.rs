//! Prometheus metrics of all workers.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use s3o_model::clock::Timestamp;
use s3o_model::names::BackendName;

use crate::report::{Report, RunOutcome, RunReport};
use crate::stale_claims::RECOVERED;

/// Name of the worker whose items are rows of the cleanup queue.
const CLEANUP: &str = "cleanup";
/// Outcome of a settlement whose claim had been taken over. Like a recovered claim, it settles no row.
const STALE: &str = "stale";
/// Every outcome that settles a cleanup.
const STATUSES: [&str; 6] = ["success", "success_absent", "absent_after_accept", "retry", EXHAUSTED, "deferred"];
/// Outcome of cleanups that were moved to the dead-letter queue.
const EXHAUSTED: &str = "exhausted";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    worker: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WorkerLabel {
    worker: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CleanupStatusLabel {
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CleanupBackendLabel {
    backend: String,
}

#[derive(Default)]
pub(crate) struct WorkerMetrics {
    runs: Family<OutcomeLabels, Counter>,
    items: Family<OutcomeLabels, Counter>,
    last_success: Family<WorkerLabel, Gauge>,
    stale: Family<WorkerLabel, Counter>,
    cleanups: Family<CleanupStatusLabel, Counter>,
    recovered: Family<CleanupBackendLabel, Counter>,
    dead_letters: Family<CleanupBackendLabel, Counter>,
}

impl WorkerMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let Self { runs, items, last_success, stale, cleanups, recovered, dead_letters } = self;
        registry.register("s3o_worker_runs", "Runs of each worker by outcome", runs.clone());
        registry.register("s3o_worker_items", "Items that each worker finished, by outcome", items.clone());
        registry.register(
            "s3o_worker_last_success_timestamp_seconds",
            "Unix time at which the last successful run of each worker finished",
            last_success.clone(),
        );
        registry.register(
            "s3o_stale_settlements",
            "Results that changed nothing because another worker had taken over the claim, by worker",
            stale.clone(),
        );
        registry.register("s3o_cleanup_queue_processed", "Cleanup attempts by outcome", cleanups.clone());
        registry.register(
            "s3o_cleanup_queue_stale_claims_recovered",
            "Cleanup claims released because their holder did not settle them in time",
            recovered.clone(),
        );
        registry.register(
            "s3o_cleanup_dlq_enqueued",
            "Cleanups moved to the dead-letter queue, by backend",
            dead_letters.clone(),
        );
    }

    /// Creates the series of the cleanup metrics with value 0.
    pub(crate) fn init_backends(&self, backends: impl Iterator<Item = BackendName>) {
        for status in STATUSES {
            drop(self.cleanups.get_or_create(&CleanupStatusLabel { status }));
        }
        for backend in backends.map(|backend| backend.to_string()) {
            drop(self.recovered.get_or_create(&CleanupBackendLabel { backend: backend.clone() }));
            drop(self.dead_letters.get_or_create(&CleanupBackendLabel { backend }));
        }
    }

    /// Creates the series of a worker with value 0.
    pub(crate) fn init_worker(&self, worker: &'static str) {
        drop(self.runs.get_or_create(&OutcomeLabels { worker, outcome: RunOutcome::Ok.as_str() }));
        drop(self.stale.get_or_create(&WorkerLabel { worker }));
    }

    pub(crate) fn succeeded(&self, worker: &'static str, at: Timestamp) {
        self.last_success.get_or_create(&WorkerLabel { worker }).set(at.seconds());
    }

    /// Counts a run that did not start.
    pub(crate) fn not_run(&self, worker: &'static str, outcome: RunOutcome) {
        self.runs.get_or_create(&OutcomeLabels { worker, outcome: outcome.as_str() }).inc();
    }

    pub(crate) fn ran(&self, run: &RunReport, work: &Report) {
        let worker = run.worker;
        self.runs.get_or_create(&OutcomeLabels { worker, outcome: run.outcome.as_str() }).inc();
        for (outcome, count) in &work.items {
            self.items.get_or_create(&OutcomeLabels { worker, outcome }).inc_by(*count);
            if *outcome == STALE {
                self.stale.get_or_create(&WorkerLabel { worker }).inc_by(*count);
            } else if worker == CLEANUP && *outcome != RECOVERED {
                self.cleanups.get_or_create(&CleanupStatusLabel { status: outcome }).inc_by(*count);
            }
        }
        for ((outcome, backend), count) in &work.by_backend {
            let family = match (worker, *outcome) {
                (_, RECOVERED) => &self.recovered,
                (CLEANUP, EXHAUSTED) => &self.dead_letters,
                _ => continue,
            };
            family.get_or_create(&CleanupBackendLabel { backend: backend.to_string() }).inc_by(*count);
        }
    }
}
