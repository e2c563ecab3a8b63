//! Tests of the lifecycle worker and its preview.

mod races;

use std::sync::Arc;
use std::time::Duration;

use s3o_catalog::conformance::fixture::Fixture;
use s3o_catalog::conformance::quota_usage;
use s3o_catalog::{Catalog, params};
use s3o_model::ids::BucketId;
use s3o_model::lifecycle::{ConfiguredRule, ConfiguredRules, Expiration, Filter, Form, Rule, Status};
use s3o_model::object::Tags;

use super::{LifecycleWorker, Preview, RuleSource, SharedRules, preview};
use crate::testing::{counted, event_names, fixture, ids};
use crate::{Report, Worker as _};

const DAY: Duration = Duration::from_hours(24);

fn below(prefix: &str) -> Filter {
    Filter { prefix: Some(prefix.to_owned()), ..Filter::default() }
}

fn rule(id: &str, filter: Filter, days: u32) -> Rule {
    Rule {
        id: id.to_owned(),
        status: Status::Enabled,
        filter,
        form: Form::Plain,
        expiration: Some(Expiration::Days(days)),
        abort_after_days: None,
    }
}

fn configured(rules: &[(&str, &str, u32)]) -> ConfiguredRules {
    let numbered = rules.iter().enumerate();
    numbered
        .map(|(position, (bucket, prefix, days))| {
            ConfiguredRule::new(position, bucket.parse().expect("a name"), (*prefix).to_owned(), *days)
        })
        .collect()
}

fn worker(fixture: &Fixture, rules: &SharedRules) -> LifecycleWorker {
    over(Arc::new(fixture.catalog.clone()), fixture, rules)
}

fn over(lifecycles: Arc<Catalog>, fixture: &Fixture, rules: &SharedRules) -> LifecycleWorker {
    LifecycleWorker { page: 3, ..LifecycleWorker::new(lifecycles, rules.clone(), ids(fixture), Arc::default()) }
}

/// Ticks until no more is waiting; also returns the number of ticks.
async fn run(worker: &LifecycleWorker) -> (Report, usize) {
    let mut run = Report::default();
    for ticks in 1..200 {
        let mut report = Report::default();
        worker.tick(&mut report).await.expect("a tick");
        run.absorb(report);
        if !run.more {
            return (run, ticks);
        }
    }
    panic!("it does not end");
}

async fn previewed(fixture: &Fixture, rules: &SharedRules) -> Preview {
    preview(&fixture.catalog, rules).await.expect("a preview")
}

async fn put_all(fixture: &Fixture, bucket: BucketId, keys: &[&str]) {
    for key in keys {
        fixture.put(bucket, key, 5).await;
    }
}

async fn left(fixture: &Fixture) -> Vec<String> {
    let rows = fixture.rows("SELECT key FROM objects ORDER BY key", vec![]).await;
    rows.iter().map(|row| row.string("key").expect("a key")).collect()
}

async fn set(fixture: &Fixture, bucket: BucketId, rules: &[Rule]) {
    fixture.catalog.set_lifecycle(bucket, Some(rules)).await.expect("set");
}

#[tokio::test]
async fn aged_objects_are_deleted_and_audited_in_bounded_batches() {
    let fixture = fixture();
    let bucket = fixture.bucket("photos").await;
    let keys: Vec<String> = (0..7).map(|number| format!("tmp/{number}")).collect();
    put_all(&fixture, bucket, &keys.iter().map(String::as_str).collect::<Vec<_>>()).await;
    put_all(&fixture, bucket, &["TMP/a", "tmp2/a", "a", "z"]).await;
    let rules = SharedRules::new(configured(&[("photos", "tmp/", 7)]));
    let worker = worker(&fixture, &rules);
    fixture.clock.advance(DAY * 7);
    assert_eq!(run(&worker).await.0, Report::default(), "exactly seven days old is not older than seven days");
    fixture.clock.advance(Duration::from_secs(1));
    let mut report = Report::default();
    worker.tick(&mut report).await.expect("a tick");
    assert_eq!((counted(&report), report.more), (vec![("deleted", 3)], true), "a full batch ticks again");
    tokio::time::timeout(Duration::ZERO, worker.cleanup_wakeup.notified()).await.expect("cleanup was woken");
    let (rest, _) = run(&worker).await;
    assert_eq!((counted(&rest), event_names(&rest)), (vec![("deleted", 4)], vec!["lifecycle.deleted"; 4]));
    let event = serde_json::to_value(&report.events[0]).expect("serialises");
    let expected = serde_json::json!({"bucket": "photos", "key": "tmp/0", "size_bytes": 5,
        "rule": "lifecycle.rules[0]", "source": "configuration"});
    assert_eq!(event, expected);
    assert_eq!(left(&fixture).await, ["TMP/a", "a", "tmp2/a", "z"]);
    quota_usage::check(&fixture).await;
}

#[tokio::test]
async fn every_rule_of_every_bucket_is_applied() {
    let fixture = fixture();
    for name in ["one", "two", "young"] {
        let bucket = fixture.bucket(name).await;
        let keys: Vec<String> =
            (0..5).flat_map(|number| ["a", "b", "c"].map(|folder| format!("{folder}/{number}"))).collect();
        put_all(&fixture, bucket, &keys.iter().map(String::as_str).collect::<Vec<_>>()).await;
        if name != "young" {
            set(&fixture, bucket, &[rule("a", below("a/"), 1), rule("b", below("b/"), 1)]).await;
        }
    }
    fixture.clock.advance(DAY * 3);
    let rules = SharedRules::new(configured(&[("gone", "x", 1), ("two", "c/", 1), ("young", "c/", 9)]));
    let worker = worker(&fixture, &rules);
    let (report, ticks) = run(&worker).await;
    assert_eq!(counted(&report), [("deleted", 25)]);
    assert!(ticks < 20, "{ticks} ticks");
    assert_eq!(left(&fixture).await.len(), 20);
    assert_eq!(run(&worker).await, (Report::default(), 1), "nothing is left to delete");
}

