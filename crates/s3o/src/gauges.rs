//! Metrics of the backends and the catalog: counted as things happen, gauges read when asked for.

pub mod health;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use s3o_backend::layers::Meter;
use s3o_catalog::{Catalog, Cleanups as _, DeadLetters as _, Quotas as _};
use s3o_model::names::BackendName;
use s3o_server::admin::Refresh;

use crate::tally::Tally;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    backend: String,
    operation: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Operation {
    backend: String,
    operation: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Backend {
    backend: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Bucket {
    bucket: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Queue {
    queue: &'static str,
}

/// Counts what is asked of the backends.
#[derive(Debug, Clone)]
pub struct BackendMeter {
    requests: Family<Call, Counter>,
    durations: Family<Operation, Histogram>,
    ingress: Family<Backend, Counter>,
    egress: Family<Backend, Counter>,
}

impl BackendMeter {
    /// A meter whose counts are shown in this registry.
    pub fn register(registry: &mut Registry) -> Self {
        let requests = Family::default();
        let durations = Family::new_with_constructor(latency as fn() -> Histogram);
        registry.register("s3o_backend_requests", "Calls to each backend by operation and outcome", requests.clone());
        registry.register("s3o_backend_duration_seconds", "How long calls to each backend took", durations.clone());
        let (ingress, egress) = (Family::default(), Family::default());
        registry.register("s3o_backend_ingress_bytes", "Bytes sent to each backend", ingress.clone());
        registry.register("s3o_backend_egress_bytes", "Bytes read from each backend", egress.clone());
        Self { requests, durations, ingress, egress }
    }
}

fn latency() -> Histogram {
    Histogram::new(exponential_buckets(0.0005, 2.0, 18))
}

impl Meter for BackendMeter {
    fn observe(&self, backend: &BackendName, operation: &'static str, outcome: &'static str, duration: Duration) {
        let backend = backend.to_string();
        self.durations
            .get_or_create(&Operation { backend: backend.clone(), operation })
            .observe(duration.as_secs_f64());
        self.requests.get_or_create(&Call { backend, operation, outcome }).inc();
    }

    fn bytes_in(&self, backend: &BackendName, bytes: u64) {
        self.ingress.get_or_create(&Backend { backend: backend.to_string() }).inc_by(bytes);
    }

    fn bytes_out(&self, backend: &BackendName, bytes: u64) {
        self.egress.get_or_create(&Backend { backend: backend.to_string() }).inc_by(bytes);
    }
}

/// Numbers that are read from the catalog.
pub struct CatalogGauges {
    catalog: Arc<Catalog>,
    tally: Arc<Tally>,
    objects: Family<Bucket, Gauge>,
    saved: Family<Bucket, Gauge>,
    oldest_due: Family<Queue, Gauge<f64, AtomicU64>>,
    used: Family<Backend, Gauge>,
    limit: Family<Backend, Gauge>,
    orphan: Family<Backend, Gauge>,
    reserved: Family<Backend, Gauge>,
    written_off: Family<Backend, Gauge>,
    cleanups: Gauge,
    dead_letters: Gauge,
    intents: Gauge,
    uploads: Gauge,
    units: Counter,
    commits: Counter,
}

impl CatalogGauges {
    /// Gauges that are shown in this registry.
    pub fn register(registry: &mut Registry, (catalog, tally): (Arc<Catalog>, Arc<Tally>)) -> Self {
        let gauges = Self {
            catalog,
            tally,
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
            units: Counter::default(),
            commits: Counter::default(),
        };
        registry.register("s3o_quota_bytes_used", "Bytes in locations", gauges.used.clone());
        registry.register("s3o_quota_bytes_limit", "Bytes the backend may hold", gauges.limit.clone());
        registry.register(
            "s3o_quota_orphan_bytes",
            "Bytes that wait for cleanup, dead letters included",
            gauges.orphan.clone(),
        );
        registry.register("s3o_quota_reserved_bytes", "Bytes reserved by open intents", gauges.reserved.clone());
        registry.register(
            "s3o_quota_written_off_bytes",
            "Bytes that left the books on request, though nobody proved them gone",
            gauges.written_off.clone(),
        );
        registry.register("s3o_cleanup_dlq_depth", "Cleanups that were refused too often", gauges.dead_letters.clone());
        registry.register("s3o_cleanup_queue_depth", "Rows in the cleanup queue", gauges.cleanups.clone());
        registry.register("s3o_pending_intents_depth", "Intents that are not resolved", gauges.intents.clone());
        registry.register("s3o_multipart_uploads_open", "Multipart uploads that are open", gauges.uploads.clone());
        registry.register("s3o_objects", "Objects in each bucket, as of the last count", gauges.objects.clone());
        registry.register(
            "s3o_dedup_saved_bytes",
            "Bytes of each bucket that lie nowhere because others have them, as of the last count",
            gauges.saved.clone(),
        );
        registry.register(
            "s3o_oldest_due_seconds",
            "For how long the oldest row of each queue has been due",
            gauges.oldest_due.clone(),
        );
        registry.register("s3o_catalog_units", "Units of work that were run", gauges.units.clone());
        registry.register("s3o_catalog_commits", "Transactions that were committed", gauges.commits.clone());
        gauges
    }

    async fn read(&self) -> Result<(), s3o_catalog::Error> {
        let written_off: HashMap<BackendName, u64> = self.catalog.written_off().await?.into_iter().collect();
        for books in self.catalog.books().await? {
            let labels = Backend { backend: books.backend.to_string() };
            let gone = written_off.get(&books.backend).copied().unwrap_or(0);
            self.written_off.get_or_create(&labels).set(signed(gone));
            self.used.get_or_create(&labels).set(signed(books.used_bytes));
            self.orphan.get_or_create(&labels).set(signed(books.orphan_bytes));
            self.reserved.get_or_create(&labels).set(signed(books.reserved_bytes));
            match books.limit_bytes {
                Some(limit) => {
                    self.limit.get_or_create(&labels).set(signed(limit));
                }
                None => {
                    self.limit.remove(&labels);
                }
            }
        }
        let depths = self.catalog.depths().await?;
        self.dead_letters.set(signed(depths.dead_letters));
        self.cleanups.set(signed(depths.cleanups));
        self.intents.set(signed(depths.intents));
        self.uploads.set(signed(depths.uploads));
        let due = self.tally.oldest_due().await?;
        for (queue, age) in [
            ("cleanup", due.cleanup),
            ("pending_intents", due.pending_intents),
            ("stale_multipart", due.stale_multipart),
            ("expiry", due.expiry),
        ] {
            self.oldest_due.get_or_create(&Queue { queue }).set(age.as_secs_f64());
        }
        self.show_objects().await;
        Ok(())
    }

    async fn show_objects(&self) {
        let Some(counts) = self.tally.counts().await else { return };
        // Buckets that are gone are shown no more.
        self.objects.clear();
        self.saved.clear();
        for count in &counts.buckets {
            let labels = Bucket { bucket: count.bucket.clone() };
            self.objects.get_or_create(&labels).set(signed(count.objects));
            self.saved.get_or_create(&labels).set(signed(count.saved));
        }
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[async_trait]
impl Refresh for CatalogGauges {
    async fn refresh(&self) {
        let effort = self.catalog.effort();
        self.units.inner().store(effort.units, Ordering::Relaxed);
        self.commits.inner().store(effort.commits, Ordering::Relaxed);
        if let Err(error) = self.read().await {
            tracing::warn!(%error, "gauges not refreshed");
        }
    }
}
