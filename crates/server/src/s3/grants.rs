//! Decides whether a request with a verified signature may proceed.
//!
//! The protocol library calls [`Grants`] once per request: after it verified the signature, before it reads the body.

use async_trait::async_trait;
use http::HeaderMap;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::dto::CopySource;
use s3s::{S3Error, S3Result};

use super::access::{Access, AccessKey, SharedKeys};
use super::compat::header_compat::VerifiedSigner;
use super::compat::{inputs, query_headers, signed_headers};
use super::operations::{self, NOT_OFFERED, S3Operation};
use super::refusal::Refusal;
use super::service::no_slot;
use super::{expiration, unsupported};
use crate::middleware::{RequestContext, RequestSubject, SlotTicket};

/// Gives the protocol library the secrets of access keys and checks what each key may do.
#[derive(Clone)]
pub struct Grants {
    keys: SharedKeys,
}

impl Grants {
    pub fn new(keys: SharedKeys) -> Self {
        Self { keys }
    }

    fn permit(&self, request: &mut S3AccessContext<'_>) -> Result<(), Refusal> {
        let access_key = signer(request).ok_or_else(|| Refusal::new("AccessDenied"))?;
        let key = self.keys.current().find(&access_key).ok_or_else(|| Refusal::new("InvalidAccessKeyId"))?;
        signed_headers::check(request.uri(), request.headers())?;
        query_headers::check(request.uri(), request.headers())?;
        let operation = operations::offered(request.s3_op().name())?;
        operation.check_query(request.uri().query())?;
        unsupported::check(request.headers())?;
        inputs::check_md5_header(request.headers())?;
        expiration::check(operation, request.headers())?;
        if let Some(bucket) = request.s3_path().get_bucket_name() {
            demand(&key, operation.access, bucket)?;
        }
        permit_source(&key, request.headers())
    }
}

/// The access key whose signature was verified.
fn signer(request: &mut S3AccessContext<'_>) -> Option<String> {
    let signed = request.credentials().map(|credentials| credentials.access_key.clone());
    signed.or_else(|| {
        request.extensions_mut().get::<VerifiedSigner>().map(|VerifiedSigner(access_key)| access_key.clone())
    })
}

/// The signer, and for operations that are audited the bucket and key.
fn subject(request: &mut S3AccessContext<'_>, operation: &S3Operation) -> Option<RequestSubject> {
    let access_key_id = signer(request)?;
    if !operation.mutates() {
        return Some(RequestSubject { access_key_id, ..RequestSubject::default() });
    }
    let path = request.s3_path();
    let bucket = path.get_bucket_name().map(str::to_owned);
    Some(RequestSubject { access_key_id, bucket, key: path.get_object_key().map(str::to_owned) })
}

fn demand(key: &AccessKey, access: Access, bucket: &str) -> Result<(), Refusal> {
    if key.allows(access, bucket) { Ok(()) } else { Err(Refusal::new("AccessDenied")) }
}

/// A copy reads its source, so the key needs read access there too.
fn permit_source(key: &AccessKey, headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(header) = headers.get("x-amz-copy-source") else { return Ok(()) };
    let malformed = || Refusal::because("InvalidArgument", "The copy source must have the form bucket/key");
    let text = header.to_str().map_err(|_| malformed())?;
    match CopySource::parse(text).map_err(|_| malformed())? {
        CopySource::Bucket { bucket, .. } => demand(key, Access::ReadOnly, &bucket),
        CopySource::AccessPoint { .. } | CopySource::Outpost { .. } => Err(Refusal::new("NotImplemented")),
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
        let operation = operations::offered(request.s3_op().name()).unwrap_or(&NOT_OFFERED);
        let subject = subject(request, operation);
        if let Some(context) = request.extensions_mut().get::<RequestContext>() {
            context.set_operation(operation);
            if let Some(subject) = subject {
                context.set_subject(subject);
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
    use super::permit_source;
    use crate::s3::access::{Access, AccessKey};
    use http::{HeaderMap, HeaderName, HeaderValue};

    #[test]
    fn copy_needs_read_access_to_its_source() {
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
