//! Dates of signatures: uses `Date` where `x-amz-date` is missing, and refuses malformed dates.
//!
//! The protocol library does arithmetic with every character of a date before it checks that they are digits. In a
//! build with overflow checks, any unauthenticated client could make it panic.

use http::header::{AUTHORIZATION, DATE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use time::format_description::BorrowedFormatItem;
use time::format_description::well_known::Rfc2822;
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime, UtcOffset};

use super::signed_headers;
use crate::s3::refusal::Refusal;
use crate::s3::url_encoding::parameters;

const AMZ_DATE: &str = "x-amz-date";
const BASIC: &[BorrowedFormatItem<'_>] = format_description!("[year][month][day]T[hour][minute][second]Z");

/// Adds `x-amz-date` to a request whose `Authorization` header covers `Date` instead: the library reads only
/// `x-amz-date`. The signature covers the value in both cases.
pub fn apply(request: &mut Parts) {
    let headers = &mut request.headers;
    if headers.contains_key(AMZ_DATE) || !headers.contains_key(AUTHORIZATION) {
        return;
    }
    if let Some(value) = signed_date(headers).and_then(|text| HeaderValue::try_from(text).ok()) {
        headers.insert(AMZ_DATE, value);
    }
}

fn signed_date(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(DATE)?.to_str().ok()?;
    let moment = parse(text).filter(|_| signed_headers::lists(headers, DATE.as_str()))?;
    moment.to_offset(UtcOffset::UTC).format(BASIC).ok()
}

fn parse(date: &str) -> Option<OffsetDateTime> {
    let basic = || PrimitiveDateTime::parse(date, BASIC).map(PrimitiveDateTime::assume_utc);
    OffsetDateTime::parse(date, &Rfc2822).or_else(|_| basic()).ok()
}

/// Refuses malformed dates with the same messages as the library.
pub fn check(request: &Parts) -> Result<(), Refusal> {
    check_presence(request)?;
    for (name, scoped) in [("x-amz-date", false), (AUTHORIZATION.as_str(), true)] {
        let values = request.headers.get_all(name).iter();
        let mut texts = values.filter_map(|value| std::str::from_utf8(value.as_bytes()).ok());
        if texts.any(|text| is_malformed(if scoped { scope_date(text) } else { text })) {
            return Err(Refusal::because("InvalidRequest", format!("invalid header: {name}")));
        }
    }
    let query = request.uri.query().unwrap_or_default();
    let malformed = parameters(query).any(|(name, value)| match name.as_str() {
        "X-Amz-Date" => is_malformed(&value),
        "X-Amz-Credential" => is_malformed(scope_date(&value)),
        _ => false,
    });
    if malformed { Err(Refusal::new("AuthorizationQueryParametersError")) } else { Ok(()) }
}

fn check_presence(request: &Parts) -> Result<(), Refusal> {
    let in_query = parameters(request.uri.query().unwrap_or_default()).any(|(name, _)| name == "X-Amz-Signature");
    if in_query || !request.headers.contains_key(AUTHORIZATION) || request.headers.contains_key(AMZ_DATE) {
        return Ok(());
    }
    Err(Refusal::because("AccessDenied", "AWS authentication requires a valid, signed Date or x-amz-date header"))
}

/// The date in `<access key>/<date>/<region>/<service>/aws4_request`.
fn scope_date(text: &str) -> &str {
    text.split('/').nth(1).unwrap_or_default()
}

/// True if the text has the length of a date or timestamp but characters that are not digits.
fn is_malformed(date: &str) -> bool {
    let is_mark = |at| date.len() == 16 && matches!(at, 8 | 15);
    matches!(date.len(), 8 | 16) && date.bytes().enumerate().any(|(at, byte)| !is_mark(at) && !byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::{apply, check};
    use http::Request;
    use http::request::Builder;

    fn code(request: Builder) -> Option<String> {
        check(&request.body(()).unwrap().into_parts().0).err().map(|refusal| refusal.code.into_owned())
    }

    fn authorization(date: &str) -> String {
        format!("AWS4-HMAC-SHA256 Credential=id/{date}/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=ab")
    }

    #[test]
    fn valid_dates_pass() {
        let signed = Request::get("/b").header("x-amz-date", "20261115T120000Z");
        assert_eq!(code(signed.header("authorization", authorization("20261115"))), None);
        assert_eq!(code(Request::get("/b?X-Amz-Date=20261115T120000Z&X-Amz-Credential=id%2F20261115%2Fr")), None);
        assert_eq!(code(Request::get("/b")), None);
    }

    #[test]
    fn signed_date_header_replaces_missing_x_amz_date() {
        let applied = |date: &str, signed: &str| {
            let authorization = format!("AWS4-HMAC-SHA256 Credential=id, SignedHeaders={signed}, Signature=ab");
            let request = Request::get("/b").header("authorization", authorization).header("date", date);
            let mut parts = request.body(()).unwrap().into_parts().0;
            apply(&mut parts);
            let refused = check(&parts).err().map(|refusal| refusal.code.into_owned());
            (parts.headers.get("x-amz-date").map(|value| value.to_str().unwrap().to_owned()), refused)
        };
        for date in ["Mon, 16 Nov 2026 11:26:43 GMT", "Mon, 16 Nov 2026 12:26:43 +0100", "20261116T112643Z"] {
            assert_eq!(applied(date, "date;host"), (Some("20261116T112643Z".to_owned()), None), "{date}");
        }
        let denied = (None, Some("AccessDenied".to_owned()));
        assert_eq!(applied("Mon, 16 Nov 2026 11:26:43 GMT", "host;x-date"), denied);
        assert_eq!(applied("yesterday", "date;host"), denied);
    }

    #[test]
    fn malformed_dates_are_refused() {
        for date in ["2026111 T120000Z", "20261115T12000.Z", "20261115T120%\u{e4}Z"] {
            assert_eq!(
                code(Request::get("/b").header("x-amz-date", date)).as_deref(),
                Some("InvalidRequest"),
                "{date}"
            );
        }
        let signed = Request::get("/b").header("x-amz-date", "20261115T120000Z");
        let signed = signed.header("authorization", authorization("2026-1-1"));
        assert_eq!(code(signed).as_deref(), Some("InvalidRequest"));
        for query in
            ["X-Amz-Date=20261115T12000%2BZ", "X-Amz-Credential=id/2026-1-1/r", "X-Amz-%44ate=+++++++++++++++Z"]
        {
            let refused = code(Request::get(format!("/b?{query}")));
            assert_eq!(refused.as_deref(), Some("AuthorizationQueryParametersError"), "{query}");
        }
    }
}
