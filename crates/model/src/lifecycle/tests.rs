//! Tests of lifecycle rules.

use proptest::prelude::{ProptestConfig, any, prop, prop_assert_eq, proptest};

use super::{
    ConfiguredRule, DAY_MILLIS, Expiration, Filter, Form, InvalidRule, Rule, RuleFault, Status, Subject, complete,
};
use crate::clock::Timestamp;
use crate::object::Tags;

const HOUR: i64 = 3_600_000;

fn tags(pairs: &[(&str, &str)]) -> Tags {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn rule(filter: Filter, expiration: Expiration) -> Rule {
    Rule {
        id: String::new(),
        status: Status::Enabled,
        filter,
        form: Form::Plain,
        expiration: Some(expiration),
        abort_after_days: None,
    }
}

fn below(prefix: &str) -> Filter {
    Filter { prefix: Some(prefix.to_owned()), ..Filter::default() }
}

fn matches(filter: &Filter, key: &str, size_bytes: u64, tags: &Tags) -> bool {
    filter.matches(Subject { key, size_bytes, tags })
}

fn due(expiration: Expiration, written: i64) -> i64 {
    expiration.threshold().due_at(Timestamp::from_millis(written)).millis()
}

#[test]
fn prefix_matches_bytes_case_sensitively() {
    let (filter, none) = (below("tmp/"), Tags::new());
    for key in ["tmp/", "tmp/a", "tmp//"] {
        assert!(matches(&filter, key, 0, &none), "{key}");
    }
    for key in ["TMP/a", "tmp2/a", "tmp", "a/tmp/", "tm%/a", "Tmp/"] {
        assert!(!matches(&filter, key, 0, &none), "{key}");
    }
    assert_eq!(filter.before().as_deref(), Some("tmp0"));
    assert!(matches(&below("t_p%"), "t_p%x", 0, &none) && !matches(&below("t_p%"), "tmpx", 0, &none));
}

#[test]
fn empty_filter_matches_the_whole_bucket() {
    assert!(matches(&Filter::default(), "anything", 5, &tags(&[("a", "b")])));
    assert_eq!(Filter::default().before(), None);
}

#[test]
fn size_bounds_are_exclusive() {
    let filter = Filter { size_greater_than: Some(10), size_less_than: Some(20), ..Filter::default() };
    let met: Vec<u64> = (8..22).filter(|size| matches(&filter, "k", *size, &Tags::new())).collect();
    assert_eq!(met, (11..20).collect::<Vec<_>>());
}

#[test]
fn object_must_have_every_tag_of_the_filter() {
    let filter = Filter { tags: tags(&[("kind", "temp"), ("team", "a")]), ..Filter::default() };
    assert!(matches(&filter, "k", 0, &tags(&[("kind", "temp"), ("team", "a"), ("more", "")])));
    for found in [&[("kind", "temp")][..], &[("kind", "temp"), ("team", "A")], &[("Kind", "temp"), ("team", "a")], &[]]
    {
        assert!(!matches(&filter, "k", 0, &tags(found)), "{found:?}");
    }
}

#[test]
fn days_are_due_at_midnight() {
    let day = |number: i64| number * DAY_MILLIS;
    // Written at ten o'clock with three days: due at the midnight after the third day.
    assert_eq!(due(Expiration::Days(3), day(100) + 10 * HOUR), day(104));
    assert_eq!(due(Expiration::Days(1), day(100)), day(101));
    assert_eq!(due(Expiration::Days(1), day(100) + 1), day(102));
    assert_eq!(due(Expiration::Days(1), day(101) - 1), day(102));
}

#[test]
fn configured_age_is_exact_to_the_second() {
    let written = 100 * DAY_MILLIS + 10 * HOUR;
    let due = due(Expiration::OlderThanDays(7), written);
    // An object written in the last millisecond of that second is older than seven days by then, too.
    assert_eq!(due, written + 7 * DAY_MILLIS + 1000);
}

#[test]
fn date_applies_to_every_object_from_then_on() {
    let date = Expiration::Date(Timestamp::from_millis(200 * DAY_MILLIS));
    assert_eq!(due(date, 5), 200 * DAY_MILLIS);
    assert_eq!(due(date, 300 * DAY_MILLIS + 5), 300 * DAY_MILLIS + 5, "due immediately");
}

#[test]
fn disabled_rule_is_not_applied() {
    let enabled = Rule { abort_after_days: Some(2), ..rule(Filter::default(), Expiration::Days(1)) };
    let disabled = Rule { status: Status::Disabled, ..enabled.clone() };
    assert!(enabled.expires().is_some() && enabled.aborts().is_some());
    assert_eq!((disabled.expires(), disabled.aborts()), (None, None));
    let object = Subject { key: "k", size_bytes: 1, tags: &Tags::new() };
    assert_eq!(disabled.due_at(object, Timestamp::from_millis(0)), None);
    assert_eq!(enabled.due_at(object, Timestamp::from_millis(1)), Some(Timestamp::from_millis(2 * DAY_MILLIS)));
    assert_eq!(enabled.aborts().map(|threshold| threshold.age_millis), Some(2 * DAY_MILLIS));
}

#[test]
fn invalid_rules_are_refused() {
    let good = rule(below("a"), Expiration::Days(1));
    let with = |change: &dyn Fn(&mut Rule)| {
        let mut changed = good.clone();
        change(&mut changed);
        complete(vec![changed]).map(drop)
    };
    let and = |filter: Filter| with(&|rule| (rule.form, rule.filter) = (Form::And, filter.clone()));
    assert_eq!(with(&|_| {}), Ok(()));
    assert_eq!(with(&|rule| rule.id = "x".repeat(256)), Err(RuleFault::IdTooLong));
    assert_eq!(with(&|rule| rule.expiration = None), Err(RuleFault::NoAction));
    assert_eq!(with(&|rule| rule.expiration = Some(Expiration::Days(0))), Err(RuleFault::Days));
    let noon = Expiration::Date(Timestamp::from_millis(DAY_MILLIS / 2));
    assert_eq!(with(&|rule| rule.expiration = Some(noon)), Err(RuleFault::DateNotMidnight));
    assert_eq!(with(&|rule| rule.abort_after_days = Some(0)), Err(RuleFault::AbortDays));
    assert_eq!(with(&|rule| rule.filter = below(&"x".repeat(1025))), Err(RuleFault::PrefixTooLong));
    assert_eq!(with(&|rule| rule.filter = below("a\0")), Err(RuleFault::PrefixNul));
    let tagged = Filter { tags: tags(&[("a", "b")]), ..Filter::default() };
    let both = Filter { tags: tags(&[("a", "b")]), ..below("a") };
    let abort_tagged = |rule: &mut Rule| (rule.filter, rule.abort_after_days) = (tagged.clone(), Some(1));
    assert_eq!(with(&abort_tagged), Err(RuleFault::AbortWithTags));
    let sized = Filter { size_greater_than: Some(1), ..Filter::default() };
    let abort_sized = |rule: &mut Rule| (rule.filter, rule.abort_after_days) = (sized.clone(), Some(1));
    assert_eq!(with(&abort_sized), Err(RuleFault::AbortWithSize));
    assert_eq!(with(&|rule| rule.filter = both.clone()), Err(RuleFault::TooManyConditions));
    assert_eq!((and(both.clone()), and(tagged.clone())), (Ok(()), Err(RuleFault::TooFewConditions)));
    let between = |more, less| Filter { size_greater_than: more, size_less_than: Some(less), ..below("a") };
    assert_eq!(and(between(Some(5), 5)), Err(RuleFault::Sizes));
    assert_eq!(and(between(None, 0)), Err(RuleFault::Sizes));
    assert_eq!((and(between(Some(5), 6)), and(between(None, 1))), (Ok(()), Ok(())));
}

#[test]
fn rule_count_is_bounded_and_ids_are_unique() {
    let named = |id: &str| Rule { id: id.to_owned(), ..rule(below("a"), Expiration::Days(1)) };
    assert_eq!(complete(Vec::new()), Err(RuleFault::Count));
    assert_eq!(complete(vec![named(""); 1001]), Err(RuleFault::Count));
    assert_eq!(complete(vec![named("a"), named("a")]), Err(RuleFault::IdTwice));
    let ids_of = |rules: Vec<Rule>| rules.into_iter().map(|rule| rule.id).collect::<Vec<_>>();
    let completed = complete(vec![named(""), named("rule-1"), named("")]).expect("valid");
    assert_eq!(ids_of(completed), ["rule-1-", "rule-1", "rule-3"]);
    assert_eq!(complete(vec![named(""); 1000]).expect("valid").len(), 1000);
}

#[test]
fn configured_rule_needs_a_prefix_and_days() {
    for text in ["", "a\0b", &"x".repeat(1025)] {
        assert_eq!(ConfiguredRule::prefix(text), Err(InvalidRule::Prefix), "{text:?}");
    }
    for text in ["0", "-1", "1.5", "", "36501", "week"] {
        assert_eq!(ConfiguredRule::days(text), Err(InvalidRule::Days), "{text:?}");
    }
    let prefix = ConfiguredRule::prefix("tmp/").expect("valid");
    let bucket = "photos".parse().expect("valid");
    let configured = ConfiguredRule::new(2, bucket, prefix, ConfiguredRule::days("7").expect("valid"));
    assert_eq!((configured.bucket().as_str(), configured.rule().id.as_str()), ("photos", "lifecycle.rules[2]"));
    assert_eq!(configured.rule().expiration, Some(Expiration::OlderThanDays(7)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn threshold_and_due_time_agree(
        days in 1_u32..40_000,
        written in 0_i64..4_000_000_000_000,
        past in -2 * DAY_MILLIS..2 * DAY_MILLIS,
        exact in any::<bool>(),
    ) {
        let written = written / 1000 * 1000;
        let expiration = if exact { Expiration::OlderThanDays(days) } else { Expiration::Days(days) };
        let threshold = expiration.threshold();
        let now = threshold.due_at(Timestamp::from_millis(written)).millis() + past;
        // The condition in the catalog's statement.
        let by_sql = written <= now / threshold.step_millis * threshold.step_millis - threshold.age_millis
            && now >= threshold.from.millis();
        prop_assert_eq!(threshold.is_due(Timestamp::from_millis(written), Timestamp::from_millis(now)), by_sql);
        prop_assert_eq!(by_sql, past >= 0);
    }

    #[test]
    fn range_of_a_filter_contains_its_keys(prefix in "[a-c\u{10FFFF}]{0,3}", key in "[a-c\u{10FFFF}]{1,5}") {
        let filter = below(&prefix);
        let within = key.as_str() >= prefix.as_str() && filter.before().is_none_or(|before| key < before);
        prop_assert_eq!(matches(&filter, &key, 0, &Tags::new()), within);
    }

    #[test]
    fn rules_deserialize_as_they_were_stored(
        prefix in prop::option::of(".{0,8}"),
        days in 1_u32..9,
        more in prop::option::of(0_u64..9),
        abort in prop::option::of(1_u32..9),
    ) {
        let filter = Filter { prefix, size_greater_than: more, tags: tags(&[("a", "b")]), ..Filter::default() };
        let stored = Rule { abort_after_days: abort, form: Form::And, ..rule(filter, Expiration::Days(days)) };
        let text = serde_json::to_string(&stored).expect("serialises");
        prop_assert_eq!(serde_json::from_str::<Rule>(&text).expect("reads back"), stored);
    }
}
