//! The audit line of an S3 request: one for each that may have changed something, and one for each
//! whose signature does not hold.

use std::borrow::Cow;

use http::header::{AUTHORIZATION, CONTENT_LENGTH};
use http::{HeaderMap, Method, StatusCode, Uri};
use serde::Serialize;

use super::RequestNotes;
use crate::audit::{Audit, Cause};

/// Who asks where nobody is named.
const NOBODY: &str = "anonymous";
/// The longest name of an access key that is taken from a request whose signature does not hold.
const CLAIMED_BYTES_MAX: usize = 128;

/// What an audit line needs from a request before it is consumed.
#[derive(Debug)]
pub(super) struct Asked {
    method: Method,
    path: String,
    claimed: Option<String>,
    size_bytes: Option<u64>,
}

#[derive(Serialize)]
struct Changed<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    bucket: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<&'a [String]>,
    /// None where the client left before its answer.
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size_bytes: Option<u64>,
}

#[derive(Serialize)]
struct Unproven<'a> {
    status: Option<u16>,
    code: Option<&'a str>,
    method: &'a str,
    path: &'a str,
}

impl Asked {
    pub(super) fn of(method: &Method, uri: &Uri, headers: &HeaderMap) -> Self {
        Self {
            method: method.clone(),
            path: uri.path().to_owned(),
            claimed: claimed(uri, headers),
            size_bytes: size_bytes(headers),
        }
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn method(&self) -> &Method {
        &self.method
    }

    /// Writes the line of a request that was answered, or left by its client.
    pub(super) fn record(&self, audit: &Audit, notes: &RequestNotes, status: Option<StatusCode>) {
        let cause = Cause::Request(notes.request_id());
        match (notes.subject(), notes.operation()) {
            (Some(subject), Some(operation)) if mutates(operation) => {
                let fields = Changed {
                    bucket: subject.bucket.as_deref(),
                    key: subject.key.as_deref(),
                    keys: notes.keys(),
                    status: status.map(|status| status.as_u16()),
                    code: notes.error_code(),
                    size_bytes: self.size_bytes.filter(|_| carries_bytes(operation)),
                };
                audit.record(&format!("s3.{operation}"), cause, &subject.access_key_id, &fields);
            }
            // A question of a browser carries no signature by design.
            (None, _) if self.method != Method::OPTIONS && status.is_some_and(|status| unproven(status, notes)) => {
                let fields = Unproven {
                    status: status.map(|status| status.as_u16()),
                    code: notes.error_code(),
                    method: self.method.as_str(),
                    path: &self.path,
                };
                audit.record("s3.AuthFailure", cause, self.claimed.as_deref().unwrap_or(NOBODY), &fields);
            }
            _ => {}
        }
    }
}

/// The codes of requests that are answered with 400 because their signature or credentials cannot be read. Without a
/// verified signer, `InvalidRequest` means that too.
const UNREADABLE: [&str; 4] =
    ["AuthorizationHeaderMalformed", "AuthorizationQueryParametersError", "InvalidRequest", "InvalidToken"];

/// True if the answer refuses a request whose signer was not verified for that reason.
fn unproven(status: StatusCode, notes: &RequestNotes) -> bool {
    let is_unreadable = || notes.error_code().is_some_and(|code| UNREADABLE.contains(&code));
    status == StatusCode::FORBIDDEN || (status == StatusCode::BAD_REQUEST && is_unreadable())
}

/// Whether an operation may change something. Those that are not offered do not.
#[must_use]
pub fn mutates(operation: &str) -> bool {
    !["Get", "Head", "List", "NotImplemented"].iter().any(|start| operation.starts_with(start))
}

/// Whether the body of an operation becomes an object's bytes.
fn carries_bytes(operation: &str) -> bool {
    matches!(operation, "PutObject" | "UploadPart")
}

/// The size of an object's bytes, without the framing that they may travel in.
fn size_bytes(headers: &HeaderMap) -> Option<u64> {
    let value = headers.get("x-amz-decoded-content-length").or_else(|| headers.get(CONTENT_LENGTH))?;
    value.to_str().ok()?.parse().ok()
}

/// The access key that a request says it is signed with.
fn claimed(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    let in_header = headers.get(AUTHORIZATION).and_then(|value| {
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
    Some(name.chars().take(CLAIMED_BYTES_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::{Asked, claimed, mutates};
    use crate::audit::{Audit, Filter};
    use crate::middleware::{RequestNotes, Subject};
    use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
    use s3o_model::clock::SystemClock;
    use serde_json::Value;
    use std::sync::Arc;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    fn line(notes: &RequestNotes, status: Option<u16>) -> Option<Value> {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::open(&folder.path().join("audit"), Arc::new(SystemClock)).unwrap();
        let headers = headers(&[
            ("content-length", "99"),
            ("x-amz-decoded-content-length", "7"),
            ("authorization", "AWS4-HMAC-SHA256 Credential=app/20260101/r/s3/aws4_request, SignedHeaders=host"),
        ]);
        let asked = Asked::of(&Method::PUT, &Uri::from_static("/b/k"), &headers);
        asked.record(&audit, notes, status.map(|status| StatusCode::from_u16(status).unwrap()));
        audit.latest(&Filter::newest(1)).unwrap().pop()
    }

    fn notes(operation: &'static str, subject: Option<Subject>) -> RequestNotes {
        let notes = RequestNotes::new("ID".into());
        notes.set_operation(operation);
        if let Some(subject) = subject {
            notes.set_subject(subject);
        }
        notes
    }

    fn subject() -> Subject {
        Subject { access_key_id: "app".into(), bucket: Some("b".into()), key: Some("k".into()) }
    }

    #[test]
    fn reads_change_nothing() {
        for operation in ["GetObject", "HeadBucket", "ListObjectsV2", "GetObjectAttributes", "NotImplemented"] {
            assert!(!mutates(operation), "{operation}");
            assert_eq!(line(&notes(operation, Some(subject())), Some(200)), None);
        }
        for operation in ["PutObject", "DeleteObjects", "CreateBucket", "AbortMultipartUpload", "PutObjectTagging"] {
            assert!(mutates(operation), "{operation}");
        }
    }

    #[test]
    fn a_change_is_told_whole() {
        let line = line(&notes("PutObject", Some(subject())), Some(200)).unwrap();
        assert_eq!((&line["event"], &line["actor"]), (&"s3.PutObject".into(), &"app".into()));
        assert_eq!((&line["bucket"], &line["key"]), (&"b".into(), &"k".into()));
        assert_eq!((&line["status"], &line["size_bytes"]), (&200.into(), &7.into()));
        assert_eq!(line["request_id"], "ID");
    }

    #[test]
    fn a_change_whose_client_left_is_told_without_a_status() {
        let line = line(&notes("DeleteObject", Some(subject())), None).unwrap();
        assert_eq!((&line["event"], &line["status"]), (&"s3.DeleteObject".into(), &Value::Null));
        assert!(line.get("size_bytes").is_none());
    }

    #[test]
    fn an_unproven_request_is_told_with_the_key_it_claims() {
        let notes = notes("GetObject", None);
        notes.set_error_code("SignatureDoesNotMatch");
        let line = line(&notes, Some(403)).unwrap();
        assert_eq!((&line["event"], &line["actor"]), (&"s3.AuthFailure".into(), &"app".into()));
        assert_eq!((&line["code"], &line["path"]), (&"SignatureDoesNotMatch".into(), &"/b/k".into()));
        assert_eq!(self::line(&notes, Some(400)), None);
    }

    #[test]
    fn credentials_that_cannot_be_read_are_audited_too() {
        for (code, audited) in [("AuthorizationHeaderMalformed", true), ("InvalidToken", true), ("InvalidURI", false)] {
            let notes = notes("GetObject", None);
            notes.set_error_code(code);
            let line = line(&notes, Some(400));
            assert_eq!(line.is_some(), audited, "{code}");
            assert!(line.is_none_or(|line| line["event"] == "s3.AuthFailure" && line["status"] == 400), "{code}");
        }
        let signed = notes("GetObject", Some(subject()));
        signed.set_error_code("InvalidRequest");
        assert_eq!(line(&signed, Some(400)), None);
    }

    #[test]
    fn claimed_keys_are_found_in_headers_and_queries() {
        let none = HeaderMap::new();
        let presigned = Uri::from_static("/b/k?X-Amz-Date=d&X-Amz-Credential=app%2F20260101%2Fr%2Fs3%2Faws4_request");
        assert_eq!(claimed(&presigned, &none).as_deref(), Some("app"));
        assert_eq!(claimed(&Uri::from_static("/b/k"), &none), None);
        let nonsense = headers(&[("authorization", "Bearer x")]);
        assert_eq!(claimed(&Uri::from_static("/b/k"), &nonsense), None);
    }
}
