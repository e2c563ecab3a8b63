//! Cleanups remove what they name and nothing else, on stores that other programs write to as well.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use s3o_backend::layers::Fault;
use s3o_backend::{Backend as _, Probe};
use s3o_catalog::{FindingSelection, Mode, UnnamedKey};
use s3o_model::cleanup::Reason;
use s3o_model::ids::ClaimToken;
use s3o_model::target::Target;
use s3o_tests::environment::{Environment, LATE};
use s3o_tests::harness::Harness;

const HOUR: Duration = Duration::from_hours(1);
const OURS: &[u8] = b"ours";
const THEIRS: &[u8] = b"written by another program";

/// A store that keeps versions, with one object.
async fn versioned() -> (Harness, String) {
    let environment = Environment::new(1 << 20);
    environment.backends[0].memory.keep_versions();
    let harness = Harness::with_bucket(environment, Mode::Inline).await;
    harness.store("a", OURS).await.expect("stored");
    let key = harness.texts("SELECT physical_key FROM object_locations").await.remove(0);
    (harness, key)
}

/// The bytes of each version of a key, oldest first; `None` for a delete marker.
fn versions(harness: &Harness, key: &str) -> Vec<Option<Bytes>> {
    harness.environment.backends[0].memory.versions(key).into_iter().map(|(_, bytes)| bytes).collect()
}

/// Queues something that no row names.
async fn queue(harness: &Harness, key: UnnamedKey) {
    let backend = harness.environment.backends[0].name();
    let token = ClaimToken::new(uuid::Uuid::from_u128(7));
    let queued = harness.catalog.enqueue_unnamed(&backend, Reason::Reconcile, &[key], token).await.expect("an answer");
    assert_eq!(queued.len(), 1);
}

#[tokio::test]
async fn copy_is_read_and_deleted_by_its_version() {
    let (harness, key) = versioned().await;
    let memory = Arc::clone(&harness.environment.backends[0].memory);
    memory.plant(&key, Bytes::from(THEIRS));
    assert_eq!(harness.read("a").await.as_deref(), Some(OURS));
    memory.plant_delete_marker(&key);
    assert_eq!(harness.read("a").await.as_deref(), Some(OURS));
    harness.delete("a").await;
    harness.clean_after(HOUR).await;
    assert_eq!(versions(&harness, &key), [Some(Bytes::from(THEIRS)), None]);
    assert_eq!(harness.texts("SELECT physical_key FROM cleanup_queue").await, Vec::<String>::new());
}

#[tokio::test]
async fn unknown_version_of_a_lost_write_is_deleted_if_it_is_the_only_one() {
    let (harness, _) = versioned().await;
    harness.flaky.fail_call(harness.flaky.calls() + 1, Fault::After);
    harness.store("b", OURS).await.expect_err("the answer was lost");
    let key = harness.texts("SELECT physical_key FROM cleanup_queue WHERE target = ''").await.remove(0);
    assert_eq!(versions(&harness, &key).len(), 1);
    harness.clean_after(LATE).await;
    assert_eq!(versions(&harness, &key), []);
}

#[tokio::test]
async fn unknown_version_among_others_makes_a_dead_letter_and_deletes_nothing() {
    let (harness, _) = versioned().await;
    harness.flaky.fail_call(harness.flaky.calls() + 1, Fault::After);
    harness.store("b", OURS).await.expect_err("the answer was lost");
    let key = harness.texts("SELECT physical_key FROM cleanup_queue WHERE target = ''").await.remove(0);
    harness.environment.backends[0].memory.plant(&key, Bytes::from(THEIRS));
    for _ in 0..10 {
        harness.clean_after(HOUR).await;
    }
    assert_eq!(versions(&harness, &key).len(), 2);
    assert_eq!(harness.texts("SELECT physical_key FROM cleanup_dlq").await, [key]);
}

#[tokio::test]
async fn second_upload_of_a_living_key_is_aborted_and_the_key_stays() {
    let harness = Harness::new(1 << 20, Mode::Inline).await;
    harness.store("a", OURS).await.expect("stored");
    let key = harness.texts("SELECT physical_key FROM object_locations").await.remove(0);
    let memory = Arc::clone(&harness.environment.backends[0].memory);
    let upload = memory.start_upload(&key).await.expect("started");
    queue(&harness, UnnamedKey { physical_key: key, target: Target::Upload(upload), size_bytes: 0, expected: None })
        .await;
    harness.clean_after(Duration::ZERO).await;
    assert_eq!((memory.uploads(), harness.read("a").await.as_deref()), (0, Some(OURS)));
    harness.check_settled().await;
}

#[tokio::test]
async fn rewritten_bytes_end_their_cleanup_with_a_finding() {
    let harness = Harness::new(1 << 20, Mode::Inline).await;
    let memory = Arc::clone(&harness.environment.backends[0].memory);
    memory.plant("theirs/a", Bytes::from("old"));
    let Probe::Present(found) = memory.probe("theirs/a".into()).await else { panic!("planted") };
    let expected = Some(found.expected());
    let key = UnnamedKey { physical_key: "theirs/a".to_owned(), target: Target::Key, size_bytes: 0, expected };
    queue(&harness, key).await;
    harness.flaky.go_away();
    harness.clean_after(HOUR).await;
    memory.plant("theirs/a", Bytes::from("new"));
    harness.flaky.come_back();
    harness.clean_after(HOUR).await;
    assert_eq!(memory.bytes("theirs/a"), Some(Bytes::from("new")));
    let findings = harness.catalog.findings(&FindingSelection::default(), 0, 9).await.expect("findings");
    assert_eq!(findings.iter().map(|finding| finding.kind.as_str()).collect::<Vec<_>>(), ["changed"]);
    assert_eq!(harness.texts("SELECT physical_key FROM cleanup_queue").await, Vec::<String>::new());
}
