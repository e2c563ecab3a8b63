//! Rules of the configuration file. They need a prefix, so that no omission selects a whole bucket.

use std::collections::BTreeSet;

use super::{Expiration, Filter, Form, Rule, Status};
use crate::names::{BucketName, KEY_BYTES_MAX};

/// About a hundred years.
const DAYS_MAX: u32 = 36_500;

/// Why a configured rule is invalid. Each variant names the invalid field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRule {
    /// The prefix would match the whole bucket, or no key at all.
    #[error("must be 1 to {KEY_BYTES_MAX} bytes without a NUL: a rule without a prefix would empty its bucket")]
    Prefix,
    /// The age is not a number of days in the allowed range.
    #[error("must be a whole number of days from 1 to {DAYS_MAX}")]
    Days,
}

/// A rule of the configuration: deletes objects of a bucket with a prefix that are older than a number of days.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfiguredRule {
    bucket: BucketName,
    rule: Rule,
}

impl ConfiguredRule {
    /// Validates a prefix.
    pub fn prefix(text: &str) -> Result<String, InvalidRule> {
        let fits = (1..=KEY_BYTES_MAX).contains(&text.len()) && !text.contains('\0');
        if fits { Ok(text.to_owned()) } else { Err(InvalidRule::Prefix) }
    }

    /// Parses and validates an age in days.
    pub fn days(text: &str) -> Result<u32, InvalidRule> {
        text.parse().ok().filter(|days| (1..=DAYS_MAX).contains(days)).ok_or(InvalidRule::Days)
    }

    /// A rule with a valid prefix and age; `position` is its index in the list, from 0.
    #[must_use]
    pub fn new(position: usize, bucket: BucketName, prefix: String, days: u32) -> Self {
        let rule = Rule {
            id: format!("lifecycle.rules[{position}]"),
            status: Status::Enabled,
            filter: Filter { prefix: Some(prefix), ..Filter::default() },
            form: Form::Plain,
            expiration: Some(Expiration::OlderThanDays(days)),
            abort_after_days: None,
        };
        Self { bucket, rule }
    }

    /// The only bucket that the rule applies to.
    #[must_use]
    pub fn bucket(&self) -> &BucketName {
        &self.bucket
    }

    /// The rule itself.
    #[must_use]
    pub fn rule(&self) -> &Rule {
        &self.rule
    }
}

/// The rules of the configuration, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfiguredRules(Vec<ConfiguredRule>);

impl ConfiguredRules {
    /// Names of the buckets with rules, sorted and without duplicates.
    #[must_use]
    pub fn buckets(&self) -> Vec<&str> {
        let names: BTreeSet<&str> = self.0.iter().map(|rule| rule.bucket().as_str()).collect();
        names.into_iter().collect()
    }

    /// The rules of one bucket.
    pub fn of<'a>(&'a self, bucket: &'a BucketName) -> impl Iterator<Item = &'a Rule> {
        self.0.iter().filter(move |rule| rule.bucket() == bucket).map(ConfiguredRule::rule)
    }
}

impl FromIterator<ConfiguredRule> for ConfiguredRules {
    fn from_iter<I: IntoIterator<Item = ConfiguredRule>>(rules: I) -> Self {
        Self(rules.into_iter().collect())
    }
}
