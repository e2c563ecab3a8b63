//! Tests of targets: a cleanup, a dead letter and a finding name one thing under a key.

use s3o_model::cleanup::{BackendUpload, Cleanup, Outcome};
use s3o_model::conditions::WriteCondition;
use s3o_model::intent::Intent;
use s3o_model::target::{ExpectedBytes, Target};
use s3o_model::verify::NamedBy;

use super::fixture::{Fixture, LEASE, backend};
use crate::{Ended, FindingSelection, Late, StoredBytes, UnnamedKey};
use s3o_model::cleanup::Reason;

fn version(id: &str) -> Target {
    Target::Version(id.to_owned())
}

/// A staged write that has started an upload.
async fn uploading(fixture: &Fixture, bucket: &str) -> Intent {
    let intent = fixture.staged(fixture.bucket(bucket).await, "a", 5).await;
    fixture.catalog.note_upload(intent.id, &BackendUpload::Started("u1".to_owned())).await.expect("noted");
    intent
}

/// Commits a write whose backend returned a version.
async fn stored_as(fixture: &Fixture, intent: &Intent, version: &str) {
    let mut put = fixture.put_of(intent, WriteCondition::None);
    let backend_versions = vec![(intent.id, version.to_owned())];
    put.stored = StoredBytes::Announced { write: intent.write, copies: 1, backend_versions, failed: Vec::new() };
    fixture.commit_put(put).await.expect("committed");
}

async fn claimed(fixture: &Fixture) -> Vec<Cleanup> {
    let (_, mut claimed) = fixture.claim(9).await;
    claimed.sort_by(|one, other| one.target.cmp(&other.target));
    claimed
}

/// Queues a target that a pass found.
async fn queue(fixture: &Fixture, physical_key: &str, target: Target) -> usize {
    let key = UnnamedKey { physical_key: physical_key.to_owned(), target, size_bytes: 3, expected: None };
    let queued = fixture.catalog.enqueue_unnamed(&backend("disk"), Reason::Reconcile, &[key], fixture.token()).await;
    queued.expect("an answer").len()
}

/// In one unit, with the time until which the bytes may arrive. The bytes are counted once.
pub async fn unknown_write_queues_its_object_and_its_upload(fixture: &Fixture) {
    let intent = uploading(fixture, "unknown").await;
    let late = std::time::Duration::from_hours(1);
    fixture.catalog.drop_write(intent.write, Late::Within(late)).await.expect("dropped");
    let rows = claimed(fixture).await;
    let targets: Vec<_> = rows.iter().map(|row| (row.target.clone(), row.size_bytes)).collect();
    assert_eq!(targets, [(Target::Key, 5), (Target::Upload("u1".to_owned()), 0)]);
    assert!(rows.iter().all(|row| row.absent_ok_after == Some(fixture.now().after(late))));
    assert_eq!(fixture.usage().await, (0, 5, 0));
}

/// The answer to the start of an upload was lost, and a second upload of the key completed.
pub async fn upload_cleanup_is_executed_while_its_key_lives(fixture: &Fixture) {
    let intent = fixture.staged(fixture.bucket("living").await, "a", 5).await;
    fixture.commit(&intent, WriteCondition::None).await.expect("committed");
    assert_eq!(queue(fixture, &intent.physical_key, Target::Upload("u2".to_owned())).await, 1);
    assert_eq!(queue(fixture, &intent.physical_key, Target::Key).await, 0, "a location names the key");
    let (token, rows) = fixture.claim(9).await;
    assert_eq!(rows.iter().map(|row| row.target.clone()).collect::<Vec<_>>(), [Target::Upload("u2".to_owned())]);
    fixture.settle(token, &rows, &Outcome::Done).await;
    assert_eq!(fixture.usage().await, (5, 0, 0));
}

/// A foreign program wrote over the key. The version of the location is never queued.
pub async fn other_version_is_removed_while_its_key_lives(fixture: &Fixture) {
    let intent = fixture.staged(fixture.bucket("living").await, "a", 5).await;
    stored_as(fixture, &intent, "v1").await;
    assert_eq!(queue(fixture, &intent.physical_key, version("v1")).await, 0);
    assert_eq!(queue(fixture, &intent.physical_key, Target::Key).await, 0);
    assert_eq!(queue(fixture, &intent.physical_key, version("v2")).await, 1);
    let (token, rows) = fixture.claim(9).await;
    assert_eq!(rows.iter().map(|row| row.target.clone()).collect::<Vec<_>>(), [version("v2")]);
    fixture.settle(token, &rows, &Outcome::Done).await;
    assert_eq!(fixture.usage().await, (5, 0, 0));
}

/// The writer learns the version after its intent became a cleanup.
pub async fn learnt_version_is_the_target(fixture: &Fixture) {
    let intent = fixture.staged(fixture.bucket("learnt").await, "a", 5).await;
    fixture.clock.advance(LEASE);
    fixture.reap(9, LEASE).await;
    let ended = Ended { backend_version: Some("v1".to_owned()), ..Ended::default() };
    fixture.catalog.requeue(&intent.place(), intent.size_bytes, &ended).await.expect("queued");
    fixture.catalog.requeue(&intent.place(), intent.size_bytes, &Ended::default()).await.expect("queued");
    assert_eq!(claimed(fixture).await.iter().map(|row| row.target.clone()).collect::<Vec<_>>(), [version("v1")]);
    assert_eq!(fixture.usage().await, (0, 5, 0));
}

