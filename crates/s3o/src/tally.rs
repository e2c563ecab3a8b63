//! What is counted for people and dashboards.

mod counted;

use std::sync::Arc;
use std::time::Duration;

use s3o_catalog::{BucketCount, Catalog, Error, OldestDue, Overview as _};
use s3o_model::clock::Clock;
use s3o_model::names::BackendName;
use s3o_model::shared::Shared;

use counted::Counted;

/// How much there is.
#[derive(Debug)]
pub struct Counts {
    /// What every bucket holds.
    pub buckets: Vec<BucketCount>,
    /// How many locations every backend has.
    pub locations: Vec<(BackendName, u64)>,
}

impl Counts {
    /// What a bucket holds, if it was there when it was counted.
    pub fn bucket(&self, name: &str) -> Option<&BucketCount> {
        self.buckets.iter().find(|count| count.bucket == name)
    }

    /// How many locations a backend has.
    pub fn locations(&self, name: &BackendName) -> Option<u64> {
        self.locations.iter().find(|(backend, _)| backend == name).map(|(_, count)| *count)
    }
}

/// Counts what the catalog holds.
pub struct Tally {
    catalog: Arc<Catalog>,
    counts: Counted<Counts>,
    stale_timeout: Shared<Duration>,
}

impl Tally {
    /// A tally of this catalog; uploads are due when nothing happened for `stale_timeout`.
    pub fn new(catalog: Arc<Catalog>, clock: Arc<dyn Clock>, stale_timeout: Duration) -> Self {
        Self { catalog, counts: Counted::new(clock), stale_timeout: Shared::new(stale_timeout) }
    }

    /// How much there is, as of the last count; nothing before the first.
    pub async fn counts(&self) -> Option<Arc<Counts>> {
        self.counts.current(count(Arc::clone(&self.catalog))).await
    }

    /// How long what is due has waited.
    pub async fn oldest_due(&self) -> Result<OldestDue, Error> {
        self.catalog.oldest_due(*self.stale_timeout.current()).await
    }

    /// Uploads are due when nothing happened for this long, from now on.
    pub fn resettle(&self, stale_timeout: Duration) {
        self.stale_timeout.replace(stale_timeout);
    }
}

async fn count(catalog: Arc<Catalog>) -> Result<Counts, Error> {
    Ok(Counts { buckets: catalog.count_objects().await?, locations: catalog.count_locations().await? })
}