#[tokio::test]
async fn filters_by_tags_and_size_are_applied() {
    let fixture = fixture();
    let bucket = fixture.bucket("tags").await;
    put_all(&fixture, bucket, &["temp", "other", "plain"]).await;
    fixture.put(bucket, "large", 50).await;
    let tag = |value: &str| Tags::from([("kind".to_owned(), value.to_owned())]);
    for (key, value) in [("temp", "temp"), ("other", "kept")] {
        let object = fixture.resolve("tags", key).await.object.expect("there");
        fixture.catalog.set_object_tags(&object, &tag(value)).await.expect("tagged");
    }
    let tagged = rule("tagged", Filter { tags: tag("temp"), ..Filter::default() }, 1);
    let large = rule("large", Filter { size_greater_than: Some(10), ..Filter::default() }, 1);
    let off = Rule { status: Status::Disabled, ..rule("off", Filter::default(), 1) };
    set(&fixture, bucket, &[tagged, large, off]).await;
    fixture.clock.advance(DAY * 3);
    let (report, _) = run(&worker(&fixture, &SharedRules::default())).await;
    assert_eq!(
        (counted(&report), left(&fixture).await),
        (vec![("deleted", 2)], vec!["other".to_owned(), "plain".to_owned()])
    );
    let by: Vec<_> = report
        .events
        .iter()
        .map(|event| (event.key.clone().unwrap_or_default(), event.details["rule"].clone()))
        .collect();
    assert_eq!(by, [("temp".to_owned(), "tagged".into()), ("large".to_owned(), "large".into())]);
}

#[tokio::test]
async fn incomplete_uploads_are_aborted() {
    let fixture = fixture();
    let bucket = fixture.bucket("uploads").await;
    let old = fixture.upload(bucket, "tmp/a").await;
    fixture.part(old, 1, 5).await;
    fixture.upload(bucket, "other").await;
    fixture.clock.advance(DAY * 3);
    fixture.upload(bucket, "tmp/young").await;
    let abort = Rule { expiration: None, abort_after_days: Some(2), ..rule("abort", below("tmp/"), 1) };
    set(&fixture, bucket, &[abort.clone(), Rule { id: "again".to_owned(), filter: Filter::default(), ..abort }]).await;
    let shown = previewed(&fixture, &SharedRules::default()).await;
    assert_eq!((shown.items[0].uploads, shown.items[1].uploads, shown.total.uploads), (1, 2, 2));
    let (report, _) = run(&worker(&fixture, &SharedRules::default())).await;
    assert_eq!((counted(&report), event_names(&report)), (vec![("aborted", 2)], vec!["multipart.aborted"; 2]));
    let event = serde_json::to_value(&report.events[0]).expect("serialises");
    assert_eq!((&event["key"], &event["size_bytes"], &event["rule"]), (&"tmp/a".into(), &5.into(), &"abort".into()));
    assert_eq!(event["upload_id"], old.to_string());
}

#[tokio::test]
async fn preview_counts_what_the_run_deletes() {
    let fixture = fixture();
    let bucket = fixture.bucket("shown").await;
    put_all(&fixture, bucket, &["tmp/1", "tmp/2", "tmp/3", "tmp/4", "logs/1"]).await;
    fixture.clock.advance(DAY * 3);
    put_all(&fixture, bucket, &["tmp/young"]).await;
    set(&fixture, bucket, &[rule("tmp", below("tmp/"), 1), rule("all", Filter::default(), 2)]).await;
    let rules = SharedRules::new(configured(&[("shown", "tmp/", 1)]));
    let shown = previewed(&fixture, &rules).await;
    let counts: Vec<_> =
        shown.items.iter().map(|item| (item.source, item.rule.as_str(), item.count, item.bytes)).collect();
    let (file, api) = (RuleSource::Configuration, RuleSource::Bucket);
    assert_eq!(counts, [(file, "lifecycle.rules[0]", 4, 20), (api, "tmp", 4, 20), (api, "all", 5, 25)]);
    assert_eq!((shown.total.count, shown.total.bytes, shown.left_out), (5, 25, 0));
    assert_eq!(shown.items[2].samples[0].key, "logs/1");
    assert_eq!(left(&fixture).await.len(), 6, "the preview deletes nothing");
    let (report, _) = run(&worker(&fixture, &rules)).await;
    assert_eq!(counted(&report), [("deleted", shown.total.count)]);
    assert_eq!(previewed(&fixture, &rules).await.total, super::PreviewTotal::default());
}

#[tokio::test]
async fn row_that_cannot_be_deleted_does_not_block_the_others() {
    let fixture = fixture();
    let bucket = fixture.bucket("broken").await;
    put_all(&fixture, bucket, &["a", "c"]).await;
    let broken = fixture.put(bucket, "b", 5).await;
    // The reference count would fall below zero, which a constraint of the catalog rejects.
    fixture.change("UPDATE contents SET ref_count = 0 WHERE id = $1", params![broken]).await;
    set(&fixture, bucket, &[rule("all", Filter::default(), 1)]).await;
    fixture.clock.advance(DAY * 3);
    let (report, _) = run(&worker(&fixture, &SharedRules::default())).await;
    assert_eq!((counted(&report), left(&fixture).await), (vec![("deleted", 2), ("failed", 1)], vec!["b".to_owned()]));
}
