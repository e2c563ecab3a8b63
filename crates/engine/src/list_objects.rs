//! Lists objects.

use s3o_model::listing::{ListPage, ListQuery};
use s3o_model::names::BucketName;
use s3o_model::object::ListedObject;

use crate::{Engine, Error};

impl Engine {
    /// One page of the objects and common prefixes of a bucket, in byte order.
    pub async fn list_objects(&self, bucket: &BucketName, query: ListQuery) -> Result<ListPage<ListedObject>, Error> {
        let bucket = self.find_bucket(bucket).await?;
        Ok(self.catalog.list_objects(bucket.id, query).await?)
    }
}
