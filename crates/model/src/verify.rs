//! Whether what lies on a backend agrees with the rows that name it, on a system that goes on working.
//!
//! A listing and a look at the catalog are never of one moment, so a first look only raises a
//! doubt. What settles it is that rows come before bytes and go after them, and that a physical key
//! is used once: bytes that are there at two moments had a row at every moment between, and a
//! location that stands at two moments had its bytes at every moment between.

use serde::Serialize;

use crate::cleanup::BackendUpload;
use crate::names::BucketName;
use crate::physical_key::identifier;

/// An invariant, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Invariant {
    /// What was acknowledged is readable, byte for byte.
    I1,
    /// Every whole content has a location that is not lost.
    I2,
    /// Everything of ours on a backend is named by exactly one row.
    I3,
    /// Nothing that a location names is about to be deleted.
    I4,
    /// Counts of references equal the rows that refer.
    I6,
    /// Counters equal their sums, and the bytes at rest.
    I7,
    /// Only a whole claim settles.
    I8,
    /// Every queue drains.
    I11,
}

/// What kind of row names bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamedBy {
    /// A location; it is `lost` when its bytes are known to be gone.
    Location {
        /// Whether that is so.
        lost: bool,
    },
    /// An intent.
    Intent,
    /// A cleanup.
    Cleanup,
    /// A cleanup that was refused too often.
    DeadLetter,
    /// Bytes that an operator wrote off.
    WrittenOff,
}

/// A row that names bytes on a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamingRow {
    /// The physical key.
    pub physical_key: String,
    /// What kind of row it is.
    pub by: NamedBy,
    /// How many bytes it says there are.
    pub size_bytes: u64,
    /// What it knows of a backend upload.
    pub upload: BackendUpload,
}

/// What a second look at a key found on the backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// So many bytes.
    Present(u64),
    /// Nothing, and that is proven.
    Absent,
    /// Nobody can tell.
    Unknown(String),
}

/// What a first look makes of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstLook {
    /// Rows and bytes agree.
    Agrees,
    /// No row names it and it is not ours by its name.
    Foreign,
    /// It takes a second look.
    Doubt(Doubt),
}

/// Why a key takes a second look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// Bytes without a row.
    Unnamed,
    /// A location without its bytes, or with another number of them.
    Located,
}

/// What the second look makes of a doubt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ruling {
    /// It was a change under way.
    Agrees,
    /// Bytes of ours that no row names.
    Stray(u64),
    /// A location whose bytes are gone.
    Gone,
    /// A location with another number of bytes than it says.
    WrongSize {
        /// What the location says.
        expected: u64,
        /// What is there.
        found: u64,
    },
    /// Nobody can tell.
    Unknown(String),
}

/// Whether a key on a backend is one of ours by its name.
#[must_use]
pub fn is_ours(physical_key: &str) -> bool {
    let bucket = physical_key.split_once('/').map(|(bucket, _)| bucket.parse::<BucketName>());
    matches!(bucket, Some(Ok(_))) && identifier(physical_key).is_some()
}

fn located(rows: &[NamingRow]) -> Option<u64> {
    rows.iter().find(|row| row.by == NamedBy::Location { lost: false }).map(|row| row.size_bytes)
}

/// A first look at a key that a listing shows, with the rows that name it.
#[must_use]
pub fn listed(key: &str, size_bytes: u64, rows: &[NamingRow]) -> FirstLook {
    match located(rows) {
        Some(expected) if expected != size_bytes => FirstLook::Doubt(Doubt::Located),
        Some(_) => FirstLook::Agrees,
        None if !rows.is_empty() => FirstLook::Agrees,
        None if is_ours(key) => FirstLook::Doubt(Doubt::Unnamed),
        None => FirstLook::Foreign,
    }
}

/// The second look: what a probe saw after the doubt arose, and the rows as they are after the probe.
#[must_use]
pub fn rule(doubt: Doubt, seen: Seen, rows: &[NamingRow]) -> Ruling {
    let expected = located(rows);
    match (doubt, seen) {
        (_, Seen::Unknown(why)) => Ruling::Unknown(why),
        (Doubt::Unnamed, Seen::Absent) => Ruling::Agrees,
        (Doubt::Unnamed, Seen::Present(found)) => {
            if rows.is_empty() {
                Ruling::Stray(found)
            } else {
                Ruling::Agrees
            }
        }
        (Doubt::Located, Seen::Absent) => expected.map_or(Ruling::Agrees, |_| Ruling::Gone),
        (Doubt::Located, Seen::Present(found)) => match expected {
            Some(expected) if expected != found => Ruling::WrongSize { expected, found },
            Some(_) | None => Ruling::Agrees,
        },
    }
}

