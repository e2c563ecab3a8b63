//! Tags of objects.

use s3o_model::object::Tags;
use s3s::dto::{
    DeleteObjectTaggingInput, DeleteObjectTaggingOutput, GetObjectTaggingInput, GetObjectTaggingOutput,
    PutObjectTaggingInput, PutObjectTaggingOutput,
};
use s3s::{S3Request, S3Response};

use super::errors::refuse;
use super::names;
use super::s3_handler::{S3Answer, S3Handler};
use super::tags::{self, OBJECT_TAGS_MAX};

/// `GetObjectTagging`.
pub async fn get(handler: &S3Handler, request: S3Request<GetObjectTaggingInput>) -> S3Answer<GetObjectTaggingOutput> {
    let input = request.input;
    names::version(input.version_id.as_deref())?;
    let (bucket, key) = (names::bucket(&input.bucket)?, names::key(&input.key)?);
    let found = handler.engine.object_tags(&bucket, &key).await.map_err(refuse)?;
    Ok(S3Response::new(GetObjectTaggingOutput { tag_set: tags::to_xml(&found), version_id: None }))
}

/// `PutObjectTagging`.
pub async fn put(handler: &S3Handler, request: S3Request<PutObjectTaggingInput>) -> S3Answer<PutObjectTaggingOutput> {
    let input = request.input;
    names::version(input.version_id.as_deref())?;
    let (bucket, key) = (names::bucket(&input.bucket)?, names::key(&input.key)?);
    let tags = tags::from_xml(input.tagging.tag_set, OBJECT_TAGS_MAX)?;
    handler.engine.set_object_tags(&bucket, &key, tags).await.map_err(refuse)?;
    Ok(S3Response::new(PutObjectTaggingOutput::default()))
}

/// `DeleteObjectTagging`.
pub async fn delete(
    handler: &S3Handler,
    request: S3Request<DeleteObjectTaggingInput>,
) -> S3Answer<DeleteObjectTaggingOutput> {
    let input = request.input;
    names::version(input.version_id.as_deref())?;
    let (bucket, key) = (names::bucket(&input.bucket)?, names::key(&input.key)?);
    handler.engine.set_object_tags(&bucket, &key, Tags::new()).await.map_err(refuse)?;
    Ok(S3Response::new(DeleteObjectTaggingOutput::default()))
}
