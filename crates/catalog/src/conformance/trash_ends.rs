//! Tests of what becomes of objects in trash: retention, purge, expiration, and the copies of their content.

use std::time::Duration;

use s3o_model::cleanup::Reason;

use super::fixture::{ContentStanding, Fixture, bucket_name};
use super::refused;
use crate::{PrefixCounts, PrefixOperationKind, RemoveCopy, ReplicaSource, TrashEnd, Verdict};

const HOUR: Duration = Duration::from_hours(1);
const WEEK: Duration = Duration::from_hours(168);
const NONE: [String; 0] = [];

/// The retention at the deletion applies if it is longer than today's, and today's if that is longer.
pub async fn trash_is_purged_after_the_longer_retention(fixture: &Fixture) {
    let bucket = fixture.bucket("trash").await;
    for (key, retention) in [("a", HOUR), ("b", 3 * HOUR)] {
        fixture.put(bucket, key, 5).await;
        fixture.rm(bucket, key, retention).await;
    }
    let is_due = || async { fixture.catalog.due_expiries().await.expect("a query").trash };
    fixture.wait_almost(HOUR);
    assert!(!is_due().await);
    fixture.clock.advance(Duration::from_millis(1));
    assert!(is_due().await);
    assert_eq!(fixture.end_trash(TrashEnd::Retention(2 * HOUR)).await, NONE, "today's is longer");
    assert!(!is_due().await, "it is read again when that one ends");
    fixture.clock.advance(HOUR);
    assert_eq!(fixture.end_trash(TrashEnd::Retention(Duration::ZERO)).await, ["a"]);
    assert_eq!(fixture.keys_in_trash().await, ["b"], "the one at its deletion is longer");
    fixture.clock.advance(HOUR);
    assert_eq!(fixture.end_trash(TrashEnd::Retention(Duration::ZERO)).await, ["b"]);
    assert_eq!(fixture.usage().await, (0, 10, 0));
    assert_eq!(fixture.number("SELECT count(*) FROM cleanup_queue WHERE reason = 'sweep'").await, 2);
}

/// All versions in trash are deleted, those of other prefixes and objects stay.
pub async fn purge_touches_no_object(fixture: &Fixture) {
    let bucket = fixture.bucket("trash").await;
    for size in [1, 2] {
        fixture.put(bucket, "a/1", size).await;
        fixture.put(bucket, "b", size).await;
        fixture.rm(bucket, "", WEEK).await;
    }
    let visible = fixture.put(bucket, "a/1", 4).await;
    let mut operation = fixture.begin(PrefixOperationKind::Purge, bucket, "a/", WEEK).await.expect("begun");
    let step = fixture.step(&mut operation).await.expect("a step");
    assert_eq!((step.is_last, step.counts.objects, step.counts.bytes), (true, 2, 3));
    assert_eq!(step.purged.iter().map(|object| object.key.as_str()).collect::<Vec<_>>(), ["a/1", "a/1"]);
    assert_eq!(fixture.standing(visible).await, ContentStanding::Live(1));
    assert_eq!(fixture.keys_in_trash().await, ["b", "b"]);
    assert_eq!(fixture.usage().await, (7, 3, 0));
}

/// Two objects in trash share a content.
pub async fn shared_bytes_are_queued_with_the_last_trashed_object(fixture: &Fixture) {
    let bucket = fixture.bucket("trash").await;
    let shared = fixture.put(bucket, "a", 5).await;
    fixture.copy((shared, 5), bucket, "b").await.expect("copied");
    fixture.rm(bucket, "", WEEK).await;
    fixture.purge(bucket, "a").await;
    assert_eq!((fixture.standing(shared).await, fixture.queued().await.len()), (ContentStanding::Live(1), 0));
    fixture.purge(bucket, "b").await;
    assert_eq!((fixture.standing(shared).await, fixture.queued().await.len()), (ContentStanding::Condemned, 1));
}

/// Its bytes are queued as those of any expired object.
pub async fn expired_object_in_trash_is_deleted(fixture: &Fixture) {
    let bucket = fixture.bucket("trash").await;
    fixture.put_expiring(bucket, "a", 5, HOUR).await;
    fixture.put_expiring(bucket, "b", 5, 2 * HOUR).await;
    fixture.rm(bucket, "", WEEK).await;
    assert!(!fixture.catalog.due_expiries().await.expect("a query").trash);
    fixture.clock.advance(HOUR);
    assert!(fixture.catalog.due_expiries().await.expect("a query").trash);
    assert_eq!(fixture.end_trash(TrashEnd::Expiry).await, ["a"]);
    assert_eq!(fixture.restore(bucket, "").await, PrefixCounts { objects: 1, bytes: 5, ..Default::default() });
    assert_eq!(fixture.number("SELECT count(*) FROM cleanup_queue WHERE reason = 'expiry'").await, 1);
}

