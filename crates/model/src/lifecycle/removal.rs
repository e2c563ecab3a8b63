//! When an object is deleted or an upload is aborted: by its own expiry or by a rule, whichever comes first.

use super::{Rule, Subject};
use crate::clock::Timestamp;

/// Time and cause of the deletion of an object or the abort of an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduledDeletion {
    /// Time from which the deletion is due.
    pub at: Timestamp,
    /// Cause of the deletion.
    pub by: DeletionCause,
}

/// Cause of a deletion or abort.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeletionCause {
    /// The object's own expiry.
    Expiry,
    /// The lifecycle rule with this ID.
    Rule(String),
}

impl ScheduledDeletion {
    /// The first deletion of an object with this expiry that was written at this time. At equal times the
    /// expiry comes first, then the rules in order.
    pub fn first<'a>(
        expires_at: Option<Timestamp>,
        rules: impl Iterator<Item = &'a Rule>,
        object: Subject<'_>,
        written: Timestamp,
    ) -> Option<Self> {
        let own = expires_at.map(|at| (at, None));
        let due = rules.filter_map(|rule| Some((rule.due_at(object, written)?, Some(rule))));
        // `min_by_key` returns the first of equal elements.
        let (at, rule) = own.into_iter().chain(due).min_by_key(|(at, _)| *at)?;
        Some(Self { at, by: rule.map_or(DeletionCause::Expiry, |rule| DeletionCause::Rule(rule.id.clone())) })
    }

    /// The first abort of an incomplete upload of this key that was opened at this time.
    pub fn of_upload<'a>(rules: impl Iterator<Item = &'a Rule>, key: &str, opened: Timestamp) -> Option<Self> {
        let due = rules.filter_map(|rule| Some((rule.aborts_at(key, opened)?, rule)));
        let (at, rule) = due.min_by_key(|(at, _)| *at)?;
        Some(Self { at, by: DeletionCause::Rule(rule.id.clone()) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DAY_MILLIS, Expiration, Filter, Form, Rule, Status, Subject};
    use super::{DeletionCause, ScheduledDeletion};
    use crate::clock::Timestamp;
    use crate::object::Tags;

    const WRITTEN: Timestamp = Timestamp::from_millis(100 * DAY_MILLIS + 1000);

    fn rule(id: &str, prefix: &str, days: u32) -> Rule {
        Rule {
            id: id.to_owned(),
            status: Status::Enabled,
            filter: Filter { prefix: Some(prefix.to_owned()), ..Filter::default() },
            form: Form::Plain,
            expiration: Some(Expiration::Days(days)),
            abort_after_days: None,
        }
    }

    fn first(expires_at: Option<i64>, rules: &[Rule]) -> Option<(i64, DeletionCause)> {
        let object = Subject { key: "tmp/a", size_bytes: 1, tags: &Tags::new() };
        let first = ScheduledDeletion::first(expires_at.map(Timestamp::from_millis), rules.iter(), object, WRITTEN);
        first.map(|deletion| (deletion.at.millis(), deletion.by))
    }

    fn by(name: &str) -> DeletionCause {
        DeletionCause::Rule(name.to_owned())
    }

    #[test]
    fn earliest_of_expiry_and_rules_is_returned() {
        let rules = [rule("late", "tmp/", 9), rule("soon", "", 2), rule("other", "logs/", 1)];
        assert_eq!(first(None, &rules), Some((103 * DAY_MILLIS, by("soon"))));
        assert_eq!(first(None, &rules[..1]), Some((110 * DAY_MILLIS, by("late"))));
        assert_eq!(first(Some(103 * DAY_MILLIS - 1), &rules), Some((103 * DAY_MILLIS - 1, DeletionCause::Expiry)));
        assert_eq!(first(Some(103 * DAY_MILLIS + 1), &rules), Some((103 * DAY_MILLIS, by("soon"))));
    }

    #[test]
    fn expiry_and_then_the_first_rule_win_at_equal_times() {
        let rules = [rule("first", "tmp/", 2), rule("second", "", 2)];
        assert_eq!(first(None, &rules), Some((103 * DAY_MILLIS, by("first"))));
        assert_eq!(first(Some(103 * DAY_MILLIS), &rules), Some((103 * DAY_MILLIS, DeletionCause::Expiry)));
    }

    #[test]
    fn earliest_aborting_rule_is_returned() {
        let aborts = |id, prefix, days| Rule { expiration: None, abort_after_days: Some(days), ..rule(id, prefix, 1) };
        let disabled = Rule { status: Status::Disabled, ..aborts("off", "", 1) };
        let rules = [disabled, rule("objects", "", 1), aborts("late", "", 9), aborts("soon", "tmp/", 2)];
        let first =
            |key| ScheduledDeletion::of_upload(rules.iter(), key, WRITTEN).map(|found| (found.at.millis(), found.by));
        assert_eq!(first("tmp/a"), Some((103 * DAY_MILLIS, by("soon"))));
        assert_eq!(first("a"), Some((110 * DAY_MILLIS, by("late"))));
        assert_eq!(ScheduledDeletion::of_upload(rules[..2].iter(), "a", WRITTEN), None);
    }

    #[test]
    fn object_without_enabled_matching_rule_is_not_deleted() {
        let disabled = Rule { status: Status::Disabled, ..rule("off", "", 1) };
        let uploads = Rule { expiration: None, abort_after_days: Some(1), ..rule("uploads", "", 1) };
        assert_eq!(first(None, &[disabled, uploads, rule("other", "TMP/", 1)]), None);
        assert_eq!(first(Some(5), &[]), Some((5, DeletionCause::Expiry)));
    }
}
