//! Tags of buckets.

use s3o_model::object::Tags;
use s3s::dto::{
    DeleteBucketTaggingInput, DeleteBucketTaggingOutput, GetBucketTaggingInput, GetBucketTaggingOutput,
    PutBucketTaggingInput, PutBucketTaggingOutput,
};
use s3s::{S3Request, S3Response};

use super::errors::refuse;
use super::names;
use super::refusal::Refusal;
use super::s3_handler::{S3Answer, S3Handler};
use super::tags::{self, BUCKET_TAGS_MAX};

/// `GetBucketTagging`; a bucket without tags answers `NoSuchTagSet`.
pub async fn get(handler: &S3Handler, request: S3Request<GetBucketTaggingInput>) -> S3Answer<GetBucketTaggingOutput> {
    let bucket = handler.engine.bucket(&names::bucket(&request.input.bucket)?).await.map_err(refuse)?;
    if bucket.tags.is_empty() {
        return Err(Refusal::new("NoSuchTagSet").into());
    }
    Ok(S3Response::new(GetBucketTaggingOutput { tag_set: tags::to_xml(&bucket.tags) }))
}

/// `PutBucketTagging`.
pub async fn put(handler: &S3Handler, request: S3Request<PutBucketTaggingInput>) -> S3Answer<PutBucketTaggingOutput> {
    let input = request.input;
    let tags = tags::from_xml(input.tagging.tag_set, BUCKET_TAGS_MAX)?;
    handler.engine.set_bucket_tags(&names::bucket(&input.bucket)?, tags).await.map_err(refuse)?;
    Ok(S3Response::new(PutBucketTaggingOutput::default()))
}

/// `DeleteBucketTagging`.
pub async fn delete(
    handler: &S3Handler,
    request: S3Request<DeleteBucketTaggingInput>,
) -> S3Answer<DeleteBucketTaggingOutput> {
    let bucket = names::bucket(&request.input.bucket)?;
    handler.engine.set_bucket_tags(&bucket, Tags::new()).await.map_err(refuse)?;
    Ok(S3Response::new(DeleteBucketTaggingOutput::default()))
}
