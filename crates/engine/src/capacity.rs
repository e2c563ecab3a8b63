//! Free capacity of the backends, by the counters in the catalog.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use s3o_model::placement::BackendView;
use s3o_model::quota::QuotaUsage;

use crate::{Engine, Error};

/// How old counters may be that only spare a request to a full backend.
const AGE_MAX: Duration = Duration::from_secs(1);

/// The counters as they were last read. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct CachedUsage(Arc<Mutex<Option<UsageReading>>>);

#[derive(Clone)]
struct UsageReading {
    /// Time since boot.
    at: Duration,
    usage: Arc<[QuotaUsage]>,
}

impl Engine {
    /// Sum of the quotas minus stored bytes and bytes that wait for deletion; reservations count as free. `None` if a
    /// backend has no quota.
    pub async fn free_capacity_bytes(&self) -> Result<Option<u64>, Error> {
        let quota_usage = self.catalog.quota_usage().await?;
        let configured = quota_usage.iter().filter(|quota_usage| self.fleet.get(&quota_usage.backend).is_some());
        Ok(configured.map(QuotaUsage::free_bytes).sum())
    }

    /// The backends as input of placement. With several of them the counters are at most a second old; one backend
    /// needs none, because its reservation decides.
    pub(crate) async fn placement_views(&self) -> Result<Vec<BackendView>, Error> {
        let mut views = self.fleet.views(self.now());
        if views.len() > 1 {
            set_usage(&mut views, &self.recent_usage().await?);
        }
        Ok(views)
    }

    /// The same with the counters of this moment.
    pub(crate) async fn current_views(&self) -> Result<Vec<BackendView>, Error> {
        let mut views = self.fleet.views(self.now());
        set_usage(&mut views, &self.read_usage().await?);
        Ok(views)
    }

    async fn recent_usage(&self) -> Result<Arc<[QuotaUsage]>, Error> {
        let now = self.since_boot();
        let cached = self.usage.0.lock().clone();
        match cached.filter(|reading| now.saturating_sub(reading.at) < AGE_MAX) {
            Some(reading) => Ok(reading.usage),
            None => self.read_usage().await,
        }
    }

    async fn read_usage(&self) -> Result<Arc<[QuotaUsage]>, Error> {
        let at = self.since_boot();
        let usage: Arc<[QuotaUsage]> = self.catalog.quota_usage().await?.into();
        *self.usage.0.lock() = Some(UsageReading { at, usage: Arc::clone(&usage) });
        Ok(usage)
    }
}

fn set_usage(views: &mut [BackendView], usage: &[QuotaUsage]) {
    for view in views {
        if let Some(usage) = usage.iter().find(|usage| usage.backend == view.name) {
            view.set_usage(usage);
        }
    }
}
