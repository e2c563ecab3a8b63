//! Headers that a signature must cover; the protocol library does not check this.
//!
//! A header that changes the meaning of a request must be signed. Otherwise the holder of a presigned PUT could add a
//! copy source and read any object of the signer.

use http::{HeaderMap, Uri};

use super::query_headers;
use crate::s3::refusal::Refusal;
use crate::s3::url_encoding::parameters;

/// The longest lifetime of a presigned URL: seven days.
const EXPIRES_SECONDS_MAX: u64 = 7 * 24 * 60 * 60;

/// Headers that the signature covers in another way, or that change nothing.
const EXEMPT: &[&str] = &["x-amz-content-sha256", "x-amz-date", "x-amz-user-agent"];

/// Refuses unsigned headers that must be signed, and presigned URLs whose lifetime is too long.
pub fn check(uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
    let query = uri.query().unwrap_or_default();
    check_expiry(parameter(query, "X-Amz-Expires").as_deref())?;
    let Some(signed) = signed_names(query, headers) else { return Ok(()) };
    let is_signed = |name: &str| signed.contains(name) || query_headers::is_parameter(query, name);
    match headers.keys().find(|name| must_be_signed(name.as_str()) && !is_signed(name.as_str())) {
        Some(name) => {
            let message = format!("There were headers present in the request which were not signed: {name}");
            Err(Refusal::because("AccessDenied", message))
        }
        None => Ok(()),
    }
}

/// True if the list of signed headers in `Authorization` names this header.
pub fn lists(headers: &HeaderMap, name: &str) -> bool {
    signed_names("", headers).is_some_and(|signed| signed.contains(name))
}

fn must_be_signed(name: &str) -> bool {
    (name.starts_with("x-amz-") || name.starts_with("x-s3o-")) && !EXEMPT.contains(&name)
}

struct SignedNames(String);

impl SignedNames {
    fn contains(&self, name: &str) -> bool {
        self.0.split(';').any(|signed| signed.eq_ignore_ascii_case(name))
    }
}

fn signed_names(query: &str, headers: &HeaderMap) -> Option<SignedNames> {
    if let Some(names) = parameter(query, "X-Amz-SignedHeaders") {
        return Some(SignedNames(names));
    }
    let authorization = headers.get("authorization")?;
    // A list that is not UTF-8 signs no header.
    let text = std::str::from_utf8(authorization.as_bytes()).unwrap_or_default();
    Some(SignedNames(listed(text).unwrap_or_default().to_owned()))
}

fn listed(authorization: &str) -> Option<&str> {
    let (_, rest) = authorization.split_once("SignedHeaders=")?;
    rest.split([',', ' ']).next()
}

fn check_expiry(expires: Option<&str>) -> Result<(), Refusal> {
    let Some(text) = expires else { return Ok(()) };
    match text.parse::<u64>() {
        Ok(seconds) if seconds <= EXPIRES_SECONDS_MAX => Ok(()),
        Ok(_) | Err(_) => {
            let message = "X-Amz-Expires must be less than a week (in seconds) that is 604800";
            Err(Refusal::because("AuthorizationQueryParametersError", message))
        }
    }
}

fn parameter(query: &str, wanted: &str) -> Option<String> {
    parameters(query).find(|(name, _)| name == wanted).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::check;
    use http::{HeaderMap, HeaderName, HeaderValue, Uri};

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|&(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    const AUTHORIZATION: &str =
        "AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/s3/aws4_request, SignedHeaders=host;x-amz-acl, Signature=00";

    #[test]
    fn signed_headers_pass() {
        let map = headers(&[("authorization", AUTHORIZATION), ("x-amz-acl", "private"), ("x-amz-date", "d")]);
        assert!(check(&Uri::from_static("/b/k"), &map).is_ok());
    }

    #[test]
    fn presigned_put_cannot_be_turned_into_a_copy() {
        let uri = Uri::from_static("/b/k?X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Signature=0");
        let map = headers(&[("x-amz-copy-source", "b/secret")]);
        assert_eq!(check(&uri, &map).unwrap_err().code, "AccessDenied");
        let disguised = Uri::from_static("/b/k?X-Amz-Expires=60&X-Amz-Signed%48eaders=host&X-Amz-Signature=0");
        assert_eq!(check(&disguised, &map).unwrap_err().code, "AccessDenied");
        let signed = Uri::from_static("/b/k?X-Amz-Expires=60&X-Amz-SignedHeaders=host%3Bx-amz-copy-source");
        assert!(check(&signed, &map).is_ok());
    }

    #[test]
    fn presigned_url_lifetime_is_at_most_a_week() {
        let accepted = |uri: &'static str| check(&Uri::from_static(uri), &HeaderMap::new()).is_ok();
        assert!(accepted("/b/k?X-Amz-Expires=604800"));
        assert!(!accepted("/b/k?X-Amz-Expires=604801"));
        assert!(!accepted("/b/k?X-Amz-Expires=-1"));
    }

    #[test]
    fn unreadable_list_signs_nothing() {
        for authorization in [&b"AWS4-\xff SignedHeaders=host;x-amz-acl, Signature=c"[..], b"AWS4-HMAC-SHA256"] {
            let mut headers = HeaderMap::new();
            headers.insert("authorization", http::HeaderValue::from_bytes(authorization).unwrap());
            assert!(check(&Uri::from_static("/b/k"), &headers).is_ok());
            headers.insert("x-amz-acl", http::HeaderValue::from_static("private"));
            assert_eq!(check(&Uri::from_static("/b/k"), &headers).unwrap_err().code, "AccessDenied");
        }
        let mut headers = HeaderMap::new();
        let authorization = "AWS4-HMAC-SHA256\u{e4} Credential=a, SignedHeaders=host, Signature=c";
        headers.insert("authorization", http::HeaderValue::from_bytes(authorization.as_bytes()).unwrap());
        headers.insert("x-amz-copy-source", http::HeaderValue::from_static("/b/secret"));
        assert_eq!(check(&Uri::from_static("/b/k"), &headers).unwrap_err().code, "AccessDenied");
    }
}
