//! The workers, each made of its parts and settings.

use std::sync::Arc;
use std::time::Duration;

use s3o_backend::Fleet;
use s3o_catalog::{Catalog, Longest};
use s3o_model::recovery::REST_MAX;
use s3o_workers::{
    Cleanup, CleanupSettings, Expiry, Identity, Kind, Lifecycle, PendingReaper, QuotaAudit, RECORD_LEASE,
    ReaperSettings, Schedule, Scheduled, StaleMultipart, Watchdog, WatchdogSettings, Worker,
};
use tokio::sync::Notify;

use super::Ground;
use crate::config::Config;

/// How long one tick of a worker may take before it is given up.
const TICK_MAX: Duration = Duration::from_mins(10);

/// What workers are made of.
#[derive(Clone, Copy)]
pub struct Parts<'a> {
    /// The settings.
    pub config: &'a Config,
    /// What is known.
    pub catalog: &'a Arc<Catalog>,
    /// The backends.
    pub fleet: &'a Arc<Fleet>,
    /// Their identities.
    pub identity: &'a Arc<Identity>,
    /// What everything is made with.
    pub ground: &'a Ground,
}

/// All of them.
pub fn all(parts: &Parts<'_>) -> Vec<Scheduled> {
    vec![
        cleanup(parts),
        pending_reaper(parts),
        expiry(parts),
        stale_multipart(parts),
        lifecycle(parts),
        identity(parts),
        quota_audit(parts),
        watchdog(parts),
    ]
}

fn scheduled(worker: impl Worker + 'static, interval: Duration, kind: Kind) -> Scheduled {
    on_schedule(Arc::new(worker), interval, kind, None)
}

fn on_schedule(worker: Arc<dyn Worker>, interval: Duration, kind: Kind, bell: Option<Arc<Notify>>) -> Scheduled {
    Scheduled { worker, schedule: Schedule { interval, kind, bell, deadline: TICK_MAX } }
}

fn cleanup(parts: &Parts<'_>) -> Scheduled {
    let Parts { config, catalog, fleet, identity, ground } = *parts;
    let worker = Cleanup {
        cleanups: Arc::clone(catalog) as _,
        contents: Arc::clone(catalog) as _,
        fleet: Arc::clone(fleet),
        identity: Arc::clone(identity),
        ids: ground.ids.clone(),
        instance: ground.instance,
        entropy: Arc::clone(&ground.entropy),
        settings: CleanupSettings {
            batch_size: config.cleanup.batch_size,
            concurrency: config.cleanup.concurrency,
            claim_grace_period: config.cleanup.claim_grace_period,
            reader_grace: config.cleanup.reader_grace,
            retries: config.cleanup.retries,
        },
        budget: Arc::clone(&ground.budget),
        pace: ground.cleanup_pace.clone(),
        clock_guard: ground.clock_guard(),
    };
    let bell = Some(Arc::clone(&ground.cleanup_bell));
    on_schedule(Arc::new(worker), config.cleanup.interval, Kind::Shared, bell)
}

fn pending_reaper(parts: &Parts<'_>) -> Scheduled {
    let Parts { config, catalog, fleet, identity, ground } = *parts;
    let worker = PendingReaper {
        intents: Arc::clone(catalog) as _,
        objects: Arc::clone(catalog) as _,
        fleet: Arc::clone(fleet),
        identity: Arc::clone(identity),
        configured: config.buckets.clone(),
        ids: ground.ids.clone(),
        metrics: ground.intent_metrics.clone(),
        settings: ReaperSettings {
            batch_size: config.intents.batch_size,
            concurrency: config.intents.concurrency,
            hold: config.intents.min_age,
            rest_min: config.intents.reaper_tick,
            late_write_window: config.intents.late_write_window,
            recovery: config.intents.recovery,
        },
        cleanup_bell: Arc::clone(&ground.cleanup_bell),
    };
    scheduled(worker, config.intents.reaper_tick, Kind::Shared)
}

fn expiry(parts: &Parts<'_>) -> Scheduled {
    let Parts { config, catalog, ground, .. } = *parts;
    let bell = Arc::clone(&ground.cleanup_bell);
    let worker = Expiry::new(Arc::clone(catalog) as _, ground.ids.clone(), config.expiry.batch_size, bell);
    let worker = worker.continuing(&ground.expiry_claims);
    scheduled(worker, config.expiry.interval, Kind::Shared)
}

fn identity(parts: &Parts<'_>) -> Scheduled {
    on_schedule(Arc::clone(parts.identity) as _, parts.config.upkeep.identity, Kind::Locked, None)
}

fn stale_multipart(parts: &Parts<'_>) -> Scheduled {
    let Parts { config, catalog, ground, .. } = *parts;
    let worker = StaleMultipart {
        uploads: Arc::clone(catalog) as _,
        timeout: config.cleanup.multipart_stale_timeout,
        cleanup_bell: Arc::clone(&ground.cleanup_bell),
    };
    scheduled(worker, config.upkeep.stale_multipart, Kind::Locked)
}

fn lifecycle(parts: &Parts<'_>) -> Scheduled {
    let Parts { config, catalog, ground, .. } = *parts;
    let (rules, bell) = (ground.lifecycle_rules.clone(), Arc::clone(&ground.cleanup_bell));
    let worker = Lifecycle::new(Arc::clone(catalog) as _, rules, ground.ids.clone(), bell);
    scheduled(worker, config.lifecycle.interval, Kind::Locked)
}

fn quota_audit(parts: &Parts<'_>) -> Scheduled {
    let Parts { config, catalog, ground, .. } = *parts;
    let worker = QuotaAudit::new(Arc::clone(catalog) as _, ground.drift.clone(), Arc::clone(&ground.cleanup_bell));
    scheduled(worker, config.upkeep.quota_audit, Kind::Locked)
}

fn watchdog(parts: &Parts<'_>) -> Scheduled {
    let Parts { config, catalog, ground, .. } = *parts;
    let worker = Watchdog {
        cleanups: Arc::clone(catalog) as _,
        objects: Arc::clone(catalog) as _,
        ahead: Arc::clone(catalog) as _,
        ids: ground.ids.clone(),
        settings: WatchdogSettings {
            claim_grace_period: config.cleanup.claim_grace_period,
            stuck_after: config.expiry.stuck_after,
            longest: longest(config),
        },
        clock_guard: ground.clock_guard(),
        cleanup_bell: Arc::clone(&ground.cleanup_bell),
    };
    scheduled(worker, config.upkeep.watchdog, Kind::Locked)
}

/// How much further than a setting a moment may lie: another instance may have been given a longer one.
const AHEAD_SLACK: Duration = Duration::from_mins(10);

/// How far ahead moments in the catalog can lie.
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
