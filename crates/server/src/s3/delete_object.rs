//! `DeleteObject`.

use s3o_engine::DeleteObject;
use s3s::dto::{DeleteObjectInput, DeleteObjectOutput};
use s3s::{S3Request, S3Response};

use super::errors::refuse;
use super::s3_handler::{S3Answer, S3Handler};
use super::{conditions, names};

/// Deletes an object; a missing key is not an error.
pub async fn delete(handler: &S3Handler, request: S3Request<DeleteObjectInput>) -> S3Answer<DeleteObjectOutput> {
    let input = request.input;
    names::version(input.version_id.as_deref())?;
    let delete = DeleteObject {
        bucket: names::bucket(&input.bucket)?,
        key: names::key(&input.key)?,
        condition: conditions::of_write(input.if_match, None)?,
    };
    handler.engine.delete_object(delete).await.map_err(refuse)?;
    Ok(S3Response::new(DeleteObjectOutput::default()))
}
