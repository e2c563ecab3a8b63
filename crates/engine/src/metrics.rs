//! What becomes of announced writes, counted; requests and the reaper share the counters.

mod ledger;

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use s3o_model::cleanup::Reason;
use s3o_model::ids::WriteId;
use s3o_model::names::BackendName;
use tokio::sync::Notify;

use ledger::{Counted, Doubtful, Ledger};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Status {
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NotQueued {
    backend: String,
    reason: &'static str,
    stage: &'static str,
}

/// Counts what becomes of announced writes, each exactly once. Clones are the same counters.
#[derive(Debug, Clone, Default)]
pub struct IntentMetrics {
    enqueued: Counter,
    resolved: Family<Status, Counter>,
    not_queued: Family<NotQueued, Counter>,
    ledger: Arc<Ledger>,
    /// Rung when something is left to be done again.
    left: Arc<Notify>,
}

/// A resolution that the catalog was asked for. If its answer is lost, the outcome is looked up later.
#[derive(Debug)]
pub struct Resolving<'a> {
    metrics: &'a IntentMetrics,
    write: WriteId,
    status: &'static str,
    answered: bool,
}

/// Every way in which an intent ends.
const ENDS: [&str; 4] = ["committed", "promoted", "dropped", "superseded"];
/// A look at an intent that decided nothing.
const AMBIGUOUS: &str = "ambiguous";

impl IntentMetrics {
    /// Shows the counters to whoever reads the metrics.
    pub fn register(&self, registry: &mut Registry, backends: impl Iterator<Item = BackendName>) {
        registry.register("s3o_pending_intents_enqueued", "Writes that were announced", self.enqueued.clone());
        registry.register(
            "s3o_pending_intents_resolved",
            "Announced writes by what became of them",
            self.resolved.clone(),
        );
        registry.register(
            "s3o_cleanup_enqueue_failures",
            "Cleanups of written bytes that could not be queued at once",
            self.not_queued.clone(),
        );
        for status in ENDS.into_iter().chain([AMBIGUOUS]) {
            drop(self.resolved.get_or_create(&Status { status }));
        }
        for backend in backends {
            for stage in ["enqueue", "orphan_bytes"] {
                drop(self.not_queued.get_or_create(&not_queued(&backend, Reason::PutOrphan, stage)));
            }
        }
    }

    /// How many writes were announced, and how many of all came to an end.
    #[must_use]
    pub fn totals(&self) -> (u64, u64) {
        let ended = |status| self.resolved.get_or_create(&Status { status }).get();
        (self.enqueued.get(), ENDS.into_iter().map(ended).sum())
    }

    /// Counts a write that was announced.
    pub(crate) fn announced(&self, write: WriteId) {
        self.ledger.announced(write);
        self.enqueued.inc();
    }

    /// The answer to an announcement was lost: whether there is an intent is looked up later.
    pub(crate) fn maybe_announced(&self, write: WriteId) {
        self.ledger.maybe_announced(write);
        self.left.notify_one();
    }

    /// Counts a write of this process that came to this end.
    pub(crate) fn ended(&self, write: WriteId, status: &'static str) {
        if self.ledger.ended(write) {
            self.count(status);
        }
    }

    /// The process that fenced this write counts its end.
    pub(crate) fn fenced(&self, write: WriteId) {
        self.ledger.ended(write);
    }

    /// The answer to what would have ended a write so was lost; it is looked up later.
    pub(crate) fn in_doubt(&self, write: WriteId, status: &'static str) {
        self.ledger.in_doubt(write, status);
        self.left.notify_one();
    }

    /// The reaper asks the catalog to end a write that it claimed.
    #[must_use]
    pub fn resolving(&self, write: WriteId, status: &'static str) -> Resolving<'_> {
        if self.ledger.resolving(write) == Counted::Now {
            self.enqueued.inc();
        }
        Resolving { metrics: self, write, status, answered: false }
    }

    /// Counts a look at a write that decided nothing.
    pub fn ambiguous(&self) {
        self.count(AMBIGUOUS);
    }

    /// The writes whose end is in doubt.
    pub(crate) fn doubtful(&self) -> Vec<Doubtful> {
        self.ledger.doubtful()
    }

    /// Settles doubts: of the writes that were looked up, these still have their intents.
    pub(crate) fn looked_up(&self, doubtful: &[Doubtful], open: &[WriteId]) {
        for doubt in doubtful {
            let settled = self.ledger.looked_up(*doubt, open.contains(&doubt.0));
            self.enqueued.inc_by(u64::from(settled.announced));
            settled.ended.into_iter().for_each(|status| self.count(status));
        }
    }

    /// Rung when something is left to be done again.
    pub(crate) fn left(&self) -> &Notify {
        &self.left
    }

    pub(crate) fn orphaned(&self, backend: &BackendName, reason: Reason) {
        self.not_queued.get_or_create(&not_queued(backend, reason, "enqueue")).inc();
    }

    fn count(&self, status: &'static str) {
        self.resolved.get_or_create(&Status { status }).inc();
    }
}

impl Resolving<'_> {
    /// The catalog did it.
    pub fn done(mut self) {
        self.answered = true;
        self.metrics.ledger.resolved(self.write);
        self.metrics.count(self.status);
    }

    /// The catalog did not do it, and that is certain.
    pub fn not_done(mut self) {
        self.answered = true;
        self.metrics.ledger.not_resolved(self.write);
    }
}

impl Drop for Resolving<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.metrics.ledger.unanswered(self.write, self.status);
            self.metrics.left.notify_one();
        }
    }
}

fn not_queued(backend: &BackendName, reason: Reason, stage: &'static str) -> NotQueued {
    NotQueued { backend: backend.to_string(), reason: reason.as_str(), stage }
}
