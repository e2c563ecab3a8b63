//! Creates, lists and removes buckets.

use s3o_catalog::{ExpiredObject, Verdict};
use s3o_model::bucket::Bucket;
use s3o_model::ids::{BucketId, ClaimToken};
use s3o_model::names::BucketName;

use crate::{Engine, Error};

/// How many expired objects one unit removes.
const STEP_ITEMS: usize = 1000;

/// What creating a bucket found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    /// It is new.
    New,
    /// It was there before.
    AlreadyThere,
}

impl Engine {
    /// All buckets, by name.
    pub async fn list_buckets(&self) -> Result<Vec<Bucket>, Error> {
        Ok(self.buckets.buckets().await?)
    }

    /// One bucket.
    pub async fn bucket(&self, name: &BucketName) -> Result<Bucket, Error> {
        self.find_bucket(name).await
    }

    /// Creates a bucket.
    pub async fn create_bucket(&self, name: &BucketName) -> Result<Created, Error> {
        let fresh = self.buckets.create_bucket(name).await?;
        Ok(if fresh { Created::New } else { Created::AlreadyThere })
    }

    /// Removes a bucket, only when it is empty. What has expired does not count; where some is still there it goes, too,
    /// and `tell` hears of it, whatever becomes of the bucket.
    pub async fn delete_bucket(
        &self,
        name: &BucketName,
        tell: impl Fn(Vec<ExpiredObject>) + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let bucket = self.find_bucket(name).await?.id;
        match self.buckets.delete_bucket(bucket).await {
            Err(refused) if refused.verdict() == Some(Verdict::NotEmpty) => {}
            done => return Ok(done?),
        }
        let engine = self.clone();
        self.tasks.run(async move { engine.delete_expired_bucket(bucket, tell).await }).await
    }

    /// Removes a bucket together with what has expired in it and nobody removed yet.
    async fn delete_expired_bucket(
        &self,
        bucket: BucketId,
        tell: impl Fn(Vec<ExpiredObject>) + Send + Sync,
    ) -> Result<(), Error> {
        let mut more = !self.expiries.has_live_objects(bucket).await?;
        while more {
            let token = ClaimToken::new(self.ids.fresh());
            let gone = self.expiries.remove_expired_in(bucket, STEP_ITEMS, token).await?;
            more = gone.len() == STEP_ITEMS;
            tell(gone);
            self.ring_for_cleanup();
        }
        Ok(self.buckets.delete_bucket(bucket).await?)
    }
}
