//! Buckets.

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
