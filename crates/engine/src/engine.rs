//! The engine: the state that all operations share.

use std::sync::Arc;
use std::time::Duration;

use s3o_backend::fleet::Fleet;
use s3o_cache::Cache;
use s3o_catalog::{Catalog, Committed, Resolved};
use s3o_model::bucket::{Bucket, BucketSettings, ConfiguredBuckets};
use s3o_model::clock::{Clock, Timestamp};
use s3o_model::ids::{IdSource, InstanceId};
use s3o_model::intent::renewal_interval;
use s3o_model::lifecycle::ConfiguredRules;
use s3o_model::names::{BackendName, BucketName, ObjectKey};
use s3o_model::placement::Strategy;
use s3o_model::recovery::Recovery;
use s3o_model::shared::Shared;
use tokio::sync::Notify;

use crate::Error;
use crate::cached::CacheInvalidator;
use crate::capacity::CachedUsage;
use crate::expiration::RuleCache;
use crate::leases::{LeaseTerm, Leases};
use crate::metrics::IntentMetrics;
use crate::tasks::Tasks;
use crate::write::{ContentSharing, UnqueuedBytes};

/// Settings that a reload can change.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Lifetime of an intent without renewal.
    pub lease: Duration,
    /// How long after a lost answer a backend may still store the bytes of a write.
    pub late_write_window: Duration,
    /// Maximum size of an object.
    pub object_bytes_max: u64,
    /// True if an intent precedes every write. Without it, a crash between a write and its commit leaves bytes that no
    /// row names.
    pub announce: bool,
    /// What the reaper does with complete writes whose writer crashed.
    pub recovery: Recovery,
    /// How backends are chosen for a write.
    pub strategy: Strategy,
    /// Number of copies that a write stores before it is acknowledged, if enough backends take writes.
    pub write_copies: usize,
    /// Smallest number of copies with which a write is acknowledged.
    pub write_copies_min: usize,
    /// How long a read waits for the first byte, or for the next one, before it tries another copy.
    pub first_byte_timeout: Duration,
}

/// Bytes on a backend that possibly no row names.
#[derive(Debug, Clone, Copy)]
pub struct Orphan<'a> {
    /// The backend that stores the bytes.
    pub backend: &'a BackendName,
    /// Key of the bytes on that backend.
    pub physical_key: &'a str,
    /// Number of bytes.
    pub size_bytes: u64,
    /// Bucket and key that the client wrote to; `None` for another copy of existing content.
    pub object: Option<&'a (BucketName, ObjectKey)>,
    /// Why the catalog did not queue the bytes for deletion.
    pub error: &'a str,
}

/// Is notified of bytes that possibly no row names.
pub trait OrphanAlarm: Send + Sync {
    /// Bytes were written, not committed, and could not be queued for deletion.
    fn orphaned(&self, orphan: &Orphan<'_>);
}

/// Discards every report; for tests and tools without an audit file.
impl OrphanAlarm for () {
    fn orphaned(&self, _orphan: &Orphan<'_>) {}
}

/// Constructor arguments of [`Engine`].
pub struct EngineParts {
    /// Content that it condemns is removed from `cache`.
    pub catalog: Arc<Catalog>,
    /// All configured backends.
    pub fleet: Arc<Fleet>,
    /// Source of write, content and version IDs.
    pub ids: IdSource,
    /// Limits leases in this process.
    pub clock: Arc<dyn Clock>,
    /// Owner of the intents that this process writes.
    pub instance: InstanceId,
    /// Initial settings; see [`Engine::apply_settings`].
    pub settings: Settings,
    /// Settings of the buckets in the configuration.
    pub configured: Shared<ConfiguredBuckets>,
    /// Lifecycle rules of the configuration, in addition to those in the catalog.
    pub configured_rules: Shared<ConfiguredRules>,
    /// Notified when bytes are queued for deletion.
    pub cleanup_wakeup: Arc<Notify>,
    /// Counts the outcomes of announced writes.
    pub metrics: IntentMetrics,
    /// Audits bytes that possibly no row names.
    pub alarm: Arc<dyn OrphanAlarm>,
    /// Caches small bodies, if configured.
    pub cache: Option<Arc<Cache>>,
}

/// Executes requests. Clones share all state.
#[derive(Clone)]
pub struct Engine {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) sharing: ContentSharing,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) ids: IdSource,
    pub(crate) instance: InstanceId,
    settings: Shared<Settings>,
    /// Notified after every change of the settings.
    settings_changed: Arc<Notify>,
    configured: Shared<ConfiguredBuckets>,
    pub(crate) rules: RuleCache,
    pub(crate) leases: Leases,
    pub(crate) unqueued: Arc<UnqueuedBytes>,
    pub(crate) tasks: Tasks,
    pub(crate) metrics: IntentMetrics,
    pub(crate) alarm: Arc<dyn OrphanAlarm>,
    pub(crate) cache: Option<Arc<Cache>>,
    pub(crate) usage: CachedUsage,
    pub(crate) clock: Arc<dyn Clock>,
    cleanup_wakeup: Arc<Notify>,
}

