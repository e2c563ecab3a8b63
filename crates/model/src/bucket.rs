//! Buckets and their settings.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::ids::BucketId;
use crate::names::BucketName;
use crate::object::Tags;

/// A bucket in the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// Identifier, never reused, so that rows of a deleted bucket never belong to a new one.
    pub id: BucketId,
    /// Unique among existing buckets.
    pub name: BucketName,
    /// Creation time.
    pub created_at: Timestamp,
    /// Set by `PutBucketTagging`; empty by default.
    pub tags: Tags,
}

/// Configured settings of a bucket; the default applies to buckets without any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketSettings {
    /// True if identical content is stored once.
    pub dedup: bool,
    /// Time to live of objects that are written without one.
    pub default_ttl: Option<Duration>,
    /// Number of copies that each object shall have.
    pub factor: usize,
}

impl Default for BucketSettings {
    fn default() -> Self {
        Self { dedup: false, default_ttl: None, factor: 1 }
    }
}

/// Configured settings by bucket name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfiguredBuckets {
    by_name: BTreeMap<BucketName, BucketSettings>,
    others: BucketSettings,
}

impl ConfiguredBuckets {
    /// The same, with this factor for buckets that are not configured.
    #[must_use]
    pub fn with_default_factor(self, factor: usize) -> Self {
        Self { others: BucketSettings { factor, ..self.others }, ..self }
    }

    /// The settings of a bucket, or the default.
    #[must_use]
    pub fn of(&self, bucket: &BucketName) -> BucketSettings {
        self.by_name.get(bucket).copied().unwrap_or(self.others)
    }

    /// Names in byte order, without duplicates.
    pub fn names(&self) -> impl Iterator<Item = &BucketName> {
        self.by_name.keys()
    }

    /// The factor of buckets that are not configured.
    #[must_use]
    pub fn default_factor(&self) -> usize {
        self.others.factor
    }
}

impl FromIterator<(BucketName, BucketSettings)> for ConfiguredBuckets {
    fn from_iter<I: IntoIterator<Item = (BucketName, BucketSettings)>>(buckets: I) -> Self {
        Self { by_name: buckets.into_iter().collect(), others: BucketSettings::default() }
    }
}
