//! What most parts of the server are made with.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use s3o_backend::usage::{CatalogTime, UsageContext};
use s3o_catalog::Longest;
use s3o_engine::IntentMetrics;
use s3o_model::circuit::CircuitSettings;
use s3o_model::clock::{Clock, SystemClock};
use s3o_model::clock_hold::StoreTime;
use s3o_model::entropy::{Entropy, SystemEntropy};
use s3o_model::ids::{IdSource, InstanceId};
use s3o_model::shared::Shared;
use s3o_server::audit::Audit;
use s3o_workers::{
    BatchConcurrency, Budget, ClockGuard, CopyTasks, DrainProgress, DriftGauge, ExpiryClaims, RebalanceSettings,
    ReconcileSettings, SharedRules, UsageFlushSettings,
};
use tokio::sync::Notify;

use super::{usage, workers};
use crate::cli::CommandFailure;
use crate::config::Config;

/// Background work that a usage limit stopped resumes within this time after the start of a month, each process after
/// a delay of its own.
const RESUME_DELAY_MAX: Duration = Duration::from_mins(10);

/// The copies that workers have started; kept across reloads, which replace the workers.
pub(super) struct CopiesInProgress {
    pub replicator: CopyTasks,
    pub drain: CopyTasks,
    pub rebalancer: CopyTasks,
}

impl CopiesInProgress {
    fn new(budget: &Arc<Budget>) -> Self {
        let none = || CopyTasks::new(Arc::clone(budget));
        Self { replicator: none(), drain: none(), rebalancer: none() }
    }
}

/// One per process; opened before every other part.
pub(super) struct AppContext {
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    pub ids: IdSource,
    pub instance: InstanceId,
    pub cleanup_wakeup: Arc<Notify>,
    pub drain_wakeup: Arc<Notify>,
    pub replicator_wakeup: Arc<Notify>,
    /// Kept across reloads, which replace the workers.
    pub drain_progress: DrainProgress,
    pub copies: CopiesInProgress,
    pub registry: Arc<Mutex<Registry>>,
    pub audit: Arc<Audit>,
    /// Shared by requests and background work.
    pub budget: Arc<Budget>,
    pub intent_metrics: IntentMetrics,
    pub drift: DriftGauge,
    /// Kept across reloads, which replace the workers.
    pub cleanup_concurrency: BatchConcurrency,
    pub expiry_claims: ExpiryClaims,
    /// The lifecycle rules of the configuration; a reload replaces them.
    pub lifecycle_rules: SharedRules,
    /// How far in the future times in the catalog can be; a reload replaces it.
    pub longest: Shared<Longest>,
    /// Settings of the circuit breakers; a reload replaces them.
    pub circuit: Shared<CircuitSettings>,
    /// How long a backend must fail before it is unhealthy; a reload replaces it.
    pub unhealthy_after: Shared<Duration>,
    /// Settings of the rebalancer; a reload replaces them.
    pub rebalance: Shared<RebalanceSettings>,
    /// Settings of the reconciler; a reload replaces them.
    pub reconcile: Shared<ReconcileSettings>,
    /// Settings of the usage flush; a reload replaces them.
    pub usage_settings: Shared<UsageFlushSettings>,
    /// Counts usage by the catalog's clock.
    pub usage: UsageContext,
    /// Wakes `usage_flush` while a backend is near a limit.
    pub usage_wakeup: Arc<Notify>,
    /// The date that an S3 backend last sent.
    pub store_time: Arc<StoreTime>,
    /// Decides whether the wall clock is trusted; None where the database's clock is used.
    pub clock_guard: Option<Arc<ClockGuard>>,
}

impl AppContext {
    pub fn new(config: &Config) -> Result<Self, CommandFailure> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy);
        let ids = IdSource::new(Arc::clone(&clock), Arc::clone(&entropy));
        let instance = InstanceId::new(ids.fresh());
        let mut registry = Registry::default();
        let audit = open_audit(config, &clock, &mut registry)?;
        let usage_context = usage_context(&clock, entropy.as_ref());
        let drift = DriftGauge::register(&mut registry, config.backends.iter().map(|backend| backend.name.clone()));
        let budget = Budget::new(config.server.max_concurrent_requests);
        Ok(Self {
            clock,
            entropy,
            ids,
            instance,
            cleanup_wakeup: Arc::default(),
            drain_wakeup: Arc::default(),
            replicator_wakeup: Arc::default(),
            drain_progress: DrainProgress::default(),
            registry: Arc::new(Mutex::new(registry)),
            audit: Arc::new(audit),
            copies: CopiesInProgress::new(&budget),
            budget,
            intent_metrics: IntentMetrics::default(),
            drift,
            cleanup_concurrency: BatchConcurrency::default(),
            expiry_claims: ExpiryClaims::default(),
            lifecycle_rules: SharedRules::new(config.lifecycle.rules.iter().cloned().collect()),
            longest: Shared::new(workers::longest(config)),
            circuit: Shared::new(config.circuit_breaker.circuit),
            unhealthy_after: Shared::new(config.replication.unhealthy_after),
            rebalance: Shared::new(workers::rebalance_settings(config)),
            reconcile: Shared::new(config.reconcile),
            usage_settings: Shared::new(usage::settings(config)),
            usage: usage_context,
            usage_wakeup: Arc::default(),
            store_time: Arc::default(),
            clock_guard: None,
        })
    }

    pub fn with_registry<T>(&self, register: impl FnOnce(&mut Registry) -> T) -> T {
        register(&mut self.registry.lock())
    }
}

fn open_audit(config: &Config, clock: &Arc<dyn Clock>, registry: &mut Registry) -> Result<Audit, CommandFailure> {
    let opened = Audit::open(&config.audit, Arc::clone(clock));
    let audit = opened.map_err(|error| CommandFailure::of(&format!("audit {}", config.audit.display()), error))?;
    audit.register(registry);
    Ok(audit)
}

fn usage_context(clock: &Arc<dyn Clock>, entropy: &dyn Entropy) -> UsageContext {
    UsageContext {
        time: Arc::new(CatalogTime::new(Arc::clone(clock))),
        demand: Arc::default(),
        resume_delay: RESUME_DELAY_MAX.mul_f64(entropy.next_unit()),
    }
}
