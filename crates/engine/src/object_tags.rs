//! Reads and replaces an object's tags.

use s3o_model::names::{BucketName, ObjectKey};
use s3o_model::object::Tags;

use crate::{Engine, Error};

impl Engine {
    /// The tags of an object; empty if it has none.
    pub async fn object_tags(&self, bucket: &BucketName, key: &ObjectKey) -> Result<Tags, Error> {
        let object = self.find(bucket, key).await?.object.ok_or(Error::NoSuchKey)?;
        Ok(object.attributes.tags)
    }

    /// Replaces the tags of an object; an empty map removes them.
    pub async fn set_object_tags(&self, bucket: &BucketName, key: &ObjectKey, tags: Tags) -> Result<(), Error> {
        let object = self.find(bucket, key).await?.object.ok_or(Error::NoSuchKey)?;
        Ok(self.catalog.set_object_tags(&object, &tags).await?)
    }
}
