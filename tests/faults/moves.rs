//! Moves of copies whose target is not proven after the last byte: the copy that was to be replaced stays.

use std::time::Duration;

use s3o_backend::identity::IDENTITY_KEY;
use s3o_backend::layers::Fault;
use s3o_catalog::Mode;
use s3o_model::placement::Strategy;
use s3o_model::rebalance::RebalanceRules;
use s3o_tests::environment::{Environment, TestBackend};
use s3o_tests::harness::{Expected, Harness};
use s3o_workers::Report;

const BODY: &[u8] = b"a body to move";

/// An object on the second of two backends, and a rebalancer that moves it to the first.
async fn object_on_the_second() -> Harness {
    let environment = Environment::new(1 << 20).with_backend("second", 1 << 20, None);
    let harness = Harness::with_bucket(environment, Mode::Inline).await;
    let all: Vec<_> = harness.environment.backends.iter().map(TestBackend::name).collect();
    harness.catalog.start_drain(&all[0], &all).await.expect("started");
    harness.store("a", BODY).await.expect("stored");
    harness.catalog.stop_drain(&all[0]).await.expect("stopped");
    harness.process.worker("replicator").tick(&mut Report::default()).await.expect("reviewed");
    harness.process.set_rebalance(RebalanceRules { strategy: Strategy::Pack, threshold: 1.0 });
    harness
}

async fn tick(harness: &Harness, worker: &str) -> Report {
    harness.tick_after(harness.process.worker(worker), Duration::ZERO).await
}

async fn places(harness: &Harness) -> Vec<String> {
    harness.texts("SELECT backend_name FROM object_locations ORDER BY backend_name").await
}

async fn assert_intact(harness: &Harness) {
    harness.check(&Expected::from([("a", vec![Some(BODY.to_vec())])])).await;
}

#[tokio::test]
async fn copy_is_moved_after_its_target_was_proven() {
    let harness = object_on_the_second().await;
    let before = harness.flaky.calls();
    assert_eq!(tick(&harness, "rebalancer").await.items["moved"], 1);
    let calls: Vec<&str> =
        harness.flaky.log().iter().filter(|call| call.number > before).map(|call| call.operation).collect();
    assert_eq!(calls[..2], ["put", "probe"]);
    assert!(calls[2..].contains(&"read_own"), "the identity is read after the probe: {calls:?}");
    assert_eq!(places(&harness).await, ["memory"]);
    assert_intact(&harness).await;
}

#[tokio::test]
async fn copy_stays_if_the_probe_of_its_target_fails() {
    let harness = object_on_the_second().await;
    harness.flaky.fail_call(harness.flaky.calls() + 2, Fault::Before);
    assert_eq!(tick(&harness, "rebalancer").await.items["failed"], 1);
    assert_eq!(places(&harness).await, ["second"]);
    assert_intact(&harness).await;
}

/// Another disk is mounted while the copy is written.
#[tokio::test]
async fn copy_stays_if_its_target_was_exchanged() {
    for worker in ["rebalancer", "drain"] {
        let harness = object_on_the_second().await;
        let all: Vec<_> = harness.environment.backends.iter().map(TestBackend::name).collect();
        if worker == "drain" {
            harness.catalog.start_drain(&all[1], &all).await.expect("started");
        }
        let found = harness.memory.bytes(IDENTITY_KEY).expect("an identity");
        harness.memory.corrupt(IDENTITY_KEY, None);
        let report = tick(&harness, worker).await;
        assert!(!report.items.contains_key("moved"), "{worker}: {:?}", report.items);
        assert!(places(&harness).await.contains(&"second".to_owned()), "{worker}: the proven copy stays");
        harness.memory.plant(IDENTITY_KEY, found);
        harness.catalog.stop_drain(&all[1]).await.expect("stopped");
        assert_intact(&harness).await;
    }
}

#[tokio::test]
async fn refreshed_states_end_a_pass() {
    let harness = object_on_the_second().await;
    let all: Vec<_> = harness.environment.backends.iter().map(TestBackend::name).collect();
    harness.catalog.start_drain(&all[0], &all).await.expect("started");
    assert!(tick(&harness, "rebalancer").await.items.is_empty(), "the target drains");
    harness.catalog.stop_drain(&all[0]).await.expect("stopped");
    assert_eq!(tick(&harness, "rebalancer").await.items["moved"], 1);
}
