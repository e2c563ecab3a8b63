//! What the runs of all workers add up to, for whoever reads the metrics.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use s3o_model::clock::Timestamp;
use s3o_model::names::BackendName;

use crate::report::{Outcome, Report, RunReport};
use crate::stale_claims::RECOVERED;

/// The worker whose items are the cleanup queue's.
const CLEANUP: &str = "cleanup";
/// Settlements that came too late. Neither they nor claims that were freed settle a row.
const STALE: &str = "stale";
/// What can become of a cleanup.
const STATUSES: [&str; 6] = ["success", "success_absent", "absent_after_accept", "retry", EXHAUSTED, "deferred"];
/// Cleanups that became dead letters.
const EXHAUSTED: &str = "exhausted";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    worker: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfWorker {
    worker: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Status {
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfBackend {
    backend: String,
}

#[derive(Default)]
pub(crate) struct Metrics {
    runs: Family<Labels, Counter>,
    items: Family<Labels, Counter>,
    last_success: Family<OfWorker, Gauge>,
    stale: Family<OfWorker, Counter>,
    cleanups: Family<Status, Counter>,
    recovered: Family<OfBackend, Counter>,
    dead_letters: Family<OfBackend, Counter>,
}

impl Metrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let Self { runs, items, last_success, stale, cleanups, recovered, dead_letters } = self;
        registry.register("s3o_worker_runs", "Runs of each worker by outcome", runs.clone());
        registry.register("s3o_worker_items", "Items that each worker brought to an end, by outcome", items.clone());
        registry.register(
            "s3o_worker_last_success_timestamp_seconds",
            "When the last good run of each worker finished",
            last_success.clone(),
        );
        registry.register(
            "s3o_stale_settlements",
            "Settlements that came too late and changed nothing, by worker",
            stale.clone(),
        );
        registry.register("s3o_cleanup_queue_processed", "Cleanups by what became of them", cleanups.clone());
        registry.register(
            "s3o_cleanup_queue_stale_claims_recovered",
            "Claims of cleanups that were freed because their holder did not settle them",
            recovered.clone(),
        );
        registry.register(
            "s3o_cleanup_dlq_enqueued",
            "Cleanups that became dead letters, by backend",
            dead_letters.clone(),
        );
    }

    /// Makes visible what can happen to cleanups of these backends before it happens.
    pub(crate) fn introduce_backends(&self, backends: impl Iterator<Item = BackendName>) {
        for status in STATUSES {
            drop(self.cleanups.get_or_create(&Status { status }));
        }
        for backend in backends.map(|backend| backend.to_string()) {
            drop(self.recovered.get_or_create(&OfBackend { backend: backend.clone() }));
            drop(self.dead_letters.get_or_create(&OfBackend { backend }));
        }
    }

    /// Makes a worker visible before anything happens.
    pub(crate) fn introduce(&self, worker: &'static str) {
        drop(self.runs.get_or_create(&Labels { worker, outcome: Outcome::Ok.as_str() }));
        drop(self.stale.get_or_create(&OfWorker { worker }));
    }

    pub(crate) fn succeeded(&self, worker: &'static str, at: Timestamp) {
        self.last_success.get_or_create(&OfWorker { worker }).set(at.seconds());
    }

    /// Counts a run that did not come about.
    pub(crate) fn not_run(&self, worker: &'static str, outcome: Outcome) {
        self.runs.get_or_create(&Labels { worker, outcome: outcome.as_str() }).inc();
    }

    pub(crate) fn ran(&self, run: &RunReport, work: &Report) {
        let worker = run.worker;
        self.runs.get_or_create(&Labels { worker, outcome: run.outcome.as_str() }).inc();
        for (outcome, count) in &work.items {
            self.items.get_or_create(&Labels { worker, outcome }).inc_by(*count);
            if *outcome == STALE {
                self.stale.get_or_create(&OfWorker { worker }).inc_by(*count);
            } else if worker == CLEANUP && *outcome != RECOVERED {
                self.cleanups.get_or_create(&Status { status: outcome }).inc_by(*count);
            }
        }
        for ((outcome, backend), count) in &work.by_backend {
            let family = match (worker, *outcome) {
                (_, RECOVERED) => &self.recovered,
                (CLEANUP, EXHAUSTED) => &self.dead_letters,
                _ => continue,
            };
            family.get_or_create(&OfBackend { backend: backend.to_string() }).inc_by(*count);
        }
    }
}
