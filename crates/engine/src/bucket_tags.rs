//! Replaces a bucket's tags.

use s3o_model::names::BucketName;
use s3o_model::object::Tags;

use crate::{Engine, Error};

impl Engine {
    /// Replaces the tags of a bucket; an empty map removes them.
    pub async fn set_bucket_tags(&self, bucket: &BucketName, tags: Tags) -> Result<(), Error> {
        let bucket = self.find_bucket(bucket).await?;
        Ok(self.catalog.set_bucket_tags(bucket.id, &tags).await?)
    }
}
