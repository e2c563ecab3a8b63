//! Tags of buckets.

use s3o_model::object::Tags;
use s3s::dto::{
    DeleteBucketTaggingInput, DeleteBucketTaggingOutput, GetBucketTaggingInput, GetBucketTaggingOutput,
    PutBucketTaggingInput, PutBucketTaggingOutput,
};
use s3s::{S3Request, S3Response};

use super::door::{Answer, Door};
use super::errors::refuse;
use super::names;
use super::refusal::Refusal;
use super::tags::{self, BUCKET_TAGS_MAX};

/// A bucket's tags; one that has none has no set either.
pub async fn get(door: &Door, request: S3Request<GetBucketTaggingInput>) -> Answer<GetBucketTaggingOutput> {
    let bucket = door.engine.bucket(&names::bucket(&request.input.bucket)?).await.map_err(refuse)?;
    if bucket.tags.is_empty() {
        return Err(Refusal::new("NoSuchTagSet").into());
    }
    Ok(S3Response::new(GetBucketTaggingOutput { tag_set: tags::to_xml(&bucket.tags) }))
}

/// Replaces a bucket's tags.
pub async fn put(door: &Door, request: S3Request<PutBucketTaggingInput>) -> Answer<PutBucketTaggingOutput> {
    let input = request.input;
    let tags = tags::from_xml(input.tagging.tag_set, BUCKET_TAGS_MAX)?;
    door.engine.set_bucket_tags(&names::bucket(&input.bucket)?, tags).await.map_err(refuse)?;
    Ok(S3Response::new(PutBucketTaggingOutput::default()))
}

/// Removes a bucket's tags.
pub async fn delete(door: &Door, request: S3Request<DeleteBucketTaggingInput>) -> Answer<DeleteBucketTaggingOutput> {
    let bucket = names::bucket(&request.input.bucket)?;
    door.engine.set_bucket_tags(&bucket, Tags::new()).await.map_err(refuse)?;
    Ok(S3Response::new(DeleteBucketTaggingOutput::default()))
}
