//! Object expiry: the request headers that set it and the response headers that show it.

use http::HeaderMap;
use s3o_model::expiry::{Expiry, ExpiryRefused};
use s3o_model::lifecycle::{DeletionCause, ScheduledDeletion};
use s3s::dto::Timestamp as S3Timestamp;

use super::operations::S3Operation;
use super::refusal::Refusal;
use super::times;
use super::url_encoding::NameEncoding;

const AFTER: &str = "x-s3o-expires-after";
const AT: &str = "x-s3o-expires-at";

/// The `rule-id` in `x-amz-expiration` of objects that have their own expiry.
const OWN_RULE: &str = "expires-at";

/// The expiry that a request sets.
pub fn requested(headers: &HeaderMap) -> Result<Option<Expiry>, Refusal> {
    match (only(headers, AFTER)?, only(headers, AT)?) {
        (None, None) => Ok(None),
        (Some(live), None) => Expiry::after(live).map(Some).map_err(refuse),
        (None, Some(moment)) => Expiry::at(moment).map(Some).map_err(refuse),
        (Some(_), Some(_)) => Err(invalid(format!("Only one of {AFTER} and {AT} can be given"))),
    }
}

/// Refuses the expiry headers for operations that write no object, which would have to ignore them.
pub fn check(operation: &S3Operation, headers: &HeaderMap) -> Result<(), Refusal> {
    let given = [AFTER, AT].into_iter().find(|name| headers.contains_key(*name));
    match given.filter(|_| !operation.sets_expiry) {
        Some(name) => Err(invalid(format!("{name} is not allowed for {}", operation.name))),
        None => Ok(()),
    }
}

/// Translates an invalid expiry.
pub fn refuse(refused: ExpiryRefused) -> Refusal {
    invalid(refused.to_string())
}

/// The value of `x-amz-expiration`.
pub fn shown(scheduled: Option<&ScheduledDeletion>) -> Option<String> {
    let ScheduledDeletion { at, by } = scheduled?;
    Some(format!("expiry-date=\"{}\", rule-id=\"{}\"", times::http_date(*at), rule_name(by)))
}

/// The values of `x-amz-abort-date` and `x-amz-abort-rule-id`.
pub fn aborted(scheduled: Option<&ScheduledDeletion>) -> Option<(S3Timestamp, String)> {
    scheduled.map(|deletion| (times::to_s3(deletion.at), rule_name(&deletion.by)))
}

/// The rule ID, percent-encoded as in S3: it may contain characters that a header cannot.
fn rule_name(by: &DeletionCause) -> String {
    match by {
        DeletionCause::Expiry => OWN_RULE.to_owned(),
        DeletionCause::Rule(name) => NameEncoding::Url.write(name),
    }
}

fn only<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    match value.to_str() {
        Ok(text) if values.next().is_none() => Ok(Some(text)),
        Ok(_) | Err(_) => Err(invalid(format!("{name} must be given once, in plain text"))),
    }
}

fn invalid(message: String) -> Refusal {
    Refusal::because("InvalidArgument", message)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{HeaderMap, HeaderName, HeaderValue};
    use s3o_model::clock::Timestamp;
    use s3o_model::expiry::Expiry;
    use s3o_model::lifecycle::{DeletionCause, ScheduledDeletion};

    use super::{AFTER, AT, check, requested, shown};
    use crate::s3::operations::offered;

    fn headers(pairs: &[(&'static str, &'static [u8])]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
        }
        headers
    }

    #[test]
    fn expiry_is_read_from_one_header() {
        assert_eq!(requested(&HeaderMap::new()).unwrap(), None);
        assert_eq!(requested(&headers(&[(AFTER, b"90s")])).unwrap(), Some(Expiry::After(Duration::from_secs(90))));
        let moment = Timestamp::from_millis(1_893_499_200_000);
        assert_eq!(requested(&headers(&[(AT, b"2030-01-01T12:00:00Z")])).unwrap(), Some(Expiry::At(moment)));
    }

    #[test]
    fn invalid_expiry_is_an_invalid_argument() {
        let both: &[(&str, &[u8])] = &[(AFTER, b"60"), (AT, b"2030-01-01T12:00:00Z")];
        let twice: &[(&str, &[u8])] = &[(AFTER, b"60"), (AFTER, b"60")];
        for bad in [both, twice, &[(AFTER, b"0")], &[(AFTER, b"")], &[(AT, b"soon")], &[(AFTER, b"6\xff")]] {
            assert_eq!(requested(&headers(bad)).unwrap_err().code, "InvalidArgument", "{bad:?}");
        }
    }

    #[test]
    fn only_operations_that_write_an_object_accept_expiry_headers() {
        let given = headers(&[(AFTER, b"60")]);
        let check = |operation, headers: &HeaderMap| check(offered(operation).unwrap(), headers);
        for operation in ["PutObject", "CopyObject", "CreateMultipartUpload"] {
            assert!(check(operation, &given).is_ok(), "{operation}");
        }
        for operation in ["UploadPart", "CompleteMultipartUpload", "GetObject", "DeleteObject", "CreateBucket"] {
            assert_eq!(check(operation, &given).unwrap_err().code, "InvalidArgument", "{operation}");
            assert!(check(operation, &HeaderMap::new()).is_ok());
        }
    }

    #[test]
    fn expiration_header_has_date_and_rule() {
        assert_eq!(shown(None), None);
        let scheduled = |by| ScheduledDeletion { at: Timestamp::from_millis(1_500), by };
        let date = "expiry-date=\"Thu, 01 Jan 1970 00:00:01 GMT\"";
        assert_eq!(shown(Some(&scheduled(DeletionCause::Expiry))).unwrap(), format!("{date}, rule-id=\"expires-at\""));
        let named = scheduled(DeletionCause::Rule("a \"b\"\r\nc: ä".to_owned()));
        assert_eq!(shown(Some(&named)).unwrap(), format!("{date}, rule-id=\"a%20%22b%22%0D%0Ac%3A%20%C3%A4\""));
    }
}
