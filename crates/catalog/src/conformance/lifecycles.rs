//! Tests of lifecycle rules and of the queries for objects that are due.

use std::time::Duration;

use s3o_model::conditions::WriteCondition;
use s3o_model::ids::BucketId;
use s3o_model::lifecycle::{DAY_MILLIS, Expiration, Filter, Form, Rule, Status, Threshold};

use super::fixture::Fixture;
use super::refused;
use crate::{DueObject, DueRange, Verdict};

pub(super) const DAY: Duration = Duration::from_hours(24);
pub(super) const LIMIT: usize = 1000;

/// A rule for keys that start with `tmp/`.
pub(super) fn rule(expiration: Expiration) -> Rule {
    Rule {
        id: "tmp".to_owned(),
        status: Status::Enabled,
        filter: Filter { prefix: Some("tmp/".to_owned()), ..Filter::default() },
        form: Form::Plain,
        expiration: Some(expiration),
        abort_after_days: None,
    }
}

pub(super) fn older(days: u32) -> Threshold {
    Expiration::OlderThanDays(days).threshold()
}

pub(super) fn all_of(bucket: BucketId, threshold: Threshold) -> DueRange {
    DueRange { bucket, from: String::new(), before: None, threshold }
}

pub(super) async fn due(fixture: &Fixture, range: &DueRange) -> Vec<DueObject> {
    fixture.catalog.due_objects(range, LIMIT).await.expect("a page").objects
}

fn keys(objects: &[DueObject]) -> Vec<&str> {
    objects.iter().map(|object| object.key.as_str()).collect()
}

/// Creates objects with these keys, two days old.
pub(super) async fn aged(fixture: &Fixture, bucket: BucketId, names: &[&str]) {
    for name in names {
        fixture.put(bucket, name, 5).await;
    }
    fixture.clock.advance(DAY * 2);
}

/// Each change gets a higher revision, even if it sets the same rules.
pub async fn rules_are_replaced_as_a_whole(fixture: &Fixture) {
    let bucket = fixture.bucket("ruled").await;
    let listed = async || fixture.catalog.ruled_bucket("", &[]).await.expect("a query");
    assert_eq!((fixture.catalog.lifecycle(bucket).await.expect("a query"), listed().await), (None, None));
    let rules = [rule(Expiration::Days(1)), Rule { id: "other".to_owned(), ..rule(Expiration::Days(9)) }];
    fixture.catalog.set_lifecycle(bucket, Some(&rules)).await.expect("set");
    let first = listed().await.expect("ruled");
    assert_eq!(fixture.catalog.lifecycle(bucket).await.expect("a query").as_ref(), Some(&first));
    assert_eq!((first.id, first.name.as_str(), &first.rules[..]), (bucket, "ruled", &rules[..]));
    fixture.catalog.set_lifecycle(bucket, None).await.expect("removed");
    assert_eq!(listed().await, None);
    fixture.catalog.set_lifecycle(bucket, Some(&rules)).await.expect("set");
    assert!(
        listed().await.expect("ruled").revision > first.revision,
        "setting the same rules again creates a new revision"
    );
}

/// A new bucket with the same name has none.
pub async fn rules_are_deleted_with_their_bucket(fixture: &Fixture) {
    let bucket = fixture.bucket("ruled").await;
    fixture.catalog.set_lifecycle(bucket, Some(&[rule(Expiration::Days(1))])).await.expect("set");
    fixture.catalog.delete_bucket(bucket).await.expect("deleted");
    refused(fixture.catalog.set_lifecycle(bucket, None).await, Verdict::NoSuchBucket);
    refused(fixture.catalog.lifecycle(bucket).await, Verdict::NoSuchBucket);
    let again = fixture.bucket("ruled").await;
    assert_eq!(fixture.catalog.lifecycle(again).await.expect("a query"), None);
}

/// Buckets that the configuration names are included if they exist.
pub async fn buckets_with_rules_are_listed_by_name(fixture: &Fixture) {
    for name in ["cats", "ants", "dogs", "bees"] {
        let bucket = fixture.bucket(name).await;
        if name != "bees" && name != "dogs" {
            fixture.catalog.set_lifecycle(bucket, Some(&[rule(Expiration::Days(1))])).await.expect("set");
        }
    }
    let mut found = Vec::new();
    let mut after = String::new();
    while let Some(bucket) = fixture.catalog.ruled_bucket(&after, &["bees", "missing"]).await.expect("a query") {
        bucket.name.as_str().clone_into(&mut after);
        found.push((after.clone(), bucket.rules.len()));
    }
    assert_eq!(found, [("ants".to_owned(), 1), ("bees".to_owned(), 0), ("cats".to_owned(), 1)]);
}

