//! What becomes of announced writes, counted; requests and the reaper share the counters.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use s3o_model::cleanup::Reason;
use s3o_model::names::BackendName;

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

/// Counts what becomes of announced writes. Clones are the same counters.
#[derive(Debug, Clone, Default)]
pub struct IntentMetrics {
    enqueued: Counter,
    resolved: Family<Status, Counter>,
    not_queued: Family<NotQueued, Counter>,
}

/// Every way in which an intent ends, or does not.
const STATUSES: [&str; 5] = ["committed", "promoted", "dropped", "superseded", "ambiguous"];

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
            "Bytes that no row knows of: written without an intent, not committed, not queued",
            self.not_queued.clone(),
        );
        for status in STATUSES {
            drop(self.resolved.get_or_create(&Status { status }));
        }
        for backend in backends {
            for stage in ["enqueue", "orphan_bytes"] {
                drop(self.not_queued.get_or_create(&not_queued(&backend, Reason::PutOrphan, stage)));
            }
        }
    }

    pub(crate) fn announced(&self) {
        self.enqueued.inc();
    }

    /// Counts a write that came to an end, or could not be brought to one.
    pub fn resolved(&self, status: &'static str) {
        self.resolved.get_or_create(&Status { status }).inc();
    }

    pub(crate) fn orphaned(&self, backend: &BackendName, reason: Reason) {
        self.not_queued.get_or_create(&not_queued(backend, reason, "enqueue")).inc();
    }
}

fn not_queued(backend: &BackendName, reason: Reason, stage: &'static str) -> NotQueued {
    NotQueued { backend: backend.to_string(), reason: reason.as_str(), stage }
}
