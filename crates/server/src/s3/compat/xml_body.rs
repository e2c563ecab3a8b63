//! Limits the size of XML documents in requests, verifies their digests while they are read, and refuses documents that
//! the protocol library would read only in part.
//!
//! The engine verifies object bodies. It never sees these documents, and the library only parses their digests.

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::request::Parts;
use http::{HeaderMap, Method, Uri};
use http_body::Frame;
use http_body_util::StreamBody;
use percent_encoding::percent_decode_str;
use s3o_model::checksum::Checksum;
use s3o_model::etag::Md5;
use s3s::Body;

use super::xml_document;
use crate::BoxError;
use crate::middleware::RequestContext;
use crate::s3::refusal::Refusal;
use crate::s3::url_encoding::parameters;
use crate::s3::{body, checksums};

/// The largest XML document of a request: `DeleteObjects` with 1000 keys of maximum length fits.
pub const BYTES_MAX: usize = 8 * 1024 * 1024;

struct DocumentDigests {
    md5: Option<Md5>,
    checksum: Option<Checksum>,
}

/// Where a request names its bucket; S3 knows both styles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BucketStyle {
    Path,
    VirtualHost,
}

/// Checks the body of an XML request while it is read; other bodies pass unchanged.
pub fn watch(parts: &Parts, style: BucketStyle, body: Body, context: &RequestContext) -> Result<Body, Refusal> {
    let Some(kind) = kind(&parts.method, style, &parts.uri) else { return Ok(body) };
    let state = (Some(body), Vec::new(), declared(&kind, &parts.headers)?, context.clone());
    let watched = stream::unfold(state, |(body, mut seen, digests, context)| async move {
        let mut source = body?;
        let broken = |code, error, seen, digests, context: RequestContext| {
            context.set_body_fault(code);
            Some((Err::<Frame<Bytes>, BoxError>(error), (None, seen, digests, context)))
        };
        match source.next().await {
            Some(Ok(bytes)) if seen.len() + bytes.len() > BYTES_MAX => {
                broken("MaxMessageLengthExceeded", "document too long".into(), seen, digests, context)
            }
            Some(Ok(bytes)) => {
                seen.extend_from_slice(&bytes);
                Some((Ok(Frame::data(bytes)), (Some(source), seen, digests, context)))
            }
            Some(Err(error)) => broken("IncompleteBody", error, seen, digests, context),
            None if !digests.fit(&seen) => broken("BadDigest", "digest mismatch".into(), seen, digests, context),
            None if !xml_document::is_read_in_full(&seen) => {
                broken("MalformedXML", "document not read in full".into(), seen, digests, context)
            }
            None => None,
        }
    });
    Ok(Body::http_body_unsync(StreamBody::new(watched)))
}

impl DocumentDigests {
    fn fit(&self, bytes: &[u8]) -> bool {
        let md5_fits = self.md5.is_none_or(|declared| body::md5_of(bytes) == declared);
        let fits = |declared: &Checksum| checksums::digest(declared.algorithm, bytes) == declared.value;
        md5_fits && self.checksum.as_ref().is_none_or(fits)
    }
}

fn declared(kind: &DocumentKind, headers: &HeaderMap) -> Result<DocumentDigests, Refusal> {
    let md5 = headers.get("content-md5").map(|value| body::read_md5(value.as_bytes())).transpose()?;
    let checksum = match kind {
        DocumentKind::Document => checksums::from_headers(headers)?,
        // The checksum headers of CompleteMultipartUpload describe the object, not the document.
        DocumentKind::Completion => None,
    };
    Ok(DocumentDigests { md5, checksum })
}

#[derive(Debug, PartialEq, Eq)]
enum DocumentKind {
    Document,
    Completion,
}

