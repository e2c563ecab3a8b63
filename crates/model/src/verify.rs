//! Invariants, and the rows that name bytes on a backend.

use serde::Serialize;

use crate::clock::Timestamp;
use crate::names::BucketName;
use crate::physical_key::identifier;
use crate::reconcile::FindingKind;
use crate::target::Target;

/// An invariant, by its number in the design.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Invariant {
    /// Acknowledged objects are readable, byte for byte.
    I1,
    /// Every whole content has a location that is not lost.
    I2,
    /// Exactly one row names every physical key of s3o on a backend.
    I3,
    /// No cleanup names the bytes of a location.
    I4,
    /// Reference counts equal the number of referring rows.
    I6,
    /// Quota counters equal the sums of their rows and the bytes at rest.
    I7,
    /// Claims are complete: token, owner and time are set together.
    I8,
    /// No queued row waits forever.
    I11,
}

/// Kind of a row that names bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamedBy {
    /// A copy of a content.
    Location {
        /// True if its bytes are known to be missing.
        lost: bool,
    },
    /// A write in progress.
    Intent,
    /// A queued deletion.
    Cleanup,
    /// A deletion that the backend refused too often.
    DeadLetter,
    /// A finding about bytes that an operator wrote off.
    WrittenOff,
    /// A finding of a reconcile pass.
    Finding {
        /// Kind of the finding.
        kind: FindingKind,
        /// True if an operator wants to keep the bytes as they are.
        dismissed: bool,
    },
}

/// A row that names bytes on a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamingRow {
    /// Key on the backend.
    pub physical_key: String,
    /// Kind of the row.
    pub by: NamedBy,
    /// Recorded size in bytes.
    pub size_bytes: u64,
    /// What the row names under the key. An intent names everything there, since its write may still run.
    pub target: Target,
    /// When the copy of a location was last written, read or probed.
    pub verified_at: Option<Timestamp>,
    /// Of the bytes that a finding is about; empty for other rows.
    pub fingerprint: String,
}

impl NamingRow {
    /// True if the row names this target under its key. A location without a version may be any version of the key.
    #[must_use]
    pub fn names(&self, target: &Target) -> bool {
        match self.by {
            NamedBy::Intent => true,
            NamedBy::Location { .. } | NamedBy::Cleanup | NamedBy::DeadLetter | NamedBy::WrittenOff => {
                self.target.may_be(target)
            }
            // It names exactly what a pass saw.
            NamedBy::Finding { .. } => self.target == *target,
        }
    }

    /// Kind of the finding, if the row is a finding of a reconcile pass.
    #[must_use]
    pub const fn finding_kind(&self) -> Option<FindingKind> {
        match self.by {
            NamedBy::Finding { kind, .. } => Some(kind),
            NamedBy::Location { .. }
            | NamedBy::Intent
            | NamedBy::Cleanup
            | NamedBy::DeadLetter
            | NamedBy::WrittenOff => None,
        }
    }
}

/// Result of a probe of a key on the backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// The key exists with this many bytes.
    Present(u64),
    /// The key is proven absent.
    Absent,
    /// The backend gave no clear answer.
    Unknown(String),
}

/// True if a key on a backend has the format of s3o's physical keys.
#[must_use]
pub fn is_ours(physical_key: &str) -> bool {
    let bucket = physical_key.split_once('/').map(|(bucket, _)| bucket.parse::<BucketName>());
    matches!(bucket, Some(Ok(_))) && identifier(physical_key).is_some()
}

/// True if one of the rows of a key names this target.
#[must_use]
pub fn is_named(target: &Target, rows: &[NamingRow]) -> bool {
    rows.iter().any(|row| row.names(target))
}

#[cfg(test)]
mod tests {
    use super::{NamedBy, NamingRow, is_named, is_ours};
    use crate::target::Target;

    const OURS: &str = "photos/cat.jpg~0123456789abcdef0123456789abcdef";

    fn row(by: NamedBy, size_bytes: u64) -> NamingRow {
        let (physical_key, target) = (OURS.to_owned(), Target::Key);
        NamingRow { physical_key, by, size_bytes, target, verified_at: None, fingerprint: String::new() }
    }

    const LOCATION: NamedBy = NamedBy::Location { lost: false };

    #[test]
    fn own_keys_are_recognised_by_their_format() {
        assert!(is_ours(OURS));
        for foreign in ["photos/cat.jpg", "~0123456789abcdef0123456789abcdef", "photos/cat~0123", ".s3o/identity.json"]
        {
            assert!(!is_ours(foreign), "{foreign}");
        }
    }

    #[test]
    fn upload_is_named_by_an_intent_or_its_own_cleanup_and_not_by_the_location_of_its_key() {
        let upload = Target::Upload("a".to_owned());
        let with = |by, target| NamingRow { target, ..row(by, 5) };
        assert!(is_named(&upload, &[row(NamedBy::Intent, 5)]));
        assert!(is_named(&upload, &[with(NamedBy::Cleanup, Target::StartingUpload)]));
        assert!(is_named(&upload, &[with(NamedBy::DeadLetter, upload.clone())]));
        assert!(!is_named(&upload, &[with(NamedBy::Cleanup, Target::Upload("b".to_owned()))]));
        assert!(!is_named(&upload, &[row(NamedBy::Cleanup, 5)]));
        assert!(!is_named(&upload, &[row(LOCATION, 5)]));
    }

    #[test]
    fn version_is_named_by_its_own_rows_and_by_rows_without_a_version() {
        let version = |id: &str| Target::Version(id.to_owned());
        let with = |target| NamingRow { target, ..row(LOCATION, 5) };
        assert!(is_named(&version("1"), &[with(version("1"))]));
        assert!(is_named(&version("1"), &[with(Target::Key)]));
        assert!(!is_named(&version("1"), &[with(version("2"))]));
    }
}
