//! Maps error responses of an S3 service to backend errors.
//!
//! The error code decides if there is one. Only `NoSuchKey` proves that a key is absent: a 404
//! without a code may come from a missing bucket, a wrong endpoint or a proxy.

use http::StatusCode;

use super::xml::XmlElement;
use crate::{DeleteAnswer, Error};

/// Status and error document of a response that is no success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ErrorResponse {
    pub(super) status: StatusCode,
    pub(super) code: String,
    pub(super) message: String,
}

impl ErrorResponse {
    /// Reads the error document; code and message are empty without one.
    pub(super) fn read(status: StatusCode, body: &[u8]) -> Self {
        let root = XmlElement::parse(body).ok().filter(|root| root.name == "Error");
        let text = |name| root.as_ref().and_then(|root| root.child_text(name)).unwrap_or_default().to_owned();
        Self { status, code: text("Code"), message: text("Message") }
    }

    /// True if the service does not implement the operation.
    pub(super) fn not_implemented(&self) -> bool {
        matches!(self.status.as_u16(), 405 | 501)
            || matches!(
                self.code.as_str(),
                "NotImplemented" | "MethodNotAllowed" | "NotSupported" | "UnsupportedOperation"
            )
    }

    pub(super) fn error(&self) -> Error {
        let why = self.to_string();
        match self.meaning() {
            Meaning::Absent => Error::NotFound,
            Meaning::NoSpace => Error::NoSpace(why),
            Meaning::Away => Error::Away(why),
            // A missing upload or version says nothing about the key.
            Meaning::Refused | Meaning::NoSuchUpload => Error::Refused(why),
            Meaning::Unknown => Error::Unknown(why),
        }
    }

    pub(super) fn delete_answer(&self) -> DeleteAnswer {
        let why = self.to_string();
        match self.meaning() {
            Meaning::Absent | Meaning::NoSuchUpload => DeleteAnswer::Absent,
            Meaning::Away | Meaning::NoSpace => DeleteAnswer::Away(why),
            Meaning::Refused => DeleteAnswer::Refused(why),
            Meaning::Unknown => DeleteAnswer::Unknown(why),
        }
    }

    fn meaning(&self) -> Meaning {
        meaning_of_code(&self.code).unwrap_or_else(|| meaning_of_status(self.status))
    }
}

impl std::fmt::Display for ErrorResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.status.as_u16())?;
        for part in [&self.code, &self.message].into_iter().filter(|part| !part.is_empty()) {
            write!(f, " {part}")?;
        }
        Ok(())
    }
}

/// The answer for one key of a batch delete that has an error code.
pub(super) fn key_answer(code: &str, message: &str) -> DeleteAnswer {
    let why = format!("{code} {message}");
    match meaning_of_code(code) {
        Some(Meaning::Absent | Meaning::NoSuchUpload) => DeleteAnswer::Absent,
        Some(Meaning::Away | Meaning::NoSpace) => DeleteAnswer::Away(why),
        Some(Meaning::Unknown) => DeleteAnswer::Unknown(why),
        // The error is about this key, so an unknown code is a refusal of the key.
        Some(Meaning::Refused) | None => DeleteAnswer::Refused(why),
    }
}

