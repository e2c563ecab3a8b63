//! Tests that an attempt removes the target of its row and nothing else.

use bytes::Bytes;
use s3o_backend::{Backend as _, Memory, Probe, body};
use s3o_model::cleanup::{Attempt, Cleanup};
use s3o_model::clock::Timestamp;
use s3o_model::ids::CleanupId;
use s3o_model::target::{ExpectedBytes, Target};

use super::all;

const KEY: &str = "b/k~1";

fn row(target: Target) -> Cleanup {
    Cleanup {
        id: CleanupId(1),
        backend: "memory".parse().expect("valid"),
        physical_key: KEY.to_owned(),
        target,
        expected: None,
        size_bytes: 3,
        reason: "put_orphan".to_owned(),
        attempts: 0,
        absent_ok_after: None,
        older_than_accept: false,
    }
}

/// A row of a write whose bytes may still arrive.
fn late(target: Target) -> Cleanup {
    Cleanup { absent_ok_after: Some(Timestamp::from_millis(1)), ..row(target) }
}

async fn attempt(memory: &Memory, row: Cleanup) -> Attempt {
    all(memory, &[row], 1).await.remove(0)
}

/// A store with one written key; returns its version.
async fn stored(memory: &Memory) -> Option<String> {
    memory.put(KEY, 3, body::whole(Bytes::from("abc"))).await.expect("put").version_id
}

fn memory() -> Memory {
    Memory::new("memory".parse().expect("valid"))
}

#[tokio::test]
async fn upload_target_aborts_its_upload_and_keeps_the_key() {
    let memory = memory();
    let (first, second) = (memory.start_upload(KEY).await.expect("one"), memory.start_upload(KEY).await.expect("two"));
    stored(&memory).await;
    assert_eq!(attempt(&memory, row(Target::Upload(first))).await, Attempt::Deleted);
    assert_eq!(memory.uploads_of(KEY).await.expect("uploads"), [second]);
    assert!(memory.bytes(KEY).is_some());
    assert_eq!(attempt(&memory, late(Target::StartingUpload)).await, Attempt::Deleted);
    assert_eq!(attempt(&memory, late(Target::StartingUpload)).await, Attempt::Absent);
    assert_eq!((memory.uploads(), memory.bytes(KEY).is_some()), (0, true));
}

#[tokio::test]
async fn key_target_keeps_the_uploads_of_its_key() {
    let memory = memory();
    memory.start_upload(KEY).await.expect("started");
    stored(&memory).await;
    assert_eq!(attempt(&memory, late(Target::Key)).await, Attempt::Deleted);
    assert_eq!((memory.uploads(), memory.bytes(KEY)), (1, None));
}

#[tokio::test]
async fn version_target_deletes_its_version_only() {
    let memory = memory().with_versions();
    let version = stored(&memory).await.expect("a version");
    memory.plant(KEY, Bytes::from("theirs"));
    memory.plant_delete_marker(KEY);
    for row in [row, late] {
        attempt(&memory, row(Target::Version(version.clone()))).await;
        let left: Vec<_> = memory.versions(KEY).into_iter().map(|(_, bytes)| bytes).collect();
        assert_eq!(left, [Some(Bytes::from("theirs")), None]);
    }
}

#[tokio::test]
async fn key_target_deletes_the_only_version_also_behind_a_delete_marker() {
    let memory = memory().with_versions();
    stored(&memory).await;
    memory.plant_delete_marker(KEY);
    attempt(&memory, late(Target::Key)).await;
    assert_eq!(memory.versions(KEY).iter().filter(|(_, bytes)| bytes.is_some()).count(), 0);
    assert_eq!(memory.versions(KEY).len(), 1, "the marker of another program stays");
}

#[tokio::test]
async fn key_target_is_refused_if_others_wrote_versions_over_it() {
    let memory = memory().with_versions();
    stored(&memory).await;
    memory.plant(KEY, Bytes::from("theirs"));
    for row in [row, late] {
        assert!(matches!(attempt(&memory, row(Target::Key)).await, Attempt::Refused(_)));
        assert_eq!(memory.versions(KEY).len(), 2);
    }
}

#[tokio::test]
async fn expected_bytes_are_compared_before_every_attempt() {
    let memory = memory();
    memory.plant(KEY, Bytes::from("old"));
    let Probe::Present(found) = memory.probe(KEY.into()).await else { panic!("planted") };
    let of = |expected: ExpectedBytes| Cleanup { expected: Some(expected), ..row(Target::Key) };
    memory.plant(KEY, Bytes::from("new"));
    assert!(matches!(attempt(&memory, of(found.expected())).await, Attempt::Changed(_)));
    assert_eq!(memory.bytes(KEY), Some(Bytes::from("new")));
    memory.plant(KEY, Bytes::from("old"));
    assert_eq!(attempt(&memory, of(found.expected())).await, Attempt::Deleted);
    assert_eq!(attempt(&memory, of(found.expected())).await, Attempt::Absent);
}
