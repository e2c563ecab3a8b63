//! Catalog errors, named by what a caller can do about them.

/// Which guard of a unit did not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The bucket does not exist.
    NoSuchBucket,
    /// The upload does not exist or is not open.
    NoSuchUpload,
    /// The object does not exist.
    NoSuchObject,
    /// A condition of the request failed.
    PreconditionFailed,
    /// The caller no longer holds the intent: its lease expired and the reaper claimed it.
    Fenced,
    /// A later change of the key was acknowledged.
    Superseded,
    /// The backend has no free capacity.
    NoSpace,
    /// The backend takes no writes: frozen, draining or unknown.
    Closed,
    /// A row changed since the caller read it: read again and run again.
    RunAgain,
    /// The content that the caller resolved or planned with changed: resolve again.
    ResolveAgain,
    /// The number of copies does not allow the change: none is missing or being written already, or too few others are
    /// proven to remove one.
    NotNeeded,
    /// The bucket has objects or open uploads, or rows name bytes on the backend.
    NotEmpty,
    /// The bucket has objects in trash.
    InTrash,
    /// Another operation works on keys of this prefix.
    Overlaps,
    /// An index and its table disagree: nothing was changed, and the catalog is damaged.
    Damaged,
    /// The object's expiration time has already passed.
    Past,
}

/// Why a catalog method failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// A guard did not hold; nothing was changed.
    #[error("guard did not hold: {0:?}")]
    Guard(Verdict),
    /// The catalog cannot be reached or written; nothing was changed.
    #[error("catalog unavailable: {0}")]
    Away(String),
    /// The answer to a COMMIT was lost: it happened or it did not.
    #[error("the outcome of a commit is unknown: {0}")]
    Unknown(String),
    /// Another process uses this catalog.
    #[error("another process uses the catalog {0}, stop it first")]
    InUse(String),
    /// A newer version of this program has migrated the catalog.
    #[error("the catalog has schema version {found}, this program knows up to {known}: use a newer s3o")]
    Newer {
        /// The version found.
        found: i64,
        /// The newest version known.
        known: i64,
    },
    /// The stored data is damaged or not a catalog.
    #[error("not a readable catalog: {0}")]
    Corrupt(String),
    /// A bug in this program.
    #[error("internal error in the catalog: {0}")]
    Internal(String),
}

impl Error {
    /// The verdict of [`Self::Guard`].
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        match self {
            Self::Guard(verdict) => Some(*verdict),
            Self::Away(_)
            | Self::Unknown(_)
            | Self::InUse(_)
            | Self::Newer { .. }
            | Self::Corrupt(_)
            | Self::Internal(_) => None,
        }
    }
}
