//! Guards that are locks: two sessions of PostgreSQL, one of them paused in the middle of its unit. SQLite has one
//! writer and needs no such locks.

use std::time::Duration;

use s3o_model::cleanup::{Outcome, Reason};
use s3o_model::conditions::WriteCondition;
use s3o_model::content::Location;
use s3o_model::ids::BucketId;
use s3o_model::intent::Intent;
use s3o_model::target::Target;

use super::Cut::{Guard, Words};
use super::paused::{pause_after, race};
use super::{Damage, broken, damage_if, guards};
use crate::conformance::fixture::sharing::BODY_BYTES;
use crate::conformance::fixture::{ContentStanding, Fixture, LEASE, backend, unannounced};
use crate::{CommitPut, Ended, Late, PartSource, Settlement, UnnamedKey};

const OVER: &str = "the limit was exceeded";
const CLAIMED_TWICE: &str = "two workers hold one row at a time";
const SETTLED_TWICE: &str = "two workers settled one row";
const IN_USE: &str = "an upload in use was aborted";
const BUCKET_DELETED: &str = "an upload is open in a deleted bucket";
const FROZEN: &str = "a write was staged after its backend was frozen";
const NOT_SHARED: &str = "a write failed because another one created the same content first";
const OVERWRITTEN: &str = "a count that had changed was overwritten";
const SURVIVED: &str = "an object survived a later delete";

guards! { [postgres]
    one_write_at_a_time_checks_the_quota in two_stages_race: "stage",
        [Words("ORDER BY stripe /*lock*/", "ORDER BY stripe")], [OVER];
    a_claim_skips_locked_rows in two_claims_race: "claim_cleanups",
        [Words(" /*skip*/", "")], [CLAIMED_TWICE];
    a_settlement_locks_the_rows_it_reports in a_settlement_races_with_a_freed_claim: "settle_cleanups",
        [Words("ORDER BY id /*lock*/", "ORDER BY id")], [SETTLED_TWICE];
    a_requeue_waits_for_a_settlement in a_requeue_races_with_a_settlement: "requeue",
        [Words(" /*lock*/", "")], [broken::QUOTAS];
    a_part_locks_its_upload in a_part_races_with_an_abort: "commit_part",
        [Words(" /*share*/", "")], [broken::LEFTOVER];
    a_stale_upload_is_locked_while_it_is_checked in a_part_races_with_a_stale_abort: "abort_stale_upload",
        [Words(" /*lock*/", "")], [IN_USE];
    an_upload_locks_its_bucket in an_upload_races_with_the_delete_of_its_bucket: "create_upload",
        [Words(" /*share*/", "")], [BUCKET_DELETED];
    a_write_locks_its_backend in a_stage_races_with_a_freeze: "stage",
        [Words("draining = 0 /*share*/", "draining = 0")], [FROZEN];
    a_delete_checks_for_the_object_again in a_delete_races_with_a_promotion: "delete_object",
        [Guard("SELECT key FROM objects WHERE bucket_id = $1 AND key = $2")], [SURVIVED];
    a_recount_locks_its_contents in a_recount_races_with_a_copy: "recount",
        [Words(" /*lock*/", ""), Words(" AND ref_count = s.counted", "")], [OVERWRITTEN];
    joined_content_is_expanded_once in two_expansions_race: "expand_joined",
        [Words(" /*lock*/", "")], [broken::COUNT];
    a_write_shares_only_live_content in a_write_races_with_the_last_delete: "commit_put",
        [Words(" AND state = 'live'", "")], [broken::OBJECT, broken::CONDEMNED, broken::MISPLACED];
    a_pin_needs_live_content in a_pin_races_with_the_last_delete: "pin",
        [Words(" AND state = 'live'", ""), Guard("AND l.state = 'present' LIMIT $2")], [broken::CONDEMNED];
    marking_a_copy_suspect_waits_for_a_write in marking_a_copy_suspect_races_with_a_write: "suspect",
        [Words(" /*lock*/", "")], [broken::QUOTAS];
    a_key_is_named_or_queued in a_direct_commit_races_with_a_stray: "enqueue_unnamed",
        [Words("removed_at IS NULL) /*lock*/", "removed_at IS NULL)")], [broken::NAMED];
    the_second_write_of_new_content_shares_it in two_writes_of_new_content_race: "commit_put",
        [Guard("ON CONFLICT (dedup_bucket")], [NOT_SHARED];
}

async fn two_stages_race(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    fixture.catalog.set_limit(&backend("disk"), Some(9)).await.expect("set");
    let paused = pause_after(fixture, "stage", "s.rest >= 0").await;
    let (one, other) = (fixture.intent(bucket, "a", 5), fixture.intent(bucket, "b", 5));
    let (first, second) = race(&paused, paused.try_stage(&one), fixture.try_stage(&other)).await;
    damage_if(first.is_ok() && second.is_ok(), OVER)
}

/// Drops a write, which queues one cleanup.
async fn queued(fixture: &Fixture) -> Intent {
    let bucket = fixture.bucket("data").await;
    let intent = fixture.staged(bucket, "a", 5).await;
    fixture.catalog.drop_write(intent.write, Late::No).await.expect("dropped");
    intent
}

