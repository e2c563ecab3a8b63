//! Verifies the digests of small XML requests while they are read.
//!
//! Object bodies are verified by the engine; the documents of DeleteObjects and of tagging never
//! reach it, and the protocol library only parses their digests.

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::request::Parts;
use http::{HeaderMap, Method};
use http_body::Frame;
use http_body_util::StreamBody;
use s3o_model::checksum::Checksum;
use s3o_model::etag::Md5;
use s3s::Body;

use super::refusal::Refusal;
use super::{body, checksums};
use crate::BoxError;
use crate::middleware::RequestNotes;

/// The largest XML document that a request may carry: a thousand long keys fit.
pub const BYTES_MAX: usize = 8 * 1024 * 1024;

struct Digests {
    md5: Option<Md5>,
    checksum: Option<Checksum>,
}

/// Watches the body of an XML request that declares digests; other bodies pass untouched.
pub fn watch(parts: &Parts, body: Body, notes: &RequestNotes) -> Result<Body, Refusal> {
    let Some(digests) = declared(parts)? else { return Ok(body) };
    let state = (Some(body), Vec::new(), digests, notes.clone());
    let watched = stream::unfold(state, |(body, mut seen, digests, notes)| async move {
        let mut source = body?;
        match source.next().await {
            Some(Ok(bytes)) => {
                seen.extend_from_slice(&bytes);
                // Past the limit the reader stops anyway; nothing more needs to be kept.
                seen.truncate(BYTES_MAX + 1);
                Some((Ok(Frame::data(bytes)), (Some(source), seen, digests, notes)))
            }
            Some(Err(error)) => {
                notes.set_body_fault("IncompleteBody");
                Some((Err(error), (None, seen, digests, notes)))
            }
            None if digests.fit(&seen) => None,
            None => {
                notes.set_body_fault("BadDigest");
                Some((Err::<Frame<Bytes>, BoxError>("the digest differs".into()), (None, seen, digests, notes)))
            }
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

fn declared(parts: &Parts) -> Result<Option<Digests>, Refusal> {
    let Some(kind) = kind(&parts.method, parts.uri.path(), parts.uri.query().unwrap_or_default()) else {
        return Ok(None);
    };
    let md5 = parts.headers.get("content-md5").map(|value| body::read_md5(value.as_bytes())).transpose()?;
    let checksum = match kind {
        Kind::Document => checksum_of(&parts.headers)?,
        // Here the checksum headers speak of the object that the parts become.
        Kind::Completion => None,
    };
    Ok((md5.is_some() || checksum.is_some()).then_some(Digests { md5, checksum }))
}

fn checksum_of(headers: &HeaderMap) -> Result<Option<Checksum>, Refusal> {
    checksums::from_headers(headers)
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Document,
    Completion,
}

fn kind(method: &Method, path: &str, query: &str) -> Option<Kind> {
    let asks = |name: &str| query.split('&').any(|pair| pair.split('=').next() == Some(name));
    let names_a_bucket = !path.trim_matches('/').contains('/');
    match *method {
        Method::POST if asks("uploadId") => Some(Kind::Completion),
        Method::POST if asks("delete") => Some(Kind::Document),
        Method::PUT if asks("tagging") || (names_a_bucket && query.is_empty()) => Some(Kind::Document),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, kind, watch};
    use crate::middleware::RequestNotes;
    use bytes::Bytes;
    use http::{Method, Request};
    use http_body_util::BodyExt as _;
    use s3s::Body;

    #[test]
    fn only_documents_are_watched() {
        assert_eq!(kind(&Method::POST, "/b", "delete"), Some(Kind::Document));
        assert_eq!(kind(&Method::POST, "/b/k", "uploadId=x"), Some(Kind::Completion));
        assert_eq!(kind(&Method::PUT, "/b/k", "tagging"), Some(Kind::Document));
        assert_eq!(kind(&Method::PUT, "/b/", ""), Some(Kind::Document));
        assert_eq!(kind(&Method::PUT, "/b/k", ""), None);
        assert_eq!(kind(&Method::GET, "/b", ""), None);
    }

    async fn read(md5: &str) -> (bool, Option<&'static str>) {
        let notes = RequestNotes::new("id".into());
        let request = Request::post("/b?delete").header("content-md5", md5).body(()).unwrap();
        let body = Body::from(Bytes::from_static(b"hello"));
        let watched = watch(&request.into_parts().0, body, &notes).unwrap();
        (watched.collect().await.is_ok(), notes.body_fault())
    }

    #[tokio::test]
    async fn a_wrong_digest_breaks_the_body_and_is_noted() {
        assert_eq!(read("XUFAKrxLKna5cZ2REBfFkg==").await, (true, None));
        assert_eq!(read("AUFAKrxLKna5cZ2REBfFkg==").await, (false, Some("BadDigest")));
    }
}
