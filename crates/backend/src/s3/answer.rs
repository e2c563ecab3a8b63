//! What an answer of an S3 service means to a caller.
//!
//! The error code decides where there is one. Only `NoSuchKey` says that a key is absent: a bare
//! 404 may come from a missing bucket, a wrong endpoint or a proxy.

use http::StatusCode;

use super::xml::Element;
use crate::{DeleteAnswer, Error};

/// An answer that is not a success, in its own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) status: StatusCode,
    pub(super) code: String,
    pub(super) message: String,
}

impl Failure {
    /// Reads the error document, if there is one.
    pub(super) fn read(status: StatusCode, body: &[u8]) -> Self {
        let root = Element::parse(body).ok().filter(|root| root.name == "Error");
        let text = |name| root.as_ref().and_then(|root| root.child_text(name)).unwrap_or_default().to_owned();
        Self { status, code: text("Code"), message: text("Message") }
    }

    /// Whether the service has no such operation at all.
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
            Meaning::NoRoom => Error::NoRoom(why),
            Meaning::Away => Error::Away(why),
            // That an upload or a version is gone says nothing about the key.
            Meaning::Refused | Meaning::TraceGone => Error::Refused(why),
            Meaning::Unknown => Error::Unknown(why),
        }
    }

    pub(super) fn delete_answer(&self) -> DeleteAnswer {
        let why = self.to_string();
        match self.meaning() {
            Meaning::Absent | Meaning::TraceGone => DeleteAnswer::Absent,
            Meaning::Away | Meaning::NoRoom => DeleteAnswer::Away(why),
            Meaning::Refused => DeleteAnswer::Refused(why),
            Meaning::Unknown => DeleteAnswer::Unknown(why),
        }
    }

    fn meaning(&self) -> Meaning {
        meaning_of_code(&self.code).unwrap_or_else(|| meaning_of_status(self.status))
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.status.as_u16())?;
        for part in [&self.code, &self.message].into_iter().filter(|part| !part.is_empty()) {
            write!(f, " {part}")?;
        }
        Ok(())
    }
}

/// What became of one key of a batch that failed.
pub(super) fn of_key(code: &str, message: &str) -> DeleteAnswer {
    let why = format!("{code} {message}");
    match meaning_of_code(code) {
        Some(Meaning::Absent | Meaning::TraceGone) => DeleteAnswer::Absent,
        Some(Meaning::Away | Meaning::NoRoom) => DeleteAnswer::Away(why),
        Some(Meaning::Unknown) => DeleteAnswer::Unknown(why),
        // The store spoke of this very key, so it is the key that it objects to.
        Some(Meaning::Refused) | None => DeleteAnswer::Refused(why),
    }
}

/// An error, as the answer to a delete.
pub(super) fn as_delete_answer(error: &Error) -> DeleteAnswer {
    match error {
        Error::NotFound => DeleteAnswer::Absent,
        Error::Refused(why) => DeleteAnswer::Refused(why.clone()),
        Error::Away(why) | Error::NoRoom(why) => DeleteAnswer::Away(why.clone()),
        Error::Body(_) | Error::Unknown(_) | Error::Unsupported(_) => DeleteAnswer::Unknown(error.to_string()),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Absent,
    /// The upload or the version that was named does not exist.
    TraceGone,
    NoRoom,
    Away,
    Refused,
    Unknown,
}

fn meaning_of_code(code: &str) -> Option<Meaning> {
    Some(match code {
        "NoSuchKey" => Meaning::Absent,
        "NoSuchVersion" | "NoSuchUpload" => Meaning::TraceGone,
        "QuotaExceeded"
        | "InsufficientStorage"
        | "StorageFull"
        | "XMinioStorageFull"
        | "InsufficientCapacity"
        | "XMinioAdminBucketQuotaExceeded"
        | "AccountStorageExceeded"
        | "StorageCapExceeded" => Meaning::NoRoom,
        // A bucket that is gone is like a disk that is not mounted.
        "NoSuchBucket"
        | "SlowDown"
        | "SlowDownRead"
        | "SlowDownWrite"
        | "Throttling"
        | "ThrottlingException"
        | "TooManyRequests"
        | "RequestLimitExceeded"
        | "InternalError"
        | "InternalFailure"
        | "ServiceUnavailable"
        | "Busy"
        | "RequestTimeout"
        | "RequestTimeTooSkewed"
        | "OperationAborted"
        | "XMinioServerNotInitialized" => Meaning::Away,
        "AccessDenied"
        | "AllAccessDisabled"
        | "InvalidAccessKeyId"
        | "SignatureDoesNotMatch"
        | "ExpiredToken"
        | "InvalidToken"
        | "AccountProblem"
        | "InvalidRequest"
        | "InvalidArgument"
        | "MalformedXML"
        | "MethodNotAllowed"
        | "NotImplemented"
        | "EntityTooLarge"
        | "EntityTooSmall"
        | "InvalidPart"
        | "InvalidPartOrder"
        | "InvalidRange"
        | "BadDigest"
        | "InvalidDigest"
        | "KeyTooLongError"
        | "PermanentRedirect"
        | "PreconditionFailed"
        | "InvalidObjectState" => Meaning::Refused,
        _ => return None,
    })
}

fn meaning_of_status(status: StatusCode) -> Meaning {
    match status.as_u16() {
        507 => Meaning::NoRoom,
        408 | 425 | 429 | 500 | 502 | 503 | 504 => Meaning::Away,
        404 | 410 => Meaning::Unknown,
        300..=499 | 501 => Meaning::Refused,
        _ => Meaning::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::{Failure, of_key};
    use crate::{DeleteAnswer, Error};
    use http::StatusCode;

    fn error(status: u16, code: &str) -> Error {
        let body = if code.is_empty() { String::new() } else { format!("<Error><Code>{code}</Code></Error>") };
        Failure::read(StatusCode::from_u16(status).expect("a status"), body.as_bytes()).error()
    }

    #[test]
    fn only_the_code_proves_absence() {
        assert!(matches!(error(404, "NoSuchKey"), Error::NotFound));
        assert!(matches!(error(404, ""), Error::Unknown(_)));
        assert!(matches!(error(404, "NoSuchBucket"), Error::Away(_)));
        assert!(matches!(error(404, "SomethingElse"), Error::Unknown(_)));
    }

    #[test]
    fn outages_are_told_from_refusals() {
        for (status, code) in
            [(503, "SlowDown"), (429, ""), (500, ""), (403, "RequestTimeTooSkewed"), (400, "RequestTimeout")]
        {
            assert!(matches!(error(status, code), Error::Away(_)), "{status} {code}");
        }
        for (status, code) in [(403, "AccessDenied"), (403, ""), (400, "Odd"), (301, "PermanentRedirect"), (501, "")] {
            assert!(matches!(error(status, code), Error::Refused(_)), "{status} {code}");
        }
        assert!(matches!(error(507, ""), Error::NoRoom(_)));
        assert!(matches!(error(403, "QuotaExceeded"), Error::NoRoom(_)));
    }

    #[test]
    fn each_key_of_a_batch_has_its_own_answer() {
        assert_eq!(of_key("NoSuchKey", ""), DeleteAnswer::Absent);
        assert!(matches!(of_key("AccessDenied", ""), DeleteAnswer::Refused(_)));
        assert!(matches!(of_key("InternalError", ""), DeleteAnswer::Away(_)));
        assert!(matches!(of_key("NeverHeardOf", ""), DeleteAnswer::Refused(_)));
    }
}
