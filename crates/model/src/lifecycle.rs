//! Lifecycle rules: which objects and uploads they match, and when those are due.
//!
//! Three numbers, a [`Threshold`], decide whether something is due, so that the catalog can check it
//! with its own clock in the statement that deletes.

mod configured;
mod fault;
mod removal;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::listing::successor;
use crate::object::Tags;

pub use configured::{ConfiguredRule, ConfiguredRules, InvalidRule};
pub use fault::{RuleFault, RuleFaultKind, complete};
pub use removal::{DeletionCause, ScheduledDeletion};

/// A day in milliseconds, the unit of the catalog.
pub const DAY_MILLIS: i64 = 24 * 60 * 60 * 1000;
/// Write times are stored in whole seconds: an object may be this much younger than its stored time.
const ROUNDED_MILLIS: i64 = 1000;
/// Largest number of rules of a bucket.
pub const RULES_MAX: usize = 1000;

/// `Status` element of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The rule is applied.
    Enabled,
    /// The rule is stored but not applied.
    Disabled,
}

/// XML form of a rule's filter, so that a GET returns what was PUT.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// `Filter` with at most one condition.
    #[default]
    Plain,
    /// `Filter` with an `And` of conditions.
    And,
    /// `Prefix` without `Filter`, the deprecated form.
    Prefix,
}

/// Selects the objects of a rule: those that meet every condition. An empty filter selects the whole bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Filter {
    /// Keys that start with this prefix, compared as bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Objects that have all of these tags.
    #[serde(skip_serializing_if = "Tags::is_empty")]
    pub tags: Tags,
    /// Objects larger than this, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_greater_than: Option<u64>,
    /// Objects smaller than this, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_less_than: Option<u64>,
}

/// The properties of an object that a filter checks.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Object key.
    pub key: &'a str,
    /// Compared with the size bounds of the filter.
    pub size_bytes: u64,
    /// Tags of the object.
    pub tags: &'a Tags,
}

impl Filter {
    /// The prefix; empty if the filter has none.
    #[must_use]
    pub fn prefix(&self) -> &str {
        self.prefix.as_deref().unwrap_or_default()
    }

    /// The smallest text greater than every key with the prefix; `None` if there is no bound.
    #[must_use]
    pub fn before(&self) -> Option<String> {
        successor(self.prefix())
    }

    /// True if the object meets every condition.
    #[must_use]
    pub fn matches(&self, object: Subject<'_>) -> bool {
        object.key.starts_with(self.prefix())
            && self.size_greater_than.is_none_or(|bound| object.size_bytes > bound)
            && self.size_less_than.is_none_or(|bound| object.size_bytes < bound)
            && self.tags.iter().all(|(key, value)| object.tags.get(key) == Some(value))
    }
}

/// When objects are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expiration {
    /// At the first midnight UTC that is at least this many days after the write, as in S3.
    Days(u32),
    /// From this time on, for any write time.
    Date(Timestamp),
    /// As soon as they are older than this many days, to the second.
    OlderThanDays(u32),
}

impl Expiration {
    /// The threshold that decides whether an object is due.
    #[must_use]
    pub fn threshold(self) -> Threshold {
        let age = |days: u32| i64::from(days) * DAY_MILLIS;
        match self {
            Self::Days(days) => Threshold::at_midnight(age(days)),
            Self::Date(from) => Threshold { step_millis: 1, age_millis: 0, from },
            Self::OlderThanDays(days) => {
                Threshold { step_millis: 1, age_millis: age(days) + ROUNDED_MILLIS, from: Timestamp::from_millis(0) }
            }
        }
    }
}

/// Due is what was written at least `age_millis` before the last full `step_millis`, from the time `from` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Threshold {
    /// Granularity of due times: 1 for every millisecond, or a day for every midnight.
    pub step_millis: i64,
    /// Minimum age at that time.
    pub age_millis: i64,
    /// Nothing is due before this time.
    pub from: Timestamp,
}

impl Threshold {
    const fn at_midnight(age_millis: i64) -> Self {
        Self { step_millis: DAY_MILLIS, age_millis, from: Timestamp::from_millis(0) }
    }

    /// The due time of what was written at this time.
    #[must_use]
    pub fn due_at(&self, written: Timestamp) -> Timestamp {
        let aged = written.millis().saturating_add(self.age_millis);
        let short = (self.step_millis - aged.rem_euclid(self.step_millis)) % self.step_millis;
        Timestamp::from_millis(aged.saturating_add(short)).max(self.from)
    }

    /// True if what was written at this time is due now.
    #[must_use]
    pub fn is_due(&self, written: Timestamp, now: Timestamp) -> bool {
        self.due_at(written) <= now
    }
}

/// A lifecycle rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Identifier, unique among the rules of its bucket.
    pub id: String,
    /// Disabled rules are stored and returned, but never applied.
    pub status: Status,
    /// Selects the objects of the rule.
    pub filter: Filter,
    /// XML form of the filter.
    #[serde(default)]
    pub form: Form,
    /// When objects are deleted; `None` if the rule deletes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expiration: Option<Expiration>,
    /// Days after which incomplete uploads are aborted; `None` if the rule aborts none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abort_after_days: Option<u32>,
}

impl Rule {
    /// When matching objects are due; `None` if the rule is disabled or deletes none.
    #[must_use]
    pub fn expires(&self) -> Option<Threshold> {
        self.expiration.filter(|_| self.is_enabled()).map(Expiration::threshold)
    }

    /// When matching uploads are due; `None` if the rule is disabled or aborts none.
    #[must_use]
    pub fn aborts(&self) -> Option<Threshold> {
        let days = self.abort_after_days.filter(|_| self.is_enabled())?;
        Some(Threshold::at_midnight(i64::from(days) * DAY_MILLIS))
    }

    /// When the rule deletes this object; `None` if it does not match.
    #[must_use]
    pub fn due_at(&self, object: Subject<'_>, written: Timestamp) -> Option<Timestamp> {
        self.expires().filter(|_| self.filter.matches(object)).map(|threshold| threshold.due_at(written))
    }

    /// When the rule aborts an upload of this key; `None` if it does not match.
    #[must_use]
    pub fn aborts_at(&self, key: &str, opened: Timestamp) -> Option<Timestamp> {
        self.aborts().filter(|_| key.starts_with(self.filter.prefix())).map(|threshold| threshold.due_at(opened))
    }

    const fn is_enabled(&self) -> bool {
        match self.status {
            Status::Enabled => true,
            Status::Disabled => false,
        }
    }
}
