//! Errors of requests, named by what the caller can do about them.

use s3o_backend::BodyError;
use s3o_model::clock::Timestamp;
use s3o_model::etag::ETag;
use s3o_model::expiry::ExpiryRefused;
use s3o_model::multipart::PartsRefused;
use s3o_model::usage::ReachedLimit;

/// Why a backend cannot serve a request now; the only part of the cause that clients see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BackendTrouble {
    /// The backend does not answer, or the outcome of the call is unknown.
    #[error("backend unreachable")]
    Unreachable,
    /// The backend rejected the call.
    #[error("backend refused the request")]
    Refused,
    /// The identity of the backend does not match: it takes no writes, and bytes that it lacks are not lost.
    #[error("backend frozen")]
    Frozen,
    /// A row of the catalog names a backend that the configuration does not have.
    #[error("backend not configured")]
    NotConfigured,
    /// The backend ran out of space during the write; another one can take a repeated request.
    #[error("backend full, repeat the request")]
    Full,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bucket does not exist.
    #[error("no such bucket")]
    NoSuchBucket,
    /// The object does not exist or has expired.
    #[error("no such key")]
    NoSuchKey,
    /// No open upload has this ID, bucket and key.
    #[error("no such upload")]
    NoSuchUpload,
    /// The bucket has objects, uploads or writes in progress.
    #[error("the bucket is not empty")]
    BucketNotEmpty,
    /// The bucket has no objects, but objects in trash that can still be restored.
    #[error("the bucket has objects in trash: restore or purge them first")]
    BucketInTrash,
    /// A condition of the request failed; the text is the name of its header.
    #[error("the condition {0} does not hold")]
    PreconditionFailed(&'static str),
    /// The client already has this version.
    #[error("not modified")]
    NotModified {
        /// `ETag` of the object.
        etag: ETag,
        /// Time of the write.
        last_modified: Timestamp,
    },
    /// No byte of the object is in the range.
    #[error("the range lies outside the {size_bytes} bytes of the object")]
    RangeNotSatisfiable {
        /// Size of the object.
        size_bytes: u64,
    },
    /// The object has no part with this number.
    #[error("no such part")]
    NoSuchPart,
    /// The object or part is larger than the limit.
    #[error("the object or part is larger than the {max_bytes} bytes allowed")]
    TooLarge {
        /// Maximum size.
        max_bytes: u64,
    },
    /// All backends are full or have too small a quota.
    #[error("no backend has free capacity for this object")]
    NoSpace,
    /// The body is incomplete or does not match a declared digest.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// The parts cannot be joined into an object.
    #[error(transparent)]
    Parts(#[from] PartsRefused),
    /// The checksum that the client declared for the whole object does not match.
    #[error("the object does not match its declared {0}")]
    ChecksumMismatch(&'static str),
    /// The request contradicts itself or its upload.
    #[error("{0}")]
    Invalid(&'static str),
    /// The requested expiration is not allowed.
    #[error(transparent)]
    Expiry(#[from] ExpiryRefused),
    /// A concurrent request changed the same row; a repeated request may succeed.
    #[error("a concurrent request changed the same object or upload")]
    Conflict,
    /// The catalog is unavailable, or the write was abandoned; a repeated request may succeed.
    #[error("unavailable: {0}")]
    Away(String),
    /// A backend that the request needs is unavailable; a repeated request may succeed later.
    #[error("{trouble}: {detail}")]
    Unavailable {
        /// The part of the cause that clients see.
        trouble: BackendTrouble,
        /// The backend and its error, for the log.
        detail: String,
    },
    /// A backend that the request needs was used up to a limit of this month, and no other one can serve the request.
    #[error("{0}")]
    LimitReached(ReachedLimit),
    /// The stored bytes are missing or differ from what was written.
    #[error("stored bytes are damaged: {0}")]
    Damaged(String),
    /// A bug in s3o.
    #[error("internal error: {0}")]
    Internal(String),
}

impl From<s3o_catalog::Error> for Error {
    fn from(error: s3o_catalog::Error) -> Self {
        use s3o_catalog::{Error as Catalog, Verdict};
        match error {
            Catalog::Guard(verdict) => match verdict {
                Verdict::NoSuchBucket => Self::NoSuchBucket,
                Verdict::NoSuchUpload => Self::NoSuchUpload,
                Verdict::NoSuchObject => Self::NoSuchKey,
                Verdict::PreconditionFailed => Self::PreconditionFailed("If-Match or If-None-Match"),
                Verdict::Fenced | Verdict::Superseded => {
                    Self::Away("the write exceeded its lease and was abandoned".to_owned())
                }
                Verdict::NoSpace => Self::NoSpace,
                Verdict::Closed => Self::Away("the backend takes no writes".to_owned()),
                Verdict::RunAgain | Verdict::ResolveAgain | Verdict::NotNeeded | Verdict::Overlaps => Self::Conflict,
                Verdict::NotEmpty => Self::BucketNotEmpty,
                Verdict::InTrash => Self::BucketInTrash,
                Verdict::Past => Self::Expiry(ExpiryRefused::Past),
                Verdict::Damaged => Self::Away("the catalog is damaged".to_owned()),
            },
            Catalog::Away(why) | Catalog::Unknown(why) | Catalog::InUse(why) => Self::Away(why),
            Catalog::Corrupt(why) => Self::Away(format!("the catalog is damaged: {why}")),
            Catalog::Newer { .. } | Catalog::Internal(_) => Self::Internal(error.to_string()),
        }
    }
}

impl From<s3o_backend::Error> for Error {
    fn from(error: s3o_backend::Error) -> Self {
        use s3o_backend::Error as Backend;
        match error {
            Backend::Body(BodyError::Cancelled(why)) => Self::Away(why.to_owned()),
            Backend::Body(body) => Self::Body(body),
            Backend::NoSpace(_) => Self::NoSpace,
            Backend::NotFound => Self::Damaged("the backend does not have the bytes".to_owned()),
            Backend::Away(_) | Backend::NotSent(_) | Backend::Unknown(_) => {
                Self::Unavailable { trouble: BackendTrouble::Unreachable, detail: error.to_string() }
            }
            Backend::Refused(_) => Self::Unavailable { trouble: BackendTrouble::Refused, detail: error.to_string() },
            Backend::Unsupported(_) => Self::Internal(error.to_string()),
        }
    }
}
