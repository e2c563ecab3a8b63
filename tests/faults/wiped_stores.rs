//! Stores that lost their bytes and were accepted by an operator: a copy that is not found there is given up, and is
//! lost if no other one counts. The replicator and verify agree on that.

use std::time::Duration;

use s3o_backend::identity::IDENTITY_KEY;
use s3o_catalog::{FindingSelection, Mode};
use s3o_engine::Error;
use s3o_tests::environment::Environment;
use s3o_tests::harness::{Expected, Harness, get};
use s3o_workers::{AcceptAnswer, VerifyReport, VerifyScope};

const BODY: &[u8] = b"a body";
/// Longer than the backoff of a content.
const LATER: Duration = Duration::from_hours(2);

/// An object with this number of copies.
async fn stored(copies: usize) -> Harness {
    let environment = Environment::new(1 << 20).with_copies(copies, 1 << 20);
    let harness = Harness::with_bucket(environment, Mode::Inline).await;
    harness.store("a", BODY).await.expect("stored");
    harness.settle().await;
    harness
}

/// A store loses all bytes.
fn wipe(harness: &Harness, number: usize) {
    let store = &harness.environment.backends[number].memory;
    for key in store.keys() {
        store.corrupt(&key, None);
    }
}

async fn accept(harness: &Harness, name: &str) {
    harness.clock.advance(Duration::from_secs(1));
    let identity = &harness.process.identity;
    let AcceptAnswer::Refused { shown, .. } = identity.accept(name, None).await.expect("a query") else {
        panic!("accepted without its hash");
    };
    let accepted = identity.accept(name, Some(&shown.hash)).await.expect("a query");
    assert!(matches!(accepted, AcceptAnswer::Accepted), "{accepted:?}");
}

async fn replicate(harness: &Harness) {
    for worker in ["replicator", "over_replication"] {
        for _ in 0..4 {
            harness.tick_after(harness.process.worker(worker), LATER).await;
        }
    }
}

async fn states(harness: &Harness) -> Vec<String> {
    harness.texts("SELECT backend_name || ' ' || state FROM object_locations ORDER BY backend_name").await
}

async fn verified(harness: &Harness) -> VerifyReport {
    harness.process.verifier.verify(VerifyScope::DEEP).await
}

async fn findings(harness: &Harness) -> Vec<(String, String)> {
    let found = harness.catalog.findings(&FindingSelection::default(), 0, 10).await.expect("a query");
    found.into_iter().map(|finding| (finding.kind, finding.detail)).collect()
}

#[tokio::test]
async fn only_copy_on_an_accepted_empty_store_is_lost() {
    let harness = stored(1).await;
    wipe(&harness, 0);
    accept(&harness, "memory").await;
    replicate(&harness).await;
    assert_eq!(states(&harness).await, ["memory lost"]);
    assert_eq!(findings(&harness).await, [("lost_copies".to_owned(), "{\"count\":1}".to_owned())]);
    assert!(harness.rows("SELECT 1 FROM copy_work").await.is_empty(), "nothing can be copied");
    let report = verified(&harness).await;
    assert_eq!((report.holds, report.lost.contents), (true, 1), "{report:#?}");
    assert!(matches!(harness.engine.get_object(get("a")).await, Err(Error::Damaged(_))));
    harness.store("a", BODY).await.expect("stored");
    harness.check(&Expected::from([("a", vec![Some(BODY.to_vec())])])).await;
    assert_eq!(verified(&harness).await.lost.contents, 0);
}

#[tokio::test]
async fn copy_on_an_accepted_empty_store_is_replaced() {
    let harness = stored(2).await;
    wipe(&harness, 0);
    accept(&harness, "memory").await;
    replicate(&harness).await;
    harness.check(&Expected::from([("a", vec![Some(BODY.to_vec())])])).await;
    let states = states(&harness).await;
    assert!(states.len() == 2 && states.iter().all(|state| state.ends_with("present")), "{states:?}");
    assert_eq!(findings(&harness).await, [], "nothing is lost, and no delete of absent bytes was queued");
}

#[tokio::test]
async fn content_with_two_lost_copies_is_reported_once() {
    let harness = stored(2).await;
    for (number, name) in [(0, "memory"), (1, "second")] {
        wipe(&harness, number);
        accept(&harness, name).await;
    }
    replicate(&harness).await;
    assert_eq!(states(&harness).await, ["memory lost", "second lost"]);
    assert_eq!(findings(&harness).await.len(), 1, "the content is lost once");
    let report = verified(&harness).await;
    assert_eq!((report.holds, report.lost.contents), (true, 1), "{report:#?}");
}

#[tokio::test]
async fn missing_copy_on_a_store_that_was_not_accepted_stays_suspect() {
    let harness = stored(1).await;
    let key = harness.memory.keys().into_iter().find(|key| !key.starts_with(".s3o/")).expect("a body");
    let bytes = harness.memory.bytes(&key).expect("stored");
    harness.memory.corrupt(&key, None);
    assert!(harness.engine.get_object(get("a")).await.is_err());
    replicate(&harness).await;
    assert_eq!(states(&harness).await, ["memory suspect"]);
    // The disk of the folder is mounted again.
    harness.memory.plant(&key, bytes);
    assert_eq!(harness.read("a").await.as_deref(), Some(BODY));
    assert_eq!(states(&harness).await, ["memory present"]);
    assert_eq!(findings(&harness).await, []);
}

#[tokio::test]
async fn copy_is_not_given_up_while_its_store_may_be_another_one() {
    let harness = stored(1).await;
    wipe(&harness, 0);
    accept(&harness, "memory").await;
    // After the first probe, the path leads to a store without an identity.
    harness.tick_after(harness.process.worker("replicator"), LATER).await;
    harness.tick_after(harness.process.worker("replicator"), LATER).await;
    let identity = harness.memory.bytes(IDENTITY_KEY).expect("an identity");
    harness.change("UPDATE object_locations SET state = 'suspect', size_bytes = 6 WHERE state = 'present'").await;
    harness.memory.corrupt(IDENTITY_KEY, None);
    replicate(&harness).await;
    assert_eq!(states(&harness).await, ["memory suspect"]);
    harness.memory.plant(IDENTITY_KEY, identity);
    replicate(&harness).await;
    assert_eq!(states(&harness).await, ["memory lost"]);
}