/// Callers need no extra query to know the revision in force.
pub async fn resolve_and_commits_return_the_rules_revision(fixture: &Fixture) {
    let bucket = fixture.bucket("revisions").await;
    let rules = [rule(Expiration::Days(1))];
    for set in [None, Some(&rules[..]), Some(&rules[..]), None, Some(&rules[..])] {
        fixture.catalog.set_lifecycle(bucket, set).await.expect("set");
        let revision = fixture.catalog.lifecycle(bucket).await.expect("a query").map(|bucket| bucket.revision);
        assert_eq!(revision.is_some(), set.is_some());
        let put = fixture.commit(&fixture.staged(bucket, "a", 5).await, WriteCondition::None).await.expect("written");
        let found = fixture.resolve("revisions", "a").await;
        let content = found.object.expect("there").content;
        let copied = fixture.copy((content, 5), bucket, "b").await.expect("copied");
        let upload = fixture.upload(bucket, "c").await;
        let parts = [fixture.part(upload, 1, 5).await];
        let completion = fixture.completion(upload, &parts).await;
        let completed = fixture.catalog.complete_upload(completion).await.expect("completed");
        let nothing = fixture.resolve("revisions", "nothing").await;
        assert_eq!([put.rules, copied.rules, completed.rules, found.rules, nothing.rules], [revision; 5]);
    }
}

/// Checked a millisecond before, at and after every threshold.
pub async fn due_objects_match_the_model(fixture: &Fixture) {
    let bucket = fixture.bucket("due").await;
    let date = |days| Expiration::Date(s3o_model::clock::Timestamp::from_millis(days * DAY_MILLIS));
    let today = fixture.now().millis() / DAY_MILLIS;
    let rules = [Expiration::Days(1), Expiration::Days(2), Expiration::OlderThanDays(1), date(today + 2), date(0)];
    fixture.put(bucket, "a", 1).await;
    let written = fixture.resolve("due", "a").await.object.expect("there").last_modified;
    let mut moments: Vec<i64> = rules.iter().map(|rule| rule.threshold().due_at(written).millis()).collect();
    moments.sort_unstable();
    for moment in moments.into_iter().flat_map(|moment| [moment - 1, moment, moment + 1]) {
        let ahead = u64::try_from(moment - fixture.now().millis()).unwrap_or(0);
        fixture.clock.advance(Duration::from_millis(ahead));
        for rule in rules {
            let found = due(fixture, &all_of(bucket, rule.threshold())).await.len() == 1;
            assert_eq!(found, rule.threshold().is_due(written, fixture.now()), "{rule:?} at {}", fixture.now());
        }
    }
}

/// A page covers a range of keys, however few of its objects are due.
pub async fn due_objects_are_listed_in_pages(fixture: &Fixture) {
    let bucket = fixture.bucket("pages").await;
    aged(fixture, bucket, &["a", "b", "e", "f", "g"]).await;
    for young in ["c", "d", "z"] {
        fixture.put(bucket, young, 5).await;
    }
    let mut range = DueRange { before: Some("h".to_owned()), ..all_of(bucket, older(1)) };
    let mut pages = Vec::new();
    loop {
        let page = fixture.catalog.due_objects(&range, 3).await.expect("a page");
        pages.push(keys(&page.objects).join(""));
        match page.next {
            Some(next) => range.from = next,
            None => break,
        }
    }
    assert_eq!(pages, ["ab", "ef", "g"]);
    let open = DueRange { from: "g".to_owned(), ..all_of(bucket, older(1)) };
    assert_eq!(keys(&due(fixture, &open).await), ["g"]);
}

/// Case is significant, and no character is a wildcard.
pub async fn prefix_is_matched_by_bytes(fixture: &Fixture) {
    let bucket = fixture.bucket("bytes").await;
    aged(fixture, bucket, &["tmp/a", "TMP/a", "tmp2/a", "tmp", "tmp/", "tmpX", "Tmp/a"]).await;
    let filter = rule(Expiration::Days(1)).filter;
    let range = DueRange { from: filter.prefix().to_owned(), before: filter.before(), ..all_of(bucket, older(1)) };
    assert_eq!(keys(&due(fixture, &range).await), ["tmp/", "tmp/a"]);
}

/// The expiry worker deletes it.
pub async fn expired_object_is_not_due(fixture: &Fixture) {
    let bucket = fixture.bucket("expired").await;
    aged(fixture, bucket, &["a", "b"]).await;
    fixture.change("UPDATE objects SET expires_at = :now WHERE key = 'a'", vec![]).await;
    assert_eq!(keys(&due(fixture, &all_of(bucket, older(1))).await), ["b"]);
}
