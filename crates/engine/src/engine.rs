//! The engine: what every operation needs, and nothing that only one needs.

use std::sync::Arc;
use std::time::Duration;

use s3o_backend::fleet::Fleet;
use s3o_cache::Cache;
use s3o_catalog::{
    Buckets, Catalog, Committed, Copies, Expiries, Intents, Lifecycles, Objects, Quotas, Resolved, Uploads,
};
use s3o_model::bucket::{Bucket, BucketSettings, ConfiguredBuckets};
use s3o_model::clock::{Clock, Timestamp};
use s3o_model::ids::{IdSource, InstanceId};
use s3o_model::intent::renewal_interval;
use s3o_model::lifecycle::ConfiguredRules;
use s3o_model::names::{BackendName, BucketName, ObjectKey};
use s3o_model::recovery::Recovery;
use s3o_model::shared::Shared;
use tokio::sync::Notify;

use crate::Error;
use crate::cached::Forgetting;
use crate::departure::Rules;
use crate::leases::{Leases, Term};
use crate::metrics::IntentMetrics;
use crate::proof::Looks;
use crate::tasks::Tasks;
use crate::write::Leftovers;

/// How the engine works.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// How long an intent holds without renewal.
    pub lease: Duration,
    /// How long a write whose answer was lost may still land.
    pub late_write_window: Duration,
    /// The largest object, in bytes.
    pub object_bytes_max: u64,
    /// Whether writes are announced before they happen. Without it a crash between a write and its
    /// commit leaves bytes that no row knows.
    pub announce: bool,
    /// Whether writes whose writer is gone are finished.
    pub recovery: Recovery,
}

/// Bytes that no row may name.
#[derive(Debug, Clone, Copy)]
pub struct Orphan<'a> {
    /// Where they are.
    pub backend: &'a BackendName,
    /// Under which physical key.
    pub physical_key: &'a str,
    /// How many there are.
    pub size_bytes: u64,
    /// The bucket that they were written for.
    pub bucket: &'a BucketName,
    /// The key that they were written for.
    pub key: &'a ObjectKey,
    /// Why they could not be queued for deletion.
    pub error: &'a str,
}

/// Is informed of bytes that no row may name.
pub trait OrphanAlarm: Send + Sync {
    /// Bytes were written, not committed, and could not be queued for deletion.
    fn orphaned(&self, orphan: &Orphan<'_>);
}

/// Discards every report; for tests and tools without an audit file.
impl OrphanAlarm for () {
    fn orphaned(&self, _orphan: &Orphan<'_>) {}
}

/// What an engine is made of.
pub struct Parts {
    /// The catalog.
    pub catalog: Arc<Catalog>,
    /// The backends.
    pub fleet: Arc<Fleet>,
    /// Where identifiers come from.
    pub ids: IdSource,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// This process.
    pub instance: InstanceId,
    /// How it works.
    pub settings: Settings,
    /// How buckets were configured.
    pub configured: Shared<ConfiguredBuckets>,
    /// The lifecycle rules that were configured.
    pub configured_rules: Shared<ConfiguredRules>,
    /// Rung when bytes are to be deleted.
    pub cleanup_bell: Arc<Notify>,
    /// Counts what becomes of announced writes.
    pub metrics: IntentMetrics,
    /// Hears of bytes that no row knows of.
    pub alarm: Arc<dyn OrphanAlarm>,
    /// Keeps small bodies at hand, where that is wanted.
    pub cache: Option<Arc<Cache>>,
}

/// Does what requests ask. Clones are the same engine.
#[derive(Clone)]
pub struct Engine {
    pub(crate) buckets: Arc<dyn Buckets>,
    pub(crate) objects: Arc<dyn Objects>,
    pub(crate) expiries: Arc<dyn Expiries>,
    pub(crate) uploads: Arc<dyn Uploads>,
    pub(crate) intents: Arc<dyn Intents>,
    pub(crate) quotas: Arc<dyn Quotas>,
    pub(crate) lifecycles: Arc<dyn Lifecycles>,
    pub(crate) copies: Arc<dyn Copies>,
    pub(crate) looks: Arc<Looks>,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) ids: IdSource,
    pub(crate) instance: InstanceId,
    settings: Shared<Settings>,
    /// Rung when they changed.
    resettled: Arc<Notify>,
    configured: Shared<ConfiguredBuckets>,
    pub(crate) rules: Rules,
    pub(crate) leases: Leases,
    pub(crate) leftovers: Arc<Leftovers>,
    pub(crate) tasks: Tasks,
    pub(crate) metrics: IntentMetrics,
    pub(crate) alarm: Arc<dyn OrphanAlarm>,
    pub(crate) cache: Option<Arc<Cache>>,
    clock: Arc<dyn Clock>,
    cleanup_bell: Arc<Notify>,
}

impl Engine {
    /// An engine of these parts.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let Parts { catalog, fleet, ids, clock, instance, settings, configured, .. } = parts;
        let Parts { configured_rules, cleanup_bell, metrics, alarm, cache, .. } = parts;
        if let Some(cache) = &cache {
            catalog.tell_of_condemned(Arc::new(Forgetting(Arc::clone(cache))));
        }
        let looks = Arc::new(Looks { fleet: fleet.clone(), catalog: Arc::downgrade(&catalog) });
        catalog.prove_by(looks.clone());
        Self {
            buckets: catalog.clone(),
            objects: catalog.clone(),
            expiries: catalog.clone(),
            uploads: catalog.clone(),
            intents: catalog.clone(),
            quotas: catalog.clone(),
            lifecycles: catalog.clone(),
            copies: catalog,
            looks,
            fleet,
            ids,
            instance,
            settings: Shared::new(settings),
            resettled: Arc::default(),
            configured,
            rules: Rules::new(configured_rules),
            leases: Leases::new(clock.clone()),
            leftovers: Arc::default(),
            tasks: Tasks::default(),
            metrics,
            alarm,
            cache,
            clock,
            cleanup_bell,
        }
    }

