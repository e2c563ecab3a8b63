//! Contents of which every copy has other bytes than those that were written: an operator sees a finding, no client
//! gets the bytes, and the next write of the right bytes repairs them.

use std::time::Duration;

use bytes::Bytes;
use s3o_cache::CacheSettings;
use s3o_catalog::{Finding, FindingSelection, Mode};
use s3o_engine::{Error, GetObject, RequestedRange};
use s3o_model::range::RangeSpec;
use s3o_tests::environment::Environment;
use s3o_tests::harness::{Expected, Harness, get};
use s3o_workers::Report;

const BODY: &[u8] = b"a body with two copies";
const OTHER: &[u8] = b"another body of 22 b..";
const CACHE: CacheSettings =
    CacheSettings { max_bytes: 1 << 20, object_bytes_max: 1 << 20, ttl: Duration::from_mins(5) };

/// An object in a dedup bucket with two copies of other bytes. No check has found that yet.
async fn damaged(cache: Option<CacheSettings>) -> Harness {
    let environment = Environment::new(1 << 20).with_dedup(true).with_copies(2, 1 << 20).with_cache(cache);
    let harness = Harness::with_bucket(environment, Mode::Inline).await;
    harness.store("a", BODY).await.expect("stored");
    harness.settle().await;
    for backend in &harness.environment.backends {
        for key in backend.memory.keys().iter().filter(|key| !key.starts_with(".s3o/")) {
            backend.memory.corrupt(key, Some(Bytes::from_static(OTHER)));
        }
    }
    harness
}

async fn states(harness: &Harness) -> Vec<String> {
    harness.texts("SELECT state FROM object_locations WHERE state <> 'lost'").await
}

async fn findings(harness: &Harness) -> Vec<Finding> {
    harness.catalog.findings(&FindingSelection::default(), 0, 10).await.expect("a query")
}

/// All of the object and a part of it.
async fn assert_not_served(harness: &Harness) {
    let range = RangeSpec::From { first: 3, last: Some(9) };
    for wanted in [None, Some(RequestedRange::Range(range))] {
        let request = wanted.map_or_else(|| get("a"), |wanted| GetObject { wanted, ..get("a") });
        let read = harness.engine.get_object(request).await;
        assert!(matches!(read, Err(Error::Damaged(_))), "served");
    }
}

/// Puts of bodies so far.
fn puts(harness: &Harness) -> usize {
    let log = |backend: &s3o_tests::environment::TestBackend| {
        backend.flaky.log().iter().filter(|call| call.operation == "put").count()
    };
    harness.environment.backends.iter().map(log).sum()
}

/// Writes the right bytes under another key.
async fn assert_repaired_by_a_write(harness: &Harness) {
    let before = puts(harness);
    harness.store("b", BODY).await.expect("stored");
    assert!(puts(harness) >= before + 2, "the bytes were not uploaded");
    assert_eq!(findings(harness).await, [], "the content has a good copy");
    let both = Expected::from([("a", vec![Some(BODY.to_vec())]), ("b", vec![Some(BODY.to_vec())])]);
    harness.check(&both).await;
    assert_eq!(states(harness).await, ["present"; 2]);
    assert!(harness.texts("SELECT kind FROM findings").await.is_empty(), "the row is removed, too");
}

#[tokio::test]
async fn read_that_finds_every_copy_wrong_notes_a_finding() {
    let harness = damaged(Some(CACHE)).await;
    assert!(matches!(harness.engine.get_object(get("a")).await, Err(Error::Damaged(_))));
    assert_eq!(states(&harness).await, ["suspect"; 2]);
    let [found] = &findings(&harness).await[..] else { panic!("one finding") };
    assert_eq!((found.kind.as_str(), found.backend.as_str(), found.size_bytes), ("no_good_copy", "", 22));
    assert_eq!(found.detail, "bucket/a", "an object that has the content");
    assert_not_served(&harness).await;
    assert_repaired_by_a_write(&harness).await;
}

#[tokio::test]
async fn copy_of_damaged_sources_notes_a_finding() {
    let harness = damaged(None).await;
    harness.catalog.set_factors(3, &[]).await.expect("changed");
    for _ in 0..8 {
        harness.process.worker("replicator").tick(&mut Report::default()).await.expect("a tick");
    }
    assert_eq!(states(&harness).await, ["suspect"; 2]);
    assert_eq!(findings(&harness).await.len(), 1);
    assert_not_served(&harness).await;
    harness.catalog.set_factors(2, &[]).await.expect("changed");
    assert_repaired_by_a_write(&harness).await;
}

#[tokio::test]
async fn finding_ends_with_the_last_object() {
    let harness = damaged(Some(CACHE)).await;
    assert!(harness.engine.get_object(get("a")).await.is_err());
    harness.delete("a").await;
    assert_eq!(findings(&harness).await, []);
    harness.check(&Expected::from([("a", vec![None])])).await;
    assert!(harness.texts("SELECT kind FROM findings").await.is_empty());
}

#[tokio::test]
async fn suspect_copy_is_served_only_after_its_digest_was_compared() {
    let harness = damaged(None).await;
    let first = &harness.environment.backends[0].memory;
    for key in first.keys().iter().filter(|key| !key.starts_with(".s3o/")) {
        first.corrupt(key, Some(Bytes::from_static(BODY)));
    }
    harness.change("UPDATE object_locations SET state = 'suspect'").await;
    assert_eq!(harness.read("a").await.as_deref(), Some(BODY));
    let good = harness.texts("SELECT backend_name FROM object_locations WHERE state = 'present'").await;
    assert_eq!(good, ["memory"], "it counts again");
}

#[tokio::test]
async fn unreachable_copy_is_the_answer_instead_of_a_damaged_one() {
    let harness = damaged(None).await;
    harness.change("UPDATE object_locations SET state = 'suspect' WHERE backend_name = 'second'").await;
    harness.flaky.go_away();
    assert!(matches!(harness.engine.get_object(get("a")).await, Err(Error::Unavailable { .. })));
}
