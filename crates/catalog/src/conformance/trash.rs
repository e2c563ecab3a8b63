//! Tests of operations on prefixes: objects are moved to trash and back.

use std::time::Duration;

use s3o_model::conditions::WriteCondition;
use s3o_model::ids::BucketId;
use s3o_model::object::{Attributes, Tags};

use super::fixture::{ContentStanding, Fixture, LEASE, at_once};
use super::races::both;
use super::refused;
use crate::{Late, PrefixCounts, PrefixOperationKind, TrashEnd, Verdict, params};

const WEEK: Duration = Duration::from_hours(168);
const MINUTE: Duration = Duration::from_mins(1);
const TICK: Duration = Duration::from_millis(1);

fn counts(objects: u64, bytes: u64, existing: u64, expired: u64) -> PrefixCounts {
    PrefixCounts { objects, bytes, existing, expired }
}

async fn is_visible(fixture: &Fixture, bucket: &str, key: &str) -> bool {
    fixture.resolve(bucket, key).await.object.is_some()
}

/// Content, version, `ETag`, metadata, tags and time are those before the deletion.
pub async fn prefix_is_restored_with_all_attributes(fixture: &Fixture) {
    let bucket = fixture.bucket("trash").await;
    let mut put = fixture.put_of(&fixture.staged(bucket, "a/1", 5).await, WriteCondition::None);
    let pair = || Tags::from([("k".to_owned(), "v ä".to_owned())]);
    put.row.attributes = Attributes { metadata: pair(), tags: pair(), ..Attributes::default() };
    fixture.commit_put(put).await.expect("committed");
    fixture.put_expiring(bucket, "a/2", 6, 2 * MINUTE).await;
    fixture.put(bucket, "b", 7).await;
    let before = [fixture.resolve("trash", "a/1").await.object, fixture.resolve("trash", "a/2").await.object];
    fixture.clock.advance(MINUTE);
    assert_eq!(fixture.rm(bucket, "a/", WEEK).await, counts(2, 11, 0, 0));
    for (key, stays) in [("a/1", false), ("a/2", false), ("b", true)] {
        assert_eq!(is_visible(fixture, "trash", key).await, stays, "{key}");
    }
    assert_eq!(fixture.restore(bucket, "").await, counts(2, 11, 0, 0));
    let after = [fixture.resolve("trash", "a/1").await.object, fixture.resolve("trash", "a/2").await.object];
    assert_eq!((before, fixture.keys_in_trash().await), (after, vec![]));
    assert_eq!(fixture.rm(bucket, "a/1", WEEK).await, counts(1, 5, 0, 0), "a later rm takes restored objects");
}

/// The same key may be written while the operation runs: in the second in which it began, too.
pub async fn object_written_after_the_cutoff_stays(fixture: &Fixture) {
    let bucket = fixture.bucket("trash").await;
    for key in ["a", "b"] {
        fixture.put(bucket, key, 5).await;
    }
    let operation = fixture.begin(PrefixOperationKind::Rm, bucket, "", WEEK).await.expect("begun");
    fixture.clock.advance(TICK);
    fixture.put(bucket, "a", 6).await;
    fixture.put(bucket, "c", 7).await;
    fixture.commit(&fixture.staged(bucket, "a", 8).await, WriteCondition::IfMatch(None)).await.expect("committed");
    assert_eq!(fixture.finish(operation).await.expect("finished"), counts(1, 5, 0, 0));
    assert_eq!(fixture.keys_in_trash().await, ["b"]);
    assert!(is_visible(fixture, "trash", "a").await && is_visible(fixture, "trash", "c").await);
}