    /// The requests' work that is under way, for a shutdown that waits for it.
    #[must_use]
    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// Renews the leases of open intents, and does again what the catalog did not answer, for as long as it is polled.
    pub async fn keep_leases(&self) {
        tokio::join!(self.keep_renewing(), self.keep_leftovers());
    }

    async fn keep_renewing(&self) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(renewal_interval(self.settings().lease)) => {}
                // A shorter lease is to be renewed sooner than the rest that began before it.
                () = self.resettled.notified() => {}
            }
            self.renew_leases().await;
        }
    }

    /// Renews the leases of open intents once.
    pub async fn renew_leases(&self) {
        let open = self.leases.open();
        if open.is_empty() {
            return;
        }
        let term = self.lease_term();
        match self.intents.renew(&open, self.settings().lease).await {
            Ok(renewed) => self.leases.renewed(&open, &renewed, term),
            Err(error) => {
                tracing::warn!(%error, intents = open.len(), "leases were not renewed");
                self.leases.not_renewed();
            }
        }
    }

    /// How long a lease holds that the catalog is about to be asked for. Half of the window in which cleanups look for
    /// late bytes is for the writer, the other half for the backend.
    pub(crate) fn lease_term(&self) -> Term {
        let Settings { lease, late_write_window, .. } = self.settings();
        Term { ends: self.clock.reading().after(lease), grace: late_write_window / 2 }
    }

    /// How it works now.
    pub(crate) fn settings(&self) -> Settings {
        *self.settings.current()
    }

    /// Works like this from now on.
    pub fn resettle(&self, settings: Settings, configured: ConfiguredBuckets) {
        self.settings.replace(settings);
        self.configured.replace(configured);
        self.resettled.notify_one();
    }

    /// How this bucket was configured.
    #[must_use]
    pub fn bucket_settings(&self, bucket: &BucketName) -> BucketSettings {
        self.configured.current().of(bucket)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Rings for the cleanup worker.
    pub(crate) fn ring_for_cleanup(&self) {
        self.cleanup_bell.notify_one();
    }

    pub(crate) fn after_commit(&self, committed: Committed) {
        if committed.displaced {
            self.ring_for_cleanup();
        }
    }

    pub(crate) async fn find_bucket(&self, name: &BucketName) -> Result<Bucket, Error> {
        self.buckets.bucket(name).await?.ok_or(Error::NoSuchBucket)
    }

    pub(crate) async fn find(&self, bucket: &BucketName, key: &ObjectKey) -> Result<Resolved, Error> {
        self.objects.resolve(bucket, key).await?.ok_or(Error::NoSuchBucket)
    }
}
