//! Deletes an object.

use s3o_model::conditions::WriteCondition;
use s3o_model::ids::ClaimToken;
use s3o_model::names::{BucketName, ObjectKey};

use crate::put_object::may_write;
use crate::{Engine, Error};

/// A request to delete an object.
#[derive(Debug, Clone)]
pub struct DeleteObject {
    /// The bucket.
    pub bucket: BucketName,
    /// The key.
    pub key: ObjectKey,
    /// `None` or `IfMatch`.
    pub condition: WriteCondition,
}

impl Engine {
    /// Deletes an object; one that is not there is deleted already, unless a condition was set.
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
        if self.objects.delete_object(found.bucket, &delete.key, if_match, token).await? {
            self.ring_for_cleanup();
        }
        Ok(())
    }
}
