//! The engine and the workers of one process: the state that a crash ends.

mod identity;
mod parts;
mod usage;

use std::sync::Arc;
use std::time::Duration;

use s3o_backend::{Fleet, SharedBackend};
use s3o_cache::Cache;
use s3o_catalog::{Catalog, Driver, Error, Longest};
use s3o_engine::{Engine, IntentMetrics};
use s3o_model::clock::Clock;
use s3o_model::ids::IdSource;
use s3o_model::rebalance::RebalanceRules;
use s3o_workers::{
    CleanupWorker, DeadLetterService, ExpiryWorker, IdentityWorker, PendingReaperWorker, ReconcileSettings,
    UsageLedger, Verifier, Worker,
};

use crate::environment::Environment;
use parts::{ProcessParts, rebalance_settings};

pub use crate::environment::LATE;

/// How long an intent is valid without renewal.
pub const LEASE: Duration = Duration::from_mins(5);
/// Age at which the watchdog frees a cleanup claim.
const CLAIM_GRACE: Duration = Duration::from_mins(5);
/// Longer than any test waits.
const WEEK: Duration = Duration::from_hours(7 * 24);
/// How far in the future timestamps in the catalog may be before the watchdog reports them.
pub const LONGEST: Longest =
    Longest { due: WEEK, claim: WEEK, lease: WEEK, deletion: WEEK, absence: WEEK, past: WEEK, record: WEEK };

/// One run of the program without its HTTP listeners.
pub struct Process {
    /// Serves requests.
    pub engine: Engine,
    /// Usage of the backends.
    pub usage: Arc<UsageLedger>,
    /// The configured backends.
    pub fleet: Arc<Fleet>,
    /// All workers, in the order in which tests tick them.
    pub workers: Vec<Arc<dyn Worker>>,
    /// Backends take no writes before this attached them.
    pub identity: Arc<IdentityWorker>,
    /// Shared by the engine and the workers.
    pub catalog: Arc<Catalog>,
    /// Retries and discards dead letters.
    pub dead_letters: DeadLetterService,
    /// The product's own check of the invariants.
    pub verifier: Verifier,
    /// None unless the environment has cache settings.
    pub cache: Option<Arc<Cache>>,
    /// Counts announced and resolved intents.
    pub metrics: IntentMetrics,
    parts: ProcessParts,
}

impl Process {
    /// Starts as the program does, and takes over the claims of processes before it.
    pub async fn start<C: Clock + 'static>(
        environment: &Environment<C>,
        driver: Arc<dyn Driver>,
        backends: Vec<SharedBackend>,
    ) -> Result<Self, Error> {
        let parts = ProcessParts::connect(environment, driver, backends).await?;
        Ok(Self {
            engine: parts.engine(),
            usage: parts.usage.clone(),
            fleet: parts.fleet.clone(),
            workers: parts.workers(),
            identity: parts.identity.clone(),
            catalog: parts.catalog.clone(),
            dead_letters: parts.dead_letters(),
            verifier: parts.verifier(),
            cache: parts.cache.clone(),
            metrics: parts.metrics.clone(),
            parts,
        })
    }

    /// Finds a worker by the name in its metrics; panics if there is none.
    #[must_use]
    pub fn worker(&self, name: &str) -> &dyn Worker {
        self.workers.iter().find(|worker| worker.name() == name).expect("a known worker name").as_ref()
    }

    /// The source of identifiers that the engine and the workers share.
    #[must_use]
    pub fn ids(&self) -> &IdSource {
        &self.parts.ids
    }

    /// Replaces the rules of the rebalancer of this process, as a reload does.
    pub fn set_rebalance(&self, rules: RebalanceRules) {
        self.parts.rebalance.replace(rebalance_settings(rules));
    }

    /// Replaces the settings of the reconciler of this process, as a reload does.
    pub fn set_reconcile(&self, settings: ReconcileSettings) {
        self.parts.reconcile.replace(settings);
    }

    /// The backends with their states in this process.
    #[must_use]
    pub fn fleet(&self) -> &Fleet {
        &self.parts.fleet
    }

    /// A further `pending_reaper`.
    #[must_use]
    pub fn pending_reaper(&self) -> PendingReaperWorker {
        self.parts.pending_reaper()
    }

    /// A further expiry worker, which claims up to `batch_size` objects at a time.
    #[must_use]
    pub fn expiry(&self, batch_size: usize) -> ExpiryWorker {
        self.parts.expiry(batch_size)
    }

    /// A cleanup worker over another queue.
    #[must_use]
    pub fn cleanup_over(&self, cleanups: Arc<Catalog>) -> CleanupWorker {
        CleanupWorker { cleanups, ..self.parts.cleanup() }
    }
}
