//! Translates engine errors into S3 errors; the only place that does.

use http::header::{CONTENT_RANGE, ETAG, LAST_MODIFIED, RETRY_AFTER};
use s3o_engine::{BodyError, Error};
use s3o_model::clock::Timestamp;
use s3o_model::etag::ETag;
use s3o_model::multipart::PartsRefused;
use s3o_model::usage::ReachedLimit;

use super::expiration;
use super::refusal::Refusal;
use super::times::http_date;

/// Name of the digest in [`BodyError::Mismatch`] if the signed payload hash differs.
pub const PAYLOAD_HASH: &str = "x-amz-content-sha256";
/// Name of the digest in [`BodyError::Mismatch`] if a chunk or trailer signature differs.
pub const CHUNK_SIGNATURE: &str = "chunk signature";
/// Message for an `aws-chunked` body that cannot be parsed.
pub const BAD_FRAMING: &str = "the aws-chunked body is malformed";

const IN_TRASH: &str =
    "The bucket you tried to delete has objects in trash: run s3o restore, or s3o rm --recursive --purge";

/// Translates an engine error. Logs errors that are the server's or a backend's fault.
pub fn refuse(error: Error) -> Refusal {
    match error {
        Error::NoSuchBucket => Refusal::new("NoSuchBucket"),
        Error::NoSuchKey => Refusal::new("NoSuchKey"),
        Error::NoSuchUpload => Refusal::new("NoSuchUpload"),
        Error::BucketNotEmpty => Refusal::new("BucketNotEmpty"),
        Error::BucketInTrash => Refusal::because("BucketNotEmpty", IN_TRASH),
        Error::PreconditionFailed(condition) => {
            Refusal::because("PreconditionFailed", format!("The pre-condition {condition} did not hold"))
        }
        Error::NotModified { etag, last_modified } => not_modified(&etag, last_modified),
        Error::RangeNotSatisfiable { size_bytes } => {
            Refusal::new("InvalidRange").with_header(CONTENT_RANGE, &format!("bytes */{size_bytes}"))
        }
        Error::NoSuchPart => Refusal::new("InvalidPartNumber"),
        Error::TooLarge { .. } => Refusal::new("EntityTooLarge"),
        Error::NoSpace => Refusal::new("InsufficientStorage"),
        Error::Body(error) => refuse_body(&error),
        Error::Parts(refused) => refuse_parts(&refused),
        Error::ChecksumMismatch(name) => {
            Refusal::because("BadDigest", format!("The {name} you specified did not match the calculated checksum."))
        }
        Error::Invalid(why) => Refusal::because("InvalidRequest", why),
        Error::Expiry(refused) => expiration::refuse(refused),
        Error::Conflict => Refusal::new("ConditionalRequestConflict"),
        Error::Away(why) => {
            tracing::warn!(error = why, "request failed, answered 503 ServiceUnavailable");
            Refusal::new("ServiceUnavailable").with_header(RETRY_AFTER, "1")
        }
        Error::Unavailable { trouble, detail } => {
            tracing::warn!(error = detail, "request failed, {trouble}");
            Refusal::because("ServiceUnavailable", trouble.to_string()).with_header(RETRY_AFTER, "1")
        }
        Error::LimitReached(limit) => limit_reached(&limit),
        Error::Damaged(why) => internal("stored bytes are damaged", &why),
        Error::Internal(why) => internal("internal error", &why),
    }
}

fn limit_reached(limit: &ReachedLimit) -> Refusal {
    let setting = limit.kind.setting();
    tracing::warn!(backend = %limit.backend, setting, "request failed, usage limit reached");
    Refusal::because("SlowDown", limit.to_string()).with_header(RETRY_AFTER, "10")
}

fn not_modified(etag: &ETag, last_modified: Timestamp) -> Refusal {
    Refusal::new("NotModified")
        .with_header(ETAG, &format!("\"{etag}\""))
        .with_header(LAST_MODIFIED, &http_date(last_modified))
}

fn internal(what: &'static str, why: &str) -> Refusal {
    tracing::error!(error = why, "request failed, {what}");
    Refusal::new("InternalError")
}

fn refuse_body(error: &BodyError) -> Refusal {
    match error {
        BodyError::Broken(why) if why == BAD_FRAMING => Refusal::because("InvalidRequest", BAD_FRAMING),
        BodyError::Cancelled(why) => Refusal::because("ServiceUnavailable", *why).with_header(RETRY_AFTER, "1"),
        BodyError::Broken(_) | BodyError::Short { .. } | BodyError::Long { .. } => Refusal::new("IncompleteBody"),
        BodyError::Mismatch(PAYLOAD_HASH) => Refusal::new("XAmzContentSHA256Mismatch"),
        BodyError::Mismatch(CHUNK_SIGNATURE) => Refusal::new("SignatureDoesNotMatch"),
        BodyError::Mismatch(name) => {
            Refusal::because("BadDigest", format!("The {name} you specified did not match what we received."))
        }
    }
}