/// A copy outside of the prefix shares the content.
pub async fn trash_keeps_its_bytes_used(fixture: &Fixture) {
    let bucket = fixture.bucket("trash").await;
    let content = fixture.put(bucket, "a", 5).await;
    fixture.copy((content, 5), bucket, "b").await.expect("copied");
    fixture.rm(bucket, "a", WEEK).await;
    assert_eq!((fixture.standing(content).await, fixture.usage().await), (ContentStanding::Live(2), (5, 0, 0)));
    fixture.delete(bucket, "b").await;
    assert_eq!((fixture.standing(content).await, fixture.usage().await), (ContentStanding::Live(1), (5, 0, 0)));
    assert_eq!(fixture.end_trash(TrashEnd::Retention(WEEK)).await, Vec::<String>::new());
    fixture.restore(bucket, "a").await;
    assert!(is_visible(fixture, "trash", "a").await);
}

/// Neither `_` nor the case of a letter stands for another byte.
pub async fn rm_matches_the_prefix_by_bytes(fixture: &Fixture) {
    let bucket = fixture.bucket("trash").await;
    for key in ["a", "a_", "a_1", "ab", "A_1", "a`", "ä", "\u{10FFFF}"] {
        fixture.put(bucket, key, 1).await;
    }
    fixture.rm(bucket, "a_", WEEK).await;
    assert_eq!(fixture.keys_in_trash().await, ["a_", "a_1"]);
    fixture.rm(bucket, "\u{10FFFF}", WEEK).await;
    assert_eq!(fixture.restore(bucket, "").await.objects, 3);
    assert_eq!(fixture.rm(bucket, "", WEEK).await.objects, 8);
}

const MANY: u64 = 1100;

/// Creates more objects below `many/` than one step moves.
async fn put_many(fixture: &Fixture, bucket: BucketId) {
    const COPY: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1100) \
         INSERT INTO objects (bucket_id, key, content_id, version_id, size_bytes, etag, headers, metadata, tags, \
         last_modified, committed_at) SELECT o.bucket_id, 'many/' || (10000 + n.i), o.content_id, \
         o.version_id || n.i, o.size_bytes, o.etag, o.headers, o.metadata, o.tags, o.last_modified, o.committed_at \
         FROM n, objects o WHERE o.key = $1";
    let content = fixture.put(bucket, "seed", 3).await;
    fixture.change(COPY, params!["seed"]).await;
    fixture.change("UPDATE contents SET ref_count = ref_count + 1100 WHERE id = $1", params![content]).await;
}

/// The counts of all steps are added, and the row of the operation is deleted with the last one.
pub async fn long_prefix_takes_several_steps(fixture: &Fixture) {
    let bucket = fixture.bucket("trash").await;
    put_many(fixture, bucket).await;
    for (kind, left) in [(PrefixOperationKind::Rm, 0), (PrefixOperationKind::Restore, 1)] {
        let mut operation = fixture.begin(kind, bucket, "many/", WEEK).await.expect("begun");
        let first = fixture.step(&mut operation).await.expect("a step");
        assert!(!first.is_last && first.counts.objects < MANY);
        let running = fixture.catalog.prefix_operations().await.expect("a query");
        assert_eq!((running.len(), running[0].counts), (1, first.counts));
        assert_eq!(fixture.finish(operation).await.expect("finished"), counts(MANY, 3 * MANY, 0, 0));
        let found = fixture.number("SELECT count(*) FROM objects WHERE key <> 'seed'").await;
        assert_eq!(found, left * i64::try_from(MANY).expect("a small number"));
    }
    fixture.rm(bucket, "many/", WEEK).await;
    assert_eq!(fixture.purge(bucket, "").await.objects, MANY);
    assert!(fixture.catalog.prefix_operations().await.expect("a query").is_empty());
}

/// A restored object has an old time; an operation that is still running could take it.
pub async fn overlapping_operations_are_refused(fixture: &Fixture) {
    let (bucket, other) = (fixture.bucket("trash").await, fixture.bucket("other").await);
    let first = fixture.begin(PrefixOperationKind::Rm, bucket, "a/b", WEEK).await.expect("begun");
    for prefix in ["", "a/", "a/b", "a/bc"] {
        for kind in [PrefixOperationKind::Rm, PrefixOperationKind::Restore, PrefixOperationKind::Purge] {
            refused(fixture.begin(kind, bucket, prefix, WEEK).await, Verdict::Overlaps);
        }
        let found = fixture.catalog.overlapping_operations(bucket, prefix).await.expect("a query");
        assert_eq!(found, [first.clone()]);
    }
    for (bucket, prefix) in [(bucket, "a/a"), (bucket, "a/c"), (other, "a/b")] {
        let beside = fixture.begin(PrefixOperationKind::Restore, bucket, prefix, WEEK).await.expect("begun");
        fixture.finish(beside).await.expect("finished");
    }
    fixture.finish(first).await.expect("finished");
    fixture.restore(bucket, "").await;
}

