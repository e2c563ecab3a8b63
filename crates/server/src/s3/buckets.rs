//! Operations on buckets themselves.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use s3o_engine::{BucketCreated, ExpiredObject};
use s3o_model::bucket::Bucket as StoredBucket;
use s3s::dto::{
    Bucket, BucketLocationConstraint, CreateBucketInput, CreateBucketOutput, DeleteBucketInput, DeleteBucketOutput,
    GetBucketLocationInput, GetBucketLocationOutput, GetBucketVersioningInput, GetBucketVersioningOutput,
    HeadBucketInput, HeadBucketOutput, ListBucketsInput, ListBucketsOutput,
};
use s3s::{S3Request, S3Response};
use serde_json::json;

use super::errors::refuse;
use super::owner::owner;
use super::refusal::Refusal;
use super::s3_handler::{S3Answer, S3Handler};
use super::{names, times, tokens};
use crate::audit::{Audit, Cause};
use crate::middleware::RequestContext;

/// The region for which `GetBucketLocation` answers no location constraint.
const DEFAULT_REGION: &str = "us-east-1";
/// The most buckets on one page of `ListBuckets`.
const BUCKETS_MAX: usize = 10_000;

/// `ListBuckets`: the buckets that the access key has a grant on.
pub async fn list(handler: &S3Handler, request: S3Request<ListBucketsInput>) -> S3Answer<ListBucketsOutput> {
    let input = request.input;
    let caller = request.credentials.and_then(|credentials| handler.keys.current().find(&credentials.access_key));
    let caller = caller.ok_or_else(|| Refusal::new("AccessDenied"))?;
    let after = tokens::requested(input.continuation_token.as_deref())?.unwrap_or_default();
    let prefix = input.prefix.unwrap_or_default();
    let limit = page_size(input.max_buckets)?;
    let all = handler.engine.list_buckets().await.map_err(refuse)?;
    let mut shown: Vec<StoredBucket> = all
        .into_iter()
        .filter(|bucket| bucket.name.as_str() > after.as_str() && bucket.name.as_str().starts_with(&prefix))
        .filter(|bucket| caller.sees(bucket.name.as_str()))
        .collect();
    let more = shown.len() > limit;
    shown.truncate(limit);
    let next = shown.last().filter(|_| more).map(|bucket| tokens::encode(bucket.name.as_str()));
    Ok(S3Response::new(ListBucketsOutput {
        buckets: Some(shown.iter().map(|bucket| listed(bucket, &handler.region)).collect()),
        continuation_token: next,
        owner: Some(owner()),
        prefix: (!prefix.is_empty()).then_some(prefix),
    }))
}

fn page_size(max_buckets: Option<i32>) -> Result<usize, Refusal> {
    let Some(requested) = max_buckets else { return Ok(BUCKETS_MAX) };
    let valid = usize::try_from(requested).ok().filter(|size| (1..=BUCKETS_MAX).contains(size));
    valid.ok_or_else(|| Refusal::because("InvalidArgument", "max-buckets must be between 1 and 10000"))
}

fn listed(bucket: &StoredBucket, region: &str) -> Bucket {
    Bucket {
        bucket_region: Some(region.to_owned()),
        creation_date: Some(times::to_s3(bucket.created_at)),
        name: Some(bucket.name.to_string()),
    }
}

/// `CreateBucket`.
pub async fn create(handler: &S3Handler, request: S3Request<CreateBucketInput>) -> S3Answer<CreateBucketOutput> {
    let input = request.input;
    let constraint = input.create_bucket_configuration.and_then(|configuration| configuration.location_constraint);
    check_constraint(constraint.as_ref().map(BucketLocationConstraint::as_str), &handler.region)?;
    let name = names::bucket(&input.bucket)?;
    match handler.engine.create_bucket(&name).await.map_err(refuse)? {
        BucketCreated::New => {}
        // In us-east-1 S3 answers a repeated creation by the owner with 200.
        BucketCreated::Existing if handler.region == DEFAULT_REGION => {}
        BucketCreated::Existing => return Err(Refusal::new("BucketAlreadyOwnedByYou").into()),
    }
    Ok(S3Response::new(CreateBucketOutput { location: Some(format!("/{name}")) }))
}

fn check_constraint(constraint: Option<&str>, region: &str) -> Result<(), Refusal> {
    match constraint {
        None | Some("") => Ok(()),
        Some(requested) if requested == region => Ok(()),
        Some(requested) => {
            let message = format!("The {requested} location constraint is incompatible with the region {region}.");
            Err(Refusal::because("IllegalLocationConstraintException", message))
        }
    }
}

/// `DeleteBucket`; the bucket must be empty, expired objects are deleted with it.
pub async fn delete(handler: &S3Handler, request: S3Request<DeleteBucketInput>) -> S3Answer<DeleteBucketOutput> {
    let (audit, context) = (Arc::clone(&handler.audit), request.extensions.get::<RequestContext>().cloned());
    let record_all =
        move |expired: Vec<ExpiredObject>| expired.iter().for_each(|object| record(&audit, context.as_ref(), object));
    handler.engine.delete_bucket(&names::bucket(&request.input.bucket)?, record_all).await.map_err(refuse)?;
    Ok(S3Response::new(DeleteBucketOutput::default()))
}

/// Audits an expired object that was deleted with its bucket, with the same event as the expiry worker.
fn record(audit: &Audit, context: Option<&RequestContext>, object: &ExpiredObject) {
    let cause = context.map_or(Cause::Program, |context| Cause::Request(context.request_id()));
    let actor = context.and_then(RequestContext::subject).map_or("engine", |subject| &subject.access_key_id);
    let fields = json!({"bucket": object.bucket, "key": object.key, "size_bytes": object.size_bytes});
    audit.record("expiry.deleted", cause, actor, &fields);
}

/// `HeadBucket`.
pub async fn head(handler: &S3Handler, request: S3Request<HeadBucketInput>) -> S3Answer<HeadBucketOutput> {
    handler.engine.bucket(&names::bucket(&request.input.bucket)?).await.map_err(refuse)?;
    let mut headers = HeaderMap::new();
    if let Ok(region) = HeaderValue::from_str(&handler.region) {
        headers.insert("x-amz-bucket-region", region);
    }
    Ok(S3Response::with_headers(HeadBucketOutput::default(), headers))
}

/// `GetBucketLocation`.
pub async fn location(
    handler: &S3Handler,
    request: S3Request<GetBucketLocationInput>,
) -> S3Answer<GetBucketLocationOutput> {
    handler.engine.bucket(&names::bucket(&request.input.bucket)?).await.map_err(refuse)?;
    let named = Some(handler.region.clone()).filter(|region| region != DEFAULT_REGION);
    let location_constraint = named.map(BucketLocationConstraint::from);
    Ok(S3Response::new(GetBucketLocationOutput { location_constraint }))
}

/// `GetBucketVersioning`: versioning was never enabled.
pub async fn versioning(
    handler: &S3Handler,
    request: S3Request<GetBucketVersioningInput>,
) -> S3Answer<GetBucketVersioningOutput> {
    handler.engine.bucket(&names::bucket(&request.input.bucket)?).await.map_err(refuse)?;
    Ok(S3Response::new(GetBucketVersioningOutput::default()))
}

#[cfg(test)]
mod tests {
    use super::{check_constraint, page_size};

    #[test]
    fn location_constraint_must_be_the_region_of_the_server() {
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
