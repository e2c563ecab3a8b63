//! Replaces a bucket's tags.

use s3o_model::names::BucketName;
use s3o_model::object::Tags;

use crate::{Engine, Error};

impl Engine {
    /// Replaces a bucket's tags; empty removes them.
    pub async fn set_bucket_tags(&self, bucket: &BucketName, tags: Tags) -> Result<(), Error> {
        let bucket = self.find_bucket(bucket).await?;
        Ok(self.buckets.set_bucket_tags(bucket.id, &tags).await?)
    }
}