/// One of two that begin at the same time is refused.
pub async fn concurrent_operations_on_one_prefix_exclude_each_other(fixture: &Fixture) {
    let bucket = fixture.bucket("trash").await;
    for _ in 0..20 {
        let begin = |fixture: Fixture| async move { fixture.begin(PrefixOperationKind::Rm, bucket, "a", WEEK).await };
        let begun = at_once((0..3).map(|_| begin(fixture.clone())).collect()).await;
        let mut begun: Vec<_> = begun.into_iter().flatten().collect();
        assert_eq!(begun.len(), 1);
        fixture.finish(begun.remove(0)).await.expect("finished");
    }
}

/// An expired object whose row still stands counts as existing.
pub async fn restore_never_replaces_an_object(fixture: &Fixture) {
    let bucket = fixture.bucket("trash").await;
    for key in ["free", "standing", "written"] {
        fixture.put(bucket, key, 5).await;
    }
    fixture.rm(bucket, "", WEEK).await;
    let written = fixture.put(bucket, "written", 6).await;
    fixture.put_expiring(bucket, "standing", 7, MINUTE).await;
    fixture.clock.advance(MINUTE);
    assert_eq!(fixture.restore(bucket, "").await, counts(1, 5, 2, 0));
    assert_eq!(fixture.resolve("trash", "written").await.object.expect("an object").content, written);
    assert!(!is_visible(fixture, "trash", "standing").await && is_visible(fixture, "trash", "free").await);
    assert_eq!(fixture.keys_in_trash().await, ["standing", "written"]);
    fixture.delete(bucket, "written").await;
    assert_eq!(fixture.restore(bucket, "written").await, counts(1, 5, 0, 0), "the key is free now");
}

/// Both while the expired version is in trash and after it was deleted.
pub async fn expired_newest_version_brings_back_no_older_one(fixture: &Fixture) {
    let bucket = fixture.bucket("trash").await;
    fixture.put(bucket, "a", 5).await;
    fixture.rm(bucket, "", WEEK).await;
    fixture.put_expiring(bucket, "a", 6, MINUTE).await;
    fixture.rm(bucket, "", WEEK).await;
    fixture.clock.advance(MINUTE);
    assert_eq!(fixture.restore(bucket, "").await, counts(0, 0, 0, 1));
    assert_eq!(fixture.end_trash(TrashEnd::Expiry).await, ["a"]);
    assert_eq!(fixture.restore(bucket, "").await, counts(0, 0, 0, 0));
    assert_eq!(fixture.keys_in_trash().await, ["a"]);
    assert_eq!(fixture.purge(bucket, "").await, counts(1, 5, 0, 0));
}

/// Also those of keys without a row; those of other keys are not flagged.
pub async fn operations_supersede_open_intents(fixture: &Fixture) {
    let bucket = fixture.bucket("trash").await;
    for kind in [PrefixOperationKind::Rm, PrefixOperationKind::Restore] {
        let staged = [fixture.staged(bucket, "a/without-row", 1).await, fixture.staged(bucket, "b", 1).await];
        let operation = fixture.begin(kind, bucket, "a/", WEEK).await.expect("begun");
        fixture.finish(operation).await.expect("finished");
        let flagged = fixture.rows("SELECT key FROM pending_objects WHERE superseded = $1", params![1]).await;
        assert_eq!(flagged.len(), 1);
        assert_eq!(flagged[0].text("key").expect("a key"), "a/without-row");
        for intent in staged {
            fixture.catalog.drop_write(intent.write, Late::No).await.expect("dropped");
        }
    }
}

