//! `DeleteObject`.

use s3o_engine::DeleteObject;
use s3s::dto::{DeleteObjectInput, DeleteObjectOutput};
use s3s::{S3Request, S3Response};

use super::door::{Answer, Door};
use super::errors::refuse;
use super::{conditions, names};

/// Deletes an object.
pub async fn delete(door: &Door, request: S3Request<DeleteObjectInput>) -> Answer<DeleteObjectOutput> {
    let input = request.input;
    names::version(input.version_id.as_deref())?;
    let delete = DeleteObject {
        bucket: names::bucket(&input.bucket)?,
        key: names::key(&input.key)?,
        condition: conditions::of_write(input.if_match, None)?,
    };
    door.engine.delete_object(delete).await.map_err(refuse)?;
    Ok(S3Response::new(DeleteObjectOutput::default()))
}
