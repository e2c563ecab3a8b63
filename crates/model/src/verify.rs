//! Checks that the bytes on a backend agree with the rows that name them, on a running system.
//!
//! A listing and a catalog query are never of one moment, so a first check only raises a doubt. Two
//! facts settle it: rows are written before bytes and deleted after them, and a physical key is used
//! once. So bytes that exist at two moments had a row at every moment between, and a location that
//! exists at two moments had its bytes at every moment between.

use serde::Serialize;

use crate::names::BucketName;
use crate::physical_key::identifier;
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

/// Result of the first check of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstCheck {
    /// Rows and bytes agree.
    Agrees,
    /// No row names the key, and it does not have the format of s3o's keys.
    Foreign,
    /// The key needs a second check.
    Doubt(KeyDoubt),
}

/// Why a key needs a second check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyDoubt {
    /// Bytes without a row.
    Unnamed,
    /// A location without its bytes, or with another size.
    Located,
}

/// Result of the second check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ruling {
    /// The difference was a change in progress.
    Agrees,
    /// This many bytes of s3o that no row names.
    Stray(u64),
    /// A location whose bytes are missing.
    Gone,
    /// A location whose bytes have another size.
    WrongSize {
        /// Recorded size.
        expected: u64,
        /// Size on the backend.
        found: u64,
    },
    /// The backend gave no clear answer.
    Unknown(String),
}

/// True if a key on a backend has the format of s3o's physical keys.
#[must_use]
pub fn is_ours(physical_key: &str) -> bool {
    let bucket = physical_key.split_once('/').map(|(bucket, _)| bucket.parse::<BucketName>());
    matches!(bucket, Some(Ok(_))) && identifier(physical_key).is_some()
}

fn located(rows: &[NamingRow]) -> Option<u64> {
    rows.iter().find(|row| row.by == NamedBy::Location { lost: false }).map(|row| row.size_bytes)
}

/// First check of a listed key against the rows that name it.
#[must_use]
pub fn listed(key: &str, size_bytes: u64, rows: &[NamingRow]) -> FirstCheck {
    match located(rows) {
        Some(expected) if expected != size_bytes => FirstCheck::Doubt(KeyDoubt::Located),
        Some(_) => FirstCheck::Agrees,
        None if is_named(&Target::Key, rows) => FirstCheck::Agrees,
        None if is_ours(key) => FirstCheck::Doubt(KeyDoubt::Unnamed),
        None => FirstCheck::Foreign,
    }
}

/// Second check: a probe after the first check, and the rows after the probe.
#[must_use]
pub fn rule(doubt: KeyDoubt, seen: Seen, rows: &[NamingRow]) -> Ruling {
    let expected = located(rows);
    match (doubt, seen) {
        (_, Seen::Unknown(why)) => Ruling::Unknown(why),
        (KeyDoubt::Unnamed, Seen::Absent) => Ruling::Agrees,
        (KeyDoubt::Unnamed, Seen::Present(found)) => {
            if is_named(&Target::Key, rows) {
                Ruling::Agrees
            } else {
                Ruling::Stray(found)
            }
        }
        (KeyDoubt::Located, Seen::Absent) => expected.map_or(Ruling::Agrees, |_| Ruling::Gone),
        (KeyDoubt::Located, Seen::Present(found)) => match expected {
            Some(expected) if expected != found => Ruling::WrongSize { expected, found },
            Some(_) | None => Ruling::Agrees,
        },
    }
}

/// True if one of the rows of a key names this target.
#[must_use]
pub fn is_named(target: &Target, rows: &[NamingRow]) -> bool {
    rows.iter().any(|row| row.names(target))
}

#[cfg(test)]
mod tests {
    use super::{FirstCheck, KeyDoubt, NamedBy, NamingRow, Ruling, Seen, is_named, is_ours, listed, rule};
    use crate::target::Target;

    const OURS: &str = "photos/cat.jpg~0123456789abcdef0123456789abcdef";

    fn row(by: NamedBy, size_bytes: u64) -> NamingRow {
        NamingRow { physical_key: OURS.to_owned(), by, size_bytes, target: Target::Key }
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
    fn unnamed_bytes_are_in_doubt_only_with_our_key_format() {
        assert_eq!(listed(OURS, 5, &[]), FirstCheck::Doubt(KeyDoubt::Unnamed));
        assert_eq!(listed("theirs", 5, &[]), FirstCheck::Foreign);
        for by in [NamedBy::Intent, NamedBy::Cleanup, NamedBy::DeadLetter, NamedBy::WrittenOff] {
            assert_eq!(listed(OURS, 5, &[row(by, 9)]), FirstCheck::Agrees, "{by:?}");
        }
    }

    #[test]
    fn size_is_checked_for_locations_that_are_not_lost() {
        assert_eq!(listed(OURS, 5, &[row(LOCATION, 5)]), FirstCheck::Agrees);
        assert_eq!(listed(OURS, 4, &[row(LOCATION, 5)]), FirstCheck::Doubt(KeyDoubt::Located));
        assert_eq!(listed(OURS, 4, &[row(NamedBy::Location { lost: true }, 5)]), FirstCheck::Agrees);
    }

    #[test]
    fn unnamed_bytes_in_both_checks_are_stray() {
        let ruled = |seen, rows: &[NamingRow]| rule(KeyDoubt::Unnamed, seen, rows);
        assert_eq!(ruled(Seen::Present(5), &[]), Ruling::Stray(5));
        assert_eq!(ruled(Seen::Absent, &[]), Ruling::Agrees);
        assert_eq!(ruled(Seen::Present(5), &[row(NamedBy::Cleanup, 5)]), Ruling::Agrees);
        assert_eq!(ruled(Seen::Unknown("away".into()), &[]), Ruling::Unknown("away".into()));
    }

    #[test]
    fn location_without_bytes_in_both_checks_is_a_violation() {
        let ruled = |seen, rows: &[NamingRow]| rule(KeyDoubt::Located, seen, rows);
        assert_eq!(ruled(Seen::Absent, &[row(LOCATION, 5)]), Ruling::Gone);
        assert_eq!(ruled(Seen::Absent, &[row(NamedBy::Cleanup, 5)]), Ruling::Agrees);
        assert_eq!(ruled(Seen::Absent, &[]), Ruling::Agrees);
        assert_eq!(ruled(Seen::Present(5), &[row(LOCATION, 5)]), Ruling::Agrees);
        assert_eq!(ruled(Seen::Present(4), &[row(LOCATION, 5)]), Ruling::WrongSize { expected: 5, found: 4 });
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
