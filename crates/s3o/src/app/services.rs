//! Builds the services of the S3 and admin listeners.

use std::sync::Arc;

use parking_lot::Mutex;
use s3o_server::admin::{AdminState, GaugeSources, Gauges};
use s3o_server::middleware::{Observer, RequestMetrics};
use s3o_server::s3::{self, ServiceOptions};
use s3o_workers::{
    BackendFollower, DeadLetterService, Prober, ReconcileService, RetirementService, Verifier, VerifierParts,
};

use super::{App, open};

impl App {
    /// The S3 API. Registers the metrics of requests and workers, so call it once.
    pub(super) fn s3_service(&self) -> s3::Service {
        let (context, server) = (&self.context, &self.config.server);
        let observer = context.with_registry(|registry| {
            let names = || self.fleet.backends().map(|backend| backend.name().clone());
            self.runner.register(registry, names());
            context.intent_metrics.register(registry, names());
            let metrics = RequestMetrics::register(registry);
            Observer::new(metrics, Arc::clone(&context.entropy), Arc::clone(&context.audit))
        });
        let options = ServiceOptions {
            region: server.region.clone(),
            domain: server.domain.clone(),
            max_concurrent_requests: server.max_concurrent_requests,
            min_transfer_rate: server.min_transfer_rate,
            max_reserved_share: server.max_reserved_share,
            budget: Arc::clone(&context.budget),
        };
        s3::service(Arc::new(self.engine.clone()), self.keys.clone(), options, observer)
    }

    /// Follows the states of the backends that all instances share.
    pub(super) fn follower(&self, prober: &Arc<Prober>) -> BackendFollower {
        let context = &self.context;
        BackendFollower {
            catalog: Arc::clone(&self.catalog),
            fleet: Arc::clone(&self.fleet),
            identity: Arc::clone(&self.identity),
            prober: Arc::clone(prober),
            clock: Arc::clone(&context.clock),
            instance: context.instance,
            unhealthy_after: context.unhealthy_after.clone(),
            circuit: context.circuit.clone(),
            observations: Mutex::default(),
        }
    }

    /// The parts of the admin API. Registers the gauges, so call it once.
    pub(super) fn admin_state(&self) -> AdminState {
        let Self { context, catalog, fleet, stats, .. } = self;
        let sources = GaugeSources {
            catalog: Arc::clone(catalog),
            stats: Arc::clone(stats),
            fleet: Arc::clone(fleet),
            clock: Arc::clone(&context.clock),
            usage: Arc::clone(&self.usage),
        };
        AdminState {
            token: self.token.clone(),
            registry: Arc::clone(&context.registry),
            gauges: context.with_registry(|registry| Gauges::register(registry, sources)),
            stats: Arc::clone(stats),
            catalog: Arc::clone(catalog),
            restore_hint: open::restore_hint(&self.config.database),
            fleet: Arc::clone(fleet),
            usage: Arc::clone(&self.usage),
            cache: self.cache.clone(),
            identity: Arc::clone(&self.identity),
            runner: Arc::clone(&self.runner),
            dead_letters: self.dead_letters(),
            retirement: self.retirement(),
            verifier: self.verifier(),
            reconcile: self.reconcile(),
            lifecycle_rules: context.lifecycle_rules.clone(),
            engine: self.engine.clone(),
            rebalance: context.rebalance.clone(),
            clock: Arc::clone(&context.clock),
            clock_guard: context.clock_guard.clone(),
            instance: context.instance,
            log_level: Arc::clone(&self.log_level),
            audit: Arc::clone(&context.audit),
            entropy: Arc::clone(&context.entropy),
        }
    }

    fn dead_letters(&self) -> DeadLetterService {
        DeadLetterService {
            letters: self.catalog.clone(),
            fleet: Arc::clone(&self.fleet),
            identity: Arc::clone(&self.identity),
            ids: self.context.ids.clone(),
            cleanup_wakeup: Arc::clone(&self.context.cleanup_wakeup),
        }
    }

    fn retirement(&self) -> RetirementService {
        RetirementService {
            catalog: Arc::clone(&self.catalog),
            fleet: Arc::clone(&self.fleet),
            identity: Arc::clone(&self.identity),
            progress: self.context.drain_progress.clone(),
            drain_wakeup: Arc::clone(&self.context.drain_wakeup),
            clock: Arc::clone(&self.context.clock),
        }
    }

    fn reconcile(&self) -> ReconcileService {
        ReconcileService {
            catalog: Arc::clone(&self.catalog),
            fleet: Arc::clone(&self.fleet),
            identity: Arc::clone(&self.identity),
            runner: Arc::clone(&self.runner),
            settings: self.context.reconcile.clone(),
            instance: self.context.instance,
        }
    }

    fn verifier(&self) -> Verifier {
        Verifier::new(VerifierParts {
            verification: self.catalog.clone(),
            quotas: self.catalog.clone(),
            fleet: Arc::clone(&self.fleet),
            identity: Arc::clone(&self.identity),
            ahead: self.catalog.clone(),
            longest: self.context.longest.clone(),
        })
    }
}
