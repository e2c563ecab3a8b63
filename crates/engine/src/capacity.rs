//! Free capacity of the backends, by the counters in the catalog.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use s3o_catalog::Error as CatalogError;
use s3o_model::names::BackendName;
use s3o_model::placement::BackendView;
use s3o_model::quota::QuotaUsage;

use crate::{Engine, Error};

/// How old counters may be that only spare a request to a full backend.
const AGE_MAX: Duration = Duration::from_secs(1);

/// The counters as they were last read, and what this instance has reserved since. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct CachedUsage(Arc<Mutex<Option<UsageReading>>>);

struct UsageReading {
    /// Time since boot.
    at: Duration,
    usage: Vec<QuotaUsage>,
}

impl CachedUsage {
    /// Sets the counters of all backends; false if the reading is too old.
    fn apply(&self, views: &mut [BackendView], now: Duration) -> bool {
        let reading = self.0.lock();
        let recent = reading.as_ref().filter(|reading| now.saturating_sub(reading.at) < AGE_MAX);
        if let Some(recent) = recent {
            set_usage(views, &recent.usage);
        }
        recent.is_some()
    }

    /// Counts bytes that were reserved after the reading, so that the next write already considers them.
    pub(crate) fn add_reserved(&self, backend: &BackendName, size_bytes: u64) {
        let mut reading = self.0.lock();
        let mut usage = reading.iter_mut().flat_map(|reading| &mut reading.usage);
        if let Some(usage) = usage.find(|usage| usage.backend == *backend) {
            usage.reserved_bytes = usage.reserved_bytes.saturating_add(size_bytes);
        }
    }
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
    pub(crate) async fn placement_views(&self) -> Result<Vec<BackendView>, CatalogError> {
        let mut views = self.fleet.views(self.now());
        if views.len() > 1 && !self.usage.apply(&mut views, self.since_boot()) {
            set_usage(&mut views, &self.read_usage().await?);
        }
        Ok(views)
    }

    /// The same with the counters of this moment.
    pub(crate) async fn current_views(&self) -> Result<Vec<BackendView>, Error> {
        let (mut views, usage) = (self.fleet.views(self.now()), self.read_usage().await?);
        set_usage(&mut views, &usage);
        Ok(views)
    }

    async fn read_usage(&self) -> Result<Vec<QuotaUsage>, CatalogError> {
        let at = self.since_boot();
        let usage = self.catalog.quota_usage().await?;
        *self.usage.0.lock() = Some(UsageReading { at, usage: usage.clone() });
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
