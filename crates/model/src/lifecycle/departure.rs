//! When an object or an upload goes by itself: by its own expiry or by a rule, whichever comes first.

use super::{Rule, Subject};
use crate::clock::Timestamp;

/// When an object or an upload goes by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Departure {
    /// The moment.
    pub at: Timestamp,
    /// What makes it go.
    pub by: DepartsBy,
}

/// What makes it go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DepartsBy {
    /// Its own expiry.
    Expiry,
    /// The rule of this name.
    Rule(String),
}

impl Departure {
    /// What comes first for an object with this expiry that was written at this moment. Of several that come
    /// at once it is the expiry, or else the first of the rules.
    pub fn first<'a>(
        expires_at: Option<Timestamp>,
        rules: impl Iterator<Item = &'a Rule>,
        object: Subject<'_>,
        written: Timestamp,
    ) -> Option<Self> {
        let own = expires_at.map(|at| (at, None));
        let due = rules.filter_map(|rule| Some((rule.due_at(object, written)?, Some(rule))));
        // Of equal ones the first is taken.
        let (at, rule) = own.into_iter().chain(due).min_by_key(|(at, _)| *at)?;
        Some(Self { at, by: rule.map_or(DepartsBy::Expiry, |rule| DepartsBy::Rule(rule.id.clone())) })
    }

    /// When an upload of this key that was opened at this moment is aborted, if nobody completes it.
    pub fn of_upload<'a>(rules: impl Iterator<Item = &'a Rule>, key: &str, opened: Timestamp) -> Option<Self> {
        let due = rules.filter_map(|rule| Some((rule.aborts_at(key, opened)?, rule)));
        let (at, rule) = due.min_by_key(|(at, _)| *at)?;
        Some(Self { at, by: DepartsBy::Rule(rule.id.clone()) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DAY_MILLIS, Expiration, Filter, Form, Rule, Status, Subject};
    use super::{DepartsBy, Departure};
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

    fn first(expires_at: Option<i64>, rules: &[Rule]) -> Option<(i64, DepartsBy)> {
        let object = Subject { key: "tmp/a", size_bytes: 1, tags: &Tags::new() };
        let departure = Departure::first(expires_at.map(Timestamp::from_millis), rules.iter(), object, WRITTEN);
        departure.map(|departure| (departure.at.millis(), departure.by))
    }

    fn by(name: &str) -> DepartsBy {
        DepartsBy::Rule(name.to_owned())
    }

    #[test]
    fn what_comes_first_is_told() {
        let rules = [rule("late", "tmp/", 9), rule("soon", "", 2), rule("other", "logs/", 1)];
        assert_eq!(first(None, &rules), Some((103 * DAY_MILLIS, by("soon"))));
        assert_eq!(first(None, &rules[..1]), Some((110 * DAY_MILLIS, by("late"))));
        assert_eq!(first(Some(103 * DAY_MILLIS - 1), &rules), Some((103 * DAY_MILLIS - 1, DepartsBy::Expiry)));
        assert_eq!(first(Some(103 * DAY_MILLIS + 1), &rules), Some((103 * DAY_MILLIS, by("soon"))));
    }

    #[test]
    fn of_several_at_once_the_first_is_told() {
        let rules = [rule("first", "tmp/", 2), rule("second", "", 2)];
        assert_eq!(first(None, &rules), Some((103 * DAY_MILLIS, by("first"))));
        assert_eq!(first(Some(103 * DAY_MILLIS), &rules), Some((103 * DAY_MILLIS, DepartsBy::Expiry)));
    }

    #[test]
    fn of_the_rules_that_abort_the_first_is_told() {
        let aborts = |id, prefix, days| Rule { expiration: None, abort_after_days: Some(days), ..rule(id, prefix, 1) };
        let disabled = Rule { status: Status::Disabled, ..aborts("off", "", 1) };
        let rules = [disabled, rule("objects", "", 1), aborts("late", "", 9), aborts("soon", "tmp/", 2)];
        let first = |key| Departure::of_upload(rules.iter(), key, WRITTEN).map(|found| (found.at.millis(), found.by));
        assert_eq!(first("tmp/a"), Some((103 * DAY_MILLIS, by("soon"))));
        assert_eq!(first("a"), Some((110 * DAY_MILLIS, by("late"))));
        assert_eq!(Departure::of_upload(rules[..2].iter(), "a", WRITTEN), None);
    }

    #[test]
    fn what_no_rule_in_force_means_stays() {
        let disabled = Rule { status: Status::Disabled, ..rule("off", "", 1) };
        let uploads = Rule { expiration: None, abort_after_days: Some(1), ..rule("uploads", "", 1) };
        assert_eq!(first(None, &[disabled, uploads, rule("other", "TMP/", 1)]), None);
        assert_eq!(first(Some(5), &[]), Some((5, DepartsBy::Expiry)));
    }
}
