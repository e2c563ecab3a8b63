//! Facts about the worker and its preview.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use s3o_catalog::conformance::books;
use s3o_catalog::conformance::scene::Scene;
use s3o_catalog::{
    Buckets as _, Catalog, DueBatch, DuePage, DueRange, DueUpload, Lifecycles, Objects as _, RuledBucket, params,
};
use s3o_model::ids::{BucketId, ClaimToken, UploadId};
use s3o_model::lifecycle::{ConfiguredRule, ConfiguredRules, Expiration, Filter, Form, Rule, Status, Threshold};
use s3o_model::names::ObjectKey;
use s3o_model::object::Tags;

use super::{Lifecycle, Preview, RuleSource, SharedRules, preview};
use crate::testing::{counted, ids, scene, told};
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

fn worker(scene: &Scene, rules: &SharedRules) -> Lifecycle {
    over(Arc::new(scene.catalog.clone()), scene, rules)
}

fn over(lifecycles: Arc<dyn Lifecycles>, scene: &Scene, rules: &SharedRules) -> Lifecycle {
    Lifecycle { page: 3, ..Lifecycle::new(lifecycles, rules.clone(), ids(scene), Arc::default()) }
}

/// Ticks until nothing more waits; how often is returned, too.
async fn run(worker: &Lifecycle) -> (Report, usize) {
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

async fn previewed(scene: &Scene, rules: &SharedRules) -> Preview {
    preview(&scene.catalog, rules).await.expect("a preview")
}

async fn put_all(scene: &Scene, bucket: BucketId, keys: &[&str]) {
    for key in keys {
        scene.put(bucket, key, 5).await;
    }
}

async fn left(scene: &Scene) -> Vec<String> {
    let rows = scene.rows("SELECT key FROM objects ORDER BY key", vec![]).await;
    rows.iter().map(|row| row.text(0).expect("a key").to_owned()).collect()
}

async fn set(scene: &Scene, bucket: BucketId, rules: &[Rule]) {
    scene.catalog.set_lifecycle(bucket, Some(rules)).await.expect("set");
}

#[tokio::test]
async fn objects_that_aged_go_in_bounded_batches_and_are_told() {
    let scene = scene();
    let bucket = scene.bucket("photos").await;
    let keys: Vec<String> = (0..7).map(|number| format!("tmp/{number}")).collect();
    put_all(&scene, bucket, &keys.iter().map(String::as_str).collect::<Vec<_>>()).await;
    put_all(&scene, bucket, &["TMP/a", "tmp2/a", "a", "z"]).await;
    let rules = SharedRules::new(configured(&[("photos", "tmp/", 7)]));
    let worker = worker(&scene, &rules);
    scene.clock.advance(DAY * 7);
    assert_eq!(run(&worker).await.0, Report::default(), "older than seven days, not as old");
    scene.clock.advance(Duration::from_secs(1));
    let mut report = Report::default();
    worker.tick(&mut report).await.expect("a tick");
    assert_eq!((counted(&report), report.more), (vec![("deleted", 3)], true), "a full batch ticks again");
    tokio::time::timeout(Duration::ZERO, worker.cleanup_bell.notified()).await.expect("cleanup was woken");
    let (rest, _) = run(&worker).await;
    assert_eq!((counted(&rest), told(&rest)), (vec![("deleted", 4)], vec!["lifecycle.deleted"; 4]));
    let event = serde_json::to_value(&report.events[0]).expect("serialises");
    let expected = serde_json::json!({"bucket": "photos", "key": "tmp/0", "size_bytes": 5,
        "rule": "lifecycle.rules[0]", "source": "configuration"});
    assert_eq!(event, expected);
    assert_eq!(left(&scene).await, ["TMP/a", "a", "tmp2/a", "z"]);
    books::check(&scene).await;
}

#[tokio::test]
async fn every_rule_of_every_bucket_has_its_turn() {
    let scene = scene();
    for name in ["one", "two", "young"] {
        let bucket = scene.bucket(name).await;
        let keys: Vec<String> =
            (0..5).flat_map(|number| ["a", "b", "c"].map(|folder| format!("{folder}/{number}"))).collect();
        put_all(&scene, bucket, &keys.iter().map(String::as_str).collect::<Vec<_>>()).await;
        if name != "young" {
            set(&scene, bucket, &[rule("a", below("a/"), 1), rule("b", below("b/"), 1)]).await;
        }
    }
    scene.clock.advance(DAY * 3);
    let rules = SharedRules::new(configured(&[("gone", "x", 1), ("two", "c/", 1), ("young", "c/", 9)]));
    let worker = worker(&scene, &rules);
    let (report, ticks) = run(&worker).await;
    assert_eq!(counted(&report), [("deleted", 25)]);
    assert!(ticks < 20, "{ticks} ticks");
    assert_eq!(left(&scene).await.len(), 20);
    assert_eq!(run(&worker).await, (Report::default(), 1), "and nothing more");
}

#[tokio::test]
async fn tags_and_sizes_are_looked_at() {
    let scene = scene();
    let bucket = scene.bucket("tags").await;
    put_all(&scene, bucket, &["temp", "other", "plain"]).await;
    scene.put(bucket, "large", 50).await;
    let tag = |value: &str| Tags::from([("kind".to_owned(), value.to_owned())]);
    for (key, value) in [("temp", "temp"), ("other", "kept")] {
        let object = scene.resolve("tags", key).await.object.expect("there");
        scene.catalog.set_object_tags(&object, &tag(value)).await.expect("tagged");
    }
    let tagged = rule("tagged", Filter { tags: tag("temp"), ..Filter::default() }, 1);
    let large = rule("large", Filter { size_greater_than: Some(10), ..Filter::default() }, 1);
    let off = Rule { status: Status::Disabled, ..rule("off", Filter::default(), 1) };
    set(&scene, bucket, &[tagged, large, off]).await;
    scene.clock.advance(DAY * 3);
    let (report, _) = run(&worker(&scene, &SharedRules::default())).await;
    assert_eq!(
        (counted(&report), left(&scene).await),
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
async fn uploads_that_were_not_completed_are_aborted() {
    let scene = scene();
    let bucket = scene.bucket("uploads").await;
    let old = scene.upload(bucket, "tmp/a").await;
    scene.part(old, 1, 5).await;
    scene.upload(bucket, "other").await;
    scene.clock.advance(DAY * 3);
    scene.upload(bucket, "tmp/young").await;
    let abort = Rule { expiration: None, abort_after_days: Some(2), ..rule("abort", below("tmp/"), 1) };
    set(&scene, bucket, &[abort.clone(), Rule { id: "again".to_owned(), filter: Filter::default(), ..abort }]).await;
    let shown = previewed(&scene, &SharedRules::default()).await;
    assert_eq!((shown.items[0].uploads, shown.items[1].uploads, shown.total.uploads), (1, 2, 2));
    let (report, _) = run(&worker(&scene, &SharedRules::default())).await;
    assert_eq!((counted(&report), told(&report)), (vec![("aborted", 2)], vec!["multipart.aborted"; 2]));
    let event = serde_json::to_value(&report.events[0]).expect("serialises");
    assert_eq!((&event["key"], &event["size_bytes"], &event["rule"]), (&"tmp/a".into(), &5.into(), &"abort".into()));
    assert_eq!(event["upload_id"], old.to_string());
}

#[tokio::test]
async fn the_preview_counts_what_the_run_removes() {
    let scene = scene();
    let bucket = scene.bucket("shown").await;
    put_all(&scene, bucket, &["tmp/1", "tmp/2", "tmp/3", "tmp/4", "logs/1"]).await;
    scene.clock.advance(DAY * 3);
    put_all(&scene, bucket, &["tmp/young"]).await;
    set(&scene, bucket, &[rule("tmp", below("tmp/"), 1), rule("all", Filter::default(), 2)]).await;
    let rules = SharedRules::new(configured(&[("shown", "tmp/", 1)]));
    let shown = previewed(&scene, &rules).await;
    let counts: Vec<_> =
        shown.items.iter().map(|item| (item.source, item.rule.as_str(), item.count, item.bytes)).collect();
    let (file, api) = (RuleSource::Configuration, RuleSource::Bucket);
    assert_eq!(counts, [(file, "lifecycle.rules[0]", 4, 20), (api, "tmp", 4, 20), (api, "all", 5, 25)]);
    assert_eq!((shown.total.count, shown.total.bytes, shown.left_out), (5, 25, 0));
    assert_eq!(shown.items[2].samples[0].key, "logs/1");
    assert_eq!(left(&scene).await.len(), 6, "nothing went");
    let (report, _) = run(&worker(&scene, &rules)).await;
    assert_eq!(counted(&report), [("deleted", shown.total.count)]);
    assert_eq!(previewed(&scene, &rules).await.total, super::PreviewTotal::default());
}

#[tokio::test]
async fn a_row_that_cannot_be_removed_keeps_no_other() {
    let scene = scene();
    let bucket = scene.bucket("broken").await;
    put_all(&scene, bucket, &["a", "c"]).await;
    let broken = scene.put(bucket, "b", 5).await;
    // The count would fall below zero, which the catalog does not let happen.
    scene.change("UPDATE contents SET ref_count = 0 WHERE id = $1", params![broken]).await;
    set(&scene, bucket, &[rule("all", Filter::default(), 1)]).await;
    scene.clock.advance(DAY * 3);
    let (report, _) = run(&worker(&scene, &SharedRules::default())).await;
    assert_eq!((counted(&report), left(&scene).await), (vec![("deleted", 2), ("failed", 1)], vec!["b".to_owned()]));
}

/// Does something whenever objects were found and are not removed yet.
struct Meddler {
    inner: Catalog,
    meddle: Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>,
}

#[async_trait]
impl Lifecycles for Meddler {
    async fn lifecycle(&self, bucket: BucketId) -> Result<Option<RuledBucket>, s3o_catalog::Error> {
        self.inner.lifecycle(bucket).await
    }

    async fn set_lifecycle(&self, bucket: BucketId, rules: Option<&[Rule]>) -> Result<(), s3o_catalog::Error> {
        self.inner.set_lifecycle(bucket, rules).await
    }

    async fn ruled_bucket(&self, after: &str, named: &[&str]) -> Result<Option<RuledBucket>, s3o_catalog::Error> {
        self.inner.ruled_bucket(after, named).await
    }

    async fn due_objects(&self, range: &DueRange, limit: usize) -> Result<DuePage, s3o_catalog::Error> {
        let page = self.inner.due_objects(range, limit).await?;
        if !page.objects.is_empty() {
            (self.meddle)().await;
        }
        Ok(page)
    }

    async fn delete_due(&self, batch: &DueBatch<'_>, token: ClaimToken) -> Result<Vec<ObjectKey>, s3o_catalog::Error> {
        self.inner.delete_due(batch, token).await
    }

    async fn due_uploads(
        &self,
        range: &DueRange,
        after: Option<&DueUpload>,
        limit: usize,
    ) -> Result<Vec<DueUpload>, s3o_catalog::Error> {
        self.inner.due_uploads(range, after, limit).await
    }

    async fn abort_due(
        &self,
        id: UploadId,
        revision: i64,
        threshold: Threshold,
    ) -> Result<Option<u64>, s3o_catalog::Error> {
        self.inner.abort_due(id, revision, threshold).await
    }
}

fn meddling<F: Future<Output = ()> + Send + 'static>(
    scene: &Scene,
    meddle: impl Fn(Scene) -> F + Send + Sync + 'static,
) -> Arc<Meddler> {
    let (inner, scene) = (scene.catalog.clone(), scene.clone());
    Arc::new(Meddler { inner, meddle: Box::new(move || Box::pin(meddle(scene.clone()))) })
}

#[tokio::test]
async fn an_object_overwritten_between_selection_and_deletion_survives() {
    let scene = scene();
    let bucket = scene.bucket("race").await;
    put_all(&scene, bucket, &["a", "b"]).await;
    set(&scene, bucket, &[rule("all", Filter::default(), 1)]).await;
    scene.clock.advance(DAY * 3);
    let meddler = meddling(&scene, move |scene| async move {
        scene.put(bucket, "a", 7).await;
        scene.change("UPDATE objects SET last_modified = 0", vec![]).await;
    });
    let worker = over(meddler, &scene, &SharedRules::default());
    let mut report = Report::default();
    worker.tick(&mut report).await.expect("a tick");
    assert_eq!((counted(&report), left(&scene).await), (vec![("deleted", 1)], vec!["a".to_owned()]));
    assert_eq!(scene.resolve("race", "a").await.object.expect("the new one").size_bytes, 7);
    books::check(&scene).await;
}

#[tokio::test]
async fn a_rule_changed_between_selection_and_deletion_is_honoured() {
    let scene = scene();
    let bucket = scene.bucket("race").await;
    put_all(&scene, bucket, &["a/1", "b/1"]).await;
    set(&scene, bucket, &[rule("all", Filter::default(), 1)]).await;
    scene.clock.advance(DAY * 3);
    let meddler = meddling(&scene, move |scene| async move {
        if scene.catalog.lifecycle(bucket).await.expect("a look").expect("rules").rules[0].id == "all" {
            set(&scene, bucket, &[rule("narrow", below("b/"), 1)]).await;
        }
    });
    let (report, _) = run(&over(meddler, &scene, &SharedRules::default())).await;
    assert_eq!((counted(&report), left(&scene).await), (vec![("deleted", 1)], vec!["a/1".to_owned()]));
    assert_eq!(report.events[0].details["rule"], "narrow");
}

#[tokio::test]
async fn a_configured_rule_replaced_between_selection_and_deletion_is_honoured() {
    let scene = scene();
    let bucket = scene.bucket("race").await;
    put_all(&scene, bucket, &["a/1", "b/1"]).await;
    scene.clock.advance(DAY * 3);
    let rules = SharedRules::new(configured(&[("race", "a/", 1), ("race", "b/", 1)]));
    let shared = rules.clone();
    let meddler = meddling(&scene, move |_| {
        let shared = shared.clone();
        async move { shared.replace(configured(&[("race", "b/", 1)])).await }
    });
    let worker = over(meddler, &scene, &rules);
    assert_eq!((run(&worker).await.0, left(&scene).await.len()), (Report::default(), 2), "they change with every look");
    let worker = self::worker(&scene, &rules);
    assert_eq!((counted(&run(&worker).await.0), left(&scene).await), (vec![("deleted", 1)], vec!["a/1".to_owned()]));
}

#[tokio::test]
async fn a_bucket_whose_rules_keep_changing_keeps_no_other_waiting() {
    let scene = scene();
    let (restless, other) = (scene.bucket("aaa").await, scene.bucket("bbb").await);
    for bucket in [restless, other] {
        put_all(&scene, bucket, &["x"]).await;
        set(&scene, bucket, &[rule("all", Filter::default(), 1)]).await;
    }
    scene.clock.advance(DAY * 3);
    let meddler = meddling(&scene, move |scene| async move {
        set(&scene, restless, &[rule("all", Filter::default(), 1)]).await;
    });
    let (report, _) = run(&over(meddler, &scene, &SharedRules::default())).await;
    assert_eq!(report.events.iter().map(|event| event.bucket.as_deref()).collect::<Vec<_>>(), [Some("bbb")]);
}

#[tokio::test]
async fn a_bucket_that_goes_is_no_error() {
    let scene = scene();
    let bucket = scene.bucket("going").await;
    put_all(&scene, bucket, &["a"]).await;
    set(&scene, bucket, &[rule("all", Filter::default(), 1)]).await;
    scene.clock.advance(DAY * 3);
    let meddler = meddling(&scene, move |scene| async move {
        scene.delete(bucket, "a").await;
        scene.catalog.delete_bucket(bucket).await.expect("deleted");
    });
    assert_eq!(run(&over(meddler, &scene, &SharedRules::default())).await.0, Report::default());
}