fn refuse_parts(refused: &PartsRefused) -> Refusal {
    match refused {
        PartsRefused::Count => Refusal::new("MalformedXML"),
        PartsRefused::Order => Refusal::new("InvalidPartOrder"),
        PartsRefused::Unknown(_) => Refusal::new("InvalidPart"),
        PartsRefused::TooSmall(_) => Refusal::new("EntityTooSmall"),
    }
}

#[cfg(test)]
mod tests {
    use super::{CHUNK_SIGNATURE, PAYLOAD_HASH, refuse};
    use s3o_engine::{BackendTrouble, BodyError, Error};
    use s3o_model::clock::Timestamp;
    use s3o_model::etag::ETag;
    use s3o_model::expiry::ExpiryRefused;
    use s3o_model::multipart::PartsRefused;
    use s3o_model::usage::{ReachedLimit, UsageKind};

    #[test]
    fn each_error_has_its_code_and_status() {
        let short = BodyError::Short { expected: 2, received: 1 };
        let cases = [
            (Error::NoSuchBucket, "NoSuchBucket", 404),
            (Error::NoSuchKey, "NoSuchKey", 404),
            (Error::NoSuchUpload, "NoSuchUpload", 404),
            (Error::BucketNotEmpty, "BucketNotEmpty", 409),
            (Error::BucketInTrash, "BucketNotEmpty", 409),
            (Error::PreconditionFailed("If-Match"), "PreconditionFailed", 412),
            (Error::RangeNotSatisfiable { size_bytes: 3 }, "InvalidRange", 416),
            (Error::NoSuchPart, "InvalidPartNumber", 416),
            (Error::TooLarge { max_bytes: 1 }, "EntityTooLarge", 400),
            (Error::NoSpace, "InsufficientStorage", 507),
            (Error::Body(short), "IncompleteBody", 400),
            (Error::Body(BodyError::Mismatch("Content-MD5")), "BadDigest", 400),
            (Error::Body(BodyError::Mismatch(PAYLOAD_HASH)), "XAmzContentSHA256Mismatch", 400),
            (Error::Body(BodyError::Mismatch(CHUNK_SIGNATURE)), "SignatureDoesNotMatch", 403),
            (Error::Parts(PartsRefused::Count), "MalformedXML", 400),
            (Error::Parts(PartsRefused::Order), "InvalidPartOrder", 400),
            (Error::Parts(PartsRefused::Unknown(1)), "InvalidPart", 400),
            (Error::Parts(PartsRefused::TooSmall(1)), "EntityTooSmall", 400),
            (Error::ChecksumMismatch("x-amz-checksum-crc32"), "BadDigest", 400),
            (Error::Invalid("no"), "InvalidRequest", 400),
            (Error::Expiry(ExpiryRefused::Past), "InvalidArgument", 400),
            (Error::Conflict, "ConditionalRequestConflict", 409),
            (Error::Away("db".into()), "ServiceUnavailable", 503),
            (Error::Damaged("x".into()), "InternalError", 500),
            (Error::Internal("x".into()), "InternalError", 500),
        ];
        for (error, code, status) in cases {
            let refusal = refuse(error);
            assert_eq!((refusal.code.as_ref(), refusal.status.as_u16()), (code, status));
        }
    }

    #[test]
    fn unavailable_service_sets_retry_after() {
        assert_eq!(refuse(Error::Away("db".into())).headers["retry-after"], "1");
    }

    #[test]
    fn unavailable_backend_error_discloses_only_the_kind_of_trouble() {
        for (trouble, message) in [
            (BackendTrouble::Unreachable, "backend unreachable"),
            (BackendTrouble::Frozen, "backend frozen"),
            (BackendTrouble::NotConfigured, "backend not configured"),
        ] {
            let refusal = refuse(Error::Unavailable { trouble, detail: "disk: /srv/secret".into() });
            assert_eq!((refusal.code.as_ref(), refusal.status.as_u16()), ("ServiceUnavailable", 503));
            assert_eq!((refusal.message.as_ref(), refusal.headers["retry-after"].as_bytes()), (message, &b"1"[..]));
        }
    }

    #[test]
    fn reached_usage_limit_names_the_backend_and_the_limit() {
        let backend = "b2".parse().expect("valid");
        let refusal = refuse(Error::LimitReached(ReachedLimit { backend, kind: UsageKind::Egress, limit: 5000 }));
        assert_eq!((refusal.code.as_ref(), refusal.status.as_u16()), ("SlowDown", 503));
        assert_eq!(refusal.message, "backend b2 has reached its egress_byte_limit of 5000 for this month");
        assert_eq!(refusal.headers["retry-after"], "10");
    }

    #[test]
    fn not_modified_carries_etag_and_last_modified() {
        let error = Error::NotModified { etag: ETag::from_text("a"), last_modified: Timestamp::from_millis(0) };
        let refusal = refuse(error);
        assert_eq!(refusal.status.as_u16(), 304);
        assert_eq!(refusal.headers["etag"], "\"a\"");
        assert_eq!(refusal.headers["last-modified"], "Thu, 01 Jan 1970 00:00:00 GMT");
    }

    #[test]
    fn internal_errors_do_not_disclose_their_cause() {
        assert!(!refuse(Error::Internal("secret path".into())).message.contains("secret"));
    }
}
