//! Puts the engine, the workers and the verifier of one process together, as `s3o serve` does.

mod copies;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use s3o_backend::{Fleet, SharedBackend};
use s3o_cache::{Cache, CacheParts};
use s3o_catalog::{Catalog, Driver, Error};
use s3o_engine::{ContentSharing, Engine, EngineParts, IntentMetrics, OrphanAlarm, Settings};
use s3o_model::backoff::Backoff;
use s3o_model::bucket::ConfiguredBuckets;
use s3o_model::cleanup::Retries;
use s3o_model::clock::Clock;
use s3o_model::entropy::Entropy;
use s3o_model::ids::{IdSource, InstanceId};
use s3o_model::placement::Strategy;
use s3o_model::recovery::Recovery;
use s3o_model::shared::Shared;
use s3o_workers::{
    BatchConcurrency, Budget, CleanupSettings, CleanupWorker, DeadLetterService, DriftGauge, ExpiryWorker,
    IdentityWorker, LifecycleWorker, PendingReaperWorker, QuotaAuditWorker, ReaperSettings, RebalanceSettings,
    ReconcileSettings, SharedRules, UsageFlushWorker, UsageLedger, Verifier, VerifierParts, WatchdogSettings,
    WatchdogWorker, Worker,
};
use tokio::sync::Notify;

pub(super) use copies::rebalance_settings;

use super::identity::identity;
use super::usage::{counted_fleet, usage_context, usage_ledger};
use super::{CLAIM_GRACE, LEASE, LONGEST};
use crate::environment::{Environment, ProcessSettings};

/// How long readers may use bytes that were moved or released.
const READER_GRACE: Duration = Duration::from_mins(1);

/// The dependencies that the engine and the workers of one process share.
pub(super) struct ProcessParts {
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    pub(super) catalog: Arc<Catalog>,
    pub(super) fleet: Arc<Fleet>,
    pub(super) usage: Arc<UsageLedger>,
    pub(super) ids: IdSource,
    pub(super) identity: Arc<IdentityWorker>,
    instance: InstanceId,
    configured: Shared<ConfiguredBuckets>,
    settings: ProcessSettings,
    pub(super) rebalance: Shared<RebalanceSettings>,
    pub(super) reconcile: Shared<ReconcileSettings>,
    bell: Arc<Notify>,
    pub(super) cache: Option<Arc<Cache>>,
    pub(super) metrics: IntentMetrics,
    alarm: Arc<dyn OrphanAlarm>,
    engine: OnceLock<Engine>,
}

