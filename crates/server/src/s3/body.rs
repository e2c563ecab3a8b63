//! Bodies on their way in: their length, and what the sender says of them.
//!
//! The protocol library verifies payload hashes and chunk signatures while the body streams; all
//! other digests go to the engine, which verifies them before it makes anything visible.

use std::sync::Arc;

use futures_util::StreamExt as _;
use http::{HeaderMap, HeaderValue};
use md5::Digest as _;
use s3o_engine::{BodyError, ByteStream, Declared, Trailer};
use s3o_model::checksum::Algorithm;
use s3o_model::etag::{Md5, Sha256};
use s3o_model::intent::DeclaredDigests;
use s3s::dto::StreamingBlob;
use s3s::{StdError, TrailingHeaders};

use super::checksums::{self, Fields};
use super::errors::{BAD_FRAMING, CHUNK_SIGNATURE, PAYLOAD_HASH};
use super::refusal::Refusal;

/// The exact length of a body: the decoded one where it comes in chunks.
pub fn length(content_length: Option<i64>, headers: &HeaderMap) -> Result<u64, Refusal> {
    let decoded = headers.get("x-amz-decoded-content-length").and_then(|v| v.to_str().ok()?.parse().ok());
    let length = decoded.or(content_length).ok_or_else(|| Refusal::new("MissingContentLength"))?;
    u64::try_from(length).map_err(|_| Refusal::because("InvalidArgument", "A length must not be negative"))
}

/// The bytes of a request, for the engine.
pub fn stream(body: Option<StreamingBlob>) -> ByteStream {
    match body {
        Some(body) => Box::pin(body.map(|item| item.map_err(|error| fault(&error)))),
        None => Box::pin(futures_util::stream::empty()),
    }
}

/// Names what broke a body. The library's error types are private, so their texts must do.
fn fault(error: &StdError) -> BodyError {
    let text = error.to_string();
    if text.contains("Sha256Mismatch") {
        BodyError::Mismatch(PAYLOAD_HASH)
    } else if text.contains("SignatureMismatch") {
        BodyError::Mismatch(CHUNK_SIGNATURE)
    } else if ["FormatError", "TooLarge", "TooManyTrailerHeaders"].iter().any(|kind| text.contains(kind)) {
        BodyError::Broken(BAD_FRAMING.to_owned())
    } else {
        BodyError::Broken(text)
    }
}

/// What a request says of its body.
pub struct Statement<'a> {
    /// `Content-MD5`.
    pub content_md5: Option<String>,
    /// The checksum headers.
    pub checksum: Fields,
    /// All headers.
    pub headers: &'a HeaderMap,
    /// Where the trailer will appear.
    pub trailing: Option<TrailingHeaders>,
}

/// Collects all that must be verified of a body.
pub fn declared(statement: Statement<'_>) -> Result<Declared, Refusal> {
    let md5 = statement.content_md5.map(|text| read_md5(text.as_bytes())).transpose()?;
    let checksum = statement.checksum.only()?;
    let trailer = trailer(statement.headers, statement.trailing)?;
    if checksum.is_some() && trailer.is_some() {
        return Err(Refusal::because("InvalidRequest", "Expecting a single checksum, in a header or in the trailer"));
    }
    let compute = asked_algorithm(statement.headers)?;
    let given = checksum.as_ref().map(|c| c.algorithm).or(trailer.as_ref().map(|t| t.algorithm));
    if let (Some(asked), Some(given)) = (compute, given)
        && asked != given
    {
        let message = "Value for x-amz-sdk-checksum-algorithm header does not match the checksum given.";
        return Err(Refusal::because("InvalidRequest", message));
    }
    let digests = DeclaredDigests { md5, sha256: payload_hash(statement.headers), checksum };
    Ok(Declared { digests, trailer, compute: compute.filter(|_| given.is_none()) })
}

/// The signed hash of a body that comes in one piece; other values say how it comes.
fn payload_hash(headers: &HeaderMap) -> Option<Sha256> {
    headers.get("x-amz-content-sha256")?.to_str().ok()?.parse().ok()
}

fn asked_algorithm(headers: &HeaderMap) -> Result<Option<Algorithm>, Refusal> {
    let name = headers.get("x-amz-sdk-checksum-algorithm").and_then(|value| value.to_str().ok());
    name.map(checksums::algorithm).transpose()
}