/// Maps an error to the answer of a delete.
pub(super) fn as_delete_answer(error: &Error) -> DeleteAnswer {
    match error {
        Error::NotFound => DeleteAnswer::Absent,
        Error::Refused(why) => DeleteAnswer::Refused(why.clone()),
        Error::Away(why) | Error::NoSpace(why) => DeleteAnswer::Away(why.clone()),
        Error::NotSent(why) => DeleteAnswer::Away((*why).to_owned()),
        Error::Body(_) | Error::Unknown(_) | Error::Unsupported(_) => DeleteAnswer::Unknown(error.to_string()),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Absent,
    /// The named upload or version does not exist.
    NoSuchUpload,
    NoSpace,
    Away,
    Refused,
    Unknown,
}

const NO_SPACE_CODES: &str = "\
    QuotaExceeded InsufficientStorage StorageFull XMinioStorageFull InsufficientCapacity \
    XMinioAdminBucketQuotaExceeded AccountStorageExceeded StorageCapExceeded";
/// A missing bucket is like a disk that is not mounted.
const UNAVAILABLE_CODES: &str = "\
    NoSuchBucket SlowDown SlowDownRead SlowDownWrite Throttling ThrottlingException TooManyRequests \
    RequestLimitExceeded InternalError InternalFailure ServiceUnavailable Busy RequestTimeout RequestTimeTooSkewed \
    OperationAborted XMinioServerNotInitialized";
const REFUSAL_CODES: &str = "\
    AccessDenied AllAccessDisabled InvalidAccessKeyId SignatureDoesNotMatch ExpiredToken InvalidToken AccountProblem \
    InvalidRequest InvalidArgument MalformedXML MethodNotAllowed NotImplemented EntityTooLarge EntityTooSmall \
    InvalidPart InvalidPartOrder InvalidRange BadDigest InvalidDigest KeyTooLongError PermanentRedirect \
    PreconditionFailed InvalidObjectState";

fn meaning_of_code(code: &str) -> Option<Meaning> {
    let is_in = |codes: &str| codes.split_ascii_whitespace().any(|listed| listed == code);
    match code {
        "NoSuchKey" => Some(Meaning::Absent),
        "NoSuchVersion" | "NoSuchUpload" => Some(Meaning::NoSuchUpload),
        _ if is_in(NO_SPACE_CODES) => Some(Meaning::NoSpace),
        _ if is_in(UNAVAILABLE_CODES) => Some(Meaning::Away),
        _ if is_in(REFUSAL_CODES) => Some(Meaning::Refused),
        _ => None,
    }
}

fn meaning_of_status(status: StatusCode) -> Meaning {
    match status.as_u16() {
        507 => Meaning::NoSpace,
        408 | 425 | 429 | 500 | 502 | 503 | 504 => Meaning::Away,
        404 | 410 => Meaning::Unknown,
        300..=499 | 501 => Meaning::Refused,
        _ => Meaning::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::{ErrorResponse, key_answer};
    use crate::{DeleteAnswer, Error};
    use http::StatusCode;

    fn error(status: u16, code: &str) -> Error {
        let body = if code.is_empty() { String::new() } else { format!("<Error><Code>{code}</Code></Error>") };
        ErrorResponse::read(StatusCode::from_u16(status).expect("a status"), body.as_bytes()).error()
    }

    #[test]
    fn only_the_error_code_proves_absence() {
        assert!(matches!(error(404, "NoSuchKey"), Error::NotFound));
        assert!(matches!(error(404, ""), Error::Unknown(_)));
        assert!(matches!(error(404, "NoSuchBucket"), Error::Away(_)));
        assert!(matches!(error(404, "SomethingElse"), Error::Unknown(_)));
    }

    #[test]
    fn outages_and_refusals_are_distinguished() {
        for (status, code) in
            [(503, "SlowDown"), (429, ""), (500, ""), (403, "RequestTimeTooSkewed"), (400, "RequestTimeout")]
        {
            assert!(matches!(error(status, code), Error::Away(_)), "{status} {code}");
        }
        for (status, code) in [(403, "AccessDenied"), (403, ""), (400, "Odd"), (301, "PermanentRedirect"), (501, "")] {
            assert!(matches!(error(status, code), Error::Refused(_)), "{status} {code}");
        }
        assert!(matches!(error(507, ""), Error::NoSpace(_)));
        assert!(matches!(error(403, "QuotaExceeded"), Error::NoSpace(_)));
    }

    #[test]
    fn error_codes_of_batch_keys_are_mapped() {
        assert_eq!(key_answer("NoSuchKey", ""), DeleteAnswer::Absent);
        assert!(matches!(key_answer("AccessDenied", ""), DeleteAnswer::Refused(_)));
        assert!(matches!(key_answer("InternalError", ""), DeleteAnswer::Away(_)));
        assert!(matches!(key_answer("UnknownCode", ""), DeleteAnswer::Refused(_)));
    }
}
