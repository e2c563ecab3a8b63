//! When an object ceases to exist: what a request asks for, and how answers show it.

use http::HeaderMap;
use s3o_model::expiry::{Expiry, ExpiryRefused};
use s3o_model::lifecycle::{DepartsBy, Departure};
use s3s::dto::Timestamp as S3Timestamp;

use super::refusal::Refusal;
use super::times;
use super::url_encoding::NameEncoding;

const AFTER: &str = "x-s3o-expires-after";
const AT: &str = "x-s3o-expires-at";

/// What answers call the rule by which an object goes that has an expiry of its own.
const OWN_RULE: &str = "expires-at";

/// The operations that write an object, and so may say when it ceases to exist.
const OPERATIONS: [&str; 3] = ["PutObject", "CopyObject", "CreateMultipartUpload"];

/// What a request that writes an object asks for.
pub fn asked(headers: &HeaderMap) -> Result<Option<Expiry>, Refusal> {
    match (only(headers, AFTER)?, only(headers, AT)?) {
        (None, None) => Ok(None),
        (Some(live), None) => Expiry::after(live).map(Some).map_err(refuse),
        (None, Some(moment)) => Expiry::at(moment).map(Some).map_err(refuse),
        (Some(_), Some(_)) => Err(invalid(format!("Only one of {AFTER} and {AT} can be given"))),
    }
}

/// Refuses what an operation that writes no object would have to ignore.
pub fn check(operation: &str, headers: &HeaderMap) -> Result<(), Refusal> {
    let given = [AFTER, AT].into_iter().find(|name| headers.contains_key(*name));
    match given.filter(|_| !OPERATIONS.contains(&operation)) {
        Some(name) => Err(invalid(format!("{name} says nothing to {operation}"))),
        None => Ok(()),
    }
}

/// Why an object cannot cease to exist then.
pub fn refuse(refused: ExpiryRefused) -> Refusal {
    invalid(refused.to_string())
}

/// `x-amz-expiration`.
pub fn shown(departure: Option<&Departure>) -> Option<String> {
    let Departure { at, by } = departure?;
    Some(format!("expiry-date=\"{}\", rule-id=\"{}\"", times::http_date(*at), rule_name(by)))
}

/// `x-amz-abort-date` and `x-amz-abort-rule-id`.
pub fn aborted(departure: Option<&Departure>) -> Option<(S3Timestamp, String)> {
    departure.map(|departure| (times::to_s3(departure.at), rule_name(&departure.by)))
}

/// The name of a rule is encoded, as in S3: it may hold what no header can.
fn rule_name(by: &DepartsBy) -> String {
    match by {
        DepartsBy::Expiry => OWN_RULE.to_owned(),
        DepartsBy::Rule(name) => NameEncoding::Url.write(name),
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
    use s3o_model::lifecycle::{DepartsBy, Departure};

    use super::{AFTER, AT, asked, check, shown};

    fn headers(pairs: &[(&'static str, &'static [u8])]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
        }
        headers
    }

    #[test]
    fn one_header_says_when() {
        assert_eq!(asked(&HeaderMap::new()).unwrap(), None);
        assert_eq!(asked(&headers(&[(AFTER, b"90s")])).unwrap(), Some(Expiry::After(Duration::from_secs(90))));
        let moment = Timestamp::from_millis(1_893_499_200_000);
        assert_eq!(asked(&headers(&[(AT, b"2030-01-01T12:00:00Z")])).unwrap(), Some(Expiry::At(moment)));
    }

    #[test]
    fn what_cannot_be_meant_is_an_invalid_argument() {
        let both: &[(&str, &[u8])] = &[(AFTER, b"60"), (AT, b"2030-01-01T12:00:00Z")];
        let twice: &[(&str, &[u8])] = &[(AFTER, b"60"), (AFTER, b"60")];
        for bad in [both, twice, &[(AFTER, b"0")], &[(AFTER, b"")], &[(AT, b"soon")], &[(AFTER, b"6\xff")]] {
            assert_eq!(asked(&headers(bad)).unwrap_err().code, "InvalidArgument", "{bad:?}");
        }
    }

    #[test]
    fn only_what_writes_an_object_can_be_told_when_it_ceases() {
        let told = headers(&[(AFTER, b"60")]);
        for operation in ["PutObject", "CopyObject", "CreateMultipartUpload"] {
            assert!(check(operation, &told).is_ok(), "{operation}");
        }
        for operation in ["UploadPart", "CompleteMultipartUpload", "GetObject", "DeleteObject", "CreateBucket"] {
            assert_eq!(check(operation, &told).unwrap_err().code, "InvalidArgument", "{operation}");
            assert!(check(operation, &HeaderMap::new()).is_ok());
        }
    }

    #[test]
    fn answers_show_the_date_and_a_rule() {
        assert_eq!(shown(None), None);
        let departure = |by| Departure { at: Timestamp::from_millis(1_500), by };
        let date = "expiry-date=\"Thu, 01 Jan 1970 00:00:01 GMT\"";
        assert_eq!(shown(Some(&departure(DepartsBy::Expiry))).unwrap(), format!("{date}, rule-id=\"expires-at\""));
        let named = departure(DepartsBy::Rule("a \"b\"\r\nc: ä".to_owned()));
        assert_eq!(shown(Some(&named)).unwrap(), format!("{date}, rule-id=\"a%20%22b%22%0D%0Ac%3A%20%C3%A4\""));
    }
}