fn trailer(headers: &HeaderMap, trailing: Option<TrailingHeaders>) -> Result<Option<Trailer>, Refusal> {
    let Some(announced) = headers.get("x-amz-trailer") else { return Ok(None) };
    let name = announced.to_str().unwrap_or_default().trim().to_ascii_lowercase();
    let algorithm = Algorithm::ALL.into_iter().find(|algorithm| checksums::header_name(*algorithm) == name);
    let (Some(algorithm), Some(trailing)) = (algorithm, trailing) else {
        let message = "The value specified in the x-amz-trailer header is not supported";
        return Err(Refusal::because("InvalidRequest", message));
    };
    let value = move || trailing.read(|map| Some(map.get(&name)?.to_str().ok()?.to_owned())).flatten();
    Ok(Some(Trailer { algorithm, value: Arc::new(value) }))
}

/// Refuses an empty `Content-MD5`; the protocol library takes it for none.
pub fn check_md5_header(headers: &HeaderMap) -> Result<(), Refusal> {
    let empty = headers.get_all("content-md5").iter().any(HeaderValue::is_empty);
    if empty { Err(Refusal::new("InvalidDigest")) } else { Ok(()) }
}

/// Reads `Content-MD5`.
pub fn read_md5(text: &[u8]) -> Result<Md5, Refusal> {
    let bytes = base64_simd::STANDARD.decode_to_vec(text).ok();
    let digest = bytes.and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
    digest.map(Md5).ok_or_else(|| Refusal::new("InvalidDigest"))
}

/// The MD5 of a small document.
pub fn md5_of(bytes: &[u8]) -> Md5 {
    Md5(md5::Md5::digest(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::{Statement, declared, fault, length, read_md5};
    use crate::s3::checksums::Fields;
    use crate::s3::errors::{BAD_FRAMING, CHUNK_SIGNATURE, PAYLOAD_HASH};
    use http::{HeaderMap, HeaderName, HeaderValue};
    use s3o_engine::BodyError;
    use s3o_model::checksum::Algorithm;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|&(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    #[test]
    fn lengths_are_those_of_the_decoded_body() {
        assert_eq!(length(Some(5), &HeaderMap::new()).unwrap(), 5);
        assert_eq!(length(Some(99), &headers(&[("x-amz-decoded-content-length", "5")])).unwrap(), 5);
        assert_eq!(length(None, &HeaderMap::new()).unwrap_err().status.as_u16(), 411);
        assert_eq!(length(Some(-1), &HeaderMap::new()).unwrap_err().code, "InvalidArgument");
    }

    #[test]
    fn digests_are_base64_of_sixteen_bytes() {
        assert!(read_md5(b"XUFAKrxLKna5cZ2REBfFkg==").is_ok());
        for bad in ["", "XUFA", "not base64 at all!!"] {
            assert_eq!(read_md5(bad.as_bytes()).unwrap_err().code, "InvalidDigest");
        }
    }

    #[test]
    fn broken_bodies_are_told_apart() {
        let name = |text: &str| match fault(&text.into()) {
            BodyError::Mismatch(name) => name.to_owned(),
            BodyError::Broken(why) => why,
            BodyError::GivenUp(_) | BodyError::Short { .. } | BodyError::Long { .. } => unreachable!(),
        };
        assert_eq!(name("UploadStreamError: Sha256Mismatch"), PAYLOAD_HASH);
        assert_eq!(name("AwsChunkedStreamError: SignatureMismatch"), CHUNK_SIGNATURE);
        assert_eq!(name("AwsChunkedStreamError: FormatError"), BAD_FRAMING);
        assert_eq!(name("connection reset"), "connection reset");
    }

    fn state(map: &HeaderMap, checksum: Fields) -> Result<s3o_engine::Declared, super::Refusal> {
        declared(Statement { content_md5: None, checksum, headers: map, trailing: None })
    }

    #[test]
    fn an_algorithm_without_a_value_is_computed() {
        let asked = state(&headers(&[("x-amz-sdk-checksum-algorithm", "SHA1")]), Fields::default()).unwrap();
        assert_eq!(asked.compute, Some(Algorithm::Sha1));
    }

    #[test]
    fn contradictions_are_refused() {
        let crc = Fields { crc32: Some("y/Q5Jg==".into()), ..Fields::default() };
        let other = headers(&[("x-amz-sdk-checksum-algorithm", "SHA1")]);
        assert_eq!(state(&other, crc).err().unwrap().code, "InvalidRequest");
        for trailer in ["x-amz-checksum-md5", "x-amz-checksum-crc32"] {
            // Announced, but the body has no trailer to look into.
            let map = headers(&[("x-amz-trailer", trailer)]);
            assert_eq!(state(&map, Fields::default()).err().unwrap().code, "InvalidRequest");
        }
    }
}