/// A write of the same bytes refers to the content; the end of the trash keeps it.
pub async fn dedup_joins_content_in_trash(fixture: &Fixture) {
    let bucket = fixture.bucket("trash").await;
    let content = fixture.share(bucket, "a", 1).await;
    fixture.rm(bucket, "a", WEEK).await;
    assert_eq!(fixture.share(bucket, "b", 1).await, content);
    fixture.purge(bucket, "").await;
    assert_eq!(fixture.standing(content).await, ContentStanding::Live(1));
}

/// Neither a higher factor nor a lower one changes the copies of content that only trash uses.
pub async fn factor_changes_no_copies_of_trash(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(2).await;
    let content = fixture.put_copies(bucket, &["disk", "east"], 2).await;
    let [disk, east] = [fixture.copy_on(content, "disk").await, fixture.copy_on(content, "east").await];
    let remove = RemoveCopy { content, copy: east, kept: vec![disk.clone()], reason: Reason::Replication, grace: HOUR };
    fixture.set_factors(1).await;
    assert_eq!(fixture.copy_work(true).await.len(), 1, "noted while it was an object");
    fixture.rm(bucket, "", WEEK).await;
    refused(fixture.catalog.remove_copy(&remove).await, Verdict::NotNeeded);
    fixture.catalog.settle_copy_work(content).await.expect("settled");
    let is_idle = || async { fixture.copy_work(true).await.is_empty() && fixture.copy_work(false).await.is_empty() };
    assert!(is_idle().await);
    fixture.set_factors(3).await;
    assert!(is_idle().await);
    let stage = fixture.stage_replica(content, "west").await.expect("staged");
    refused(fixture.commit_replica(&stage, &disk, ReplicaSource::Nothing).await, Verdict::NotNeeded);
}

/// The factor was raised while the object was in trash.
pub async fn restore_notes_missing_copies(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(1).await;
    let content = fixture.put_copies(bucket, &["disk"], 1).await;
    fixture.rm(bucket, "", WEEK).await;
    assert!(fixture.catalog.set_factors(1, &[(&bucket_name("copies"), 2)]).await.expect("changed"));
    fixture.review().await;
    assert!(fixture.copy_work(false).await.is_empty());
    fixture.restore(bucket, "").await;
    let lacking = fixture.copy_work(false).await;
    assert_eq!((lacking.len(), lacking[0].content, lacking[0].factor), (1, content, 2));
}

/// The review that follows the restoration finds the pieces of joined content.
pub async fn restored_pieces_get_missing_copies(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(1).await;
    let upload = fixture.upload(bucket, "joined").await;
    let part = fixture.part(upload, 1, 5).await;
    fixture.complete(upload, &[part]).await.expect("completed");
    fixture.rm(bucket, "", WEEK).await;
    fixture.set_factors(2).await;
    assert!(!fixture.copy_work(false).await.iter().any(|work| work.content == part.1));
    fixture.restore(bucket, "").await;
    fixture.review().await;
    assert!(fixture.copy_work(false).await.iter().any(|work| work.content == part.1));
}

/// A damaged copy is replaced, as that of an object.
pub async fn damaged_copy_in_trash_is_work(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(2).await;
    let content = fixture.put_copies(bucket, &["disk", "east"], 2).await;
    fixture.rm(bucket, "", WEEK).await;
    let [disk, east] = [fixture.copy_on(content, "disk").await, fixture.copy_on(content, "east").await];
    assert!(fixture.catalog.suspect(content, &east).await.expect("a change"));
    assert_eq!(fixture.copy_work(false).await.len(), 1);
    let stage = fixture.stage_replica(content, "west").await.expect("staged");
    fixture.commit_replica(&stage, &disk, ReplicaSource::Nothing).await.expect("replaced");
}

/// Audits count rows in trash, through the index and without it.
pub async fn references_from_trash_are_audited(fixture: &Fixture) {
    let bucket = fixture.bucket("trash").await;
    let content = fixture.put(bucket, "a", 5).await;
    fixture.rm(bucket, "", WEEK).await;
    let page = fixture.catalog.audit_counts(None, 10).await.expect("a page");
    assert_eq!((page.miscounted.len(), page.unreferenced.len()), (0, 0));
    let confirmed = fixture.catalog.confirm_suspects(&[content]).await.expect("confirmed");
    assert_eq!((confirmed[0].counted, confirmed[0].found), (1, 1));
}

/// Runs the operations on prefixes and the ends of trash, for tests that record their statements.
pub async fn run_operations(fixture: &Fixture, bucket_name: &str) {
    let bucket = fixture.bucket(bucket_name).await;
    fixture.put(bucket, "a", 5).await;
    fixture.rm(bucket, "", HOUR).await;
    fixture.restore(bucket, "").await;
    fixture.rm(bucket, "", HOUR).await;
    fixture.purge(bucket, "").await;
    for end in [TrashEnd::Expiry, TrashEnd::Retention(HOUR)] {
        assert_eq!(fixture.end_trash(end).await, NONE);
    }
    assert_eq!(fixture.catalog.take_over_prefix_operation(fixture.token(), HOUR).await.expect("a query"), None);
    assert!(fixture.catalog.overlapping_operations(bucket, "").await.expect("a query").is_empty());
    fixture.catalog.delete_bucket(bucket).await.expect("deleted");
}
