//! Audit lines of S3 requests: one for each request that may have changed something, and one for each request without a
//! valid signature.

use std::borrow::Cow;

use http::header::{AUTHORIZATION, CONTENT_LENGTH};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use serde::Serialize;

use super::RequestContext;
use crate::audit::{Audit, Cause};

/// The actor of requests that name no access key.
const ANONYMOUS: &str = "anonymous";
/// Longest access key ID, in characters, that is recorded from a request without a valid signature.
const CLAIMED_CHARS_MAX: usize = 128;

/// The parts of a request that an audit line needs.
#[derive(Debug)]
pub(super) struct AuditedRequest {
    method: Method,
    uri: Uri,
    authorization: Option<HeaderValue>,
    length: Option<HeaderValue>,
}

#[derive(Serialize)]
struct MutationFields<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    bucket: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<&'a [String]>,
    /// `None` if the client disconnected before the response.
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size_bytes: Option<u64>,
}

#[derive(Serialize)]
struct S3AuthFailureFields<'a> {
    status: Option<u16>,
    code: Option<&'a str>,
    method: &'a str,
    path: &'a str,
}

impl AuditedRequest {
    pub(super) fn of(method: &Method, uri: &Uri, headers: &HeaderMap) -> Self {
        Self {
            method: method.clone(),
            uri: uri.clone(),
            authorization: headers.get(AUTHORIZATION).cloned(),
            length: headers.get("x-amz-decoded-content-length").or_else(|| headers.get(CONTENT_LENGTH)).cloned(),
        }
    }

    pub(super) fn path(&self) -> &str {
        self.uri.path()
    }

    pub(super) fn method(&self) -> &Method {
        &self.method
    }

    /// Writes the audit line; `status` is `None` if the client disconnected before the response.
    pub(super) fn record(&self, audit: &Audit, context: &RequestContext, status: Option<StatusCode>) {
        let cause = Cause::Request(context.request_id());
        match (context.subject(), context.operation()) {
            (Some(subject), Some(operation)) if operation.mutates() => {
                let fields = MutationFields {
                    bucket: subject.bucket.as_deref(),
                    key: subject.key.as_deref(),
                    keys: context.keys(),
                    status: status.map(|status| status.as_u16()),
                    code: context.error_code(),
                    size_bytes: self.size_bytes().filter(|_| operation.has_object_body),
                };
                audit.record(&format!("s3.{}", operation.name), cause, &subject.access_key_id, &fields);
            }
            // CORS preflight requests of browsers are never signed.
            (None, _)
                if self.method != Method::OPTIONS && status.is_some_and(|status| is_auth_failure(status, context)) =>
            {
                let fields = S3AuthFailureFields {
                    status: status.map(|status| status.as_u16()),
                    code: context.error_code(),
                    method: self.method.as_str(),
                    path: self.path(),
                };
                let claimed = claimed(&self.uri, self.authorization.as_ref());
                audit.record("s3.AuthFailure", cause, claimed.as_deref().unwrap_or(ANONYMOUS), &fields);
            }
            _ => {}
        }
    }

    /// The declared size of the object or part, without `aws-chunked` framing.
    fn size_bytes(&self) -> Option<u64> {
        self.length.as_ref()?.to_str().ok()?.parse().ok()
    }
}

/// Error codes with status 400 that mean an unreadable signature or credential. Without a verified signer,
/// `InvalidRequest` means that too.
const UNREADABLE: [&str; 4] =
    ["AuthorizationHeaderMalformed", "AuthorizationQueryParametersError", "InvalidRequest", "InvalidToken"];

/// True if the request was refused because its signature is missing or invalid.
fn is_auth_failure(status: StatusCode, context: &RequestContext) -> bool {
    let is_unreadable = || context.error_code().is_some_and(|code| UNREADABLE.contains(&code));
    status == StatusCode::FORBIDDEN || (status == StatusCode::BAD_REQUEST && is_unreadable())
}

