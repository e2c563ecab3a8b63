//! Compares what a backend lists with the rows that name it, on a running system.
//!
//! A listing and a catalog query are never of one moment, so a first check only raises a doubt. Two facts settle it:
//! rows are written before bytes and deleted after them, and a physical key is used once. So bytes that exist at two
//! moments had a row at every moment between, and a location that exists at two moments had its bytes at every moment
//! between.

use super::FindingKind;
use crate::clock::Timestamp;
use crate::target::{FileStamp, Target};
use crate::verify::{NamedBy, NamingRow, Seen, is_ours};

/// An object, version or delete marker that a backend lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedTarget {
    /// Key on the backend.
    pub key: String,
    /// The version, on a store that keeps versions; the key on others.
    pub target: Target,
    /// Number of stored bytes.
    pub size_bytes: u64,
    /// Differs for bytes that were written again.
    pub fingerprint: String,
    /// False for an older version of the key.
    pub is_latest: bool,
    /// True for a delete marker, which has no bytes.
    pub is_delete_marker: bool,
}

/// Result of the first check of a listed target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstCheck {
    /// Rows and bytes agree.
    Agrees,
    /// The location of these bytes is lost, and bytes of the right size are there.
    Recovered,
    /// No row names the key, and it does not have the format of s3o's keys.
    Foreign,
    /// An earlier pass found the same bytes, and no other row names them.
    Known(FindingKind),
    /// Bytes that no row names, to be checked again.
    Unnamed,
    /// A location of another size, to be checked again.
    WrongSize,
}

/// Result of the second check of bytes that no row named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnnamedRuling {
    /// The difference was a change in progress.
    Agrees,
    /// A finding of this kind.
    Found(FindingKind),
    /// The backend gave no clear answer.
    Unknown(String),
}

/// Result of the second check of a location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocatedRuling {
    /// The difference was a change in progress.
    Agrees,
    /// The bytes are there with the right size.
    Present,
    /// The same, of a lost location.
    Recovered,
    /// The bytes are proven absent.
    Missing,
    /// Bytes of another size.
    WrongSize {
        /// Recorded size.
        expected: u64,
        /// Size on the backend.
        found: u64,
    },
    /// The backend gave no clear answer.
    Unknown(String),
}

/// Text that differs for bytes that were written again, as far as the store tells.
#[must_use]
pub fn fingerprint(etag: Option<&str>, file: Option<&FileStamp>) -> String {
    match (etag, file) {
        (Some(etag), _) => etag.to_owned(),
        (None, Some(FileStamp { modified_ns, inode, .. })) => format!("{modified_ns}:{inode}"),
        (None, None) => String::new(),
    }
}

impl ListedTarget {
    /// First check against the rows of the key.
    #[must_use]
    pub fn first_check(&self, rows: &[NamingRow]) -> FirstCheck {
        if let Some((copy, is_lost)) = rows.iter().find_map(|row| self.copy_of(row)) {
            return match (copy.size_bytes == self.size_bytes, is_lost) {
                (true, false) => FirstCheck::Agrees,
                (true, true) => FirstCheck::Recovered,
                (false, _) => FirstCheck::WrongSize,
            };
        }
        if is_owned(&self.target, rows) {
            return FirstCheck::Agrees;
        }
        if !is_ours(&self.key) {
            return FirstCheck::Foreign;
        }
        let kind = unnamed_kind(rows);
        if rows.iter().any(|row| self.is_same_as(row, kind)) { FirstCheck::Known(kind) } else { FirstCheck::Unnamed }
    }

    /// Second check of unnamed bytes: a probe after the first check, and the rows after the probe.
    #[must_use]
    pub fn rule(&self, seen: Seen, rows: &[NamingRow]) -> UnnamedRuling {
        match seen {
            Seen::Unknown(why) => UnnamedRuling::Unknown(why),
            Seen::Absent => UnnamedRuling::Agrees,
            Seen::Present(_) => match self.first_check(rows) {
                FirstCheck::Unnamed | FirstCheck::Known(_) => UnnamedRuling::Found(unnamed_kind(rows)),
                FirstCheck::Agrees | FirstCheck::Recovered | FirstCheck::Foreign | FirstCheck::WrongSize => {
                    UnnamedRuling::Agrees
                }
            },
        }
    }

