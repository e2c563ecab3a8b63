//! Operations on buckets themselves.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use s3o_engine::{Created, ExpiredObject};
use s3o_model::bucket::Bucket as StoredBucket;
use s3s::dto::{
    Bucket, BucketLocationConstraint, CreateBucketInput, CreateBucketOutput, DeleteBucketInput, DeleteBucketOutput,
    GetBucketLocationInput, GetBucketLocationOutput, GetBucketVersioningInput, GetBucketVersioningOutput,
    HeadBucketInput, HeadBucketOutput, ListBucketsInput, ListBucketsOutput,
};
use s3s::{S3Request, S3Response};
use serde_json::json;

use super::door::{Answer, Door};
use super::errors::refuse;
use super::owner::owner;
use super::refusal::Refusal;
use super::{names, times, tokens};
use crate::audit::{Audit, Cause};
use crate::middleware::RequestNotes;

/// The region that S3 treats as the one without a name.
const NAMELESS_REGION: &str = "us-east-1";
/// The most buckets on one page.
const BUCKETS_MAX: usize = 10_000;

/// Lists the buckets that the caller has a grant on.
pub async fn list(door: &Door, request: S3Request<ListBucketsInput>) -> Answer<ListBucketsOutput> {
    let input = request.input;
    let caller = request.credentials.and_then(|credentials| door.keys.current().find(&credentials.access_key));
    let caller = caller.ok_or_else(|| Refusal::new("AccessDenied"))?;
    let after = tokens::asked(input.continuation_token.as_deref())?.unwrap_or_default();
    let prefix = input.prefix.unwrap_or_default();
    let limit = page_size(input.max_buckets)?;
    let all = door.engine.list_buckets().await.map_err(refuse)?;
    let mut shown: Vec<StoredBucket> = all
        .into_iter()
        .filter(|bucket| bucket.name.as_str() > after.as_str() && bucket.name.as_str().starts_with(&prefix))
        .filter(|bucket| caller.sees(bucket.name.as_str()))
        .collect();
    let more = shown.len() > limit;
    shown.truncate(limit);
    let next = shown.last().filter(|_| more).map(|bucket| tokens::encode(bucket.name.as_str()));
    Ok(S3Response::new(ListBucketsOutput {
        buckets: Some(shown.iter().map(|bucket| listed(bucket, &door.region)).collect()),
        continuation_token: next,
        owner: Some(owner()),
        prefix: (!prefix.is_empty()).then_some(prefix),
    }))
}

fn page_size(max_buckets: Option<i32>) -> Result<usize, Refusal> {
    let Some(asked) = max_buckets else { return Ok(BUCKETS_MAX) };
    let valid = usize::try_from(asked).ok().filter(|size| (1..=BUCKETS_MAX).contains(size));
    valid.ok_or_else(|| Refusal::because("InvalidArgument", "max-buckets must be between 1 and 10000"))
}

fn listed(bucket: &StoredBucket, region: &str) -> Bucket {
    Bucket {
        bucket_region: Some(region.to_owned()),
        creation_date: Some(times::to_s3(bucket.created_at)),
        name: Some(bucket.name.to_string()),
    }
}

/// Creates a bucket.
pub async fn create(door: &Door, request: S3Request<CreateBucketInput>) -> Answer<CreateBucketOutput> {
    let input = request.input;
    let constraint = input.create_bucket_configuration.and_then(|configuration| configuration.location_constraint);
    check_constraint(constraint.as_ref().map(BucketLocationConstraint::as_str), &door.region)?;
    let name = names::bucket(&input.bucket)?;
    match door.engine.create_bucket(&name).await.map_err(refuse)? {
        Created::New => {}
        // In its oldest region S3 answers a repeated creation by the owner with success.
        Created::AlreadyThere if door.region == NAMELESS_REGION => {}
        Created::AlreadyThere => return Err(Refusal::new("BucketAlreadyOwnedByYou").into()),
    }
    Ok(S3Response::new(CreateBucketOutput { location: Some(format!("/{name}")) }))
}