/// The bytes are not s3o's: they stay, are not counted, and no attempt is repeated.
pub async fn changed_bytes_end_as_a_finding(fixture: &Fixture) {
    fixture.bucket("changed").await;
    assert_eq!(queue(fixture, "theirs/a", Target::Key).await, 1);
    let (token, rows) = fixture.claim(9).await;
    assert_eq!(fixture.settle(token, &rows, &Outcome::Changed { why: "ETag b instead of a".to_owned() }).await, 1);
    assert_eq!((fixture.usage().await, fixture.queued().await.len()), ((0, 0, 0), 0));
    let found = fixture.catalog.findings(&FindingSelection::default(), 0, 9).await.expect("findings");
    let [finding] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((finding.kind.as_str(), finding.physical_key.as_str()), ("changed", "theirs/a"));
    assert_eq!((finding.target.as_str(), finding.detail.as_str()), ("", "ETag b instead of a"));
}

/// A dead letter and its retry compare the same bytes.
pub async fn expected_bytes_survive_the_dead_letter_queue(fixture: &Fixture) {
    fixture.bucket("expected").await;
    let expected = Some(ExpectedBytes { size_bytes: 3, etag: Some("a".to_owned()), file: None });
    let key = UnnamedKey {
        physical_key: "theirs/a".to_owned(),
        target: version("v1"),
        size_bytes: 0,
        expected: expected.clone(),
    };
    let queued = fixture.catalog.enqueue_unnamed(&backend("disk"), Reason::Sweep, &[key], fixture.token()).await;
    assert_eq!(queued.expect("queued").len(), 1);
    let (token, rows) = fixture.claim(9).await;
    assert_eq!((&rows[0].expected, rows[0].reason.as_str()), (&expected, "sweep"));
    fixture.settle(token, &rows, &Outcome::DeadLetter { why: "refused".to_owned() }).await;
    let id = fixture.catalog.newest_dead_letter().await.expect("a query").expect("a dead letter");
    let letter = fixture.catalog.dead_letter(id).await.expect("a query").expect("the letter");
    assert_eq!((&letter.expected, &letter.target), (&expected, &version("v1")));
    fixture.catalog.retry_dead_letters(&[id], fixture.token()).await.expect("retried");
    let rows = claimed(fixture).await;
    assert_eq!((&rows[0].expected, &rows[0].target), (&expected, &version("v1")));
}

/// Reads, checks and moves address the version that was written.
pub async fn copies_are_read_with_their_version(fixture: &Fixture) {
    let intent = fixture.staged(fixture.bucket("read").await, "a", 5).await;
    stored_as(fixture, &intent, "v1").await;
    let content = fixture.resolve("read", "a").await.object.expect("there").content;
    let copies = fixture.catalog.readable_copies(content).await.expect("copies");
    assert_eq!(copies[0].location.backend_version.as_deref(), Some("v1"));
    assert_eq!(copies[0].location.key_version().version_id, Some("v1"));
}

/// It is not the object under the same key.
pub async fn retried_upload_keeps_its_target(fixture: &Fixture) {
    let intent = uploading(fixture, "retried").await;
    fixture.catalog.drop_write(intent.write, Late::No).await.expect("dropped");
    let (token, rows) = fixture.claim(9).await;
    let uploads: Vec<Cleanup> = rows.into_iter().filter(|row| !row.target.is_object()).collect();
    fixture.settle(token, &uploads, &Outcome::DeadLetter { why: "refused".to_owned() }).await;
    let id = fixture.catalog.newest_dead_letter().await.expect("a query").expect("a dead letter");
    let retried = fixture.catalog.retry_dead_letters(&[id], fixture.token()).await.expect("retried");
    assert_eq!((retried[0].target.clone(), retried[0].size_bytes), (Target::Upload("u1".to_owned()), 0));
    assert_eq!(fixture.usage().await, (0, 5, 0));
}

/// An intent names everything under its key.
pub async fn rows_name_their_targets_and_no_others(fixture: &Fixture) {
    let located = fixture.staged(fixture.bucket("names").await, "a", 5).await;
    stored_as(fixture, &located, "v1").await;
    let open = uploading(fixture, "open").await;
    let keys = [located.physical_key.as_str(), open.physical_key.as_str()];
    let rows = fixture.catalog.naming_rows(&backend("disk"), &keys).await.expect("rows");
    let (by_location, by_intent): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.by != NamedBy::Intent);
    assert_eq!((by_location.len(), by_intent.len()), (1, 1));
    assert!(by_location[0].names(&version("v1")) && by_location[0].names(&Target::Key));
    assert!(!by_location[0].names(&version("v2")) && !by_location[0].names(&Target::StartingUpload));
    assert!(by_intent[0].names(&Target::Upload("u2".to_owned())) && by_intent[0].names(&version("v2")));
}