    /// True if the row is the location of these bytes.
    #[must_use]
    pub fn lists(&self, row: &NamingRow) -> bool {
        self.copy_of(row).is_some()
    }

    /// The location of these bytes, and whether it is lost.
    fn copy_of<'a>(&self, row: &'a NamingRow) -> Option<(&'a NamingRow, bool)> {
        let NamedBy::Location { lost } = row.by else { return None };
        let is_this = match (&row.target, &self.target) {
            (Target::Version(located), Target::Version(listed)) => located == listed,
            // The version was never learnt.
            (_, Target::Version(_)) => self.is_latest && !self.is_delete_marker,
            _ => true,
        };
        is_this.then_some((row, lost))
    }

    /// True if an earlier pass found the same bytes.
    fn is_same_as(&self, row: &NamingRow, kind: FindingKind) -> bool {
        row.finding_kind() == Some(kind)
            && row.target == self.target
            && row.size_bytes == self.size_bytes
            && row.fingerprint == self.fingerprint
    }
}

/// Kind of bytes under a key with these rows, none of which names the bytes.
fn unnamed_kind(rows: &[NamingRow]) -> FindingKind {
    let is_located = rows.iter().any(|row| matches!(row.by, NamedBy::Location { .. }));
    if is_located { FindingKind::OldVersion } else { FindingKind::Stray }
}

/// True if a row other than a location or a finding of a pass names this target: the bytes are about to be written or
/// deleted, or an operator knows of them.
#[must_use]
pub fn is_owned(target: &Target, rows: &[NamingRow]) -> bool {
    let is_about_work = |row: &&NamingRow| match row.by {
        NamedBy::Intent | NamedBy::Cleanup | NamedBy::DeadLetter | NamedBy::WrittenOff => true,
        NamedBy::Location { .. } | NamedBy::Finding { .. } => false,
    };
    rows.iter().filter(is_about_work).any(|row| row.names(target))
}

/// True if an operator dismissed the finding of a pass about this target.
#[must_use]
pub fn is_dismissed(
    target: &Target,
    kind: FindingKind,
    (size_bytes, fingerprint): (u64, &str),
    rows: &[NamingRow],
) -> bool {
    rows.iter().any(|row| {
        matches!(row.by, NamedBy::Finding { kind: known, dismissed: true } if known == kind)
            && row.target == *target
            && (row.size_bytes, row.fingerprint.as_str()) == (size_bytes, fingerprint)
    })
}

/// True for a location that the listing should have: it was known before the pass began.
#[must_use]
pub fn should_be_listed(row: &NamingRow, cut_off: Timestamp) -> bool {
    matches!(row.by, NamedBy::Location { .. }) && row.verified_at.is_none_or(|verified| verified < cut_off)
}

/// Second check of a location: a probe after the first check, and the rows after the probe.
#[must_use]
pub fn rule_location(located: &Target, seen: Seen, rows: &[NamingRow]) -> LocatedRuling {
    let copy = rows.iter().find_map(|row| match row.by {
        NamedBy::Location { lost } if row.target == *located => Some((row.size_bytes, lost)),
        _ => None,
    });
    match (copy, seen) {
        (_, Seen::Unknown(why)) => LocatedRuling::Unknown(why),
        (None, Seen::Present(_) | Seen::Absent) => LocatedRuling::Agrees,
        (Some(_), Seen::Absent) => LocatedRuling::Missing,
        (Some((expected, lost)), Seen::Present(found)) => match (expected == found, lost) {
            (true, false) => LocatedRuling::Present,
            (true, true) => LocatedRuling::Recovered,
            (false, _) => LocatedRuling::WrongSize { expected, found },
        },
    }
}

#[cfg(test)]
mod tests;
