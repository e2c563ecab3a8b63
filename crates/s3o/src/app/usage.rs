//! Opens the ledger of the backends' usage.

use std::sync::Arc;

use s3o_backend::Fleet;
use s3o_cache::RedisUsage;
use s3o_catalog::Catalog;
use s3o_workers::{UsageFlushSettings, UsageLedger, UsageLedgerParts};

use super::context::AppContext;
use super::open;
use crate::cli::CommandFailure;
use crate::config::{Config, RedisUrl};

/// Settings of the flush.
pub(super) fn settings(config: &Config) -> UsageFlushSettings {
    let flush = &config.usage_flush;
    UsageFlushSettings { interval: flush.interval, fast_interval: flush.adaptive.then_some(flush.fast_interval) }
}

/// The ledger of this process. It is registered before the first call to a backend, whose month the catalog's clock
/// decides.
pub(super) async fn open(
    config: &Config,
    catalog: &Arc<Catalog>,
    fleet: &Arc<Fleet>,
    context: &AppContext,
) -> Result<Arc<UsageLedger>, CommandFailure> {
    let redis = match &config.cache.redis {
        None => None,
        Some(RedisUrl(url)) => {
            let cluster = open::cluster(catalog, context).await?;
            Some(RedisUsage::new(url, &cluster).map_err(|error| CommandFailure::of("redis.url", error))?)
        }
    };
    let ledger = UsageLedger::new(UsageLedgerParts {
        catalog: Arc::clone(catalog),
        fleet: Arc::clone(fleet),
        time: Arc::clone(&context.usage.time),
        instance: context.instance,
        redis,
        settings: context.usage_settings.clone(),
        demand: Arc::clone(&context.usage.demand),
        flush_wakeup: Arc::clone(&context.usage_wakeup),
    });
    // A damaged catalog is served as it is.
    if let Err(error) = ledger.start().await
        && !catalog.condition().is_damaged()
    {
        return Err(CommandFailure::of("catalog", error));
    }
    Ok(Arc::new(ledger))
}