impl ProcessParts {
    pub(super) async fn connect<C: Clock + 'static>(
        environment: &Environment<C>,
        driver: Arc<dyn Driver>,
        backends: Vec<SharedBackend>,
    ) -> Result<Self, Error> {
        let catalog = Arc::new(Catalog::new(driver));
        catalog.take_over().await?;
        for backend in &environment.backends {
            catalog.set_limit(&backend.name(), backend.limit_bytes).await?;
        }
        let (clock, entropy): (Arc<dyn Clock>, _) = (environment.clock.clone(), environment.entropy.clone());
        let ids = IdSource::new(clock.clone(), entropy.clone());
        let counting = usage_context(&clock);
        let fleet = Arc::new(counted_fleet(backends, &counting));
        let identity = identity(environment, &catalog, &fleet, &ids).await?;
        // The row of the cluster exists now; it has the factor of new buckets.
        catalog.set_factors(environment.settings.copies, &[]).await?;
        let instance = InstanceId::new(ids.fresh());
        let usage = Arc::new(usage_ledger(&catalog, &fleet, instance, counting));
        let cache = environment.cache.map(|settings| CacheParts { settings, shared: None, clock: clock.clone() });
        Ok(Self {
            clock,
            entropy,
            catalog,
            fleet,
            usage,
            ids,
            identity,
            instance,
            configured: environment.configured.clone(),
            settings: environment.settings,
            rebalance: Shared::new(rebalance_settings(environment.settings.rebalance)),
            reconcile: Shared::new(environment.settings.reconcile),
            bell: Arc::default(),
            cache: cache.map(|parts| Arc::new(Cache::new(parts))),
            metrics: IntentMetrics::default(),
            alarm: environment.alarm.clone(),
            engine: OnceLock::new(),
        })
    }

    /// Every worker of the program that the suites run; a new worker is added here.
    pub(super) fn workers(&self) -> Vec<Arc<dyn Worker>> {
        vec![
            Arc::new(UsageFlushWorker { ledger: self.usage.clone() }),
            Arc::new(self.pending_reaper()),
            Arc::new(self.expiry(1000)),
            Arc::new(self.cleanup()),
            self.identity.clone(),
            Arc::new(QuotaAuditWorker::new(self.catalog.clone(), DriftGauge::default(), self.bell.clone())),
            Arc::new(self.watchdog()),
            Arc::new(self.lifecycle()),
            Arc::new(self.replicator()),
            Arc::new(self.over_replication()),
            Arc::new(self.drain()),
            Arc::new(self.rebalancer()),
            Arc::new(self.reconciler()),
        ]
    }

    /// One engine per process: the workers that write copies share it with the requests.
    pub(super) fn engine(&self) -> Engine {
        self.engine.get_or_init(|| self.new_engine()).clone()
    }

    fn new_engine(&self) -> Engine {
        Engine::new(EngineParts {
            catalog: self.catalog.clone(),
            fleet: self.fleet.clone(),
            ids: self.ids.clone(),
            clock: self.clock.clone(),
            instance: self.instance,
            settings: Settings {
                lease: LEASE,
                late_write_window: self.settings.late_write_window,
                object_bytes_max: 1 << 40,
                announce: self.settings.announce,
                recovery: Recovery::Promote,
                strategy: Strategy::Pack,
                write_copies: self.settings.copies,
                write_copies_min: self.settings.copies_min,
                first_byte_timeout: Duration::from_secs(2),
            },
            configured: self.configured.clone(),
            configured_rules: Shared::default(),
            cleanup_wakeup: self.bell.clone(),
            metrics: self.metrics.clone(),
            alarm: self.alarm.clone(),
            cache: self.cache.clone(),
        })
    }

    pub(super) fn pending_reaper(&self) -> PendingReaperWorker {
        PendingReaperWorker {
            intents: self.catalog.clone(),
            sharing: ContentSharing::new(self.catalog.clone(), self.fleet.clone()),
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
                late_write_window: self.settings.late_write_window,
                recovery: Recovery::Promote,
            },
            cleanup_wakeup: self.bell.clone(),
        }
    }

    pub(super) fn cleanup(&self) -> CleanupWorker {
        CleanupWorker {
            cleanups: self.catalog.clone(),
            contents: self.catalog.clone(),
            fleet: self.fleet.clone(),
            identity: self.identity.clone(),
            ids: self.ids.clone(),
            instance: self.instance,
            entropy: self.entropy.clone(),
            settings: CleanupSettings {
                batch_size: self.settings.cleanup_batch,
                concurrency: 4,
                claim_grace_period: CLAIM_GRACE,
                reader_grace: READER_GRACE,
                retries: Retries {
                    backoff: Backoff { min: Duration::from_mins(1), max: Duration::from_mins(10) },
                    max_attempts: 10,
                },
            },
            budget: Budget::new(1),
            batch_concurrency: BatchConcurrency::default(),
            clock_guard: None,
        }
    }

    pub(super) fn expiry(&self, batch_size: usize) -> ExpiryWorker {
        ExpiryWorker::new(self.catalog.clone(), self.ids.clone(), batch_size, self.bell.clone())
    }

    fn watchdog(&self) -> WatchdogWorker {
        WatchdogWorker {
            cleanups: self.catalog.clone(),
            objects: self.catalog.clone(),
            ahead: self.catalog.clone(),
            ids: self.ids.clone(),
            settings: WatchdogSettings {
                claim_grace_period: CLAIM_GRACE,
                stuck_after: self.settings.stuck_after,
                longest: LONGEST,
            },
            clock_guard: None,
            cleanup_wakeup: self.bell.clone(),
        }
    }

    fn lifecycle(&self) -> LifecycleWorker {
        LifecycleWorker::new(self.catalog.clone(), SharedRules::default(), self.ids.clone(), self.bell.clone())
    }

    pub(super) fn dead_letters(&self) -> DeadLetterService {
        DeadLetterService {
            letters: self.catalog.clone(),
            fleet: self.fleet.clone(),
            identity: self.identity.clone(),
            ids: self.ids.clone(),
            cleanup_wakeup: self.bell.clone(),
        }
    }

    pub(super) fn verifier(&self) -> Verifier {
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
