//! Tags of objects.

use s3o_model::object::Tags;
use s3s::dto::{
    DeleteObjectTaggingInput, DeleteObjectTaggingOutput, GetObjectTaggingInput, GetObjectTaggingOutput,
    PutObjectTaggingInput, PutObjectTaggingOutput,
};
use s3s::{S3Request, S3Response};

use super::door::{Answer, Door};
use super::errors::refuse;
use super::names;
use super::tags::{self, OBJECT_TAGS_MAX};

/// An object's tags.
pub async fn get(door: &Door, request: S3Request<GetObjectTaggingInput>) -> Answer<GetObjectTaggingOutput> {
    let input = request.input;
    names::version(input.version_id.as_deref())?;
    let (bucket, key) = (names::bucket(&input.bucket)?, names::key(&input.key)?);
    let found = door.engine.object_tags(&bucket, &key).await.map_err(refuse)?;
    Ok(S3Response::new(GetObjectTaggingOutput { tag_set: tags::to_xml(&found), version_id: None }))
}

/// Replaces an object's tags.
pub async fn put(door: &Door, request: S3Request<PutObjectTaggingInput>) -> Answer<PutObjectTaggingOutput> {
    let input = request.input;
    names::version(input.version_id.as_deref())?;
    let (bucket, key) = (names::bucket(&input.bucket)?, names::key(&input.key)?);
    let tags = tags::from_xml(input.tagging.tag_set, OBJECT_TAGS_MAX)?;
    door.engine.set_object_tags(&bucket, &key, tags).await.map_err(refuse)?;
    Ok(S3Response::new(PutObjectTaggingOutput::default()))
}

/// Removes an object's tags.
pub async fn delete(door: &Door, request: S3Request<DeleteObjectTaggingInput>) -> Answer<DeleteObjectTaggingOutput> {
    let input = request.input;
    names::version(input.version_id.as_deref())?;
    let (bucket, key) = (names::bucket(&input.bucket)?, names::key(&input.key)?);
    door.engine.set_object_tags(&bucket, &key, Tags::new()).await.map_err(refuse)?;
    Ok(S3Response::new(DeleteObjectTaggingOutput::default()))
}