/// The claim of the expiry worker finds nothing, and the row in trash carries no claim.
pub async fn object_claimed_by_expiry_is_moved_to_trash(fixture: &Fixture) {
    let bucket = fixture.bucket("trash").await;
    fixture.put_expiring(bucket, "a", 5, MINUTE).await;
    fixture.clock.advance(MINUTE);
    let (token, claimed) = fixture.claim_expiries(9).await;
    assert_eq!((claimed, fixture.rm(bucket, "", WEEK).await), (1, counts(0, 0, 0, 1)));
    assert_eq!(fixture.remove_claimed(token).await, Vec::<String>::new());
    assert_eq!(fixture.end_trash(TrashEnd::Expiry).await, ["a"]);
    assert_eq!(fixture.usage().await, (0, 5, 0));
}

/// The new holder continues at the position of the old one.
pub async fn operation_taken_over_is_fenced_for_its_holder(fixture: &Fixture) {
    let bucket = fixture.bucket("trash").await;
    put_many(fixture, bucket).await;
    let mut operation = fixture.begin(PrefixOperationKind::Rm, bucket, "many/", WEEK).await.expect("begun");
    fixture.step(&mut operation).await.expect("a step");
    let take_over = || async { fixture.catalog.take_over_prefix_operation(fixture.token(), LEASE).await };
    assert_eq!(take_over().await.expect("a query"), None, "the lease has not ended");
    fixture.clock.advance(LEASE);
    let taken = take_over().await.expect("a query").expect("an operation");
    refused(fixture.step(&mut operation).await, Verdict::Fenced);
    assert_eq!(take_over().await.expect("a query"), None);
    fixture.catalog.release_prefix_operation(&taken).await.expect("released");
    let taken = take_over().await.expect("a query").expect("it was released");
    assert_eq!(fixture.finish(taken).await.expect("finished").objects, MANY);
    fixture.catalog.abandon_prefix_operation(&operation).await.expect("nothing left to do");
}

/// A write that crashed before the deletion is not finished after it.
pub async fn crashed_write_is_not_promoted_over_trash(fixture: &Fixture) {
    let bucket = fixture.bucket("trash").await;
    fixture.staged(bucket, "a", 5).await;
    fixture.rm(bucket, "", WEEK).await;
    fixture.clock.advance(LEASE);
    let expired = fixture.reap(9, MINUTE).await;
    assert_eq!(expired.iter().map(|intent| intent.superseded).collect::<Vec<_>>(), [true]);
}

/// The verdict differs from that of a bucket with objects.
pub async fn bucket_with_trash_is_not_deleted(fixture: &Fixture) {
    let bucket = fixture.bucket("trash").await;
    fixture.put(bucket, "a", 5).await;
    fixture.rm(bucket, "", WEEK).await;
    refused(fixture.catalog.delete_bucket(bucket).await, Verdict::InTrash);
    fixture.put(bucket, "b", 5).await;
    refused(fixture.catalog.delete_bucket(bucket).await, Verdict::NotEmpty);
    fixture.delete(bucket, "b").await;
    fixture.purge(bucket, "").await;
    fixture.catalog.delete_bucket(bucket).await.expect("deleted");
    refused(fixture.begin(PrefixOperationKind::Rm, bucket, "", WEEK).await, Verdict::NoSuchBucket);
}

/// Each write is visible, or in trash, or was replaced by a later one.
pub async fn writes_during_rm_and_restore_keep_counts_exact(fixture: &Fixture) {
    let bucket = fixture.bucket("trash").await;
    for round in 0..20 {
        let intent = fixture.staged(bucket, "a", 2).await;
        let (mover, writer) = (fixture.clone(), fixture.clone());
        let moves = async move {
            mover.rm(bucket, "", WEEK).await;
            mover.restore(bucket, "").await
        };
        let write = async move { writer.commit(&intent, WriteCondition::None).await };
        let (_, written) = both(moves, write, round).await;
        written.expect("committed");
        assert!(is_visible(fixture, "trash", "a").await);
    }
}
