//! Builds the workers and their schedules from the configuration.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use s3o_backend::Fleet;
use s3o_catalog::{Catalog, Longest};
use s3o_engine::{ContentSharing, Engine};
use s3o_model::recovery::REST_MAX;
use s3o_workers::{
    CleanupSettings, CleanupWorker, CopySettings, DrainWorker, ExpiryWorker, IdentityWorker, Kind, LifecycleWorker,
    OverReplicationWorker, PendingReaperWorker, QuotaAuditWorker, RECORD_LEASE, ReaperSettings, RebalanceSettings,
    RebalancerWorker, ReconcilerWorker, ReplicatorWorker, Schedule, Scheduled, StaleMultipartWorker, UsageFlushWorker,
    UsageLedger, WatchdogSettings, WatchdogWorker, Worker,
};
use tokio::sync::Notify;

use super::context::AppContext;
use crate::config::Config;

/// How long one tick of a worker may take before the runner cancels it.
const TICK_MAX: Duration = Duration::from_mins(10);

/// What workers are made of.
#[derive(Clone, Copy)]
pub(super) struct WorkerParts<'a> {
    pub config: &'a Config,
    pub catalog: &'a Arc<Catalog>,
    pub fleet: &'a Arc<Fleet>,
    pub identity: &'a Arc<IdentityWorker>,
    pub engine: &'a Engine,
    pub context: &'a AppContext,
    pub usage: &'a Arc<UsageLedger>,
}

/// All workers of this process.
pub(super) fn all(parts: &WorkerParts<'_>) -> Vec<Scheduled> {
    vec![
        cleanup(parts),
        pending_reaper(parts),
        expiry(parts),
        stale_multipart(parts),
        lifecycle(parts),
        identity(parts),
        quota_audit(parts),
        watchdog(parts),
        replicator(parts),
        over_replication(parts),
        drain(parts),
        rebalancer(parts),
        reconciler(parts),
        usage_flush(parts),
    ]
}

fn scheduled(worker: impl Worker + 'static, interval: Duration, kind: Kind) -> Scheduled {
    on_schedule(Arc::new(worker), interval, kind, None)
}

fn on_schedule(worker: Arc<dyn Worker>, interval: Duration, kind: Kind, bell: Option<Arc<Notify>>) -> Scheduled {
    Scheduled { worker, schedule: Schedule { interval, kind, bell, deadline: TICK_MAX, enabled: true } }
}

fn cleanup(parts: &WorkerParts<'_>) -> Scheduled {
    let WorkerParts { config, catalog, fleet, identity, context, .. } = *parts;
    let worker = CleanupWorker {
        cleanups: Arc::clone(catalog),
        contents: Arc::clone(catalog),
        fleet: Arc::clone(fleet),
        identity: Arc::clone(identity),
        ids: context.ids.clone(),
        instance: context.instance,
        entropy: Arc::clone(&context.entropy),
        settings: CleanupSettings {
            batch_size: config.cleanup.batch_size,
            concurrency: config.cleanup.concurrency,
            claim_grace_period: config.cleanup.claim_grace_period,
            reader_grace: config.cleanup.reader_grace,
            retries: config.cleanup.retries,
        },
        budget: Arc::clone(&context.budget),
        batch_concurrency: context.cleanup_concurrency.clone(),
        clock_guard: context.clock_guard.clone(),
    };
    let bell = Some(Arc::clone(&context.cleanup_wakeup));
    on_schedule(Arc::new(worker), config.cleanup.interval, Kind::Shared, bell)
}

fn pending_reaper(parts: &WorkerParts<'_>) -> Scheduled {
    let WorkerParts { config, catalog, fleet, identity, context, .. } = *parts;
    let worker = PendingReaperWorker {
        intents: Arc::clone(catalog),
        sharing: ContentSharing::new(Arc::clone(catalog), Arc::clone(fleet)),
        fleet: Arc::clone(fleet),
        identity: Arc::clone(identity),
        configured: config.buckets.clone(),
        ids: context.ids.clone(),
        metrics: context.intent_metrics.clone(),
        settings: ReaperSettings {
            batch_size: config.intents.batch_size,
            concurrency: config.intents.concurrency,
            hold: config.intents.min_age,
            rest_min: config.intents.reaper_tick,
            late_write_window: config.intents.late_write_window,
            recovery: config.intents.recovery,
        },
        cleanup_wakeup: Arc::clone(&context.cleanup_wakeup),
    };
    scheduled(worker, config.intents.reaper_tick, Kind::Shared)
}

