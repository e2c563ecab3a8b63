//! Counts the usage of a process's backends, with the limits of its settings.

use std::sync::Arc;
use std::time::Duration;

use s3o_backend::layers::CountedCalls;
use s3o_backend::usage::{BackendUsage, CatalogTime, UsageContext};
use s3o_backend::{Fleet, SharedBackend};
use s3o_catalog::Catalog;
use s3o_model::clock::Clock;
use s3o_model::ids::InstanceId;
use s3o_model::shared::Shared;
use s3o_model::usage::UsagePolicy;
use s3o_workers::{UsageFlushSettings, UsageLedger, UsageLedgerParts};

/// How often the suites flush usage.
const INTERVAL: Duration = Duration::from_mins(2);

/// A fleet whose backends are counted and have no limits yet.
pub(super) fn counted_fleet(backends: Vec<SharedBackend>, context: &UsageContext) -> Fleet {
    let usage = |backend: &SharedBackend| {
        Arc::new(BackendUsage::new(backend.name().clone(), UsagePolicy::default(), context.clone()))
    };
    let usages: Vec<Arc<BackendUsage>> = backends.iter().map(usage).collect();
    let counted = backends.into_iter().zip(&usages);
    let counted = counted.map(|(backend, usage)| Arc::new(CountedCalls::new(backend, usage.clone())) as SharedBackend);
    Fleet::new(counted.collect()).expect("backend names differ").with_usage(usages)
}

/// What the usage is counted with.
pub(super) fn usage_context(clock: &Arc<dyn Clock>) -> UsageContext {
    let time = Arc::new(CatalogTime::new(Arc::clone(clock)));
    UsageContext { time, demand: Arc::default(), resume_delay: Duration::ZERO }
}

/// The ledger of a process without Redis.
pub(super) fn usage_ledger(
    catalog: &Arc<Catalog>,
    fleet: &Arc<Fleet>,
    instance: InstanceId,
    context: UsageContext,
) -> UsageLedger {
    UsageLedger::new(UsageLedgerParts {
        catalog: Arc::clone(catalog),
        fleet: Arc::clone(fleet),
        time: context.time,
        instance,
        redis: None,
        settings: Shared::new(UsageFlushSettings { interval: INTERVAL, fast_interval: None }),
        demand: context.demand,
        flush_wakeup: Arc::default(),
    })
}
