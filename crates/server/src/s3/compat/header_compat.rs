//! Reads with headers that S3 ignores and the protocol library refuses.
//!
//! S3 ignores multiple ranges, invalid ranges and invalid dates, and caps range positions that are too large. The
//! signature may cover these headers, so they can only change after it was verified: such a request passes through the
//! library a second time, without these headers and without its signature.

use async_trait::async_trait;
use http::header::{AUTHORIZATION, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE, RANGE};
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use s3s::dto::{Range, Timestamp, TimestampFormat};
use s3s::route::S3Route;
use s3s::service::S3Service;
use s3s::{Body, S3Request, S3Response, S3Result};

use super::{query_headers, signed_headers};
use crate::s3::refusal::Refusal;

/// The highest range position that the library can represent.
const POSITION_MAX: u64 = i64::MAX.unsigned_abs();

/// The access key whose signature was verified in the first pass.
#[derive(Clone)]
pub struct VerifiedSigner(pub String);

/// Handles reads that have headers to ignore.
pub struct HeaderCompat {
    /// The service for the second pass; it accepts [`VerifiedSigner`] in place of a signature.
    pub inner: S3Service,
}

#[async_trait]
impl S3Route for HeaderCompat {
    fn is_match(&self, method: &Method, _: &Uri, headers: &HeaderMap, _: &mut Extensions) -> bool {
        matches!(*method, Method::GET | Method::HEAD) && ignored(headers).next().is_some()
    }

    async fn call(&self, request: S3Request<Body>) -> S3Result<S3Response<Body>> {
        signed_headers::check(&request.uri, &request.headers)?;
        query_headers::check(&request.uri, &request.headers)?;
        let credentials = request.credentials.ok_or_else(|| Refusal::new("AccessDenied"))?;
        let mut again = Request::new(request.input);
        *again.method_mut() = request.method;
        *again.uri_mut() = without_signature(&request.uri)?;
        *again.headers_mut() = without_ignored(request.headers);
        *again.extensions_mut() = request.extensions;
        again.extensions_mut().insert(VerifiedSigner(credentials.access_key));
        let response = self.inner.call(again).await.map_err(|_| Refusal::new("InternalError"))?;
        let (parts, body) = response.into_parts();
        let status = Some(parts.status);
        Ok(S3Response { output: body, status, headers: parts.headers, extensions: parts.extensions })
    }
}

/// The headers of a read that the second pass must not contain, or only in another form.
fn ignored(headers: &HeaderMap) -> impl Iterator<Item = HeaderName> {
    // The library accepts a suffix range without a length.
    let is_range = |text: &str| Range::parse(text).is_ok() && text != "bytes=-";
    let is_date = |text: &str| Timestamp::parse(TimestampFormat::HttpDate, text).is_ok();
    let invalid = |name: &HeaderName, is_valid: &dyn Fn(&str) -> bool| {
        headers.get(name).is_some_and(|value| !value.is_empty() && !value.to_str().is_ok_and(is_valid))
    };
    let found = [
        (RANGE, invalid(&RANGE, &is_range)),
        (IF_MODIFIED_SINCE, invalid(&IF_MODIFIED_SINCE, &is_date)),
        (IF_UNMODIFIED_SINCE, invalid(&IF_UNMODIFIED_SINCE, &is_date)),
    ];
    found.into_iter().filter_map(|(name, is_invalid)| is_invalid.then_some(name))
}

fn without_ignored(mut headers: HeaderMap) -> HeaderMap {
    let names: Vec<_> = ignored(&headers).chain([AUTHORIZATION]).collect();
    let within = headers.get(RANGE).and_then(|value| within_bounds(value.to_str().ok()?));
    for name in names {
        headers.remove(name);
    }
    if let Some(range) = within {
        headers.insert(RANGE, range);
    }
    headers
}

/// The range with positions capped at [`POSITION_MAX`], beyond which no object has bytes; `None` if it is invalid.
fn within_bounds(range: &str) -> Option<HeaderValue> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let bounded = |digits: &str| match digits.parse::<u64>() {
        _ if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) => None,
        Ok(number) => Some(number.min(POSITION_MAX)),
        Err(_) => Some(POSITION_MAX),
    };
    let text = match (bounded(first), bounded(last)) {
        (Some(_), Some(_)) if magnitude(last) < magnitude(first) => return None,
        (Some(first), Some(last)) => format!("bytes={first}-{last}"),
        (Some(first), None) if last.is_empty() => format!("bytes={first}-"),
        (None, Some(length)) if first.is_empty() => format!("bytes=-{length}"),
        _ => return None,
    };
    Range::parse(&text).ok()?;
    HeaderValue::from_str(&text).ok()
}

/// Sort key that orders decimal numbers of any length by value.
fn magnitude(digits: &str) -> (usize, &str) {
    let digits = digits.trim_start_matches('0');
    (digits.len(), digits)
}

/// The URI without `x-amz-*` parameters. Those that are not part of the signature were copied to the headers before.
fn without_signature(uri: &Uri) -> Result<Uri, Refusal> {
    let Some(query) = uri.query() else { return Ok(uri.clone()) };
    let text = format!("{}?{}", uri.path(), query_headers::without(query));
    text.parse().map_err(|_| Refusal::new("InvalidURI"))
}

#[cfg(test)]
mod tests {
    use super::{ignored, without_ignored, without_signature};
    use http::{HeaderMap, HeaderName, HeaderValue, Uri};

    fn headers(name: &'static str, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static(value))])
    }

    #[test]
    fn only_invalid_headers_are_ignored() {
        for (name, value) in [
            ("range", "bytes=5-2"),
            ("range", "bytes=0-1,4-5"),
            ("range", "lines=1-2"),
            ("range", "bytes=-"),
            ("range", "bytes=18446744073709551616-9223372036854775807"),
            ("if-modified-since", "yesterday"),
            ("if-unmodified-since", "0"),
        ] {
            assert_eq!(ignored(&headers(name, value)).count(), 1, "{name}: {value}");
            assert!(without_ignored(headers(name, value)).is_empty());
        }
        for (name, value) in [
            ("range", "bytes=0-1"),
            ("range", "bytes=-5"),
            ("if-modified-since", "Thu, 01 Jan 1970 00:00:00 GMT"),
            ("if-match", "x"),
        ] {
            assert_eq!(ignored(&headers(name, value)).count(), 0, "{name}: {value}");
        }
    }

    #[test]
    fn range_positions_are_capped() {
        for (range, cut) in [
            ("bytes=0-18446744073709551616", "bytes=0-9223372036854775807"),
            ("bytes=18446744073709551615-", "bytes=9223372036854775807-"),
            ("bytes=-99999999999999999999", "bytes=-9223372036854775807"),
        ] {
            assert_eq!(ignored(&headers("range", range)).count(), 1, "{range}");
            assert_eq!(without_ignored(headers("range", range))["range"], cut);
        }
    }

    #[test]
    fn second_pass_has_no_signature() {
        let uri = Uri::from_static("/b/k%20?X-Amz-Date=d&X-Amz-Signature=s&partNumber=1");
        assert_eq!(without_signature(&uri).unwrap(), "/b/k%20?partNumber=1");
    }
}
