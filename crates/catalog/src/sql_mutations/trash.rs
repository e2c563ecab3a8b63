//! Guards of trash: what is moved there, what comes back, and when its bytes are deleted.

use std::time::Duration;

use s3o_model::cleanup::Reason;
use s3o_model::ids::BucketId;

use super::Cut::{Guard, Words};
use super::{Damage, broken, damage_if, guards};
use crate::conformance::fixture::{Fixture, LEASE};
use crate::{PrefixOperationKind, RemoveCopy, ReplicaSource, TrashEnd, params};

const NEWER_TAKEN: &str = "an object that was written after the cut-off was moved to trash";
const RESTORED_TAKEN: &str = "a restored object was moved to trash again";
const REPLACED: &str = "a restore replaced an object";
const OUTDATED: &str = "a restore brought back an outdated version";
const EXPIRED: &str = "a restore brought back an expired object";
const PROMOTED: &str = "a write that crashed before the operation can be finished after it";
const TOO_EARLY: &str = "an object in trash was purged before its retention ended";
const NOT_DUE: &str = "an object in trash was purged although it was not due";
const COPY_REMOVED: &str = "a copy of an object in trash was removed because of its factor";
const COPY_ADDED: &str = "a copy of an object in trash was added because of its factor";

/// Predicate of `delete_object` that confirms a count of zero.
const IN_TRASH: &str =
    " AND NOT EXISTS (SELECT 1 FROM trash_objects x WHERE x.content_id = contents.id AND NOT (1 = 0))";
const IS_NEWEST: &str =
    " AND NOT EXISTS (SELECT 1 FROM trash_objects n WHERE n.bucket_id = t.bucket_id AND n.key = t.key AND n.id > t.id)";

guards! { [sqlite]
    rm_takes_only_versions_before_its_cutoff in an_object_is_written_during_rm: "move_to_trash",
        [Words(" AND committed_at <= $5", "")], [NEWER_TAKEN];
    rm_supersedes_writes_of_its_keys in a_write_crashed_before_rm: "move_to_trash",
        [Words("SET superseded = 1", "SET superseded = 0")], [PROMOTED];
    restore_supersedes_writes_of_its_keys in a_write_crashed_before_a_restore: "restore_from_trash",
        [Words("SET superseded = 1", "SET superseded = 0")], [PROMOTED];
    operations_on_one_prefix_exclude_each_other in a_prefix_is_restored_during_rm: "begin_prefix_operation",
        [Words("prefix < $5 AND range_end > $4", "1 = 0")], [RESTORED_TAKEN];
    a_step_needs_its_operation in an_instance_continues_an_operation_that_has_ended: "move_to_trash",
        [Guard("AND token = $2 AND position = $3")], [RESTORED_TAKEN];
    a_restore_never_replaces_an_object in a_key_in_trash_is_written: "restore_from_trash",
        [Words("DO NOTHING", "DO UPDATE SET content_id = excluded.content_id, version_id = excluded.version_id")],
        [REPLACED, broken::COUNT];
    a_restore_deletes_only_what_it_restored in a_key_in_trash_is_written: "restore_from_trash",
        [Words("DELETE FROM trash_objects WHERE token = $1 AND EXISTS",
            "DELETE FROM trash_objects WHERE token = $1 AND 1 = 1 OR EXISTS")], [broken::COUNT];
    a_restore_takes_the_newest_version in the_newest_version_in_trash_has_expired: "restore_from_trash",
        [Words(IS_NEWEST, "")], [OUTDATED];
    a_restore_skips_expired_objects in an_object_expires_in_trash: "restore_from_trash",
        [Words(" AND (expires_at IS NULL OR expires_at > :now)", "")], [EXPIRED];
    a_purged_version_outdates_older_ones in the_newest_version_in_trash_is_deleted: "end_trash",
        [Words("SET restorable = 0", "SET restorable = 1")], [OUTDATED];
    a_restore_skips_outdated_versions in the_newest_version_in_trash_is_deleted: "restore_from_trash",
        [Words(" AND t.restorable = 1", "")], [OUTDATED];
    todays_retention_applies_if_it_is_longer in an_object_was_trashed_with_a_short_retention: "end_trash",
        [Words(" AND deleted_at <= :now - $1", ""), Words("AND deleted_at + $1 > :now", "AND 1 = 0")], [TOO_EARLY];
    the_retention_at_the_deletion_applies_if_it_is_longer in an_object_was_trashed_with_a_long_retention: "end_trash",
        [Words("WHERE purge_at <= :now AND deleted_at", "WHERE deleted_at"), Guard("o.purge_at > :now")], [TOO_EARLY];
    a_purge_checks_that_its_rows_are_due in a_row_that_is_not_due_carries_the_token: "end_trash",
        [Guard("o.purge_at > :now")], [NOT_DUE];
    trash_confirms_a_zero_count in an_object_is_deleted_while_trash_uses_it: "delete_object",
        [Words(IN_TRASH, "")], [broken::TRASH, broken::CONDEMNED];
    trash_keeps_its_copies in the_factor_of_trash_is_lowered: "remove_copy",
        [Guard("SELECT 1 FROM trash_objects y")], [COPY_REMOVED];
    trash_gets_no_copies in the_factor_of_trash_is_raised: "commit_replica",
        [Guard("SELECT 1 FROM trash_objects y")], [COPY_ADDED];
}