/// Whether one of the rows of a key names this unfinished upload of it.
#[must_use]
pub fn names_upload(upload: &str, rows: &[NamingRow]) -> bool {
    rows.iter().any(|row| match &row.upload {
        BackendUpload::None => false,
        BackendUpload::Starting => true,
        BackendUpload::Started(id) => id == upload,
    })
}

#[cfg(test)]
mod tests {
    use super::{Doubt, FirstLook, NamedBy, NamingRow, Ruling, Seen, is_ours, listed, names_upload, rule};
    use crate::cleanup::BackendUpload;

    const OURS: &str = "photos/cat.jpg~0123456789abcdef0123456789abcdef";

    fn row(by: NamedBy, size_bytes: u64) -> NamingRow {
        NamingRow { physical_key: OURS.to_owned(), by, size_bytes, upload: BackendUpload::None }
    }

    const LOCATION: NamedBy = NamedBy::Location { lost: false };

    #[test]
    fn ours_are_known_by_their_names() {
        assert!(is_ours(OURS));
        for foreign in ["photos/cat.jpg", "~0123456789abcdef0123456789abcdef", "photos/cat~0123", ".s3o/identity.json"]
        {
            assert!(!is_ours(foreign), "{foreign}");
        }
    }

    #[test]
    fn bytes_without_a_row_are_in_doubt_only_if_they_are_ours() {
        assert_eq!(listed(OURS, 5, &[]), FirstLook::Doubt(Doubt::Unnamed));
        assert_eq!(listed("theirs", 5, &[]), FirstLook::Foreign);
        for by in [NamedBy::Intent, NamedBy::Cleanup, NamedBy::DeadLetter, NamedBy::WrittenOff] {
            assert_eq!(listed(OURS, 5, &[row(by, 9)]), FirstLook::Agrees, "{by:?}");
        }
    }

    #[test]
    fn a_location_says_how_many_bytes_there_are_and_a_lost_one_does_not() {
        assert_eq!(listed(OURS, 5, &[row(LOCATION, 5)]), FirstLook::Agrees);
        assert_eq!(listed(OURS, 4, &[row(LOCATION, 5)]), FirstLook::Doubt(Doubt::Located));
        assert_eq!(listed(OURS, 4, &[row(NamedBy::Location { lost: true }, 5)]), FirstLook::Agrees);
    }

    #[test]
    fn bytes_that_stay_without_a_row_are_stray() {
        let ruled = |seen, rows: &[NamingRow]| rule(Doubt::Unnamed, seen, rows);
        assert_eq!(ruled(Seen::Present(5), &[]), Ruling::Stray(5));
        assert_eq!(ruled(Seen::Absent, &[]), Ruling::Agrees);
        assert_eq!(ruled(Seen::Present(5), &[row(NamedBy::Cleanup, 5)]), Ruling::Agrees);
        assert_eq!(ruled(Seen::Unknown("away".into()), &[]), Ruling::Unknown("away".into()));
    }

    #[test]
    fn a_location_that_stays_without_its_bytes_is_broken() {
        let ruled = |seen, rows: &[NamingRow]| rule(Doubt::Located, seen, rows);
        assert_eq!(ruled(Seen::Absent, &[row(LOCATION, 5)]), Ruling::Gone);
        assert_eq!(ruled(Seen::Absent, &[row(NamedBy::Cleanup, 5)]), Ruling::Agrees);
        assert_eq!(ruled(Seen::Absent, &[]), Ruling::Agrees);
        assert_eq!(ruled(Seen::Present(5), &[row(LOCATION, 5)]), Ruling::Agrees);
        assert_eq!(ruled(Seen::Present(4), &[row(LOCATION, 5)]), Ruling::WrongSize { expected: 5, found: 4 });
    }

    #[test]
    fn an_upload_is_named_by_its_id_or_by_one_that_was_about_to_start() {
        let with = |upload| NamingRow { upload, ..row(NamedBy::Intent, 5) };
        assert!(names_upload("a", &[with(BackendUpload::Started("a".into()))]));
        assert!(names_upload("a", &[with(BackendUpload::Starting)]));
        assert!(!names_upload("a", &[with(BackendUpload::Started("b".into()))]));
        assert!(!names_upload("a", &[with(BackendUpload::None)]));
        assert!(!names_upload("a", &[]));
    }
}
