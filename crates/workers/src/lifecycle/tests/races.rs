//! Tests of changes between the selection of due objects and their deletion.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use s3o_catalog::conformance::fixture::Fixture;
use s3o_catalog::conformance::quota_usage;
use s3o_catalog::unit::{Row, Statement};
use s3o_catalog::{Catalog, Driver, DriverLayer};
use s3o_model::lifecycle::Filter;

use super::super::SharedRules;
use super::{DAY, below, configured, left, over, put_all, rule, run, set};
use crate::testing::{counted, fixture};
use crate::{Report, Worker as _};

/// Runs a hook after due objects were found and before they are deleted.
struct HookedDriver {
    inner: Arc<dyn Driver>,
    hook: Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>,
}

#[async_trait]
impl DriverLayer for HookedDriver {
    fn inner(&self) -> &dyn Driver {
        self.inner.as_ref()
    }

    async fn on_read(&self, query: Statement) -> Result<Vec<Row>, s3o_catalog::Error> {
        let finds_objects =
            query.sql.starts_with("SELECT key, version_id, size_bytes, tags, last_modified, :now AS now FROM objects");
        let rows = self.inner.read(query).await?;
        if finds_objects && !rows.is_empty() {
            (self.hook)().await;
        }
        Ok(rows)
    }
}

fn with_hook<F: Future<Output = ()> + Send + 'static>(
    fixture: &Fixture,
    hook: impl Fn(Fixture) -> F + Send + Sync + 'static,
) -> Arc<Catalog> {
    let own = fixture.clone();
    let hook = Box::new(move || Box::pin(hook(own.clone())) as BoxFuture<'static, ()>);
    Arc::new(fixture.with_driver(|inner| Arc::new(HookedDriver { inner, hook })).catalog)
}

#[tokio::test]
async fn object_overwritten_between_selection_and_deletion_survives() {
    let fixture = fixture();
    let bucket = fixture.bucket("race").await;
    put_all(&fixture, bucket, &["a", "b"]).await;
    set(&fixture, bucket, &[rule("all", Filter::default(), 1)]).await;
    fixture.clock.advance(DAY * 3);
    let hooked = with_hook(&fixture, move |fixture| async move {
        fixture.put(bucket, "a", 7).await;
        fixture.change("UPDATE objects SET last_modified = 0", vec![]).await;
    });
    let worker = over(hooked, &fixture, &SharedRules::default());
    let mut report = Report::default();
    worker.tick(&mut report).await.expect("a tick");
    assert_eq!((counted(&report), left(&fixture).await), (vec![("deleted", 1)], vec!["a".to_owned()]));
    assert_eq!(fixture.resolve("race", "a").await.object.expect("the new one").size_bytes, 7);
    quota_usage::check(&fixture).await;
}

#[tokio::test]
async fn rule_changed_between_selection_and_deletion_is_honoured() {
    let fixture = fixture();
    let bucket = fixture.bucket("race").await;
    put_all(&fixture, bucket, &["a/1", "b/1"]).await;
    set(&fixture, bucket, &[rule("all", Filter::default(), 1)]).await;
    fixture.clock.advance(DAY * 3);
    let hooked = with_hook(&fixture, move |fixture| async move {
        if fixture.catalog.lifecycle(bucket).await.expect("read").expect("rules").rules[0].id == "all" {
            set(&fixture, bucket, &[rule("narrow", below("b/"), 1)]).await;
        }
    });
    let (report, _) = run(&over(hooked, &fixture, &SharedRules::default())).await;
    assert_eq!((counted(&report), left(&fixture).await), (vec![("deleted", 1)], vec!["a/1".to_owned()]));
    assert_eq!(report.events[0].details["rule"], "narrow");
}

#[tokio::test]
async fn configured_rule_replaced_between_selection_and_deletion_is_honoured() {
    let fixture = fixture();
    let bucket = fixture.bucket("race").await;
    put_all(&fixture, bucket, &["a/1", "b/1"]).await;
    fixture.clock.advance(DAY * 3);
    let rules = SharedRules::new(configured(&[("race", "a/", 1), ("race", "b/", 1)]));
    let shared = rules.clone();
    let hooked = with_hook(&fixture, move |_| {
        let shared = shared.clone();
        async move { shared.replace(configured(&[("race", "b/", 1)])).await }
    });
    let worker = over(hooked, &fixture, &rules);
    assert_eq!(
        (run(&worker).await.0, left(&fixture).await.len()),
        (Report::default(), 2),
        "the rules change before every deletion"
    );
    let worker = super::worker(&fixture, &rules);
    assert_eq!((counted(&run(&worker).await.0), left(&fixture).await), (vec![("deleted", 1)], vec!["a/1".to_owned()]));
}

#[tokio::test]
async fn bucket_whose_rules_keep_changing_does_not_block_other_buckets() {
    let fixture = fixture();
    let (restless, other) = (fixture.bucket("aaa").await, fixture.bucket("bbb").await);
    for bucket in [restless, other] {
        put_all(&fixture, bucket, &["x"]).await;
        set(&fixture, bucket, &[rule("all", Filter::default(), 1)]).await;
    }
    fixture.clock.advance(DAY * 3);
    let hooked = with_hook(&fixture, move |fixture| async move {
        set(&fixture, restless, &[rule("all", Filter::default(), 1)]).await;
    });
    let (report, _) = run(&over(hooked, &fixture, &SharedRules::default())).await;
    assert_eq!(report.events.iter().map(|event| event.bucket.as_deref()).collect::<Vec<_>>(), [Some("bbb")]);
}

#[tokio::test]
async fn bucket_deleted_during_the_walk_is_no_error() {
    let fixture = fixture();
    let bucket = fixture.bucket("going").await;
    put_all(&fixture, bucket, &["a"]).await;
    set(&fixture, bucket, &[rule("all", Filter::default(), 1)]).await;
    fixture.clock.advance(DAY * 3);
    let hooked = with_hook(&fixture, move |fixture| async move {
        fixture.delete(bucket, "a").await;
        fixture.catalog.delete_bucket(bucket).await.expect("deleted");
    });
    assert_eq!(run(&over(hooked, &fixture, &SharedRules::default())).await.0, Report::default());
}