const WEEK: Duration = Duration::from_hours(168);
const HOUR: Duration = Duration::from_hours(1);
const TICK: Duration = Duration::from_millis(1);

/// A bucket with an object `a` in trash.
async fn trashed(fixture: &Fixture) -> BucketId {
    let bucket = fixture.bucket("data").await;
    fixture.put(bucket, "a", 5).await;
    fixture.rm(bucket, "", WEEK).await;
    bucket
}

async fn is_visible(fixture: &Fixture) -> bool {
    fixture.resolve("data", "a").await.object.is_some()
}

async fn an_object_is_written_during_rm(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let operation = fixture.begin(PrefixOperationKind::Rm, bucket, "", WEEK).await.expect("begun");
    fixture.clock.advance(TICK);
    fixture.put(bucket, "a", 5).await;
    fixture.finish(operation).await.expect("finished");
    damage_if(!is_visible(fixture).await, NEWER_TAKEN)
}

/// Returns whether the reaper may finish a write of `a` that began before the operation.
async fn crash_before(fixture: &Fixture, kind: PrefixOperationKind) -> Damage {
    let bucket = fixture.bucket("data").await;
    fixture.staged(bucket, "a", 5).await;
    let operation = fixture.begin(kind, bucket, "", WEEK).await.expect("begun");
    fixture.finish(operation).await.expect("finished");
    fixture.clock.advance(LEASE);
    let expired = fixture.reap(9, Duration::ZERO).await;
    damage_if(expired.iter().any(|intent| !intent.superseded), PROMOTED)
}

async fn a_write_crashed_before_rm(fixture: &Fixture) -> Damage {
    crash_before(fixture, PrefixOperationKind::Rm).await
}

async fn a_write_crashed_before_a_restore(fixture: &Fixture) -> Damage {
    crash_before(fixture, PrefixOperationKind::Restore).await
}

async fn a_prefix_is_restored_during_rm(fixture: &Fixture) -> Damage {
    let bucket = trashed(fixture).await;
    let running = fixture.begin(PrefixOperationKind::Rm, bucket, "a", WEEK).await.expect("begun");
    let restore = fixture.begin(PrefixOperationKind::Restore, bucket, "", WEEK).await;
    let is_restored = restore.is_ok();
    if let Ok(restore) = restore {
        fixture.finish(restore).await.expect("finished");
    }
    fixture.finish(running).await.expect("finished");
    damage_if(is_restored && !is_visible(fixture).await, RESTORED_TAKEN)
}

async fn an_instance_continues_an_operation_that_has_ended(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    fixture.put(bucket, "a", 5).await;
    let mut slow = fixture.begin(PrefixOperationKind::Rm, bucket, "", WEEK).await.expect("begun");
    fixture.clock.advance(LEASE);
    let taken = fixture.catalog.take_over_prefix_operation(fixture.token(), LEASE).await.expect("a query");
    fixture.finish(taken.expect("its lease has ended")).await.expect("finished");
    // A clock that was set back: otherwise the cut-off protects what was restored.
    fixture.restore(bucket, "").await;
    fixture.change("UPDATE objects SET committed_at = 0", vec![]).await;
    fixture.step(&mut slow).await.ok();
    damage_if(!is_visible(fixture).await, RESTORED_TAKEN)
}

