//! Refuses request headers for features that this server does not implement.
//!
//! It would be wrong to answer 200 and store an object without the encryption or lock that the client asked for.

use http::{HeaderMap, HeaderValue};

use super::owner;
use super::refusal::Refusal;

const PREFIXES: &[&str] =
    &["x-amz-server-side-encryption", "x-amz-copy-source-server-side-encryption", "x-amz-object-lock-", "x-amz-grant-"];

const NAMES: &[&str] = &[
    "x-amz-bypass-governance-retention",
    "x-amz-if-match-initiated-time",
    "x-amz-if-match-last-modified-time",
    "x-amz-if-match-size",
    "x-amz-mfa",
    "x-amz-object-ownership",
    "x-amz-website-redirect-location",
    "x-amz-write-offset-bytes",
];

const OWNERS: &[&str] = &["x-amz-expected-bucket-owner", "x-amz-source-expected-bucket-owner"];

/// Refuses a request with such a header, or with another bucket owner than the one there is.
pub fn check(headers: &HeaderMap) -> Result<(), Refusal> {
    check_owners(headers)?;
    match headers.iter().find(|(name, value)| is_unsupported(name.as_str(), value)) {
        Some((name, _)) => {
            Err(Refusal::because("NotImplemented", format!("The header {name} is not implemented here")))
        }
        None => Ok(()),
    }
}

/// All buckets have the same owner; a client that expects another owner means another bucket.
fn check_owners(headers: &HeaderMap) -> Result<(), Refusal> {
    let is_other = |name: &&str| headers.get_all(*name).iter().any(|value| value.as_bytes() != owner::NAME.as_bytes());
    match OWNERS.iter().find(|name| is_other(name)) {
        Some(name) => Err(Refusal::because(
            "AccessDenied",
            format!("{name} does not match: the owner of the bucket is {}", owner::NAME),
        )),
        None => Ok(()),
    }
}

fn is_unsupported(name: &str, value: &HeaderValue) -> bool {
    match name {
        _ if !name.starts_with("x-") => false,
        "x-amz-acl" => !matches!(value.as_bytes(), b"" | b"private" | b"bucket-owner-full-control"),
        "x-amz-bucket-object-lock-enabled" => !value.as_bytes().eq_ignore_ascii_case(b"false"),
        "x-s3o-expires-after" | "x-s3o-expires-at" => false,
        _ if name.starts_with("x-s3o-") => true,
        _ => NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix)),
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use http::{HeaderMap, HeaderName, HeaderValue};

    fn with(name: &'static str, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static(value))])
    }

    #[test]
    fn unsupported_headers_are_refused() {
        for (name, value) in [
            ("x-amz-server-side-encryption", "AES256"),
            ("x-amz-server-side-encryption-customer-key", "k"),
            ("x-amz-object-lock-mode", "GOVERNANCE"),
            ("x-amz-bucket-object-lock-enabled", "true"),
            ("x-amz-acl", "public-read"),
            ("x-amz-grant-read", "id=x"),
            ("x-amz-website-redirect-location", "/"),
            ("x-s3o-expires-when", "60"),
        ] {
            assert_eq!(check(&with(name, value)).unwrap_err().code, "NotImplemented", "{name}");
        }
    }

    #[test]
    fn unexpected_bucket_owner_is_denied() {
        for name in ["x-amz-expected-bucket-owner", "x-amz-source-expected-bucket-owner"] {
            assert!(check(&with(name, "s3o")).is_ok());
            assert_eq!(check(&with(name, "123456789012")).unwrap_err().code, "AccessDenied", "{name}");
            assert_eq!(check(&with(name, "")).unwrap_err().code, "AccessDenied", "{name}");
        }
    }

    #[test]
    fn headers_without_effect_pass() {
        for (name, value) in [
            ("x-amz-acl", "private"),
            ("x-s3o-expires-after", "60"),
            ("x-amz-acl", "bucket-owner-full-control"),
            ("x-amz-bucket-object-lock-enabled", "False"),
            ("x-amz-request-payer", "requester"),
            ("x-amz-meta-x-amz-grant-", "v"),
        ] {
            assert!(check(&with(name, value)).is_ok(), "{name}");
        }
    }
}
