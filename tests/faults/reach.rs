//! Missing copies that this instance cannot write: they cost no backend call, no backoff, and not the lock.

use std::time::Duration;

use s3o_catalog::Mode;
use s3o_tests::environment::{Environment, TestBackend};
use s3o_tests::harness::{Expected, Harness};
use s3o_workers::Report;

const BODY: &[u8] = b"a body without enough copies";

/// An object with one of two copies, on the first of two backends; the second takes `limit_bytes`.
async fn object_without_a_copy(limit_bytes: Option<u64>) -> Harness {
    let environment = Environment::new(1 << 20).with_backend("second", 1 << 20, limit_bytes);
    let harness = Harness::with_bucket(environment, Mode::Inline).await;
    harness.store("a", BODY).await.expect("stored");
    harness.catalog.set_factors(2, &[]).await.expect("set");
    while harness.catalog.review_copies(100, 100).await.expect("reviewed") {}
    harness
}

fn calls(harness: &Harness) -> u64 {
    harness.environment.backends.iter().map(|backend| backend.flaky.calls()).sum()
}

async fn replicate(harness: &Harness) -> Report {
    harness.tick_after(harness.process.worker("replicator"), Duration::ZERO).await
}

fn freeze(harness: &Harness, position: usize, reason: Option<&str>) {
    let name = harness.environment.backends[position].name();
    harness.process.fleet().set_frozen(&name, reason.map(str::to_owned));
}

async fn attempts(harness: &Harness) -> Vec<String> {
    harness.texts("SELECT CAST(attempts AS TEXT) AS attempts FROM copy_work").await
}

#[tokio::test]
async fn copy_out_of_reach_costs_no_call_and_no_backoff_and_yields_the_lock() {
    for position in 0..2 {
        let harness = object_without_a_copy(None).await;
        freeze(&harness, position, Some("not reached since the start"));
        let before = calls(&harness);
        for _ in 0..3 {
            let report = replicate(&harness).await;
            assert!(report.yields.is_some() && report.items.is_empty(), "{:?}", report.items);
        }
        assert_eq!((calls(&harness), attempts(&harness).await), (before, vec!["0".to_owned()]));
        freeze(&harness, position, None);
        // As after every change that makes a backend usable.
        harness.catalog.hasten_copy_work().await.expect("due");
        assert_eq!(replicate(&harness).await.items["copied"], 1);
        harness.settle().await;
        harness.check(&Expected::from([("a", vec![Some(BODY.to_vec())])])).await;
    }
}

#[tokio::test]
async fn copy_that_fits_nowhere_costs_no_call() {
    let harness = object_without_a_copy(Some(10)).await;
    let before = calls(&harness);
    let report = replicate(&harness).await;
    assert_eq!((report.items["no_target"], report.yields), (1, None));
    assert_eq!((calls(&harness), attempts(&harness).await), (before, vec!["1".to_owned()]));
    // A higher limit makes it due at once.
    harness.catalog.set_limit(&harness.environment.backends[1].name(), None).await.expect("set");
    harness.catalog.hasten_copy_work().await.expect("due");
    harness.clock.advance(Duration::from_secs(2));
    assert_eq!(replicate(&harness).await.items["copied"], 1);
}

/// Contents that no call can help must not keep the replicator from the others.
#[tokio::test]
async fn contents_out_of_reach_do_not_hide_the_others() {
    let environment =
        Environment::new(1 << 20).with_backend("second", 1 << 20, None).with_backend("third", 1 << 20, None);
    let harness = Harness::with_bucket(environment, Mode::Inline).await;
    let all: Vec<_> = harness.environment.backends.iter().map(TestBackend::name).collect();
    for number in 0..150 {
        harness.store(&format!("first-{number}"), BODY).await.expect("stored");
    }
    harness.catalog.start_drain(&all[0], &all).await.expect("started");
    harness.process.identity.follow_states().await.expect("followed");
    harness.store("behind", BODY).await.expect("stored");
    harness.catalog.stop_drain(&all[0]).await.expect("stopped");
    harness.process.identity.follow_states().await.expect("followed");
    harness.catalog.set_factors(2, &[]).await.expect("set");
    while harness.catalog.review_copies(1000, 1000).await.expect("reviewed") {}
    freeze(&harness, 0, Some("not reached since the start"));
    assert_eq!(replicate(&harness).await.items["copied"], 1);
    assert_eq!(attempts(&harness).await.len(), 150);
}

/// At a start, a backend that was not probed yet may hold the copies.
#[tokio::test]
async fn replicator_waits_until_every_backend_was_probed() {
    let harness = object_without_a_copy(None).await;
    let environment = harness.environment.clone();
    // Only one process uses a SQLite catalog.
    drop(harness);
    let detached = Harness::builder(&environment).start_detached().await;
    let report = replicate(&detached).await;
    assert!(report.items.is_empty() && report.yields.is_none());
    assert!(detached.process.identity.attach().await);
    assert_eq!(replicate(&detached).await.items["copied"], 1);
}
