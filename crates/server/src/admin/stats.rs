//! Counts of the catalog's rows for status and metrics.

mod cached_count;

use std::sync::Arc;
use std::time::Duration;

use s3o_catalog::{BucketCount, Catalog, Error, OldestDue};
use s3o_model::clock::Clock;
use s3o_model::names::BackendName;
use s3o_model::shared::Shared;

use cached_count::CachedCount;

/// Counts that read every row.
#[derive(Debug)]
pub struct CatalogCounts {
    pub buckets: Vec<BucketCount>,
    /// Locations per backend.
    locations: Vec<(BackendName, u64)>,
}

impl CatalogCounts {
    /// The objects of a bucket; None if it did not exist when they were counted.
    pub fn bucket(&self, name: &str) -> Option<&BucketCount> {
        self.buckets.iter().find(|count| count.bucket == name)
    }

    /// The locations on a backend.
    pub fn locations(&self, name: &BackendName) -> Option<u64> {
        self.locations.iter().find(|(backend, _)| backend == name).map(|(_, count)| *count)
    }
}

/// Counts what the catalog holds.
pub struct Stats {
    catalog: Arc<Catalog>,
    counts: CachedCount<CatalogCounts>,
    stale_timeout: Shared<Duration>,
}

impl Stats {
    /// Multipart uploads are due after `stale_timeout` without activity.
    pub fn new(catalog: Arc<Catalog>, clock: Arc<dyn Clock>, stale_timeout: Duration) -> Self {
        Self { catalog, counts: CachedCount::new(clock), stale_timeout: Shared::new(stale_timeout) }
    }

    /// The last counts; None before the first count has finished.
    pub(super) async fn counts(&self) -> Option<Arc<CatalogCounts>> {
        self.counts.current(count(Arc::clone(&self.catalog))).await
    }

    /// How long the oldest row of each queue has been due.
    pub(super) async fn oldest_due(&self) -> Result<OldestDue, Error> {
        self.catalog.oldest_due(*self.stale_timeout.current()).await
    }

    /// Replaces the timeout of [`Self::new`].
    pub fn set_stale_timeout(&self, stale_timeout: Duration) {
        self.stale_timeout.replace(stale_timeout);
    }
}

async fn count(catalog: Arc<Catalog>) -> Result<CatalogCounts, Error> {
    Ok(CatalogCounts { buckets: catalog.count_objects().await?, locations: catalog.count_locations().await? })
}
