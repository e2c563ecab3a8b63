//! Buckets.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::ids::BucketId;
use crate::names::BucketName;
use crate::object::Tags;

/// A bucket as the catalog knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// Never reused, so that rows of a deleted bucket cannot become a new one's.
    pub id: BucketId,
    /// Its name.
    pub name: BucketName,
    /// When it was created.
    pub created_at: Timestamp,
    /// Its tags.
    pub tags: Tags,
}

/// How a bucket was configured. One that was not is as the default says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BucketSettings {
    /// Whether identical content is stored once.
    pub dedup: bool,
    /// How long objects live that say nothing of it themselves.
    pub default_ttl: Option<Duration>,
}

/// How buckets were configured, by their names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfiguredBuckets(BTreeMap<BucketName, BucketSettings>);

impl ConfiguredBuckets {
    /// The settings of this bucket.
    #[must_use]
    pub fn of(&self, bucket: &BucketName) -> BucketSettings {
        self.0.get(bucket).copied().unwrap_or_default()
    }

    /// All that were configured.
    pub fn names(&self) -> impl Iterator<Item = &BucketName> {
        self.0.keys()
    }
}

impl FromIterator<(BucketName, BucketSettings)> for ConfiguredBuckets {
    fn from_iter<I: IntoIterator<Item = (BucketName, BucketSettings)>>(buckets: I) -> Self {
        Self(buckets.into_iter().collect())
    }
}