/// The access key ID that the request states, verified or not.
fn claimed(uri: &Uri, authorization: Option<&HeaderValue>) -> Option<String> {
    let in_header = authorization.and_then(|value| {
        let (_, credential) = value.to_str().ok()?.split_once("Credential=")?;
        Some(Cow::Borrowed(credential))
    });
    let in_query = || {
        let mut pairs = uri.query()?.split('&');
        let credential = pairs.find_map(|pair| pair.strip_prefix("X-Amz-Credential="))?;
        percent_encoding::percent_decode_str(credential).decode_utf8().ok()
    };
    let credential = in_header.or_else(in_query)?;
    let name = credential.split('/').next().filter(|name| !name.is_empty())?;
    Some(name.chars().take(CLAIMED_CHARS_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::{AuditedRequest, claimed};
    use crate::audit::{Audit, AuditFilter};
    use crate::middleware::{RequestContext, RequestSubject};
    use crate::s3::operations::{NOT_OFFERED, offered};
    use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
    use s3o_model::clock::SystemClock;
    use serde_json::Value;
    use std::sync::Arc;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    fn line(context: &RequestContext, status: Option<u16>) -> Option<Value> {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::open(&folder.path().join("audit"), Arc::new(SystemClock)).unwrap();
        let headers = headers(&[
            ("content-length", "99"),
            ("x-amz-decoded-content-length", "7"),
            ("authorization", "AWS4-HMAC-SHA256 Credential=app/20260101/r/s3/aws4_request, SignedHeaders=host"),
        ]);
        let audited = AuditedRequest::of(&Method::PUT, &Uri::from_static("/b/k"), &headers);
        audited.record(&audit, context, status.map(|status| StatusCode::from_u16(status).unwrap()));
        audit.latest(&AuditFilter::newest(1)).unwrap().pop()
    }

    fn context(operation: &str, subject: Option<RequestSubject>) -> RequestContext {
        let context = RequestContext::new("ID".into());
        context.set_operation(offered(operation).unwrap_or(&NOT_OFFERED));
        if let Some(subject) = subject {
            context.set_subject(subject);
        }
        context
    }

    fn subject() -> RequestSubject {
        RequestSubject { access_key_id: "app".into(), bucket: Some("b".into()), key: Some("k".into()) }
    }

    #[test]
    fn only_mutations_are_audited() {
        for operation in ["GetObject", "HeadBucket", "ListObjectsV2", "GetObjectAttributes", "NotImplemented"] {
            assert_eq!(line(&context(operation, Some(subject())), Some(200)), None, "{operation}");
        }
        for operation in ["PutObject", "DeleteObjects", "CreateBucket", "AbortMultipartUpload", "PutObjectTagging"] {
            assert!(line(&context(operation, Some(subject())), Some(200)).is_some(), "{operation}");
        }
    }

    #[test]
    fn mutation_is_audited_with_all_fields() {
        let line = line(&context("PutObject", Some(subject())), Some(200)).unwrap();
        assert_eq!((&line["event"], &line["actor"]), (&"s3.PutObject".into(), &"app".into()));
        assert_eq!((&line["bucket"], &line["key"]), (&"b".into(), &"k".into()));
        assert_eq!((&line["status"], &line["size_bytes"]), (&200.into(), &7.into()));
        assert_eq!(line["request_id"], "ID");
    }

    #[test]
    fn mutation_without_response_is_audited_without_status() {
        let line = line(&context("DeleteObject", Some(subject())), None).unwrap();
        assert_eq!((&line["event"], &line["status"]), (&"s3.DeleteObject".into(), &Value::Null));
        assert!(line.get("size_bytes").is_none());
    }

    #[test]
    fn auth_failure_is_audited_with_the_claimed_key() {
        let context = context("GetObject", None);
        context.set_error_code("SignatureDoesNotMatch");
        let line = line(&context, Some(403)).unwrap();
        assert_eq!((&line["event"], &line["actor"]), (&"s3.AuthFailure".into(), &"app".into()));
        assert_eq!((&line["code"], &line["path"]), (&"SignatureDoesNotMatch".into(), &"/b/k".into()));
        assert_eq!(self::line(&context, Some(400)), None);
    }

    #[test]
    fn unreadable_credentials_are_audited() {
        for (code, audited) in [("AuthorizationHeaderMalformed", true), ("InvalidToken", true), ("InvalidURI", false)] {
            let context = context("GetObject", None);
            context.set_error_code(code);
            let line = line(&context, Some(400));
            assert_eq!(line.is_some(), audited, "{code}");
            assert!(line.is_none_or(|line| line["event"] == "s3.AuthFailure" && line["status"] == 400), "{code}");
        }
        let signed = context("GetObject", Some(subject()));
        signed.set_error_code("InvalidRequest");
        assert_eq!(line(&signed, Some(400)), None);
    }

    #[test]
    fn claimed_keys_are_found_in_headers_and_queries() {
        let presigned = Uri::from_static("/b/k?X-Amz-Date=d&X-Amz-Credential=app%2F20260101%2Fr%2Fs3%2Faws4_request");
        assert_eq!(claimed(&presigned, None).as_deref(), Some("app"));
        assert_eq!(claimed(&Uri::from_static("/b/k"), None), None);
        let nonsense = HeaderValue::from_static("Bearer x");
        assert_eq!(claimed(&Uri::from_static("/b/k"), Some(&nonsense)), None);
    }
}
