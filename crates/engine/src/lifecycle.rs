//! Shows and replaces a bucket's lifecycle rules.

use s3o_model::lifecycle::Rule;
use s3o_model::names::BucketName;

use crate::{Engine, Error};

impl Engine {
    /// The rules of a bucket, if it has any.
    pub async fn lifecycle(&self, bucket: &BucketName) -> Result<Option<Vec<Rule>>, Error> {
        let bucket = self.find_bucket(bucket).await?;
        Ok(self.lifecycles.lifecycle(bucket.id).await?.map(|ruled| ruled.rules))
    }

    /// Replaces the rules of a bucket, or removes them. Once this is answered, nothing goes by those before.
    pub async fn set_lifecycle(&self, bucket: &BucketName, rules: Option<&[Rule]>) -> Result<(), Error> {
        let bucket = self.find_bucket(bucket).await?;
        Ok(self.lifecycles.set_lifecycle(bucket.id, rules).await?)
    }
}
