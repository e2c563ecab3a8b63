//! `x-amz-*` query parameters of presigned requests.
//!
//! SDKs move headers of a presigned request into its query string, which the signature covers. Each of these
//! parameters is applied as the header of the same name, or the request is refused; none is ignored.

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};

use crate::s3::refusal::Refusal;
use crate::s3::url_encoding::parameters;

/// The parameters that make up the signature; the protocol library reads them under exactly these names.
const SIGNING: &[&str] =
    &["X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-Signature", "X-Amz-SignedHeaders"];

/// The headers that may also be query parameters. [`crate::s3::unsupported`] checks their values.
const APPLIED: &[&str] = &[
    "x-amz-acl",
    "x-amz-checksum-algorithm",
    "x-amz-checksum-crc32",
    "x-amz-checksum-crc32c",
    "x-amz-checksum-crc64nvme",
    "x-amz-checksum-mode",
    "x-amz-checksum-sha1",
    "x-amz-checksum-sha256",
    "x-amz-checksum-type",
    "x-amz-content-sha256",
    "x-amz-copy-source",
    "x-amz-copy-source-if-match",
    "x-amz-copy-source-if-modified-since",
    "x-amz-copy-source-if-none-match",
    "x-amz-copy-source-if-unmodified-since",
    "x-amz-copy-source-range",
    "x-amz-expected-bucket-owner",
    "x-amz-max-parts",
    "x-amz-metadata-directive",
    "x-amz-mp-object-size",
    "x-amz-object-attributes",
    "x-amz-part-number-marker",
    "x-amz-request-payer",
    "x-amz-sdk-checksum-algorithm",
    "x-amz-security-token",
    "x-amz-source-expected-bucket-owner",
    "x-amz-storage-class",
    "x-amz-tagging",
    "x-amz-tagging-directive",
    "x-amz-user-agent",
];

/// Copies each parameter of a presigned request that stands for a header to the headers. Headers that the client sent
/// are not replaced; [`check`] compares both.
pub fn apply(request: &mut Parts) {
    let query = request.uri.query().unwrap_or_default();
    if !is_presigned(query) {
        return;
    }
    for (name, value) in moved(query) {
        let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_bytes(value.as_bytes())) else {
            continue;
        };
        request.headers.entry(name).or_insert(value);
    }
}

/// Refuses parameters that were not applied. Called after the signature was verified.
pub fn check(uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
    let query = uri.query().unwrap_or_default();
    let presigned = is_presigned(query);
    if let Some((name, _)) = amz_parameters(query).find(|_| !presigned) {
        let message = format!("The query parameter {name} is only valid in a presigned URL");
        return Err(Refusal::because("InvalidRequest", message));
    }
    for (name, value) in moved(query) {
        if !APPLIED.contains(&name.as_str()) && !name.starts_with("x-amz-meta-") {
            let message = format!("The query parameter {name} is not implemented here");
            return Err(Refusal::because("NotImplemented", message));
        }
        // Only the first of several equal parameters became a header, so a second value is compared with it.
        let mut applied = headers.get_all(&name).iter();
        if !applied.all(|applied| applied.as_bytes() == value.as_bytes()) || !headers.contains_key(&name) {
            let message = format!("The values of {name} in the query and in the headers differ");
            return Err(Refusal::because("InvalidRequest", message));
        }
    }
    Ok(())
}

/// True if the query has this header as a parameter, where the signature covers it.
pub fn is_parameter(query: &str, header: &str) -> bool {
    is_presigned(query) && moved(query).any(|(name, _)| name == header)
}

/// The query string without `x-amz-*` parameters, for a request whose signature was verified before.
pub fn without(query: &str) -> String {
    let is_other = |pair: &&str| amz_parameters(pair).next().is_none();
    query.split('&').filter(is_other).collect::<Vec<_>>().join("&")
}

fn is_presigned(query: &str) -> bool {
    parameters(query).any(|(name, _)| name == "X-Amz-Signature")
}