impl Engine {
    /// An engine without open intents. It observes the catalog for condemned content if there is a cache.
    #[must_use]
    pub fn new(parts: EngineParts) -> Self {
        let EngineParts { catalog, fleet, ids, clock, instance, settings, configured, .. } = parts;
        let EngineParts { configured_rules, cleanup_wakeup, metrics, alarm, cache, .. } = parts;
        if let Some(cache) = &cache {
            catalog.observe_condemned(Arc::new(CacheInvalidator(Arc::clone(cache))));
        }
        Self {
            sharing: ContentSharing::new(catalog.clone(), fleet.clone()),
            catalog,
            fleet,
            ids,
            instance,
            settings: Shared::new(settings),
            settings_changed: Arc::default(),
            configured,
            rules: RuleCache::new(configured_rules),
            leases: Leases::new(clock.clone()),
            unqueued: Arc::default(),
            tasks: Tasks::default(),
            metrics,
            alarm,
            cache,
            usage: CachedUsage::default(),
            clock,
            cleanup_wakeup,
        }
    }

    /// Running requests, so that a shutdown can wait for them.
    #[must_use]
    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// Renews the leases of open intents and retries operations that the catalog did not answer; it does not return.
    pub async fn keep_leases(&self) {
        tokio::join!(self.keep_renewing(), self.keep_retrying());
    }

    async fn keep_renewing(&self) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(renewal_interval(self.settings().lease)) => {}
                // A shorter lease must be renewed before the current delay ends.
                () = self.settings_changed.notified() => {}
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
        match self.catalog.renew(&open, self.settings().lease).await {
            Ok(renewed) => self.leases.renewed(&open, &renewed, term),
            Err(error) => {
                tracing::warn!(%error, intents = open.len(), "cannot renew leases of open writes, retrying");
                self.leases.not_renewed();
            }
        }
    }

    /// The term of a lease that is requested from the catalog now. Cleanups probe for late bytes during a window: the
    /// writer may use half of it, the backend the other half.
    pub(crate) fn lease_term(&self) -> LeaseTerm {
        let Settings { lease, late_write_window, .. } = self.settings();
        LeaseTerm { ends: self.clock.reading().after(lease), grace: late_write_window / 2 }
    }

    pub(crate) fn settings(&self) -> Settings {
        *self.settings.current()
    }

    /// Replaces the settings; requests that started before may still use the old ones.
    pub fn apply_settings(&self, settings: Settings, configured: ConfiguredBuckets) {
        self.settings.replace(settings);
        self.configured.replace(configured);
        self.settings_changed.notify_one();
    }

    /// The configured settings of this bucket, or the defaults.
    #[must_use]
    pub fn bucket_settings(&self, bucket: &BucketName) -> BucketSettings {
        self.configured.current().of(bucket)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn since_boot(&self) -> Duration {
        self.clock.since_boot()
    }

    pub(crate) fn wake_cleanup(&self) {
        self.cleanup_wakeup.notify_one();
    }

    pub(crate) fn after_commit(&self, committed: Committed) {
        if committed.displaced {
            self.wake_cleanup();
        }
    }

    pub(crate) async fn find_bucket(&self, name: &BucketName) -> Result<Bucket, Error> {
        self.catalog.bucket(name).await?.ok_or(Error::NoSuchBucket)
    }

    pub(crate) async fn find(&self, bucket: &BucketName, key: &ObjectKey) -> Result<Resolved, Error> {
        self.catalog.resolve(bucket, key).await?.ok_or(Error::NoSuchBucket)
    }
}
