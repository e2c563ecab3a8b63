//! What a crash ends: the engine and the workers of one process.

use std::sync::Arc;
use std::time::Duration;

use s3o_backend::{Fleet, SharedBackend};
use s3o_cache::{Cache, CacheParts};
use s3o_catalog::{Catalog, Cleanups, Driver, Error, Identities as _, Intents as _, Longest, Quotas as _};
use s3o_engine::{Engine, EngineParts, IntentMetrics, OrphanAlarm, Settings};
use s3o_model::backoff::Backoff;
use s3o_model::bucket::ConfiguredBuckets;
use s3o_model::cleanup::Retries;
use s3o_model::clock::Clock;
use s3o_model::entropy::Entropy;
use s3o_model::ids::{IdSource, InstanceId};
use s3o_model::recovery::Recovery;
use s3o_model::shared::Shared;
use s3o_workers::{
    Budget, Cleanup, CleanupSettings, DeadLetterOffice, DriftGauge, Expiry, Identity, IdentityParts, IdentitySettings,
    Lifecycle, Pace, PendingReaper, QuotaAudit, ReaperSettings, SharedRules, Verifier, VerifierParts, Watchdog,
    WatchdogSettings, Worker,
};
use tokio::sync::Notify;

use crate::world::World;

/// How long an intent holds.
pub const LEASE: Duration = Duration::from_mins(5);
/// How long a write whose answer was lost may still land.
pub const LATE: Duration = Duration::from_hours(1);
/// After how long a claim is free again.
const CLAIM_GRACE: Duration = Duration::from_mins(5);
/// Further ahead than anything that a test waits for.
const WEEK: Duration = Duration::from_hours(7 * 24);
/// How far ahead moments may lie.
pub const LONGEST: Longest =
    Longest { due: WEEK, claim: WEEK, lease: WEEK, deletion: WEEK, absence: WEEK, past: WEEK, record: WEEK };

/// One run of the program, without its doors.
pub struct Process {
    /// What does requests.
    pub engine: Engine,
    /// What runs by itself, in the order in which it is ticked.
    pub workers: Vec<Arc<dyn Worker>>,
    /// Who knows the backends; they take no writes before it attached them.
    pub identity: Arc<Identity>,
    /// The catalog.
    pub catalog: Arc<Catalog>,
    /// Where dead letters are disposed of.
    pub office: DeadLetterOffice,
    /// What checks the invariants.
    pub verifier: Verifier,
    /// What keeps bodies at hand, where the world wants that.
    pub cache: Option<Arc<Cache>>,
    /// Counts what becomes of announced writes.
    pub metrics: IntentMetrics,
    parts: Parts,
}

impl Process {
    /// Starts over what is there, as the program does: what the dead left is taken over.
    pub async fn start(world: &World, driver: Arc<dyn Driver>, backends: Vec<SharedBackend>) -> Result<Self, Error> {
        let catalog = Arc::new(Catalog::new(driver));
        catalog.take_over().await?;
        for site in &world.sites {
            catalog.set_limit(&site.name(), site.limit_bytes).await?;
        }
        let fleet = Arc::new(Fleet::new(backends).expect("names that differ"));
        let (clock, entropy) = (world.clock.clone(), world.entropy.clone());
        let ids = IdSource::new(clock.clone(), entropy.clone());
        let identity = Arc::new(Identity::new(IdentityParts {
            identities: catalog.clone(),
            records: catalog.clone(),
            fleet: fleet.clone(),
            ids: ids.clone(),
            clock: clock.clone(),
            cluster: catalog.cluster_id("cluster").await?,
            host: "host:9000".to_owned(),
            alarm: Arc::new(()),
            settings: IdentitySettings::default(),
        }));
        let instance = InstanceId::new(ids.fresh());
        let cache = world.cache.map(|settings| CacheParts { settings, shared: None, clock: clock.clone() });
        let cache = cache.map(|parts| Arc::new(Cache::new(parts)));
        let (configured, bell) = (world.configured.clone(), Arc::default());
        let (stuck_after, cleanup_batch) = (world.stuck_after, world.cleanup_batch);
        let parts = Parts {
            clock,
            entropy,
            catalog,
            fleet,
            ids,
            identity,
            instance,
            configured,
            stuck_after,
            cleanup_batch,
            bell,
            cache,
            metrics: IntentMetrics::default(),
            alarm: world.alarm.clone(),
        };
        Ok(Self {
            engine: parts.engine(),
            workers: parts.workers(),
            identity: parts.identity.clone(),
            catalog: parts.catalog.clone(),
            office: parts.office(),
            verifier: parts.verifier(),
            cache: parts.cache.clone(),
            metrics: parts.metrics.clone(),
            parts,
        })
    }

    /// The worker of that name.
    #[must_use]
    pub fn worker(&self, name: &str) -> &dyn Worker {
        self.workers.iter().find(|worker| worker.name() == name).expect("one of ours").as_ref()
    }

    /// Where identifiers come from.
    #[must_use]
    pub fn ids(&self) -> &IdSource {
        &self.parts.ids
    }

