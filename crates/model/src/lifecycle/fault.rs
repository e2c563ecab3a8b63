//! Validation of the lifecycle rules of a bucket, as S3 does it.

use std::collections::BTreeSet;

use super::{DAY_MILLIS, Expiration, Form, RULES_MAX, Rule};
use crate::names::KEY_BYTES_MAX;

const ID_CHARS_MAX: usize = 255;

/// Kind of a fault; it decides the S3 error code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleFaultKind {
    /// The XML does not follow the schema.
    Malformed,
    /// A value is not allowed.
    Value,
    /// A combination of elements is not allowed.
    Combination,
}

macro_rules! faults {
    ($($(#[$doc:meta])+ $name:ident: $kind:ident, $message:literal;)+) => {
        /// Why the rules of a bucket are refused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
        pub enum RuleFault {
            $($(#[$doc])+ #[error($message)] $name,)+
        }

        impl RuleFault {
            /// The kind of the fault.
            #[must_use]
            pub const fn kind(self) -> RuleFaultKind {
                match self {
                    $(Self::$name => RuleFaultKind::$kind,)+
                }
            }
        }
    };
}

faults! {
    /// No rule, or too many.
    Count: Malformed, "A lifecycle configuration must have 1 to 1000 rules";
    /// An ID has more than 255 characters.
    IdTooLong: Value, "ID length should not exceed allowed limit of 255";
    /// Two rules have the same ID.
    IdTwice: Value, "Rule ID must be unique. Found same ID for more than one rule";
    /// The rule has no action.
    NoAction: Combination, "At least one action needs to be specified in a rule";
    /// The number of days is zero.
    Days: Value, "'Days' for Expiration action must be a positive integer";
    /// `Date` has a time of day other than 00:00 UTC.
    DateNotMidnight: Value, "'Date' must be at midnight GMT";
    /// The number of days is zero.
    AbortDays: Value, "'DaysAfterInitiation' for AbortIncompleteMultipartUpload action must be a positive integer";
    /// An abort action with a tag filter: uploads have no tags.
    AbortWithTags: Combination, "AbortIncompleteMultipartUpload cannot be specified with Tags";
    /// An abort action with a size filter: uploads have no size.
    AbortWithSize: Combination, "AbortIncompleteMultipartUpload cannot be specified with Object Size";
    /// The prefix is longer than any key.
    PrefixTooLong: Combination, "The maximum size of a prefix is 1024";
    /// The prefix has a NUL, which no key has.
    PrefixNul: Malformed, "A prefix must not contain the NUL character";
    /// Several conditions without `And`.
    TooManyConditions: Malformed, "A Filter must have at most one condition, or an And element with several";
    /// `And` with fewer than two conditions.
    TooFewConditions: Malformed, "And must contain two or more conditions";
    /// No size satisfies both bounds.
    Sizes: Combination, "'ObjectSizeLessThan' has to be a value greater than 'ObjectSizeGreaterThan'";
}

/// Validates the rules of a bucket and assigns IDs to those without one.
pub fn complete(mut rules: Vec<Rule>) -> Result<Vec<Rule>, RuleFault> {
    if rules.is_empty() || rules.len() > RULES_MAX {
        return Err(RuleFault::Count);
    }
    rules.iter().try_for_each(check)?;
    let mut names = BTreeSet::new();
    if !rules.iter().filter(|rule| !rule.id.is_empty()).all(|rule| names.insert(rule.id.clone())) {
        return Err(RuleFault::IdTwice);
    }
    for (position, rule) in rules.iter_mut().enumerate().filter(|(_, rule)| rule.id.is_empty()) {
        let mut name = format!("rule-{}", position + 1);
        while !names.insert(name.clone()) {
            name.push('-');
        }
        rule.id = name;
    }
    Ok(rules)
}

fn check(rule: &Rule) -> Result<(), RuleFault> {
    if rule.id.chars().count() > ID_CHARS_MAX {
        return Err(RuleFault::IdTooLong);
    }
    check_filter(rule)?;
    match rule.expiration {
        Some(Expiration::Days(0) | Expiration::OlderThanDays(0)) => return Err(RuleFault::Days),
        Some(Expiration::Date(moment)) if moment.millis().rem_euclid(DAY_MILLIS) != 0 => {
            return Err(RuleFault::DateNotMidnight);
        }
        Some(Expiration::Days(_) | Expiration::OlderThanDays(_) | Expiration::Date(_)) | None => {}
    }
    check_abort(rule)
}

fn check_abort(rule: &Rule) -> Result<(), RuleFault> {
    let sized = rule.filter.size_greater_than.is_some() || rule.filter.size_less_than.is_some();
    match rule.abort_after_days {
        None if rule.expiration.is_none() => Err(RuleFault::NoAction),
        Some(0) => Err(RuleFault::AbortDays),
        Some(_) if !rule.filter.tags.is_empty() => Err(RuleFault::AbortWithTags),
        Some(_) if sized => Err(RuleFault::AbortWithSize),
        None | Some(_) => Ok(()),
    }
}

fn check_filter(rule: &Rule) -> Result<(), RuleFault> {
    let filter = &rule.filter;
    if filter.prefix().len() > KEY_BYTES_MAX {
        return Err(RuleFault::PrefixTooLong);
    }
    if filter.prefix().contains('\0') {
        return Err(RuleFault::PrefixNul);
    }
    let sizes = [filter.size_greater_than, filter.size_less_than];
    let others = usize::from(filter.prefix.is_some()) + sizes.iter().flatten().count();
    match rule.form {
        Form::Plain | Form::Prefix if others + filter.tags.len() > 1 => return Err(RuleFault::TooManyConditions),
        Form::And if others + filter.tags.len() < 2 => return Err(RuleFault::TooFewConditions),
        Form::Plain | Form::Prefix | Form::And => {}
    }
    let crossed = filter.size_less_than.is_some_and(|less| less <= filter.size_greater_than.unwrap_or(0));
    if crossed { Err(RuleFault::Sizes) } else { Ok(()) }
}
