//! Counts the outcomes of announced writes; requests and the reaper share the counters.

mod open_writes;

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use s3o_model::cleanup::Reason;
use s3o_model::ids::WriteId;
use s3o_model::names::BackendName;
use tokio::sync::Notify;

use open_writes::{Counted, InDoubt, OpenWrites};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabels {
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EnqueueFailureLabels {
    backend: String,
    reason: &'static str,
    stage: &'static str,
}

/// Counts the outcome of every announced write exactly once. Clones share the counters.
#[derive(Debug, Clone, Default)]
pub struct IntentMetrics {
    enqueued: Counter,
    resolved: Family<StatusLabels, Counter>,
    enqueue_failures: Family<EnqueueFailureLabels, Counter>,
    degraded: Counter,
    writes: Arc<OpenWrites>,
    /// Notified when an operation must be retried because the catalog did not answer.
    retry_needed: Arc<Notify>,
}

/// A resolution that the reaper requests from the catalog. If it is dropped without `done` or `not_done`, the outcome
/// is looked up later.
#[derive(Debug)]
pub struct Resolving<'a> {
    metrics: &'a IntentMetrics,
    write: WriteId,
    status: &'static str,
    answered: bool,
}

/// Status of an intent that has ended.
const ENDS: [&str; 4] = ["committed", "promoted", "dropped", "superseded"];
/// Status of a check of an intent that decided nothing.
const AMBIGUOUS: &str = "ambiguous";

impl IntentMetrics {
    /// Registers the counters; those of these backends start at zero.
    pub fn register(&self, registry: &mut Registry, backends: impl Iterator<Item = BackendName>) {
        registry.register("s3o_pending_intents_enqueued", "Writes recorded as intents", self.enqueued.clone());
        registry.register("s3o_pending_intents_resolved", "Intents by outcome", self.resolved.clone());
        registry.register(
            "s3o_writes_degraded",
            "Writes acknowledged with fewer copies than write_copies",
            self.degraded.clone(),
        );
        registry.register(
            "s3o_cleanup_enqueue_failures",
            "Cleanups of written bytes that could not be queued immediately",
            self.enqueue_failures.clone(),
        );
        for status in ENDS.into_iter().chain([AMBIGUOUS]) {
            drop(self.resolved.get_or_create(&StatusLabels { status }));
        }
        for backend in backends {
            for stage in ["enqueue", "orphan_bytes"] {
                drop(self.enqueue_failures.get_or_create(&enqueue_failure_labels(&backend, Reason::PutOrphan, stage)));
            }
        }
    }

    /// Number of announced writes, and number of those that have ended.
    #[must_use]
    pub fn totals(&self) -> (u64, u64) {
        let ended = |status| self.resolved.get_or_create(&StatusLabels { status }).get();
        (self.enqueued.get(), ENDS.into_iter().map(ended).sum())
    }

    /// Counts a write that stored fewer copies than it should.
    pub(crate) fn degraded(&self) {
        self.degraded.inc();
    }

    /// Counts an announced write.
    pub(crate) fn announced(&self, write: WriteId) {
        self.writes.announced(write);
        self.enqueued.inc();
    }

    /// Records that the answer to an announcement was lost; a later lookup of the intent decides.
    pub(crate) fn maybe_announced(&self, write: WriteId) {
        self.writes.maybe_announced(write);
        self.retry_needed.notify_one();
    }

    /// Counts a write of this process that has ended with this status.
    pub(crate) fn ended(&self, write: WriteId, status: &'static str) {
        if self.writes.ended(write) {
            self.count(status);
        }
    }

    /// Records that another process fenced this write and counts its end.
    pub(crate) fn fenced(&self, write: WriteId) {
        self.writes.ended(write);
    }

    /// Records that the answer to ending a write with this status was lost; a later lookup of the intent decides.
    pub(crate) fn in_doubt(&self, write: WriteId, status: &'static str) {
        self.writes.in_doubt(write, status);
        self.retry_needed.notify_one();
    }

    /// Starts the resolution of a write that the reaper claimed.
    #[must_use]
    pub fn resolving(&self, write: WriteId, status: &'static str) -> Resolving<'_> {
        if self.writes.resolving(write) == Counted::Now {
            self.enqueued.inc();
        }
        Resolving { metrics: self, write, status, answered: false }
    }

    /// Counts a check of a write that left its outcome open.
    pub fn ambiguous(&self) {
        self.count(AMBIGUOUS);
    }

    pub(crate) fn in_doubt_writes(&self) -> Vec<InDoubt> {
        self.writes.all_in_doubt()
    }

    /// Counts the outcomes of writes in doubt; those in `open` still have their intents.
    pub(crate) fn resolve_in_doubt(&self, in_doubt: &[InDoubt], open: &[WriteId]) {
        for write in in_doubt {
            let found = self.writes.queried(*write, open.contains(&write.0));
            self.enqueued.inc_by(u64::from(found.announced));
            found.ended.into_iter().for_each(|status| self.count(status));
        }
    }

    /// Notified when an operation must be retried because the catalog did not answer.
    pub(crate) fn retry_needed(&self) -> &Notify {
        &self.retry_needed
    }

    pub(crate) fn orphaned(&self, backend: &BackendName, reason: Reason) {
        self.enqueue_failures.get_or_create(&enqueue_failure_labels(backend, reason, "enqueue")).inc();
    }

    fn count(&self, status: &'static str) {
        self.resolved.get_or_create(&StatusLabels { status }).inc();
    }
}

impl Resolving<'_> {
    /// Counts the resolution: the catalog committed it.
    pub fn done(mut self) {
        self.answered = true;
        self.metrics.writes.resolved(self.write);
        self.metrics.count(self.status);
    }

    /// Records that the catalog certainly did not commit the resolution.
    pub fn not_done(mut self) {
        self.answered = true;
        self.metrics.writes.not_resolved(self.write);
    }
}

impl Drop for Resolving<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.metrics.writes.unanswered(self.write, self.status);
            self.metrics.retry_needed.notify_one();
        }
    }
}

fn enqueue_failure_labels(backend: &BackendName, reason: Reason, stage: &'static str) -> EnqueueFailureLabels {
    EnqueueFailureLabels { backend: backend.to_string(), reason: reason.as_str(), stage }
}