    /// The worker that resolves intents.
    #[must_use]
    pub fn pending_reaper(&self) -> PendingReaper {
        self.parts.pending_reaper()
    }

    /// Another worker that removes what has expired, so many at a time.
    #[must_use]
    pub fn expiry(&self, batch_size: usize) -> Expiry {
        self.parts.expiry(batch_size)
    }

    /// The worker that deletes, over this queue.
    #[must_use]
    pub fn cleanup_over(&self, cleanups: Arc<dyn Cleanups>) -> Cleanup {
        Cleanup { cleanups, ..self.parts.cleanup() }
    }
}

struct Parts {
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    catalog: Arc<Catalog>,
    fleet: Arc<Fleet>,
    ids: IdSource,
    identity: Arc<Identity>,
    instance: InstanceId,
    configured: Shared<ConfiguredBuckets>,
    stuck_after: Duration,
    cleanup_batch: usize,
    bell: Arc<Notify>,
    cache: Option<Arc<Cache>>,
    metrics: IntentMetrics,
    alarm: Arc<dyn OrphanAlarm>,
}

impl Parts {
    /// Every worker; a new one is a line here.
    fn workers(&self) -> Vec<Arc<dyn Worker>> {
        vec![
            Arc::new(self.pending_reaper()),
            Arc::new(self.expiry(1000)),
            Arc::new(self.cleanup()),
            self.identity.clone(),
            Arc::new(QuotaAudit::new(self.catalog.clone(), DriftGauge::default(), self.bell.clone())),
            Arc::new(self.watchdog()),
            Arc::new(self.lifecycle()),
        ]
    }

    fn engine(&self) -> Engine {
        Engine::new(EngineParts {
            catalog: self.catalog.clone(),
            fleet: self.fleet.clone(),
            ids: self.ids.clone(),
            clock: self.clock.clone(),
            instance: self.instance,
            settings: Settings {
                lease: LEASE,
                late_write_window: LATE,
                object_bytes_max: 1 << 40,
                announce: true,
                recovery: Recovery::Promote,
            },
            configured: self.configured.clone(),
            configured_rules: Shared::default(),
            cleanup_bell: self.bell.clone(),
            metrics: self.metrics.clone(),
            alarm: self.alarm.clone(),
            cache: self.cache.clone(),
        })
    }

    fn pending_reaper(&self) -> PendingReaper {
        PendingReaper {
            intents: self.catalog.clone(),
            objects: self.catalog.clone(),
            fleet: self.fleet.clone(),
            identity: self.identity.clone(),
            configured: self.configured.current().as_ref().clone(),
            ids: self.ids.clone(),
            metrics: self.metrics.clone(),
            settings: ReaperSettings {
                batch_size: 100,
                concurrency: 4,
                hold: LEASE,
                rest_min: Duration::from_mins(1),
                late_write_window: LATE,
                recovery: Recovery::Promote,
            },
            cleanup_bell: self.bell.clone(),
        }
    }

    fn cleanup(&self) -> Cleanup {
        Cleanup {
            cleanups: self.catalog.clone(),
            contents: self.catalog.clone(),
            fleet: self.fleet.clone(),
            identity: self.identity.clone(),
            ids: self.ids.clone(),
            instance: self.instance,
            entropy: self.entropy.clone(),
            settings: CleanupSettings {
                batch_size: self.cleanup_batch,
                concurrency: 4,
                claim_grace_period: CLAIM_GRACE,
                reader_grace: Duration::from_mins(1),
                retries: Retries {
                    backoff: Backoff { min: Duration::from_mins(1), max: Duration::from_mins(10) },
                    max_attempts: 10,
                },
            },
            budget: Budget::new(1),
            pace: Pace::default(),
            clock_guard: None,
        }
    }

    fn expiry(&self, batch_size: usize) -> Expiry {
        Expiry::new(self.catalog.clone(), self.ids.clone(), batch_size, self.bell.clone())
    }

    fn watchdog(&self) -> Watchdog {
        Watchdog {
            cleanups: self.catalog.clone(),
            objects: self.catalog.clone(),
            ahead: self.catalog.clone(),
            ids: self.ids.clone(),
            settings: WatchdogSettings {
                claim_grace_period: CLAIM_GRACE,
                stuck_after: self.stuck_after,
                longest: LONGEST,
            },
            clock_guard: None,
            cleanup_bell: self.bell.clone(),
        }
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::new(self.catalog.clone(), SharedRules::default(), self.ids.clone(), self.bell.clone())
    }

    fn office(&self) -> DeadLetterOffice {
        DeadLetterOffice {
            letters: self.catalog.clone(),
            fleet: self.fleet.clone(),
            identity: self.identity.clone(),
            ids: self.ids.clone(),
            cleanup_bell: self.bell.clone(),
        }
    }

    fn verifier(&self) -> Verifier {
        Verifier::new(VerifierParts {
            verification: self.catalog.clone(),
            quotas: self.catalog.clone(),
            fleet: self.fleet.clone(),
            identity: self.identity.clone(),
            ahead: self.catalog.clone(),
            longest: Shared::new(LONGEST),
        })
    }
}
