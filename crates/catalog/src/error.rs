//! Catalog errors, named by what a caller can do about them.

/// Which guard of a unit did not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The bucket is gone.
    NoSuchBucket,
    /// The upload is gone, or no longer open.
    NoSuchUpload,
    /// The object is gone.
    NoSuchObject,
    /// A condition of the request failed.
    PreconditionFailed,
    /// The intent is no longer ours: its lease ran out.
    Fenced,
    /// A later change of the key was acknowledged.
    Superseded,
    /// The backend has no room.
    NoRoom,
    /// The backend takes no writes: frozen, draining or unknown.
    Closed,
    /// Something was changed in between: read again and run again.
    RunAgain,
    /// The content that was resolved is gone: resolve again.
    ResolveAgain,
    /// The bucket holds something.
    NotEmpty,
    /// An index leads to rows that are not what it says: nothing was changed, and the catalog is damaged.
    Damaged,
    /// The object would have ceased to exist before it appeared.
    Past,
}

/// Why the catalog did not do what was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// A guard did not hold; nothing was changed.
    #[error("guard: {0:?}")]
    Guard(Verdict),
    /// The catalog cannot be reached or written now; nothing was changed.
    #[error("catalog away: {0}")]
    Away(String),
    /// The answer to a COMMIT was lost: it happened or it did not.
    #[error("the outcome of a commit is unknown: {0}")]
    Unknown(String),
    /// Another process uses this catalog.
    #[error("another process is using this catalog: {0}")]
    InUse(String),
    /// The catalog was written by a newer version of this program.
    #[error("the catalog has schema version {found}, this program knows up to {known}: use a newer s3o")]
    Newer {
        /// The version found.
        found: i64,
        /// The newest version known.
        known: i64,
    },
    /// What is stored cannot be read as a catalog.
    #[error("not a readable catalog: {0}")]
    Corrupt(String),
    /// A fault of this program.
    #[error("catalog fault: {0}")]
    Internal(String),
}

impl Error {
    /// The guard that failed, if that is what happened.
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