async fn a_key_in_trash_is_written(fixture: &Fixture) -> Damage {
    let bucket = trashed(fixture).await;
    let written = fixture.put(bucket, "a", 5).await;
    fixture.restore(bucket, "").await;
    let found = fixture.resolve("data", "a").await.object.expect("an object").content;
    damage_if(found != written, REPLACED)
}

async fn the_newest_version_in_trash_has_expired(fixture: &Fixture) -> Damage {
    let bucket = trashed(fixture).await;
    fixture.put_expiring(bucket, "a", 5, HOUR).await;
    fixture.rm(bucket, "", WEEK).await;
    fixture.clock.advance(HOUR);
    fixture.restore(bucket, "").await;
    damage_if(is_visible(fixture).await, OUTDATED)
}

async fn the_newest_version_in_trash_is_deleted(fixture: &Fixture) -> Damage {
    let bucket = trashed(fixture).await;
    fixture.put_expiring(bucket, "a", 5, HOUR).await;
    fixture.rm(bucket, "", WEEK).await;
    fixture.clock.advance(HOUR);
    assert_eq!(fixture.end_trash(TrashEnd::Expiry).await, ["a"]);
    fixture.restore(bucket, "").await;
    damage_if(is_visible(fixture).await, OUTDATED)
}

async fn an_object_expires_in_trash(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    fixture.put_expiring(bucket, "a", 5, HOUR).await;
    fixture.rm(bucket, "", WEEK).await;
    fixture.clock.advance(HOUR);
    damage_if(fixture.restore(bucket, "").await.objects > 0, EXPIRED)
}

async fn an_object_was_trashed_with_a_short_retention(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    fixture.put(bucket, "a", 5).await;
    fixture.rm(bucket, "", Duration::ZERO).await;
    damage_if(!fixture.end_trash(TrashEnd::Retention(HOUR)).await.is_empty(), TOO_EARLY)
}

async fn an_object_was_trashed_with_a_long_retention(fixture: &Fixture) -> Damage {
    trashed(fixture).await;
    damage_if(!fixture.end_trash(TrashEnd::Retention(Duration::ZERO)).await.is_empty(), TOO_EARLY)
}

/// As a damaged index on `purge_at` would mark it.
async fn a_row_that_is_not_due_carries_the_token(fixture: &Fixture) -> Damage {
    trashed(fixture).await;
    let token = fixture.token();
    fixture.change("UPDATE trash_objects SET token = $1", params![token]).await;
    let ended = fixture.catalog.end_trash(TrashEnd::Retention(WEEK), 9, token).await;
    fixture.change("UPDATE trash_objects SET token = NULL", vec![]).await;
    damage_if(ended.is_ok_and(|(gone, _)| !gone.is_empty()), NOT_DUE)
}

async fn an_object_is_deleted_while_trash_uses_it(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let content = fixture.put(bucket, "a", 5).await;
    fixture.copy((content, 5), bucket, "b").await.expect("copied");
    fixture.rm(bucket, "b", WEEK).await;
    fixture.change("UPDATE contents SET ref_count = ref_count - 1 WHERE id = $1", params![content]).await;
    assert!(fixture.delete(bucket, "a").await);
    fixture.recount(&[content]).await;
    Damage::new()
}

/// An object in trash with copies on `disk` and `east`.
async fn trash_with_two_copies(fixture: &Fixture) -> s3o_model::ids::ContentId {
    let bucket = fixture.bucket_with_factor(2).await;
    let content = fixture.put_copies(bucket, &["disk", "east"], 2).await;
    fixture.rm(bucket, "", WEEK).await;
    content
}

async fn the_factor_of_trash_is_lowered(fixture: &Fixture) -> Damage {
    let content = trash_with_two_copies(fixture).await;
    fixture.set_factors(1).await;
    let (copy, kept) = (fixture.copy_on(content, "east").await, vec![fixture.copy_on(content, "disk").await]);
    let remove = RemoveCopy { content, copy, kept, reason: Reason::Replication, grace: HOUR };
    damage_if(fixture.catalog.remove_copy(&remove).await.is_ok(), COPY_REMOVED)
}

async fn the_factor_of_trash_is_raised(fixture: &Fixture) -> Damage {
    let content = trash_with_two_copies(fixture).await;
    fixture.set_factors(3).await;
    let stage = fixture.stage_replica(content, "west").await.expect("staged");
    let source = fixture.copy_on(content, "disk").await;
    let added = fixture.commit_replica(&stage, &source, ReplicaSource::Nothing).await;
    damage_if(added.is_ok(), COPY_ADDED)
}
