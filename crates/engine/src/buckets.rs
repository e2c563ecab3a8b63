//! Creates, lists and deletes buckets.

use s3o_catalog::{ExpiredObject, Verdict};
use s3o_model::bucket::Bucket;
use s3o_model::ids::{BucketId, ClaimToken};
use s3o_model::names::BucketName;

use crate::{Engine, Error};

/// Maximum number of expired objects that one transaction deletes.
const STEP_ITEMS: usize = 1000;

/// Result of a successful `create_bucket`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BucketCreated {
    /// The name was free.
    New,
    /// The bucket existed before.
    Existing,
}

impl Engine {
    /// All buckets, by name.
    pub async fn list_buckets(&self) -> Result<Vec<Bucket>, Error> {
        Ok(self.catalog.buckets().await?)
    }

    /// The bucket with this name, or `NoSuchBucket`.
    pub async fn bucket(&self, name: &BucketName) -> Result<Bucket, Error> {
        self.find_bucket(name).await
    }

    /// Creates a bucket unless it exists.
    pub async fn create_bucket(&self, name: &BucketName) -> Result<BucketCreated, Error> {
        let fresh = self.catalog.create_bucket(name, Some(self.bucket_settings(name).factor)).await?;
        Ok(if fresh { BucketCreated::New } else { BucketCreated::Existing })
    }

    /// Deletes a bucket if it has no live objects. Expired objects are deleted first and passed to `report`, whether or
    /// not the bucket can be deleted.
    pub async fn delete_bucket(
        &self,
        name: &BucketName,
        report: impl Fn(Vec<ExpiredObject>) + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let bucket = self.find_bucket(name).await?.id;
        match self.catalog.delete_bucket(bucket).await {
            Err(refused) if refused.verdict() == Some(Verdict::NotEmpty) => {}
            done => return Ok(done?),
        }
        let engine = self.clone();
        self.tasks.run(async move { engine.delete_expired_bucket(bucket, report).await }).await
    }

    async fn delete_expired_bucket(
        &self,
        bucket: BucketId,
        report: impl Fn(Vec<ExpiredObject>) + Send + Sync,
    ) -> Result<(), Error> {
        let mut has_expired = !self.catalog.has_live_objects(bucket).await?;
        while has_expired {
            let token = ClaimToken::new(self.ids.fresh());
            let expired = self.catalog.remove_expired_in(bucket, STEP_ITEMS, token).await?;
            has_expired = expired.len() == STEP_ITEMS;
            report(expired);
            self.wake_cleanup();
        }
        Ok(self.catalog.delete_bucket(bucket).await?)
    }
}