fn expiry(parts: &WorkerParts<'_>) -> Scheduled {
    let WorkerParts { config, catalog, context, .. } = *parts;
    let bell = Arc::clone(&context.cleanup_wakeup);
    let worker = ExpiryWorker::new(Arc::clone(catalog), context.ids.clone(), config.expiry.batch_size, bell);
    let worker = worker.continuing(&context.expiry_claims);
    scheduled(worker, config.expiry.interval, Kind::Shared)
}

fn identity(parts: &WorkerParts<'_>) -> Scheduled {
    on_schedule(Arc::clone(parts.identity) as _, parts.config.maintenance.identity, Kind::Locked, None)
}

fn stale_multipart(parts: &WorkerParts<'_>) -> Scheduled {
    let WorkerParts { config, catalog, context, .. } = *parts;
    let worker = StaleMultipartWorker {
        uploads: Arc::clone(catalog),
        timeout: config.cleanup.multipart_stale_timeout,
        cleanup_wakeup: Arc::clone(&context.cleanup_wakeup),
    };
    scheduled(worker, config.maintenance.stale_multipart, Kind::Locked)
}

fn lifecycle(parts: &WorkerParts<'_>) -> Scheduled {
    let WorkerParts { config, catalog, context, .. } = *parts;
    let (rules, bell) = (context.lifecycle_rules.clone(), Arc::clone(&context.cleanup_wakeup));
    let worker = LifecycleWorker::new(Arc::clone(catalog), rules, context.ids.clone(), bell);
    scheduled(worker, config.lifecycle.interval, Kind::Locked)
}

fn quota_audit(parts: &WorkerParts<'_>) -> Scheduled {
    let WorkerParts { config, catalog, context, .. } = *parts;
    let worker = QuotaAuditWorker::new(Arc::clone(catalog), context.drift.clone(), Arc::clone(&context.cleanup_wakeup));
    scheduled(worker, config.maintenance.quota_audit, Kind::Locked)
}

fn watchdog(parts: &WorkerParts<'_>) -> Scheduled {
    let WorkerParts { config, catalog, context, .. } = *parts;
    let worker = WatchdogWorker {
        cleanups: Arc::clone(catalog),
        objects: Arc::clone(catalog),
        ahead: Arc::clone(catalog),
        ids: context.ids.clone(),
        settings: WatchdogSettings {
            claim_grace_period: config.cleanup.claim_grace_period,
            stuck_after: config.expiry.stuck_after,
            longest: longest(config),
        },
        clock_guard: context.clock_guard.clone(),
        cleanup_wakeup: Arc::clone(&context.cleanup_wakeup),
    };
    scheduled(worker, config.maintenance.watchdog, Kind::Locked)
}

fn copy_settings(config: &Config) -> CopySettings {
    CopySettings {
        batch_size: config.replication.batch_size,
        concurrency: config.replication.concurrency,
        reader_grace: config.cleanup.reader_grace,
    }
}

fn replicator(parts: &WorkerParts<'_>) -> Scheduled {
    let WorkerParts { config, catalog, fleet, engine, context, .. } = *parts;
    let worker = ReplicatorWorker {
        catalog: Arc::clone(catalog),
        engine: engine.clone(),
        fleet: Arc::clone(fleet),
        settings: copy_settings(config),
        tasks: context.copies.replicator.clone(),
        cleanup_wakeup: Arc::clone(&context.cleanup_wakeup),
    };
    let bell = Some(Arc::clone(&context.replicator_wakeup));
    on_schedule(Arc::new(worker), config.replication.interval, Kind::Locked, bell)
}

