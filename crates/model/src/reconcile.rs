//! Decisions of reconcile, which compares the listing of a backend with the rows that name its bytes.
//!
//! A pass collects findings and changes nothing. What it found is acted on only after a second pass saw the same, and
//! the unit that acts checks once more that no row names the bytes.

mod compare;
mod counts;
mod order;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::physical_key::identifier;
use crate::target::Target;

pub use compare::{
    FirstCheck, ListedTarget, LocatedRuling, UnnamedRuling, fingerprint, is_dismissed, is_owned, rule_location,
    should_be_listed,
};
pub use counts::{FoundCount, PassCounts};
pub use order::{PassFault, UNLISTED_MAX, check_order, check_unlisted};

/// How much the clock of the host that wrote an identifier may be ahead of the catalog's clock.
const CLOCKS_DIFFER_MAX: Duration = Duration::from_hours(24);
/// Largest number of bytes in a key and its target that fit into an index of PostgreSQL beside the other columns. Keys
/// of s3o are shorter.
const INDEXED_BYTES_MAX: usize = 2200;

/// Difference between a backend and the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// An object with a key of s3o that no row names.
    Stray,
    /// A version or delete marker of a key of s3o that is not the version which its location names.
    OldVersion,
    /// An unfinished upload of a key of s3o that no row names.
    Upload,
    /// A temporary file of s3o that no row names.
    Draft,
    /// A location whose bytes are proven absent.
    Missing,
    /// A location whose bytes have another size than its content.
    WrongSize,
    /// An object that is not s3o's.
    Foreign,
}

impl FindingKind {
    /// Every kind, in the order of the documents.
    pub const ALL: [Self; 7] =
        [Self::Stray, Self::OldVersion, Self::Upload, Self::Draft, Self::Missing, Self::WrongSize, Self::Foreign];

    /// Value in the catalog, in the admin API and on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stray => "stray",
            Self::OldVersion => "old_version",
            Self::Upload => "upload",
            Self::Draft => "draft",
            Self::Missing => "missing",
            Self::WrongSize => "wrong_size",
            Self::Foreign => "foreign",
        }
    }

    /// Largest number of rows of one pass.
    #[must_use]
    pub const fn rows_max(self) -> u64 {
        match self {
            Self::Foreign => 1000,
            Self::Stray | Self::OldVersion | Self::Upload | Self::Draft | Self::Missing | Self::WrongSize => 100_000,
        }
    }

    /// True if the bytes become a cleanup once the finding is confirmed.
    #[must_use]
    pub const fn is_removed(self) -> bool {
        match self {
            Self::Stray | Self::OldVersion | Self::Upload | Self::Draft => true,
            Self::Missing | Self::WrongSize | Self::Foreign => false,
        }
    }

    /// True if a location is no longer trusted once the finding is confirmed.
    #[must_use]
    pub const fn is_about_a_location(self) -> bool {
        match self {
            Self::Missing | Self::WrongSize => true,
            Self::Stray | Self::OldVersion | Self::Upload | Self::Draft | Self::Foreign => false,
        }
    }

    /// True if an operator can approve or dismiss findings of this kind.
    #[must_use]
    pub const fn can_be_decided(self) -> bool {
        self.is_removed() || self.is_about_a_location()
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// False for something with so long a name that it cannot be stored; it is only counted.
#[must_use]
pub fn can_be_stored(physical_key: &str, target: &Target) -> bool {
    physical_key.len() + target.to_column().len() <= INDEXED_BYTES_MAX
}

/// The text names no kind of finding that a pass reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownKind;

impl FromStr for FindingKind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or(UnknownKind)
    }
}

/// A finding of the last valid pass, with what earlier passes and operators say about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evidence {
    /// Kind of the finding.
    pub kind: FindingKind,
    /// Number of valid passes that saw the same target, size and fingerprint, and none between them that did not.
    pub passes: u64,
    /// Cut-off of the first of these passes.
    pub first_seen_at: Timestamp,
    /// Cut-off of the last of them.
    pub seen_at: Timestamp,
    /// Time in the identifier of the key; `None` if the identifier has none.
    pub born_at: Option<Timestamp>,
    /// An operator approved it as it is.
    pub is_approved: bool,
    /// An operator wants to keep it as it is.
    pub is_dismissed: bool,
}

/// What holds for all findings of one pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActionRules {
    /// Shortest time between two passes that confirm a finding.
    pub grace: Duration,
    /// When an operator last accepted the backend.
    pub accepted_at: Option<Timestamp>,
    /// The pass found so much that an operator must approve it.
    pub is_held: bool,
}

/// What follows from a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FindingAction {
    /// Queue the bytes for deletion, if still no row names them.
    Remove,
    /// Stop trusting the location, if a probe finds the same again.
    Suspect,
    /// A later pass must confirm it.
    Wait,
    /// An operator must approve it.
    AwaitApproval,
    /// Only report it.
    Report,
}

impl FindingAction {
    /// Decides what follows from a finding.
    #[must_use]
    pub fn of(evidence: &Evidence, rules: &ActionRules) -> Self {
        let Evidence { kind, is_approved, is_dismissed, .. } = *evidence;
        if is_dismissed || !kind.can_be_decided() {
            return Self::Report;
        }
        if !is_approved && rules.is_held {
            return Self::AwaitApproval;
        }
        if !is_approved && !evidence.is_confirmed(rules) {
            return Self::Wait;
        }
        if kind.is_about_a_location() {
            return Self::Suspect;
        }
        if !is_approved && evidence.may_be_acknowledged(rules) {
            return Self::AwaitApproval;
        }
        Self::Remove
    }
}

impl Evidence {
    /// After a restored catalog, bytes without a row may be acknowledged objects.
    fn may_be_acknowledged(&self, rules: &ActionRules) -> bool {
        let is_older = |accepted: Timestamp| self.born_at.is_none_or(|born| born < accepted.after(CLOCKS_DIFFER_MAX));
        rules.accepted_at.is_some_and(is_older)
    }

    fn is_confirmed(&self, rules: &ActionRules) -> bool {
        match self.kind {
            FindingKind::WrongSize => true,
            FindingKind::Missing => self.passes >= 2,
            FindingKind::Stray | FindingKind::OldVersion | FindingKind::Upload | FindingKind::Draft => {
                self.passes >= 2 && self.seen_at.since(self.first_seen_at) >= rules.grace
            }
            FindingKind::Foreign => false,
        }
    }
}

/// The time in the identifier at the end of a physical key or of the name of a temporary file.
#[must_use]
pub fn identifier_time(name: &str) -> Option<Timestamp> {
    const TIME_ORDERED: usize = 7;
    let last = name.rsplit('/').next().unwrap_or(name);
    let id = identifier(name).or_else(|| uuid::Uuid::try_parse(last).ok())?;
    let millis = i64::try_from(id.as_u128() >> 80).ok()?;
    (id.get_version_num() == TIME_ORDERED).then(|| Timestamp::from_millis(millis))
}

#[cfg(test)]
mod tests;
