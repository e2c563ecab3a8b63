//! Metrics that are read from the catalog and the fleet for each scrape.

mod scrub;
mod usage;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use s3o_backend::Fleet;
use s3o_backend::fleet::Health;
use s3o_catalog::Catalog;
use s3o_model::circuit::CircuitState;
use s3o_model::clock::Clock;
use s3o_model::names::BackendName;
use s3o_workers::UsageLedger;

use super::stats::Stats;
use scrub::ScrubGauge;
use usage::UsageGauges;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BackendLabel {
    backend: String,
}

impl BackendLabel {
    fn new(name: &BackendName) -> Self {
        Self { backend: name.to_string() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BucketLabel {
    bucket: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabel {
    queue: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabel {
    version: &'static str,
}

/// What the gauges are read from.
pub struct GaugeSources {
    /// Quotas and queues.
    pub catalog: Arc<Catalog>,
    /// Counts of objects.
    pub stats: Arc<Stats>,
    /// Health of the backends.
    pub fleet: Arc<Fleet>,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// Usage of the backends.
    pub usage: Arc<UsageLedger>,
}

/// The gauges and what they are read from.
pub struct Gauges {
    usage: UsageGauges,
    scrub: ScrubGauge,
    sources: GaugeSources,
    up: Family<BackendLabel, Gauge>,
    frozen: Family<BackendLabel, Gauge>,
    unhealthy: Family<BackendLabel, Gauge>,
    circuit: Family<BackendLabel, Gauge>,
    objects: Family<BucketLabel, Gauge>,
    saved: Family<BucketLabel, Gauge>,
    oldest_due: Family<QueueLabel, Gauge<f64, AtomicU64>>,
    used: Family<BackendLabel, Gauge>,
    limit: Family<BackendLabel, Gauge>,
    orphan: Family<BackendLabel, Gauge>,
    reserved: Family<BackendLabel, Gauge>,
    written_off: Family<BackendLabel, Gauge>,
    cleanups: Gauge,
    dead_letters: Gauge,
    intents: Gauge,
    uploads: Gauge,
    missing_copies: Gauge,
    excess_copies: Gauge,
    units: Counter,
    commits: Counter,
}

impl Gauges {
    /// Registers the gauges; they are zero until the first `refresh`.
    pub fn register(registry: &mut Registry, sources: GaugeSources) -> Self {
        let gauges = Self {
            usage: UsageGauges::register(registry, Arc::clone(&sources.usage)),
            scrub: ScrubGauge::register(registry),
            sources,
            up: Family::default(),
            frozen: Family::default(),
            unhealthy: Family::default(),
            circuit: Family::default(),
            objects: Family::default(),
            saved: Family::default(),
            oldest_due: Family::default(),
            used: Family::default(),
            limit: Family::default(),
            orphan: Family::default(),
            reserved: Family::default(),
            written_off: Family::default(),
            cleanups: Gauge::default(),
            dead_letters: Gauge::default(),
            intents: Gauge::default(),
            uploads: Gauge::default(),
            missing_copies: Gauge::default(),
            excess_copies: Gauge::default(),
            units: Counter::default(),
            commits: Counter::default(),
        };
        gauges.register_backends(registry);
        gauges.register_catalog(registry);
        let build = Family::<BuildLabel, Gauge>::default();
        registry.register("s3o_build_info", "Always 1; the label is the version of s3o", build.clone());
        build.get_or_create(&BuildLabel { version: env!("CARGO_PKG_VERSION") }).set(1);
        gauges
    }

    fn register_backends(&self, registry: &mut Registry) {
        for (name, help, family) in [
            ("s3o_backend_up", "1 if the backend answers, 0 if it is away", &self.up),
            ("s3o_backend_frozen", "1 if the backend takes no writes and no deletes", &self.frozen),
            ("s3o_backend_unhealthy", "1 while the copies on the backend do not count", &self.unhealthy),
            (
                "s3o_circuit_breaker_state",
                "0 closed: calls are made; 1 half-open: one trial call is made; 2 open: calls are skipped",
                &self.circuit,
            ),
            ("s3o_quota_bytes_used", "Bytes stored on the backend for live objects", &self.used),
            ("s3o_quota_bytes_limit", "Quota of the backend in bytes; absent if it has none", &self.limit),
            ("s3o_quota_orphan_bytes", "Bytes waiting for cleanup, dead letters included", &self.orphan),
            ("s3o_quota_reserved_bytes", "Bytes reserved by open intents", &self.reserved),
            (
                "s3o_quota_written_off_bytes",
                "Bytes of dead letters that an operator discarded without proof that the bytes are gone",
                &self.written_off,
            ),
        ] {
            registry.register(name, help, family.clone());
        }
    }

    fn register_catalog(&self, registry: &mut Registry) {
        for (name, help, gauge) in [
            ("s3o_cleanup_dlq_depth", "Rows in the dead-letter queue", &self.dead_letters),
            ("s3o_cleanup_queue_depth", "Rows in the cleanup queue", &self.cleanups),
            ("s3o_pending_intents_depth", "Intents that are not resolved", &self.intents),
            ("s3o_multipart_uploads_open", "Open multipart uploads", &self.uploads),
            ("s3o_replication_pending", "Contents with fewer copies than their factor", &self.missing_copies),
            ("s3o_over_replication_pending", "Contents with copies that they do not need", &self.excess_copies),
        ] {
            registry.register(name, help, gauge.clone());
        }
        registry.register("s3o_objects", "Objects in each bucket, as of the last count", self.objects.clone());
        registry.register(
            "s3o_dedup_saved_bytes",
            "Bytes of each bucket that deduplication saved, as of the last count",
            self.saved.clone(),
        );
        registry.register(
            "s3o_oldest_due_seconds",
            "How long the oldest row of each queue has been due; 0 if none is",
            self.oldest_due.clone(),
        );
        registry.register("s3o_catalog_units", "Units of work run on the catalog", self.units.clone());
        registry.register("s3o_catalog_commits", "Transactions committed in the catalog", self.commits.clone());
    }

    /// Reads every gauge; those of the catalog keep their last value while it does not answer.
    pub(super) async fn refresh(&self) {
        self.read_fleet();
        self.usage.read().await;
        let effort = self.sources.catalog.effort();
        self.units.inner().store(effort.units, Ordering::Relaxed);
        self.commits.inner().store(effort.commits, Ordering::Relaxed);
        if let Err(error) = self.read_catalog().await {
            tracing::warn!(%error, "cannot read catalog gauges, metrics show their last values");
        }
    }

    fn read_fleet(&self) {
        let fleet = &self.sources.fleet;
        for (name, health) in fleet.health(self.sources.clock.now()) {
            let state = fleet.state(&name).unwrap_or_default();
            let label = BackendLabel::new(&name);
            self.up.get_or_create(&label).set(i64::from(!matches!(health, Health::Away(_))));
            self.frozen.get_or_create(&label).set(i64::from(state.frozen.is_some()));
            self.unhealthy.get_or_create(&label).set(i64::from(state.unhealthy_since.is_some()));
            self.circuit.get_or_create(&label).set(match fleet.worst_circuit(&name) {
                CircuitState::Closed => 0,
                CircuitState::HalfOpen => 1,
                CircuitState::Open => 2,
            });
        }
    }

    async fn read_catalog(&self) -> Result<(), s3o_catalog::Error> {
        self.read_quotas().await?;
        self.scrub.read(&self.sources.catalog).await?;
        let depths = self.sources.catalog.depths().await?;
        self.dead_letters.set(signed(depths.dead_letters));
        self.cleanups.set(signed(depths.cleanups));
        self.intents.set(signed(depths.intents));
        self.uploads.set(signed(depths.uploads));
        self.missing_copies.set(signed(depths.missing_copies));
        self.excess_copies.set(signed(depths.excess_copies));
        let due = self.sources.stats.oldest_due().await?;
        for (queue, age) in [
            ("cleanup", due.cleanup),
            ("pending_intents", due.pending_intents),
            ("stale_multipart", due.stale_multipart),
            ("expiry", due.expiry),
        ] {
            self.oldest_due.get_or_create(&QueueLabel { queue }).set(age.as_secs_f64());
        }
        self.read_counts().await;
        Ok(())
    }

    async fn read_quotas(&self) -> Result<(), s3o_catalog::Error> {
        let catalog = &self.sources.catalog;
        let written_off: HashMap<BackendName, u64> = catalog.written_off().await?.into_iter().collect();
        for quota in catalog.quota_usage().await? {
            let label = BackendLabel::new(&quota.backend);
            let written_off = written_off.get(&quota.backend).copied().unwrap_or(0);
            self.written_off.get_or_create(&label).set(signed(written_off));
            self.used.get_or_create(&label).set(signed(quota.used_bytes));
            self.orphan.get_or_create(&label).set(signed(quota.orphan_bytes));
            self.reserved.get_or_create(&label).set(signed(quota.reserved_bytes));
            match quota.limit_bytes {
                Some(limit) => {
                    self.limit.get_or_create(&label).set(signed(limit));
                }
                None => {
                    self.limit.remove(&label);
                }
            }
        }
        Ok(())
    }

    async fn read_counts(&self) {
        let Some(counts) = self.sources.stats.counts().await else { return };
        // Deleted buckets must not keep their last value.
        self.objects.clear();
        self.saved.clear();
        for count in &counts.buckets {
            let label = BucketLabel { bucket: count.bucket.clone() };
            self.objects.get_or_create(&label).set(signed(count.objects));
            self.saved.get_or_create(&label).set(signed(count.saved));
        }
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
