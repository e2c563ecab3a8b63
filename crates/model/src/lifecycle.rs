//! Lifecycle rules: which objects and uploads they mean, and when those are due.
//!
//! Whether something is due is three numbers, a [`Threshold`], so that the catalog can ask the same
//! question by its own clock in the statement that deletes.

mod configured;
mod departure;
mod fault;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::listing::successor;
use crate::object::Tags;

pub use configured::{ConfiguredRule, ConfiguredRules, InvalidRule};
pub use departure::{DepartsBy, Departure};
pub use fault::{RuleFault, RuleFaultKind, complete};

/// A day, in the unit that the catalog counts in.
pub const DAY_MILLIS: i64 = 24 * 60 * 60 * 1000;
/// Moments of writes are stored in whole seconds: what was written may be this much younger than it says.
const ROUNDED_MILLIS: i64 = 1000;
/// How many rules a bucket may have.
pub const RULES_MAX: usize = 1000;

/// Whether a rule is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It is.
    Enabled,
    /// It is kept and does nothing.
    Disabled,
}

/// How a rule was written, so that it reads back as it came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// A filter with one condition or none.
    #[default]
    Plain,
    /// A filter whose conditions are joined.
    And,
    /// A prefix without a filter, as it was done once.
    Prefix,
}

/// Which objects a rule means: those that meet every condition. Without any, the whole bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Filter {
    /// Keys that start with this, byte by byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Objects that have all of these tags.
    #[serde(skip_serializing_if = "Tags::is_empty")]
    pub tags: Tags,
    /// Objects of more bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_greater_than: Option<u64>,
    /// Objects of fewer bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_less_than: Option<u64>,
}

/// What a filter looks at.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// The key.
    pub key: &'a str,
    /// How many bytes.
    pub size_bytes: u64,
    /// The tags.
    pub tags: &'a Tags,
}

impl Filter {
    /// The text that all keys it means start with.
    #[must_use]
    pub fn prefix(&self) -> &str {
        self.prefix.as_deref().unwrap_or_default()
    }

    /// The first text behind all keys it means; `None` where there is no bound.
    #[must_use]
    pub fn before(&self) -> Option<String> {
        successor(self.prefix())
    }

    /// Whether it means this object.
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
    /// At the first midnight (UTC) that is so many days or more after the write, as in S3.
    Days(u32),
    /// From this moment on, whenever they were written.
    Date(Timestamp),
    /// As soon as they are older than so many days, to the second.
    OlderThanDays(u32),
}

impl Expiration {
    /// The numbers that decide.
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

/// What is due: written at least `age_millis` before the last full `step_millis`, once `from` has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Threshold {
    /// Moments at which things become due: every millisecond, or every midnight.
    pub step_millis: i64,
    /// How old a thing must be by then.
    pub age_millis: i64,
    /// Nothing is due before this.
    pub from: Timestamp,
}

impl Threshold {
    const fn at_midnight(age_millis: i64) -> Self {
        Self { step_millis: DAY_MILLIS, age_millis, from: Timestamp::from_millis(0) }
    }

    /// When what was written at this moment becomes due.
    #[must_use]
    pub fn due_at(&self, written: Timestamp) -> Timestamp {
        let aged = written.millis().saturating_add(self.age_millis);
        let short = (self.step_millis - aged.rem_euclid(self.step_millis)) % self.step_millis;
        Timestamp::from_millis(aged.saturating_add(short)).max(self.from)
    }

    /// Whether what was written at this moment is due now.
    #[must_use]
    pub fn is_due(&self, written: Timestamp, now: Timestamp) -> bool {
        self.due_at(written) <= now
    }
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Its name, unique among the rules of its bucket.
    pub id: String,
    /// Whether it is in force.
    pub status: Status,
    /// Which objects it means.
    pub filter: Filter,
    /// How its filter was written.
    #[serde(default)]
    pub form: Form,
    /// When objects go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expiration: Option<Expiration>,
    /// After how many days uploads that were not completed are aborted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abort_after_days: Option<u32>,
}

impl Rule {
    /// When the objects that it means are due; `None` where it deletes none.
    #[must_use]
    pub fn expires(&self) -> Option<Threshold> {
        self.expiration.filter(|_| self.is_enabled()).map(Expiration::threshold)
    }

    /// When the uploads that it means are due; `None` where it aborts none.
    #[must_use]
    pub fn aborts(&self) -> Option<Threshold> {
        let days = self.abort_after_days.filter(|_| self.is_enabled())?;
        Some(Threshold::at_midnight(i64::from(days) * DAY_MILLIS))
    }

    /// When it would delete this object; `None` where it does not mean it.
    #[must_use]
    pub fn due_at(&self, object: Subject<'_>, written: Timestamp) -> Option<Timestamp> {
        self.expires().filter(|_| self.filter.matches(object)).map(|threshold| threshold.due_at(written))
    }

    /// When it would abort an upload of this key; `None` where it does not mean it.
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
