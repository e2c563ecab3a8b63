//! AWS Signature Version 4 in the Authorization header; all headers that are set so far are signed.

use hmac::{Hmac, KeyInit, Mac};
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3o_model::clock::Timestamp;
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use time::macros::format_description;

use super::options::Secret;
use crate::Error;
use s3o_model::etag::hex;

/// Payload hash of a body that is not part of the signature.
pub(super) const UNSIGNED_PAYLOAD: &str = "UNSIGNED-PAYLOAD";

const CONTENT_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const DATE: HeaderName = HeaderName::from_static("x-amz-date");

const QUERY_ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const PATH_ESCAPED: &AsciiSet = &QUERY_ESCAPED.remove(b'/');

/// Escapes a key for a path; S3 requires the same single escaping in the request and in the signature.
pub(super) fn escape_path(key: &str) -> String {
    utf8_percent_encode(key, PATH_ESCAPED).to_string()
}

/// The query string that is both sent and signed: escaped, then sorted.
pub(super) fn canonical_query(pairs: &[(&str, &str)]) -> String {
    let escape = |text| utf8_percent_encode(text, QUERY_ESCAPED).to_string();
    let mut escaped: Vec<_> = pairs.iter().map(|(name, value)| (escape(name), escape(value))).collect();
    escaped.sort();
    escaped.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

/// Payload hash of a body that is known in advance.
pub(super) fn payload_hash(body: &[u8]) -> String {
    hex(&Sha256::digest(body))
}

/// Signs requests with one access key for one region.
#[derive(Debug)]
pub(super) struct Signer {
    pub(super) access_key_id: String,
    pub(super) secret_access_key: Secret,
    pub(super) region: String,
}

/// The parts of a request that the signature covers in addition to the headers.
#[derive(Debug, Clone, Copy)]
pub(super) struct SignedParts<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) query: &'a str,
    pub(super) payload_hash: &'a str,
}

impl Signer {
    /// Adds the date, the payload hash and the signature. All other headers, including the host, must
    /// already be set.
    pub(super) fn sign(&self, signed: SignedParts<'_>, now: Timestamp, headers: &mut HeaderMap) -> Result<(), Error> {
        let moment = OffsetDateTime::from_unix_timestamp(now.seconds()).unwrap_or(OffsetDateTime::UNIX_EPOCH);
        let date_time = moment.format(format_description!("[year][month][day]T[hour][minute][second]Z"));
        let date_time = date_time.map_err(|error| Error::Refused(format!("date not formattable: {error}")))?;
        headers.insert(DATE, header(&date_time)?);
        headers.insert(CONTENT_SHA256, header(signed.payload_hash)?);

        let (names, lines) = canonical_headers(headers);
        let SignedParts { method, path, query, payload_hash } = signed;
        let request = format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{payload_hash}");
        let day = &date_time[..8];
        let scope = format!("{day}/{}/s3/aws4_request", self.region);
        let text = format!("AWS4-HMAC-SHA256\n{date_time}\n{scope}\n{}", hex(&Sha256::digest(&request)));
        let signature = hex(&mac(&self.key_for(day), &text));
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope},SignedHeaders={names},Signature={signature}",
            self.access_key_id
        );
        headers.insert(AUTHORIZATION, header(&authorization)?);
        Ok(())
    }

    fn key_for(&self, day: &str) -> Vec<u8> {
        let secret = format!("AWS4{}", self.secret_access_key.reveal());
        [day, &self.region, "s3", "aws4_request"].iter().fold(secret.into_bytes(), |key, part| mac(&key, part))
    }
}

fn header(text: &str) -> Result<HeaderValue, Error> {
    HeaderValue::from_str(text)
        .map_err(|_| Error::Refused("a header value has characters that HTTP does not allow".to_owned()))
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

/// Signed header names and canonical header lines, both sorted by name.
fn canonical_headers(headers: &HeaderMap) -> (String, String) {
    let mut sorted: Vec<_> = headers
        .iter()
        .map(|(name, value)| (name.as_str(), String::from_utf8_lossy(value.as_bytes()).trim().to_owned()))
        .collect();
    sorted.sort();
    let names: Vec<_> = sorted.iter().map(|(name, _)| *name).collect();
    let lines: Vec<_> = sorted.iter().flat_map(|(name, value)| [*name, ":", value.as_str(), "\n"]).collect();
    (names.join(";"), lines.concat())
}

#[cfg(test)]
mod tests {
    use super::{Secret, SignedParts, Signer, canonical_query, escape_path, payload_hash};
    use http::HeaderMap;
    use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
    use s3o_model::clock::Timestamp;

    /// Signs an example from the AWS documentation of Signature Version 4 for S3.
    fn signature(
        method: &str,
        path: &str,
        query: &str,
        payload: &[u8],
        extra: &[(&'static str, &'static str)],
    ) -> String {
        let signer = Signer {
            access_key_id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret_access_key: Secret::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
            region: "us-east-1".to_owned(),
        };
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_static("examplebucket.s3.amazonaws.com"));
        for (name, value) in extra {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let hash = payload_hash(payload);
        let request = SignedParts { method, path, query, payload_hash: &hash };
        let midnight = Timestamp::from_millis(1_369_353_600_000);
        signer.sign(request, midnight, &mut headers).expect("signable");
        let authorization = headers[AUTHORIZATION].to_str().expect("text");
        authorization.rsplit_once('=').expect("a signature").1.to_owned()
    }

    #[test]
    fn ranged_get_is_signed_as_documented() {
        assert_eq!(
            signature("GET", "/test.txt", "", b"", &[("range", "bytes=0-9")]),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
    }

    #[test]
    fn put_is_signed_as_documented() {
        let extra = [("date", "Fri, 24 May 2013 00:00:00 GMT"), ("x-amz-storage-class", "REDUCED_REDUNDANCY")];
        assert_eq!(
            signature("PUT", &escape_path("/test$file.text"), "", b"Welcome to Amazon S3.", &extra),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"
        );
    }

    #[test]
    fn queries_are_signed_as_documented() {
        assert_eq!(
            signature("GET", "/", &canonical_query(&[("lifecycle", "")]), b"", &[]),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
        );
        assert_eq!(
            signature("GET", "/", &canonical_query(&[("prefix", "J"), ("max-keys", "2")]), b"", &[]),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
        );
    }

    #[test]
    fn keys_are_escaped_once_and_keep_their_slashes() {
        assert_eq!(escape_path("b/a=7E(é)@~x"), "b/a%3D7E%28%C3%A9%29%40~x");
        assert_eq!(canonical_query(&[("prefix", "a/b c")]), "prefix=a%2Fb%20c");
    }
}
