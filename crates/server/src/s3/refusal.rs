//! An S3 error: code, HTTP status, message.
//!
//! The table lists every code that this server answers with, so that each has a status and a message.

use std::borrow::Cow;

use http::{HeaderMap, StatusCode};
use s3s::{S3Error, S3ErrorCode};

/// The S3 error that answers a refused request.
#[derive(Debug, Clone)]
pub struct Refusal {
    pub code: Cow<'static, str>,
    pub status: StatusCode,
    pub message: Cow<'static, str>,
    pub headers: Box<HeaderMap>,
}

impl Refusal {
    /// The error with this code and its default status and message.
    pub fn new(code: &'static str) -> Self {
        let (status, message) = default_answer(code).unwrap_or((StatusCode::BAD_REQUEST, code));
        Self { code: code.into(), status, message: message.into(), headers: Box::default() }
    }

    /// The error with this code and a message of its own.
    pub fn because(code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), ..Self::new(code) }
    }

    /// Adds a response header.
    pub fn with_header(mut self, name: http::HeaderName, value: &str) -> Self {
        if let Ok(value) = value.parse() {
            self.headers.insert(name, value);
        }
        self
    }
}

impl From<Refusal> for S3Error {
    fn from(refusal: Refusal) -> Self {
        let code = S3ErrorCode::from_bytes(refusal.code.as_bytes()).unwrap_or(S3ErrorCode::InternalError);
        let mut error = Self::with_message(code, refusal.message);
        error.set_status_code(refusal.status);
        if !refusal.headers.is_empty() {
            error.set_headers(*refusal.headers);
        }
        error
    }
}

/// The status and the message of a code in the table.
pub fn default_answer(code: &str) -> Option<(StatusCode, &'static str)> {
    let (_, status, message) = CODES.iter().find(|(known, _, _)| *known == code)?;
    Some((StatusCode::from_u16(*status).ok()?, message))
}

const CODES: &[(&str, u16, &str)] = &[
    ("AccessDenied", 403, "Access Denied"),
    ("AccessForbidden", 403, "CORSResponse: CORS is not enabled for this bucket."),
    ("AuthorizationHeaderMalformed", 400, "The authorization header that you provided is not valid."),
    ("AuthorizationQueryParametersError", 400, "The authorization query parameters that you provided are not valid."),
    ("BadDigest", 400, "The Content-MD5 or checksum value that you specified did not match what the server received."),
    (
        "BucketAlreadyOwnedByYou",
        409,
        "Your previous request to create the named bucket succeeded and you already own it.",
    ),
    ("BucketNotEmpty", 409, "The bucket you tried to delete is not empty"),
    ("ConditionalRequestConflict", 409, "A conflicting operation occurred; try the request again."),
    ("EntityTooLarge", 400, "Your proposed upload exceeds the maximum allowed object size."),
    ("EntityTooSmall", 400, "Your proposed upload is smaller than the minimum allowed size"),
    ("IllegalLocationConstraintException", 400, "The specified location-constraint is not valid for this endpoint."),
    ("IncompleteBody", 400, "You did not provide the number of bytes specified by the Content-Length HTTP header."),
    ("InsufficientStorage", 507, "There is not enough free capacity to store the object."),
    ("InternalError", 500, "We encountered an internal error. Please try again."),
    ("InvalidAccessKeyId", 403, "The access key ID you provided does not exist in our records."),
    ("InvalidArgument", 400, "Invalid Argument"),
    ("InvalidBucketName", 400, "The specified bucket is not valid."),
    ("InvalidDigest", 400, "The Content-MD5 you specified was invalid."),
    ("InvalidPart", 400, "One or more of the specified parts could not be found, or its ETag did not match."),
    ("InvalidPartNumber", 416, "The requested partnumber is not satisfiable"),
    ("InvalidPartOrder", 400, "The list of parts was not in ascending order. Parts must be ordered by part number."),
    ("InvalidRange", 416, "The requested range is not satisfiable"),
    ("InvalidRequest", 400, "Invalid Request"),
    ("InvalidStorageClass", 400, "The storage class you specified is not valid"),
    ("InvalidTag", 400, "The tag provided was not a valid tag."),
    ("InvalidToken", 400, "The provided token is malformed or otherwise not valid."),
    ("InvalidURI", 400, "Couldn't parse the specified URI."),
    ("KeyTooLongError", 400, "Your key is too long"),
    ("MalformedXML", 400, "The XML you provided was not well-formed or did not validate against our published schema"),
    ("MaxMessageLengthExceeded", 400, "Your request was too big."),
    ("MetadataTooLarge", 400, "Your metadata headers exceed the maximum allowed metadata size"),
    ("MethodNotAllowed", 405, "The specified method is not allowed against this resource."),
    ("MissingContentLength", 411, "You must provide the Content-Length HTTP header."),
    ("MissingRequestBodyError", 400, "Request body is empty."),
    ("NoSuchBucket", 404, "The specified bucket does not exist"),
    ("NoSuchLifecycleConfiguration", 404, "The lifecycle configuration does not exist"),
    ("NoSuchKey", 404, "The specified key does not exist."),
    ("NoSuchTagSet", 404, "The TagSet does not exist"),
    (
        "NoSuchUpload",
        404,
        "The specified upload does not exist. The upload ID may be invalid, or the upload may have been aborted or \
         completed.",
    ),
    ("NoSuchVersion", 404, "The specified version does not exist."),
    ("NotImplemented", 501, "A header or query you provided implies functionality that is not implemented"),
    ("NotModified", 304, "Not Modified"),
    ("PreconditionFailed", 412, "At least one of the pre-conditions you specified did not hold"),
    ("RequestHeaderSectionTooLarge", 400, "Your request header section exceeds the maximum allowed size."),
    ("RequestTimeTooSkewed", 403, "The difference between the request time and the current time is too large."),
    (
        "RequestTimeout",
        400,
        "Your socket connection to the server was not read from or written to within the timeout period.",
    ),
    ("ServiceUnavailable", 503, "Service is unable to handle request."),
    (
        "SignatureDoesNotMatch",
        403,
        "The request signature we calculated does not match the signature you provided. Check your key and signing \
         method.",
    ),
    ("SlowDown", 503, "Please reduce your request rate."),
    ("XAmzContentSHA256Mismatch", 400, "The provided 'x-amz-content-sha256' header does not match what was computed."),
];

#[cfg(test)]
mod tests {
    use super::{CODES, Refusal, default_answer};
    use s3s::S3Error;

    #[test]
    fn every_code_has_a_status_and_is_unique() {
        for (code, _, _) in CODES {
            assert!(default_answer(code).is_some(), "{code}");
            assert_eq!(CODES.iter().filter(|(other, _, _)| other == code).count(), 1, "{code}");
        }
    }

    #[test]
    fn protocol_library_preserves_every_code() {
        for (code, status, _) in CODES {
            let error = S3Error::from(Refusal::new(code));
            assert_eq!(error.code().as_str(), *code);
            assert_eq!(error.status_code().map(|s| s.as_u16()), Some(*status));
            assert!(error.message().is_some());
        }
    }
}