async fn two_claims_race(fixture: &Fixture) -> Damage {
    queued(fixture).await;
    let paused = pause_after(fixture, "claim_cleanups", "UPDATE cleanup_queue").await;
    let (first, second) = race(&paused, paused.claim(9), fixture.claim(9)).await;
    damage_if(first.1.len() + second.1.len() > 1, CLAIMED_TWICE)
}

/// Another worker frees the claim and settles the row while its first holder is settling it.
async fn a_settlement_races_with_a_freed_claim(fixture: &Fixture) -> Damage {
    queued(fixture).await;
    let (token, claimed) = fixture.claim(9).await;
    let settlements: Vec<Settlement> =
        claimed.iter().map(|row| Settlement { id: row.id, outcome: Outcome::Done }).collect();
    let paused = pause_after(fixture, "settle_cleanups", "SELECT id FROM cleanup_queue").await;
    let other = async {
        fixture.catalog.free_stale_claims(Duration::ZERO, fixture.token()).await.expect("freed");
        let (token, again) = fixture.claim(9).await;
        fixture.settle(token, &again, &Outcome::Done).await
    };
    let (first, second) = race(&paused, paused.catalog.settle_cleanups(token, &settlements), other).await;
    damage_if(first.expect("settled").len() + second > 1, SETTLED_TWICE)
}

/// The bytes arrive while their cleanup is being settled.
async fn a_requeue_races_with_a_settlement(fixture: &Fixture) -> Damage {
    let intent = queued(fixture).await;
    let (token, claimed) = fixture.claim(9).await;
    let paused = pause_after(fixture, "settle_cleanups", "DELETE FROM cleanup_queue").await;
    let ended = Ended::default();
    let (_, again) = race(
        &paused,
        paused.settle(token, &claimed, &Outcome::DoneAbsent),
        fixture.catalog.requeue(&intent.place(), intent.size_bytes, &ended),
    )
    .await;
    again.expect("requeued");
    Damage::new()
}

async fn a_part_races_with_an_abort(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let upload = fixture.upload(bucket, "a").await;
    let part = fixture.staged_part(upload, 1, 5).await;
    let paused = pause_after(fixture, "commit_part", "FROM multipart_uploads").await;
    let (_, aborted) = race(&paused, paused.commit_part(&part), fixture.catalog.abort_upload(upload)).await;
    aborted.expect("aborted");
    Damage::new()
}

async fn a_part_races_with_a_stale_abort(fixture: &Fixture) -> Damage {
    const TIMEOUT: Duration = Duration::from_hours(24);
    let bucket = fixture.bucket("data").await;
    let upload = fixture.upload(bucket, "a").await;
    fixture.clock.advance(TIMEOUT + Duration::from_secs(1));
    let content = fixture.put(bucket, "b", 5).await;
    let part = fixture.part_of(upload, 1, (content, 5), PartSource::Range { offset: 0 });
    let paused = pause_after(fixture, "commit_part", "INSERT INTO multipart_parts").await;
    let (part, aborted) =
        race(&paused, paused.store_part(part), fixture.catalog.abort_stale_upload(upload, TIMEOUT)).await;
    part.expect("acknowledged");
    damage_if(aborted.expect("an answer").is_some(), IN_USE)
}

async fn an_upload_races_with_the_delete_of_its_bucket(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let paused = pause_after(fixture, "create_upload", "FROM buckets").await;
    let (_, deleted) = race(&paused, paused.upload(bucket, "a"), fixture.catalog.delete_bucket(bucket)).await;
    damage_if(deleted.is_ok(), BUCKET_DELETED)
}

/// The backend is frozen while the unit that stages the write has not committed yet.
async fn a_stage_races_with_a_freeze(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let (paused, intent) = (pause_after(fixture, "stage", "FROM backends").await, fixture.intent(bucket, "a", 5));
    let freeze = async {
        fixture.set_frozen(&backend("disk"), Some("another disk")).await;
        fixture.number("SELECT count(*) FROM pending_objects").await
    };
    let (staged, announced) = race(&paused, paused.try_stage(&intent), freeze).await;
    damage_if(staged.is_ok() && announced == 0, FROZEN)
}

async fn exists(fixture: &Fixture) -> bool {
    fixture.resolve("data", "a").await.object.is_some()
}

/// The write is promoted after the delete queried the object, and before it queried the intents.
async fn a_delete_races_with_a_promotion(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let intent = fixture.staged(bucket, "a", 5).await;
    fixture.clock.advance(LEASE);
    let token = fixture.claim_expired_writes(1).await;
    let paused = pause_after(fixture, "delete_object", "UPDATE objects SET token").await;
    let (_, promoted) = race(&paused, paused.delete(bucket, "a"), fixture.promote(&intent, token)).await;
    promoted.expect("promoted before the delete");
    damage_if(exists(fixture).await, SURVIVED)
}