fn amz_parameters(query: &str) -> impl Iterator<Item = (String, String)> {
    let is_amz = |name: &str| name.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("x-amz-"));
    parameters(query).filter(move |(name, _)| is_amz(name))
}

/// The parameters that stand for headers, under the lower-case names of the headers.
fn moved(query: &str) -> impl Iterator<Item = (String, String)> {
    let others = amz_parameters(query).filter(|(name, _)| !SIGNING.contains(&name.as_str()));
    others.map(|(name, value)| (name.to_ascii_lowercase(), value))
}

#[cfg(test)]
mod tests {
    use super::{apply, check, is_parameter, without};
    use http::Request;

    /// The headers after `apply`, and the code with which `check` refuses the request.
    fn applied(query: &str, header: Option<(&str, &str)>) -> (http::HeaderMap, Option<String>) {
        let mut builder = Request::put(format!("/b/k?{query}"));
        if let Some((name, value)) = header {
            builder = builder.header(name, value);
        }
        let mut parts = builder.body(()).unwrap().into_parts().0;
        apply(&mut parts);
        let refused = check(&parts.uri, &parts.headers).err().map(|refusal| refusal.code.into_owned());
        (parts.headers, refused)
    }

    #[test]
    fn parameters_of_presigned_requests_become_headers() {
        let query =
            "X-Amz-Signature=s&X-Amz-Expires=60&x-amz-checksum-crc32=y%2FQ5Jg%3D%3D&X-Amz-Acl=private&x-amz-meta-a=b";
        let (headers, refused) = applied(query, None);
        assert_eq!(refused, None);
        assert_eq!(headers["x-amz-checksum-crc32"], "y/Q5Jg==");
        assert_eq!(
            (&headers["x-amz-acl"], &headers["x-amz-meta-a"]),
            (&"private".parse().unwrap(), &"b".parse().unwrap())
        );
        assert_eq!(headers.len(), 3);
    }

    #[test]
    fn parameters_without_a_header_to_apply_are_refused() {
        for name in [
            "x-amz-server-side-encryption",
            "x-amz-object-lock-mode",
            "x-amz-grant-read",
            "x-amz-trailer",
            "x-amz-decoded-content-length",
            "x-amz-something-new",
            "x-amz-signature",
        ] {
            let (_, refused) = applied(&format!("X-Amz-Signature=s&{name}=v"), None);
            assert_eq!(refused.as_deref(), Some("NotImplemented"), "{name}");
        }
    }

    #[test]
    fn parameters_of_requests_that_are_not_presigned_are_refused() {
        for query in ["x-amz-acl=private", "X-Amz-Expires=60", "x-amz-%61cl=private"] {
            let (headers, refused) = applied(query, None);
            assert_eq!((headers.len(), refused.as_deref()), (0, Some("InvalidRequest")), "{query}");
        }
        assert_eq!(applied("uploads&x-id=PutObject", None).1, None);
    }

    #[test]
    fn parameter_and_header_must_have_the_same_value() {
        let query = "X-Amz-Signature=s&x-amz-acl=private";
        assert_eq!(applied(query, Some(("x-amz-acl", "private"))).1, None);
        assert_eq!(applied(query, Some(("x-amz-acl", "public-read"))).1.as_deref(), Some("InvalidRequest"));
        let twice = "X-Amz-Signature=s&x-amz-acl=private&X-Amz-Acl=public-read";
        assert_eq!(applied(twice, None).1.as_deref(), Some("InvalidRequest"));
        let impossible = "X-Amz-Signature=s&x-amz-meta-a=%0D%0Ab";
        assert_eq!(applied(impossible, None).1.as_deref(), Some("InvalidRequest"));
    }

    #[test]
    fn parameters_are_found_and_removed_in_every_spelling() {
        assert!(is_parameter("X-Amz-Signature=s&X-Amz-%41cl=private", "x-amz-acl"));
        assert!(!is_parameter("x-amz-acl=private", "x-amz-acl"));
        assert_eq!(without("X-Amz-Date=d&partNumber=1&x-amz-%61cl=v&X-Amz-Signature=s"), "partNumber=1");
    }
}
