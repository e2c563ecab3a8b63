//! Reads and replaces the lifecycle rules of a bucket.

use s3o_model::lifecycle::Rule;
use s3o_model::names::BucketName;

use crate::{Engine, Error};

impl Engine {
    /// The rules of a bucket; `None` if it has no lifecycle configuration.
    pub async fn lifecycle(&self, bucket: &BucketName) -> Result<Option<Vec<Rule>>, Error> {
        let bucket = self.find_bucket(bucket).await?;
        Ok(self.catalog.lifecycle(bucket.id).await?.map(|lifecycle| lifecycle.rules))
    }

    /// Replaces the rules of a bucket; `None` deletes them. After this returns, the previous rules delete nothing.
    pub async fn set_lifecycle(&self, bucket: &BucketName, rules: Option<&[Rule]>) -> Result<(), Error> {
        let bucket = self.find_bucket(bucket).await?;
        Ok(self.catalog.set_lifecycle(bucket.id, rules).await?)
    }
}