async fn a_recount_races_with_a_copy(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let content = fixture.put(bucket, "a", 5).await;
    // A recount changes only a wrong count.
    fixture.change("UPDATE contents SET ref_count = ref_count + 3", vec![]).await;
    let seen = fixture.catalog.confirm_suspects(&[content]).await.expect("counted");
    let paused = pause_after(fixture, "commit_copy", "ref_count + 1").await;
    let (copied, recounted) =
        race(&paused, paused.copy((content, 5), bucket, "b"), fixture.catalog.recount(&seen)).await;
    copied.expect("copied");
    recounted.expect("recounted");
    let standing = fixture.standing(content).await;
    fixture.recount(&[content]).await;
    damage_if(standing != ContentStanding::Live(5), OVERWRITTEN)
}

/// Deletes a joined object whose only piece is shared with another object.
async fn shared_piece(fixture: &Fixture, bucket: BucketId) {
    let content = fixture.put(bucket, "a", 5).await;
    fixture.copy((content, 5), bucket, "b").await.expect("copied");
    let upload = fixture.upload(bucket, "joined").await;
    let part = fixture.part_of(upload, 1, (content, 5), PartSource::Range { offset: 0 });
    fixture.store_part(part).await.expect("committed");
    fixture.complete(upload, &[(1, content)]).await.expect("completed");
    assert!(fixture.delete(bucket, "joined").await);
}

async fn two_expansions_race(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    shared_piece(fixture, bucket).await;
    let paused = pause_after(fixture, "expand_joined", "SET ref_count").await;
    let expand = |fixture: Fixture| async move { fixture.catalog.expand_joined(Duration::ZERO).await };
    let (first, second) = race(&paused, expand((*paused).clone()), expand(fixture.clone())).await;
    first.and(second).expect("steps");
    Damage::new()
}

/// The write finds the content while the last reference to it is being deleted.
async fn a_write_races_with_the_last_delete(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    fixture.share(bucket, "a", 1).await;
    let put = fixture.shared_put_of(&fixture.staged(bucket, "b", BODY_BYTES).await, 1);
    let paused = pause_after(fixture, "delete_object", "SET state = 'condemned'").await;
    let (deleted, written) = race(&paused, paused.delete(bucket, "a"), fixture.commit_put(put)).await;
    assert!(deleted);
    written.expect("acknowledged");
    Damage::new()
}

async fn a_pin_races_with_the_last_delete(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    fixture.share(bucket, "a", 1).await;
    let pin = fixture.pin_of(bucket, "b", 1);
    let paused = pause_after(fixture, "delete_object", "SET state = 'condemned'").await;
    let (deleted, pinned) = race(&paused, paused.delete(bucket, "a"), fixture.pin(&pin)).await;
    assert!(deleted);
    pinned.expect("an answer");
    Damage::new()
}

/// The write has queried the copies that it must replace, and found none.
async fn marking_a_copy_suspect_races_with_a_write(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let content = fixture.share(bucket, "a", 1).await;
    let physical_key = fixture.copies_of(content).await.remove(0).0;
    let copy = Location { backend: backend("disk"), physical_key, backend_version: None };
    let put = fixture.shared_put_of(&fixture.staged(bucket, "b", BODY_BYTES).await, 1);
    let paused = pause_after(fixture, "commit_put", "'dedup', :now, :now FROM object_locations").await;
    let (written, marked) = race(&paused, paused.commit_put(put), fixture.catalog.suspect(content, &copy)).await;
    written.expect("acknowledged");
    assert!(marked.expect("marked"));
    Damage::new()
}

/// Neither write finds the content of the other one.
async fn two_writes_of_new_content_race(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let mut puts = Vec::new();
    for name in ["a", "b"] {
        puts.push(fixture.shared_put_of(&fixture.staged(bucket, name, BODY_BYTES).await, 1));
    }
    let paused = pause_after(fixture, "commit_put", "INSERT INTO contents").await;
    let (second, first) = (puts.remove(1), puts.remove(0));
    let (first, second) = race(&paused, paused.commit_put(first), fixture.commit_put(second)).await;
    first.expect("acknowledged");
    damage_if(second.is_err(), NOT_SHARED)
}

/// The commit has asked for rows that name its key, and found none, when a pass queues the key.
async fn a_direct_commit_races_with_a_stray(fixture: &Fixture) -> Damage {
    let intent = fixture.intent(fixture.bucket("data").await, "a", 5);
    let commit = CommitPut { stored: unannounced(&intent), ..fixture.put_of(&intent, WriteCondition::None) };
    let (physical_key, target) = (intent.physical_key.clone(), Target::Key);
    let stray = [UnnamedKey { physical_key, target, size_bytes: 5, expected: None }];
    let paused = pause_after(fixture, "commit_put", "AS named WHERE NOT").await;
    let queue = fixture.catalog.enqueue_unnamed(&intent.backend, Reason::Reconcile, &stray, fixture.token());
    let (committed, queued) = race(&paused, paused.commit_put(commit), queue).await;
    committed.expect("committed");
    queued.expect("an answer");
    Damage::new()
}
