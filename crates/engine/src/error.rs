//! Why a request could not be done, named by what the caller can do about it.

use s3o_backend::BodyError;
use s3o_model::clock::Timestamp;
use s3o_model::etag::ETag;
use s3o_model::expiry::ExpiryRefused;
use s3o_model::multipart::PartsRefused;

/// Why a backend cannot serve a request now. Clients are told this and nothing else of the cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BackendTrouble {
    /// It does not answer, or its answer does not tell what happened.
    #[error("backend unreachable")]
    Unreachable,
    /// It answered that it will not do what was asked.
    #[error("backend refused the request")]
    Refused,
    /// It is not known to be the right one: no writes, and nothing that it lacks counts as lost.
    #[error("backend frozen")]
    Frozen,
    /// The catalog names it and the configuration does not.
    #[error("backend not configured")]
    NotConfigured,
    /// It ran out of space during the write; another backend can take a repeated request.
    #[error("backend full, repeat the request")]
    Full,
}

/// Why a request could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such bucket.
    #[error("no such bucket")]
    NoSuchBucket,
    /// There is no such object.
    #[error("no such key")]
    NoSuchKey,
    /// There is no such upload in this bucket under this key.
    #[error("no such upload")]
    NoSuchUpload,
    /// The bucket holds objects, uploads or writes in flight.
    #[error("the bucket is not empty")]
    BucketNotEmpty,
    /// A condition of the request failed; the text names it.
    #[error("the condition {0} does not hold")]
    PreconditionFailed(&'static str),
    /// The reader has this version already.
    #[error("not modified")]
    NotModified {
        /// The object's `ETag`.
        etag: ETag,
        /// When it was written.
        last_modified: Timestamp,
    },
    /// No byte of the object is in the range.
    #[error("the range lies outside the {size_bytes} bytes of the object")]
    RangeNotSatisfiable {
        /// The object's length.
        size_bytes: u64,
    },
    /// The object has no part of that number.
    #[error("no such part")]
    NoSuchPart,
    /// The body is larger than this server takes.
    #[error("larger than the {max_bytes} bytes allowed")]
    TooLarge {
        /// What is allowed.
        max_bytes: u64,
    },
    /// No backend has room.
    #[error("no backend has room for this object")]
    NoRoom,
    /// The body did not arrive whole or does not match what was declared.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// The parts cannot become an object.
    #[error(transparent)]
    Parts(#[from] PartsRefused),
    /// The checksum declared for the whole object does not match, or is of another kind.
    #[error("the object does not match its declared {0}")]
    ChecksumMismatch(&'static str),
    /// The request contradicts itself or the upload it belongs to.
    #[error("{0}")]
    Invalid(&'static str),
    /// The object cannot cease to exist then.
    #[error(transparent)]
    Expiry(#[from] ExpiryRefused),
    /// Another request got in between; trying again may help.
    #[error("another request changed the same thing")]
    Conflict,
    /// Something that must answer is away; try again later.
    #[error("away: {0}")]
    Away(String),
    /// A backend that the request needs cannot serve it now; try again later.
    #[error("{trouble}: {detail}")]
    Unavailable {
        /// What clients are told.
        trouble: BackendTrouble,
        /// The backend and its error, for the log.
        detail: String,
    },
    /// The stored bytes cannot be read back as they were written.
    #[error("damaged: {0}")]
    Damaged(String),
    /// A fault of this program.
    #[error("internal error: {0}")]
    Internal(String),
}

/// The catalog's words in the engine's.
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
                    Self::Away("the write took too long and was given up".to_owned())
                }
                Verdict::NoRoom => Self::NoRoom,
                Verdict::Closed => Self::Away("no backend takes writes now".to_owned()),
                Verdict::RunAgain | Verdict::ResolveAgain => Self::Conflict,
                Verdict::NotEmpty => Self::BucketNotEmpty,
                Verdict::Past => Self::Expiry(ExpiryRefused::Past),
                Verdict::Damaged => Self::Away("the catalog is damaged".to_owned()),
            },
            Catalog::Away(why) | Catalog::Unknown(why) | Catalog::InUse(why) => Self::Away(why),
            Catalog::Corrupt(why) => Self::Away(format!("the catalog is damaged: {why}")),
            Catalog::Newer { .. } | Catalog::Internal(_) => Self::Internal(error.to_string()),
        }
    }
}

/// A backend's words in the engine's.
impl From<s3o_backend::Error> for Error {
    fn from(error: s3o_backend::Error) -> Self {
        use s3o_backend::Error as Backend;
        match error {
            Backend::Body(BodyError::GivenUp(why)) => Self::Away(why.to_owned()),
            Backend::Body(body) => Self::Body(body),
            Backend::NoRoom(_) => Self::NoRoom,
            Backend::NotFound => Self::Damaged("the bytes are not where the catalog says".to_owned()),
            Backend::Away(_) | Backend::Unknown(_) => {
                Self::Unavailable { trouble: BackendTrouble::Unreachable, detail: error.to_string() }
            }
            Backend::Refused(_) => Self::Unavailable { trouble: BackendTrouble::Refused, detail: error.to_string() },
            Backend::Unsupported(_) => Self::Internal(error.to_string()),
        }
    }
}
