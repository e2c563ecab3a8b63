//! Creates, lists and removes buckets.

use s3o_model::bucket::Bucket;
use s3o_model::names::BucketName;

use crate::{Engine, Error};

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

    /// Removes a bucket, only when it is empty.
    pub async fn delete_bucket(&self, name: &BucketName) -> Result<(), Error> {
        let bucket = self.find_bucket(name).await?;
        Ok(self.buckets.delete_bucket(bucket.id).await?)
    }
}
