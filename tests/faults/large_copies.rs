//! Copies that take longer than a tick of their worker, and writes whose configured factor is older than the catalog's.

use std::time::Duration;

use s3o_backend::layers::Fault;
use s3o_catalog::{Mode, StageReplica};
use s3o_model::cleanup::Reason;
use s3o_model::content::Location;
use s3o_model::ids::{InstanceId, IntentId, WriteId};
use s3o_tests::environment::Environment;
use s3o_tests::harness::{Expected, Harness};
use s3o_workers::Report;

const BODY: &[u8] = b"a body that is read slowly";
/// Longer than two ticks, shorter than three.
const SLOW: Duration = Duration::from_secs(50);

/// Objects with one of two copies, on the first of two backends.
async fn objects_without_a_copy(keys: &[&str]) -> Harness {
    let environment = Environment::new(1 << 20).with_backend("second", 1 << 20, None);
    let harness = Harness::with_bucket(environment, Mode::Inline).await;
    for key in keys {
        harness.store(key, BODY).await.expect("stored");
    }
    harness.catalog.set_factors(2, &[]).await.expect("set");
    while harness.catalog.review_copies(100, 100).await.expect("reviewed") {}
    harness
}

async fn replicate(harness: &Harness) -> Report {
    harness.tick_after(harness.process.worker("replicator"), Duration::ZERO).await
}

fn calls(harness: &Harness) -> u64 {
    harness.environment.backends[0].flaky.calls()
}

fn delay_reads(harness: &Harness, number: u64) {
    let flaky = &harness.environment.backends[0].flaky;
    for call in 1..=number {
        flaky.fail_call(flaky.calls() + call, Fault::Delay(SLOW));
    }
}

#[tokio::test(start_paused = true)]
async fn copy_that_outlasts_its_tick_is_written_once() {
    let harness = objects_without_a_copy(&["a"]).await;
    delay_reads(&harness, 1);
    let before = calls(&harness);
    for _ in 0..2 {
        let report = replicate(&harness).await;
        assert!(report.items.is_empty() && report.more, "{report:?}");
        assert_eq!(calls(&harness), before + 1, "the copy is read once");
    }
    let report = replicate(&harness).await;
    assert_eq!((report.items["copied"], report.more), (1, false));
    harness.check(&Expected::from([("a", vec![Some(BODY.to_vec())])])).await;
}

/// The budget of the tests has one slot.
#[tokio::test(start_paused = true)]
async fn copies_of_earlier_ticks_count_against_the_concurrency() {
    let harness = objects_without_a_copy(&["a", "b", "c"]).await;
    delay_reads(&harness, 1);
    let before = calls(&harness);
    for _ in 0..2 {
        assert!(replicate(&harness).await.more);
        assert_eq!(calls(&harness), before + 1, "one copy at a time");
    }
    let mut copied = 0;
    for _ in 0..9 {
        copied += replicate(&harness).await.items.get("copied").copied().unwrap_or_default();
    }
    assert_eq!(copied, 3);
}

/// A read costs a request and its bytes.
#[tokio::test]
async fn source_is_not_opened_while_another_copy_is_written() {
    let harness = objects_without_a_copy(&["a"]).await;
    let ids = harness.process.ids();
    let content = harness.texts("SELECT id FROM contents").await[0].parse().expect("an identifier");
    let (id, target) = (ids.fresh(), harness.environment.backends[1].name());
    let stage = StageReplica {
        intent: IntentId::new(id),
        write: WriteId::new(id),
        content,
        target: Location { backend: target, physical_key: "b/a~other".to_owned(), backend_version: None },
        size_bytes: BODY.len() as u64,
        reason: Reason::Replication,
        owner: InstanceId::new(ids.fresh()),
        lease: Duration::from_mins(1),
    };
    harness.catalog.stage_replica(&stage).await.expect("staged");
    let before = calls(&harness);
    assert_eq!(replicate(&harness).await.items["in_progress"], 1);
    assert_eq!(calls(&harness), before);
}

/// Another instance has stored a higher factor, and its review has ended.
#[tokio::test]
async fn write_with_an_older_factor_gets_all_of_its_copies() {
    let harness = objects_without_a_copy(&[]).await;
    harness.store("late", BODY).await.expect("stored");
    assert_eq!(replicate(&harness).await.items["copied"], 1);
    harness.check(&Expected::from([("late", vec![Some(BODY.to_vec())])])).await;
}
