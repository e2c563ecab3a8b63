//! Decides whether a request whose signature holds may proceed.
//!
//! Runs once per request, after the signature and before the body is read.

use async_trait::async_trait;
use http::HeaderMap;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::dto::CopySource;
use s3s::{S3Error, S3Result};

use super::access::{Access, AccessKey, SharedKeys};
use super::leniency::Vouched;
use super::refusal::Refusal;
use super::service::no_slot;
use super::{body, expiration, query_headers, signed_headers, subresources, unsupported};
use crate::middleware::{RequestNotes, SlotTicket, Subject, mutates};

/// How metrics name the operations that are not offered, so that they stay few.
const NOT_OFFERED: &str = "NotImplemented";

/// Looks secrets up and checks grants.
#[derive(Clone)]
pub struct Grants {
    keys: SharedKeys,
}

impl Grants {
    /// Grants by these keys.
    pub fn new(keys: SharedKeys) -> Self {
        Self { keys }
    }

    fn permit(&self, request: &mut S3AccessContext<'_>) -> Result<(), Refusal> {
        let access_key = signer(request).ok_or_else(|| Refusal::new("AccessDenied"))?;
        let key = self.keys.current().find(&access_key).ok_or_else(|| Refusal::new("InvalidAccessKeyId"))?;
        let operation = request.s3_op().name();
        signed_headers::check(request.uri(), request.headers())?;
        query_headers::check(request.uri(), request.headers())?;
        subresources::check(operation, request.uri().query())?;
        unsupported::check(request.headers())?;
        body::check_md5_header(request.headers())?;
        expiration::check(operation, request.headers())?;
        if let Some(bucket) = request.s3_path().get_bucket_name() {
            demand(&key, needed(operation), bucket)?;
        }
        permit_source(&key, request.headers())
    }
}

/// Whose signature holds.
fn signer(request: &mut S3AccessContext<'_>) -> Option<String> {
    let signed = request.credentials().map(|credentials| credentials.access_key.clone());
    signed.or_else(|| request.extensions_mut().get::<Vouched>().map(|Vouched(access_key)| access_key.clone()))
}

/// Who asks, and about what; reads leave nothing to tell but who.
fn subject(request: &mut S3AccessContext<'_>, operation: &str) -> Option<Subject> {
    let access_key_id = signer(request)?;
    if !mutates(operation) {
        return Some(Subject { access_key_id, ..Subject::default() });
    }
    let path = request.s3_path();
    let bucket = path.get_bucket_name().map(str::to_owned);
    Some(Subject { access_key_id, bucket, key: path.get_object_key().map(str::to_owned) })
}

fn demand(key: &AccessKey, access: Access, bucket: &str) -> Result<(), Refusal> {
    if key.allows(access, bucket) { Ok(()) } else { Err(Refusal::new("AccessDenied")) }
}

/// A copy reads its source, so it needs a grant there too.
fn permit_source(key: &AccessKey, headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(header) = headers.get("x-amz-copy-source") else { return Ok(()) };
    let malformed = || Refusal::because("InvalidArgument", "The copy source is not bucket/key");
    let text = header.to_str().map_err(|_| malformed())?;
    match CopySource::parse(text).map_err(|_| malformed())? {
        CopySource::Bucket { bucket, .. } => demand(key, Access::ReadOnly, &bucket),
        CopySource::AccessPoint { .. } | CopySource::Outpost { .. } => Err(Refusal::new("NotImplemented")),
    }
}

/// What an operation needs. Anything not named here changes a bucket.
fn needed(operation: &str) -> Access {
    match operation {
        "PutObject"
        | "CopyObject"
        | "DeleteObject"
        | "DeleteObjects"
        | "CreateMultipartUpload"
        | "UploadPart"
        | "UploadPartCopy"
        | "CompleteMultipartUpload"
        | "AbortMultipartUpload"
        | "PutObjectAcl"
        | "PutObjectTagging"
        | "DeleteObjectTagging" => Access::ReadWrite,
        _ if operation.starts_with("Get") || operation.starts_with("Head") || operation.starts_with("List") => {
            Access::ReadOnly
        }
        _ => Access::Admin,
    }
}

#[async_trait]
impl S3Auth for Grants {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        let key = self.keys.current().find(access_key);
        key.map(|key| SecretKey::from(key.secret.clone())).ok_or_else(|| Refusal::new("InvalidAccessKeyId").into())
    }
}

#[async_trait]
impl S3Access for Grants {
    async fn check(&self, request: &mut S3AccessContext<'_>) -> S3Result<()> {
        let operation = subresources::offered(request.s3_op().name()).unwrap_or(NOT_OFFERED);
        let subject = subject(request, operation);
        if let Some(notes) = request.extensions_mut().get::<RequestNotes>() {
            notes.set_operation(operation);
            if let Some(subject) = subject {
                notes.set_subject(subject);
            }
        }
        self.permit(request).map_err(S3Error::from)?;
        let ticket = request.extensions_mut().get::<SlotTicket>().cloned();
        match ticket {
            Some(ticket) if !ticket.redeem().await => Err(no_slot().into()),
            Some(_) | None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{needed, permit_source};
    use crate::s3::access::{Access, AccessKey};
    use crate::s3::subresources::operations;
    use http::{HeaderMap, HeaderName, HeaderValue};

    #[test]
    fn operations_need_what_they_change() {
        for operation in ["GetObject", "HeadBucket", "ListParts", "GetBucketTagging"] {
            assert_eq!(needed(operation), Access::ReadOnly, "{operation}");
        }
        for operation in ["PutObject", "DeleteObjects", "UploadPartCopy", "PutObjectTagging", "PutObjectAcl"] {
            assert_eq!(needed(operation), Access::ReadWrite, "{operation}");
        }
        for operation in [
            "CreateBucket",
            "DeleteBucket",
            "PutBucketTagging",
            "PutBucketAcl",
            "PutBucketLifecycleConfiguration",
            "DeleteBucketLifecycle",
            "SomethingNew",
        ] {
            assert_eq!(needed(operation), Access::Admin, "{operation}");
        }
    }

    #[test]
    fn documentation_lists_every_operation_at_its_level() {
        let text = include_str!("../../../../docs/operations.md");
        for level in [Access::ReadOnly, Access::ReadWrite, Access::Admin] {
            let start = format!("| `{}` |", level.name());
            let row = text.lines().find(|line| line.starts_with(&start)).expect("a row for each level");
            let listed = row.rsplit_once(" | `").expect("a column of operations").1;
            let mut listed: Vec<&str> = listed.trim_end_matches("` |").split("`, `").collect();
            let mut needing: Vec<&str> = operations().filter(|operation| needed(operation) == level).collect();
            listed.sort_unstable();
            needing.sort_unstable();
            assert_eq!(listed, needing, "{}", level.name());
        }
    }

    #[test]
    fn a_copy_needs_its_source() {
        let buckets = vec!["mine".to_owned()];
        let key = AccessKey { access_key_id: "a".into(), secret: "b".into(), buckets, access: Access::ReadWrite };
        let from = |source| {
            HeaderMap::from_iter([(HeaderName::from_static("x-amz-copy-source"), HeaderValue::from_static(source))])
        };
        assert!(permit_source(&key, &HeaderMap::new()).is_ok());
        assert!(permit_source(&key, &from("/mine/a%20b")).is_ok());
        assert_eq!(permit_source(&key, &from("theirs/a")).unwrap_err().code, "AccessDenied");
        assert_eq!(permit_source(&key, &from("nothing")).unwrap_err().code, "InvalidArgument");
    }
}
