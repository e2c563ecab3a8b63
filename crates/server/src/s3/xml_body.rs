//! Bounds the documents of XML requests, verifies their digests while they are read, and refuses those of which the protocol
//! library would overlook a part.
//!
//! Object bodies are verified by the engine; the documents of DeleteObjects and of tagging never
//! reach it, and the protocol library only parses their digests.

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

use super::refusal::Refusal;
use super::url_encoding::parameters;
use super::{body, checksums, xml_document};
use crate::BoxError;
use crate::middleware::RequestNotes;

/// The largest XML document that a request may carry: a thousand long keys fit.
pub const BYTES_MAX: usize = 8 * 1024 * 1024;

struct Digests {
    md5: Option<Md5>,
    checksum: Option<Checksum>,
}

/// Where a request names its bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// In its path.
    Path,
    /// In its host name.
    VirtualHost,
}

/// Watches the body of an XML request; other bodies pass untouched.
pub fn watch(parts: &Parts, style: Style, body: Body, notes: &RequestNotes) -> Result<Body, Refusal> {
    let Some(kind) = kind(&parts.method, style, &parts.uri) else { return Ok(body) };
    let state = (Some(body), Vec::new(), declared(&kind, &parts.headers)?, notes.clone());
    let watched = stream::unfold(state, |(body, mut seen, digests, notes)| async move {
        let mut source = body?;
        let broken = |code, error, seen, digests, notes: RequestNotes| {
            notes.set_body_fault(code);
            Some((Err::<Frame<Bytes>, BoxError>(error), (None, seen, digests, notes)))
        };
        match source.next().await {
            Some(Ok(bytes)) if seen.len() + bytes.len() > BYTES_MAX => {
                broken("MaxMessageLengthExceeded", "the document is too long".into(), seen, digests, notes)
            }
            Some(Ok(bytes)) => {
                seen.extend_from_slice(&bytes);
                Some((Ok(Frame::data(bytes)), (Some(source), seen, digests, notes)))
            }
            Some(Err(error)) => broken("IncompleteBody", error, seen, digests, notes),
            None if !digests.fit(&seen) => broken("BadDigest", "the digest differs".into(), seen, digests, notes),
            None if !xml_document::is_read_in_full(&seen) => {
                broken("MalformedXML", "parts of the document would be overlooked".into(), seen, digests, notes)
            }
            None => None,
        }
    });
    Ok(Body::http_body_unsync(StreamBody::new(watched)))
}

impl Digests {
    fn fit(&self, bytes: &[u8]) -> bool {
        let md5_fits = self.md5.is_none_or(|declared| body::md5_of(bytes) == declared);
        let fits = |declared: &Checksum| checksums::digest(declared.algorithm, bytes) == declared.value;
        md5_fits && self.checksum.as_ref().is_none_or(fits)
    }
}

fn declared(kind: &Kind, headers: &HeaderMap) -> Result<Digests, Refusal> {
    let md5 = headers.get("content-md5").map(|value| body::read_md5(value.as_bytes())).transpose()?;
    let checksum = match kind {
        Kind::Document => checksums::from_headers(headers)?,
        // Here the checksum headers speak of the object that the parts become.
        Kind::Completion => None,
    };
    Ok(Digests { md5, checksum })
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Document,
    Completion,
}

fn kind(method: &Method, style: Style, uri: &Uri) -> Option<Kind> {
    let query = uri.query().unwrap_or_default();
    let asks = |wanted: &str| parameters(query).any(|(name, _)| name == wanted);
    let path = percent_decode_str(uri.path()).decode_utf8_lossy();
    let path = path.strip_prefix('/').unwrap_or(&path);
    let names_no_key = match style {
        Style::Path => path.split_once('/').is_none_or(|(_, key)| key.is_empty()),
        Style::VirtualHost => path.is_empty(),
    };
    match *method {
        Method::POST if asks("uploadId") => Some(Kind::Completion),
        Method::POST if asks("delete") => Some(Kind::Document),
        Method::PUT if names_no_key || asks("tagging") || asks("acl") => Some(Kind::Document),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES_MAX, Kind, Style, kind, watch};
    use crate::middleware::RequestNotes;
    use bytes::Bytes;
    use http::{Method, Request, Uri};
    use http_body_util::BodyExt as _;
    use s3s::Body;

    fn of_path(method: &Method, uri: &'static str) -> Option<Kind> {
        kind(method, Style::Path, &Uri::from_static(uri))
    }

    #[test]
    fn only_documents_are_watched() {
        assert_eq!(of_path(&Method::POST, "/b?delete"), Some(Kind::Document));
        assert_eq!(of_path(&Method::POST, "/b?del%65te"), Some(Kind::Document));
        assert_eq!(of_path(&Method::POST, "/b/k?uploadId=x"), Some(Kind::Completion));
        assert_eq!(of_path(&Method::PUT, "/b/k?tagging"), Some(Kind::Document));
        assert_eq!(of_path(&Method::PUT, "/b/k?acl"), Some(Kind::Document));
        assert_eq!(of_path(&Method::PUT, "/b/"), Some(Kind::Document));
        assert_eq!(of_path(&Method::PUT, "/b//"), None);
        assert_eq!(of_path(&Method::PUT, "/b%2Fk"), None);
        assert_eq!(of_path(&Method::PUT, "/b/k"), None);
        assert_eq!(of_path(&Method::GET, "/b"), None);
    }

    #[test]
    fn below_a_bucket_host_every_path_is_a_key() {
        let of_host = |uri| kind(&Method::PUT, Style::VirtualHost, &Uri::from_static(uri));
        assert_eq!(of_host("/k"), None);
        assert_eq!(of_host("/"), Some(Kind::Document));
    }

    #[tokio::test]
    async fn a_document_that_is_too_long_breaks_off() {
        let notes = RequestNotes::new("id".into());
        let (parts, ()) = Request::post("/b?delete").body(()).unwrap().into_parts();
        let body = Body::from(vec![b' '; BYTES_MAX + 1]);
        let watched = watch(&parts, Style::Path, body, &notes).unwrap();
        assert!(watched.collect().await.is_err());
        assert_eq!(notes.body_fault(), Some("MaxMessageLengthExceeded"));
    }

    async fn read(md5: &str) -> (bool, Option<&'static str>) {
        let notes = RequestNotes::new("id".into());
        let request = Request::post("/b?delete").header("content-md5", md5).body(()).unwrap();
        let body = Body::from(Bytes::from_static(b"hello"));
        let watched = watch(&request.into_parts().0, Style::Path, body, &notes).unwrap();
        (watched.collect().await.is_ok(), notes.body_fault())
    }

    #[tokio::test]
    async fn a_document_that_would_not_be_read_in_full_breaks_off() {
        let notes = RequestNotes::new("id".into());
        let (parts, ()) = Request::put("/b?lifecycle").body(()).unwrap().into_parts();
        let watched = watch(&parts, Style::Path, Body::from("<a><![CDATA[b]]></a>".to_owned()), &notes).unwrap();
        assert!(watched.collect().await.is_err());
        assert_eq!(notes.body_fault(), Some("MalformedXML"));
    }

    #[tokio::test]
    async fn a_wrong_digest_breaks_the_body_and_is_noted() {
        assert_eq!(read("XUFAKrxLKna5cZ2REBfFkg==").await, (true, None));
        assert_eq!(read("AUFAKrxLKna5cZ2REBfFkg==").await, (false, Some("BadDigest")));
    }
}
