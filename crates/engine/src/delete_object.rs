//! Deletes an object.

use s3o_catalog::ObjectToDelete;
use s3o_model::conditions::WriteCondition;
use s3o_model::ids::ClaimToken;
use s3o_model::names::{BucketName, ObjectKey};

use crate::put_object::may_write;
use crate::{Engine, Error};

/// A request to delete an object.
#[derive(Debug, Clone)]
pub struct DeleteObject {
    /// Must exist, or the delete fails with `NoSuchBucket`.
    pub bucket: BucketName,
    /// Key of the object; it need not exist.
    pub key: ObjectKey,
    /// `None` or `IfMatch`.
    pub condition: WriteCondition,
}

impl Engine {
    /// Deletes an object. A missing object is a success, unless the request has a condition.
    pub async fn delete_object(&self, delete: DeleteObject) -> Result<(), Error> {
        let engine = self.clone();
        self.tasks.run(async move { engine.delete(delete).await }).await
    }

    async fn delete(&self, delete: DeleteObject) -> Result<(), Error> {
        let found = self.find(&delete.bucket, &delete.key).await?;
        may_write(&delete.condition, found.object.as_ref())?;
        let if_match = match (&delete.condition, &found.object) {
            (WriteCondition::IfMatch(_), Some(object)) => Some(&object.etag),
            (WriteCondition::None | WriteCondition::IfAbsent | WriteCondition::IfMatch(_), _) => None,
        };
        let token = ClaimToken::new(self.ids.fresh());
        let factor = self.bucket_settings(&delete.bucket).factor;
        let object = ObjectToDelete { bucket: found.bucket, key: &delete.key, if_match, factor };
        if self.catalog.delete_object(&object, token).await? {
            self.wake_cleanup();
        }
        Ok(())
    }
}
