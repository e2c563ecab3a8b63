//! Prometheus metrics of the cache.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CacheLabels {
    tier: &'static str,
    outcome: &'static str,
}

/// Counters by tier and outcome. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct CacheMetrics {
    requests: Family<CacheLabels, Counter>,
    invalidations: Family<CacheLabels, Counter>,
}

/// Outcomes of a request to memory: `hit`; `shared`, another reader fetches the body and shares it;
/// `miss`; `bypass`, too many bytes are being fetched, so the read bypasses the cache.
const MEMORY_OUTCOMES: [&str; 4] = ["hit", "shared", "miss", "bypass"];
/// Outcomes of a request to a shared tier. `corrupt`: the stored value is not that body. `skipped`: the
/// tier is known to be unavailable.
const SHARED_OUTCOMES: [&str; 5] = ["hit", "miss", "error", "corrupt", "skipped"];
/// Outcomes of an invalidation in a shared tier. `dropped`: the tier is unavailable or the queue is full;
/// those entries expire.
const INVALIDATION_OUTCOMES: [&str; 2] = ["ok", "dropped"];

impl CacheMetrics {
    pub(crate) fn register(&self, registry: &mut Registry, shared: &[&'static str]) {
        registry.register(
            "s3o_cache_requests",
            "Requests for bodies to each cache tier, by outcome",
            self.requests.clone(),
        );
        registry.register(
            "s3o_cache_invalidations",
            "Invalidations of bodies in each cache tier, by outcome",
            self.invalidations.clone(),
        );
        for outcome in MEMORY_OUTCOMES {
            drop(self.requests.get_or_create(&CacheLabels { tier: "memory", outcome }));
        }
        drop(self.invalidations.get_or_create(&CacheLabels { tier: "memory", outcome: "ok" }));
        for tier in shared.iter().copied() {
            for outcome in SHARED_OUTCOMES {
                drop(self.requests.get_or_create(&CacheLabels { tier, outcome }));
            }
            for outcome in INVALIDATION_OUTCOMES {
                drop(self.invalidations.get_or_create(&CacheLabels { tier, outcome }));
            }
        }
    }

    pub(crate) fn count_request(&self, tier: &'static str, outcome: &'static str) {
        self.requests.get_or_create(&CacheLabels { tier, outcome }).inc();
    }

    pub(crate) fn count_invalidations(&self, tier: &'static str, outcome: &'static str, count: usize) {
        self.invalidations.get_or_create(&CacheLabels { tier, outcome }).inc_by(count as u64);
    }

    pub(crate) fn count(&self, tier: &'static str, outcome: &'static str) -> u64 {
        self.requests.get_or_create(&CacheLabels { tier, outcome }).get()
    }
}
