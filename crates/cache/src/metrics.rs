//! What the cache was asked and what it answered, counted.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    tier: &'static str,
    outcome: &'static str,
}

/// Counts by tier and outcome. Clones are the same counters.
#[derive(Debug, Clone, Default)]
pub(crate) struct Metrics {
    requests: Family<Labels, Counter>,
    invalidations: Family<Labels, Counter>,
}

/// What can come of asking memory: it has the body; another reader is fetching it and shares it;
/// it is fetched now; so much is being fetched that this one is read past the cache.
const MEMORY_OUTCOMES: [&str; 4] = ["hit", "shared", "miss", "bypass"];
/// What can come of asking a shared tier. `corrupt`: what it holds is not that body. `skipped`: it
/// is known to be away.
const SHARED_OUTCOMES: [&str; 5] = ["hit", "miss", "error", "corrupt", "skipped"];
/// What can come of asking a shared tier to forget. `dropped`: it is away or too much is waiting;
/// those entries end with their time.
const FORGET_OUTCOMES: [&str; 2] = ["ok", "dropped"];

impl Metrics {
    pub(crate) fn register(&self, registry: &mut Registry, shared: &[&'static str]) {
        registry.register(
            "s3o_cache_requests",
            "Bodies that readers asked a tier of the cache for, by outcome",
            self.requests.clone(),
        );
        registry.register(
            "s3o_cache_invalidations",
            "Bodies that a tier of the cache was told to forget, by outcome",
            self.invalidations.clone(),
        );
        for outcome in MEMORY_OUTCOMES {
            drop(self.requests.get_or_create(&Labels { tier: "memory", outcome }));
        }
        drop(self.invalidations.get_or_create(&Labels { tier: "memory", outcome: "ok" }));
        for tier in shared.iter().copied() {
            for outcome in SHARED_OUTCOMES {
                drop(self.requests.get_or_create(&Labels { tier, outcome }));
            }
            for outcome in FORGET_OUTCOMES {
                drop(self.invalidations.get_or_create(&Labels { tier, outcome }));
            }
        }
    }

    pub(crate) fn asked(&self, tier: &'static str, outcome: &'static str) {
        self.requests.get_or_create(&Labels { tier, outcome }).inc();
    }

    pub(crate) fn forgot(&self, tier: &'static str, outcome: &'static str, count: usize) {
        self.invalidations.get_or_create(&Labels { tier, outcome }).inc_by(count as u64);
    }

    pub(crate) fn count(&self, tier: &'static str, outcome: &'static str) -> u64 {
        self.requests.get_or_create(&Labels { tier, outcome }).get()
    }
}