fn over_replication(parts: &WorkerParts<'_>) -> Scheduled {
    let WorkerParts { config, catalog, engine, context, .. } = *parts;
    let worker = OverReplicationWorker {
        catalog: Arc::clone(catalog),
        engine: engine.clone(),
        settings: copy_settings(config),
        cleanup_wakeup: Arc::clone(&context.cleanup_wakeup),
    };
    scheduled(worker, config.replication.over_replication_interval, Kind::Locked)
}

/// How often a drain that could not move everything tries again; a new drain wakes the worker.
const DRAIN_INTERVAL: Duration = Duration::from_secs(30);

fn drain(parts: &WorkerParts<'_>) -> Scheduled {
    let WorkerParts { config, catalog, engine, context, .. } = *parts;
    let worker = DrainWorker {
        catalog: Arc::clone(catalog),
        engine: engine.clone(),
        settings: copy_settings(config),
        tasks: context.copies.drain.clone(),
        progress: context.drain_progress.clone(),
        cleanup_wakeup: Arc::clone(&context.cleanup_wakeup),
    };
    let bell = Some(Arc::clone(&context.drain_wakeup));
    on_schedule(Arc::new(worker), DRAIN_INTERVAL, Kind::Locked, bell)
}

/// Settings of the rebalancer, also for a dry run.
pub(super) fn rebalance_settings(config: &Config) -> RebalanceSettings {
    RebalanceSettings {
        rules: config.rebalance.rules,
        batch_size: config.rebalance.batch_size,
        concurrency: config.rebalance.concurrency,
        reader_grace: config.cleanup.reader_grace,
    }
}

fn rebalancer(parts: &WorkerParts<'_>) -> Scheduled {
    let WorkerParts { config, catalog, engine, context, .. } = *parts;
    let worker = RebalancerWorker {
        catalog: Arc::clone(catalog),
        engine: engine.clone(),
        settings: context.rebalance.clone(),
        cleanup_wakeup: Arc::clone(&context.cleanup_wakeup),
        tasks: context.copies.rebalancer.clone(),
        pass: Mutex::default(),
    };
    let mut scheduled = scheduled(worker, config.rebalance.interval, Kind::Locked);
    scheduled.schedule.enabled = config.rebalance.enabled;
    scheduled
}

/// How often the reconciler queries whether a pass is due, or goes on.
const RECONCILE_INTERVAL: Duration = Duration::from_mins(1);

fn reconciler(parts: &WorkerParts<'_>) -> Scheduled {
    let WorkerParts { config, catalog, fleet, identity, engine, context, .. } = *parts;
    let worker = ReconcilerWorker {
        catalog: Arc::clone(catalog),
        fleet: Arc::clone(fleet),
        identity: Arc::clone(identity),
        engine: engine.clone(),
        settings: context.reconcile.clone(),
        instance: context.instance,
        ids: context.ids.clone(),
        cleanup_wakeup: Arc::clone(&context.cleanup_wakeup),
    };
    scheduled(worker, config.reconcile.interval.min(RECONCILE_INTERVAL), Kind::Locked)
}

/// With Redis, one instance records the totals of all.
fn usage_flush(parts: &WorkerParts<'_>) -> Scheduled {
    let WorkerParts { config, usage, context, .. } = *parts;
    let worker = Arc::new(UsageFlushWorker { ledger: Arc::clone(usage) });
    let kind = if config.cache.redis.is_some() { Kind::Locked } else { Kind::PerInstance };
    on_schedule(worker, config.usage_flush.interval, kind, Some(Arc::clone(&context.usage_wakeup)))
}

/// Margin for times that another instance wrote with a longer setting.
const AHEAD_SLACK: Duration = Duration::from_mins(10);

/// How far in the future times in the catalog can be.
pub(super) fn longest(config: &Config) -> Longest {
    let absence = config.intents.late_write_window + config.intents.min_age + AHEAD_SLACK;
    Longest {
        due: config.cleanup.retries.backoff.max.max(absence) + AHEAD_SLACK,
        claim: config.cleanup.claim_grace_period + AHEAD_SLACK,
        lease: config.intents.min_age.max(REST_MAX) + AHEAD_SLACK,
        deletion: config.expiry.stuck_after + AHEAD_SLACK,
        absence,
        past: AHEAD_SLACK,
        record: RECORD_LEASE,
    }
}