fn kind(method: &Method, style: BucketStyle, uri: &Uri) -> Option<DocumentKind> {
    let query = uri.query().unwrap_or_default();
    let asks = |wanted: &str| parameters(query).any(|(name, _)| name == wanted);
    let path = percent_decode_str(uri.path()).decode_utf8_lossy();
    let path = path.strip_prefix('/').unwrap_or(&path);
    let names_no_key = match style {
        BucketStyle::Path => path.split_once('/').is_none_or(|(_, key)| key.is_empty()),
        BucketStyle::VirtualHost => path.is_empty(),
    };
    match *method {
        Method::POST if asks("uploadId") => Some(DocumentKind::Completion),
        Method::POST if asks("delete") => Some(DocumentKind::Document),
        Method::PUT if names_no_key || asks("tagging") || asks("acl") => Some(DocumentKind::Document),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES_MAX, BucketStyle, DocumentKind, kind, watch};
    use crate::middleware::RequestContext;
    use bytes::Bytes;
    use http::{Method, Request, Uri};
    use http_body_util::BodyExt as _;
    use s3s::Body;

    fn of_path(method: &Method, uri: &'static str) -> Option<DocumentKind> {
        kind(method, BucketStyle::Path, &Uri::from_static(uri))
    }

    #[test]
    fn only_documents_are_checked() {
        assert_eq!(of_path(&Method::POST, "/b?delete"), Some(DocumentKind::Document));
        assert_eq!(of_path(&Method::POST, "/b?del%65te"), Some(DocumentKind::Document));
        assert_eq!(of_path(&Method::POST, "/b/k?uploadId=x"), Some(DocumentKind::Completion));
        assert_eq!(of_path(&Method::PUT, "/b/k?tagging"), Some(DocumentKind::Document));
        assert_eq!(of_path(&Method::PUT, "/b/k?acl"), Some(DocumentKind::Document));
        assert_eq!(of_path(&Method::PUT, "/b/"), Some(DocumentKind::Document));
        assert_eq!(of_path(&Method::PUT, "/b//"), None);
        assert_eq!(of_path(&Method::PUT, "/b%2Fk"), None);
        assert_eq!(of_path(&Method::PUT, "/b/k"), None);
        assert_eq!(of_path(&Method::GET, "/b"), None);
    }

    #[test]
    fn virtual_host_paths_are_keys() {
        let of_host = |uri| kind(&Method::PUT, BucketStyle::VirtualHost, &Uri::from_static(uri));
        assert_eq!(of_host("/k"), None);
        assert_eq!(of_host("/"), Some(DocumentKind::Document));
    }

    #[tokio::test]
    async fn too_long_document_fails() {
        let context = RequestContext::new("id".into());
        let (parts, ()) = Request::post("/b?delete").body(()).unwrap().into_parts();
        let body = Body::from(vec![b' '; BYTES_MAX + 1]);
        let watched = watch(&parts, BucketStyle::Path, body, &context).unwrap();
        assert!(watched.collect().await.is_err());
        assert_eq!(context.body_fault(), Some("MaxMessageLengthExceeded"));
    }

    async fn read(md5: &str) -> (bool, Option<&'static str>) {
        let context = RequestContext::new("id".into());
        let request = Request::post("/b?delete").header("content-md5", md5).body(()).unwrap();
        let body = Body::from(Bytes::from_static(b"hello"));
        let watched = watch(&request.into_parts().0, BucketStyle::Path, body, &context).unwrap();
        (watched.collect().await.is_ok(), context.body_fault())
    }

    #[tokio::test]
    async fn document_that_is_not_read_in_full_fails() {
        let context = RequestContext::new("id".into());
        let (parts, ()) = Request::put("/b?lifecycle").body(()).unwrap().into_parts();
        let watched =
            watch(&parts, BucketStyle::Path, Body::from("<a><![CDATA[b]]></a>".to_owned()), &context).unwrap();
        assert!(watched.collect().await.is_err());
        assert_eq!(context.body_fault(), Some("MalformedXML"));
    }

    #[tokio::test]
    async fn digest_mismatch_fails_with_bad_digest() {
        assert_eq!(read("XUFAKrxLKna5cZ2REBfFkg==").await, (true, None));
        assert_eq!(read("AUFAKrxLKna5cZ2REBfFkg==").await, (false, Some("BadDigest")));
    }
}
