//! Request bodies: their length and the digests that the client declares for them.
//!
//! The protocol library verifies payload hashes and chunk signatures while the body streams. The engine verifies all
//! other digests before it makes an object visible.

use std::sync::Arc;

use futures_util::StreamExt as _;
use http::HeaderMap;
use md5::Digest as _;
use s3o_engine::{ByteStream, Declared, Trailer};
use s3o_model::checksum::Algorithm;
use s3o_model::etag::{Md5, Sha256};
use s3o_model::intent::DeclaredDigests;
use s3s::TrailingHeaders;
use s3s::dto::StreamingBlob;

use super::checksums::{self, ChecksumFields};
use super::compat::inputs;
use super::refusal::Refusal;

/// The exact length of a body; for `aws-chunked` bodies the decoded length.
pub fn length(content_length: Option<i64>, headers: &HeaderMap) -> Result<u64, Refusal> {
    let decoded = headers.get("x-amz-decoded-content-length").and_then(|v| v.to_str().ok()?.parse().ok());
    let length = decoded.or(content_length).ok_or_else(|| Refusal::new("MissingContentLength"))?;
    u64::try_from(length).map_err(|_| Refusal::because("InvalidArgument", "A length must not be negative"))
}

/// The body of a request as a stream for the engine.
pub fn stream(body: Option<StreamingBlob>) -> ByteStream {
    match body {
        Some(body) => Box::pin(body.map(|item| item.map_err(|error| inputs::body_error(&error)))),
        None => Box::pin(futures_util::stream::empty()),
    }
}

/// Where a request declares digests of its body.
pub struct DeclaredChecksums<'a> {
    pub content_md5: Option<String>,
    pub checksum: ChecksumFields,
    pub headers: &'a HeaderMap,
    /// The trailers, filled when the body ends.
    pub trailing: Option<TrailingHeaders>,
}

/// Collects the digests that the engine must verify or compute.
pub fn declared(declared: DeclaredChecksums<'_>) -> Result<Declared, Refusal> {
    let md5 = declared.content_md5.map(|text| read_md5(text.as_bytes())).transpose()?;
    let checksum = declared.checksum.only()?;
    let trailer = trailer(declared.headers, declared.trailing)?;
    if checksum.is_some() && trailer.is_some() {
        return Err(Refusal::because("InvalidRequest", "Expecting a single checksum, in a header or in the trailer"));
    }
    let compute = requested_algorithm(declared.headers)?;
    let given = checksum.as_ref().map(|c| c.algorithm).or(trailer.as_ref().map(|t| t.algorithm));
    if let (Some(requested), Some(given)) = (compute, given)
        && requested != given
    {
        let message = "Value for x-amz-sdk-checksum-algorithm header does not match the checksum given.";
        return Err(Refusal::because("InvalidRequest", message));
    }
    let digests = DeclaredDigests { md5, sha256: payload_hash(declared.headers), checksum };
    Ok(Declared { digests, trailer, compute: compute.filter(|_| given.is_none()) })
}

/// The signed hash of the body; `None` for values like `UNSIGNED-PAYLOAD`.
fn payload_hash(headers: &HeaderMap) -> Option<Sha256> {
    headers.get("x-amz-content-sha256")?.to_str().ok()?.parse().ok()
}

fn requested_algorithm(headers: &HeaderMap) -> Result<Option<Algorithm>, Refusal> {
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

/// Parses `Content-MD5`.
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
    use super::{DeclaredChecksums, declared, length, read_md5};
    use crate::s3::checksums::ChecksumFields;
    use http::{HeaderMap, HeaderName, HeaderValue};
    use s3o_model::checksum::Algorithm;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|&(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    #[test]
    fn length_is_that_of_the_decoded_body() {
        assert_eq!(length(Some(5), &HeaderMap::new()).unwrap(), 5);
        assert_eq!(length(Some(99), &headers(&[("x-amz-decoded-content-length", "5")])).unwrap(), 5);
        assert_eq!(length(None, &HeaderMap::new()).unwrap_err().status.as_u16(), 411);
        assert_eq!(length(Some(-1), &HeaderMap::new()).unwrap_err().code, "InvalidArgument");
    }

    #[test]
    fn content_md5_is_base64_of_sixteen_bytes() {
        assert!(read_md5(b"XUFAKrxLKna5cZ2REBfFkg==").is_ok());
        for bad in ["", "XUFA", "not base64 at all!!"] {
            assert_eq!(read_md5(bad.as_bytes()).unwrap_err().code, "InvalidDigest");
        }
    }

    fn declare(map: &HeaderMap, checksum: ChecksumFields) -> Result<s3o_engine::Declared, super::Refusal> {
        declared(DeclaredChecksums { content_md5: None, checksum, headers: map, trailing: None })
    }

    #[test]
    fn checksum_algorithm_without_value_is_computed() {
        let requested =
            declare(&headers(&[("x-amz-sdk-checksum-algorithm", "SHA1")]), ChecksumFields::default()).unwrap();
        assert_eq!(requested.compute, Some(Algorithm::Sha1));
    }

    #[test]
    fn contradicting_checksum_headers_are_refused() {
        let crc = ChecksumFields { crc32: Some("y/Q5Jg==".into()), ..ChecksumFields::default() };
        let other = headers(&[("x-amz-sdk-checksum-algorithm", "SHA1")]);
        assert_eq!(declare(&other, crc).err().unwrap().code, "InvalidRequest");
        for trailer in ["x-amz-checksum-md5", "x-amz-checksum-crc32"] {
            // The request announces a trailer, but the body has none.
            let map = headers(&[("x-amz-trailer", trailer)]);
            assert_eq!(declare(&map, ChecksumFields::default()).err().unwrap().code, "InvalidRequest");
        }
    }
}