fn check_constraint(constraint: Option<&str>, region: &str) -> Result<(), Refusal> {
    match constraint {
        None | Some("") => Ok(()),
        Some(asked) if asked == region => Ok(()),
        Some(asked) => {
            let message = format!("The {asked} location constraint is incompatible with the region {region}.");
            Err(Refusal::because("IllegalLocationConstraintException", message))
        }
    }
}

/// Removes an empty bucket.
pub async fn delete(door: &Door, request: S3Request<DeleteBucketInput>) -> Answer<DeleteBucketOutput> {
    let (audit, notes) = (Arc::clone(&door.audit), request.extensions.get::<RequestNotes>().cloned());
    let tell = move |gone: Vec<ExpiredObject>| gone.iter().for_each(|gone| record(&audit, notes.as_ref(), gone));
    door.engine.delete_bucket(&names::bucket(&request.input.bucket)?, tell).await.map_err(refuse)?;
    Ok(S3Response::new(DeleteBucketOutput::default()))
}

/// Notes an expired object that went with its bucket, like one that went by itself.
fn record(audit: &Audit, notes: Option<&RequestNotes>, gone: &ExpiredObject) {
    let cause = notes.map_or(Cause::Program, |notes| Cause::Request(notes.request_id()));
    let actor = notes.and_then(RequestNotes::subject).map_or("engine", |subject| &subject.access_key_id);
    let fields = json!({"bucket": gone.bucket, "key": gone.key, "size_bytes": gone.size_bytes});
    audit.record("expiry.deleted", cause, actor, &fields);
}

/// Tells whether a bucket is there.
pub async fn head(door: &Door, request: S3Request<HeadBucketInput>) -> Answer<HeadBucketOutput> {
    door.engine.bucket(&names::bucket(&request.input.bucket)?).await.map_err(refuse)?;
    let mut headers = HeaderMap::new();
    if let Ok(region) = HeaderValue::from_str(&door.region) {
        headers.insert("x-amz-bucket-region", region);
    }
    Ok(S3Response::with_headers(HeadBucketOutput::default(), headers))
}

/// Tells where a bucket is.
pub async fn location(door: &Door, request: S3Request<GetBucketLocationInput>) -> Answer<GetBucketLocationOutput> {
    door.engine.bucket(&names::bucket(&request.input.bucket)?).await.map_err(refuse)?;
    let named = Some(door.region.clone()).filter(|region| region != NAMELESS_REGION);
    let location_constraint = named.map(BucketLocationConstraint::from);
    Ok(S3Response::new(GetBucketLocationOutput { location_constraint }))
}

/// Tells that a bucket never had versions.
pub async fn versioning(
    door: &Door,
    request: S3Request<GetBucketVersioningInput>,
) -> Answer<GetBucketVersioningOutput> {
    door.engine.bucket(&names::bucket(&request.input.bucket)?).await.map_err(refuse)?;
    Ok(S3Response::new(GetBucketVersioningOutput::default()))
}

#[cfg(test)]
mod tests {
    use super::{check_constraint, page_size};

    #[test]
    fn a_constraint_names_our_region_or_nothing() {
        assert!(check_constraint(None, "us-east-1").is_ok());
        assert!(check_constraint(Some("eu-west-1"), "eu-west-1").is_ok());
        let refusal = check_constraint(Some("eu-west-1"), "us-east-1").unwrap_err();
        assert_eq!(refusal.code, "IllegalLocationConstraintException");
    }

    #[test]
    fn bucket_pages_are_bounded() {
        assert_eq!(page_size(None).unwrap(), 10_000);
        assert_eq!(page_size(Some(3)).unwrap(), 3);
        assert!(page_size(Some(0)).is_err());
        assert!(page_size(Some(-1)).is_err());
    }
}
