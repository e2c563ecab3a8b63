//! Guards of expiration: an object is visible until it expires, hidden from then on, and removed once.

use std::time::Duration;

use s3o_model::conditions::WriteCondition;
use s3o_model::expiry::Expiry;
use s3o_model::ids::BucketId;
use s3o_model::listing::ListQuery;
use s3o_model::object::Tags;

use super::Cut::{Guard, Words};
use super::{Damage, broken, damage_if, guards};
use crate::conformance::fixture::{Fixture, key};
use crate::params;

const NEW_REMOVED: &str = "a newly written object was removed";
const CLAIMED_TWICE: &str = "two workers claimed the same object";
const TOO_EARLY: &str = "an object was removed before it expired";
const LOST_CLAIM: &str = "a lost claim removed an object";
const CLAIM_TAKEN: &str = "a claim was taken from a worker that is still running";
const VISIBLE: &str = "an expired object was visible";
const MATCHED: &str = "a condition matched an expired object";
const BLOCKED: &str = "an expired object blocked a write";
const NEVER_VISIBLE: &str = "an acknowledged object was never visible";

guards! { [sqlite]
    a_claim_takes_only_unclaimed_objects in two_workers_claim: "claim_expiries",
        [Words(" AND deletion_status = 'NOT_EXPIRED'", "")], [CLAIMED_TWICE];
    a_removal_selects_rows_by_its_token in a_worker_removes_after_another_claimed: "remove_claimed",
        [Words("token = $1", "deletion_status = 'DELETION_IN_PROGRESS'"), Guard("LEFT JOIN objects o")], [LOST_CLAIM];
    a_write_clears_the_claim in a_claimed_object_is_overwritten: "commit_put",
        [Words(", token = NULL", "")], [broken::MARK];
    a_conditional_write_clears_the_claim in a_claimed_object_is_replaced_conditionally: "commit_put",
        [Words(", token = NULL", "")], [broken::MARK];
    a_copy_clears_the_claim in a_claimed_object_is_overwritten_by_a_copy: "commit_copy",
        [Words(", token = NULL", "")], [broken::MARK];
    a_reset_clears_the_claim in a_worker_removes_after_a_reset: "reset_stuck",
        [Words(", token = NULL", "")], [LOST_CLAIM];
    a_reset_keeps_recent_claims in a_reset_finds_an_old_and_a_recent_claim: "reset_stuck",
        [Words(" AND deletion_initiated_at <= :now - $1", "")], [CLAIM_TAKEN];
    emptying_a_bucket_removes_only_expired_objects in a_bucket_is_emptied: "remove_expired_in",
        [Words(" AND expires_at <= :now", ""), Guard("o.expires_at > :now")], [TOO_EARLY];
    resolve_hides_expired_objects in an_expired_object_is_resolved: "read",
        [Words(" AND (o.expires_at IS NULL OR o.expires_at > :now)", "")], [VISIBLE];
    list_hides_expired_objects in a_bucket_with_an_expired_object_is_listed: "read",
        [Words("AND (expires_at IS NULL OR expires_at > :now) ", "")], [VISIBLE];
    tags_are_set_only_on_live_objects in an_expired_object_is_tagged: "set_object_tags",
        [Words(" AND (expires_at IS NULL OR expires_at > :now)", "")], [VISIBLE];
    an_if_match_write_needs_a_live_object in an_expired_object_is_replaced: "commit_put",
        [Words(" AND (expires_at IS NULL OR expires_at > :now)", "")], [MATCHED];
    a_conditional_delete_needs_a_live_object in an_expired_object_is_deleted_conditionally: "delete_object",
        [Words(" AND (expires_at IS NULL OR expires_at > :now)", "")], [MATCHED];
    a_conditional_batch_delete_needs_a_live_object in an_expired_object_is_deleted_in_a_batch: "delete_objects",
        [Words(" AND (expires_at IS NULL OR expires_at > :now)", "")], [MATCHED];
    an_expired_object_counts_as_absent in an_if_absent_write_finds_an_expired_object: "commit_put",
        [Words("objects.expires_at IS NOT NULL AND objects.expires_at <= :now", "1 = 0")], [BLOCKED];
    a_commit_needs_an_expiration_in_the_future in a_write_expires_before_its_commit: "commit_put",
        [Guard("SELECT 1 WHERE $1 > :now")], [NEVER_VISIBLE];
}

const MINUTE: Duration = Duration::from_mins(1);
const STUCK: Duration = Duration::from_hours(2);

/// Removes what the claim holds and returns the keys; none if the removal is refused.
async fn removed(fixture: &Fixture, token: s3o_model::ids::ClaimToken) -> Vec<String> {
    let removed = fixture.catalog.remove_claimed(token).await.unwrap_or_default();
    removed.into_iter().map(|object| object.key).collect()
}

/// Creates a bucket with an expired object `a`.
async fn expired(fixture: &Fixture) -> BucketId {
    let bucket = fixture.bucket("data").await;
    fixture.put_expiring(bucket, "a", 5, MINUTE).await;
    fixture.clock.advance(MINUTE);
    bucket
}

async fn is_visible(fixture: &Fixture) -> bool {
    let sql = "SELECT key FROM objects WHERE key = 'a' AND (expires_at IS NULL OR expires_at > :now)";
    !fixture.rows(sql, vec![]).await.is_empty()
}

async fn a_claimed_object_is_overwritten(fixture: &Fixture) -> Damage {
    let bucket = expired(fixture).await;
    let (token, _) = fixture.claim_expiries(9).await;
    fixture.put(bucket, "a", 7).await;
    removed(fixture, token).await;
    damage_if(!is_visible(fixture).await, NEW_REMOVED)
}

/// The object is claimed while it is live, as after a clock that was set back.
async fn a_claimed_object_is_replaced_conditionally(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    fixture.put_expiring(bucket, "a", 5, MINUTE).await;
    let claim = "UPDATE objects SET token = $1, deletion_status = 'DELETION_IN_PROGRESS', deletion_initiated_at = :now";
    let token = fixture.token();
    fixture.change(claim, params![token]).await;
    let intent = fixture.staged(bucket, "a", 7).await;
    fixture.commit(&intent, WriteCondition::IfMatch(None)).await.expect("committed");
    removed(fixture, token).await;
    damage_if(!is_visible(fixture).await, NEW_REMOVED)
}

async fn a_claimed_object_is_overwritten_by_a_copy(fixture: &Fixture) -> Damage {
    let bucket = expired(fixture).await;
    let source = fixture.put(bucket, "source", 7).await;
    let (token, _) = fixture.claim_expiries(9).await;
    fixture.copy((source, 7), bucket, "a").await.expect("copied");
    removed(fixture, token).await;
    damage_if(!is_visible(fixture).await, NEW_REMOVED)
}

/// The first claim takes one of two expired objects.
async fn two_workers_claim(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    for key in ["a", "b"] {
        fixture.put_expiring(bucket, key, 5, MINUTE).await;
    }
    fixture.clock.advance(MINUTE);
    let ((_, one), (_, other)) = (fixture.claim_expiries(1).await, fixture.claim_expiries(9).await);
    assert_eq!(one, 1);
    damage_if(other > 1, CLAIMED_TWICE)
}

async fn a_worker_removes_after_another_claimed(fixture: &Fixture) -> Damage {
    expired(fixture).await;
    let (slow, _) = fixture.claim_expiries(9).await;
    fixture.clock.advance(STUCK);
    fixture.catalog.reset_stuck(STUCK, 9).await.expect("reset");
    assert_eq!(fixture.claim_expiries(9).await.1, 1, "the next worker claims it");
    damage_if(!removed(fixture, slow).await.is_empty(), LOST_CLAIM)
}

async fn a_worker_removes_after_a_reset(fixture: &Fixture) -> Damage {
    expired(fixture).await;
    let (slow, _) = fixture.claim_expiries(9).await;
    fixture.clock.advance(STUCK);
    assert_eq!(fixture.catalog.reset_stuck(STUCK, 9).await.expect("reset").len(), 1);
    damage_if(!removed(fixture, slow).await.is_empty(), LOST_CLAIM)
}

async fn a_reset_finds_an_old_and_a_recent_claim(fixture: &Fixture) -> Damage {
    let bucket = expired(fixture).await;
    fixture.claim_expiries(9).await;
    fixture.clock.advance(STUCK);
    fixture.put_expiring(bucket, "b", 5, Duration::from_millis(1)).await;
    fixture.clock.advance(Duration::from_millis(1));
    let (recent, claimed) = fixture.claim_expiries(9).await;
    fixture.catalog.reset_stuck(STUCK, 9).await.expect("reset");
    damage_if(claimed == 1 && removed(fixture, recent).await.is_empty(), CLAIM_TAKEN)
}

async fn a_bucket_is_emptied(fixture: &Fixture) -> Damage {
    let bucket = expired(fixture).await;
    fixture.put(bucket, "alive", 5).await;
    let removed = fixture.catalog.remove_expired_in(bucket, 9, fixture.token()).await.expect("removed");
    damage_if(removed.len() > 1, TOO_EARLY)
}

async fn an_expired_object_is_resolved(fixture: &Fixture) -> Damage {
    expired(fixture).await;
    damage_if(fixture.resolve("data", "a").await.object.is_some(), VISIBLE)
}

async fn a_bucket_with_an_expired_object_is_listed(fixture: &Fixture) -> Damage {
    let bucket = expired(fixture).await;
    let query = ListQuery { limit: 10, ..ListQuery::default() };
    let page = fixture.catalog.list_objects(bucket, query).await.expect("a page");
    damage_if(!page.entries.is_empty(), VISIBLE)
}

async fn an_expired_object_is_tagged(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    fixture.put_expiring(bucket, "a", 5, MINUTE).await;
    let object = fixture.resolve("data", "a").await.object.expect("an object");
    fixture.clock.advance(MINUTE);
    damage_if(fixture.catalog.set_object_tags(&object, &Tags::new()).await.is_ok(), VISIBLE)
}

async fn an_expired_object_is_replaced(fixture: &Fixture) -> Damage {
    let bucket = expired(fixture).await;
    let intent = fixture.staged(bucket, "a", 7).await;
    damage_if(fixture.commit(&intent, WriteCondition::IfMatch(None)).await.is_ok(), MATCHED)
}

/// Lets an object `a` expire and returns the `ETag` that it had.
async fn etag_of_expired(fixture: &Fixture, bucket: BucketId) -> s3o_model::etag::ETag {
    fixture.put_expiring(bucket, "a", 5, MINUTE).await;
    let etag = fixture.resolve("data", "a").await.object.expect("an object").etag;
    fixture.clock.advance(MINUTE);
    etag
}

async fn an_expired_object_is_deleted_conditionally(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let etag = etag_of_expired(fixture, bucket).await;
    damage_if(fixture.delete_if(bucket, "a", Some(&etag)).await.is_ok(), MATCHED)
}

async fn an_expired_object_is_deleted_in_a_batch(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let targets = [(key("a"), Some(etag_of_expired(fixture, bucket).await))];
    let removed = fixture.catalog.delete_objects(bucket, &targets, fixture.token()).await.expect("a batch");
    damage_if(!removed.is_empty(), MATCHED)
}

async fn an_if_absent_write_finds_an_expired_object(fixture: &Fixture) -> Damage {
    let bucket = expired(fixture).await;
    let intent = fixture.staged(bucket, "a", 7).await;
    damage_if(fixture.commit(&intent, WriteCondition::IfAbsent).await.is_err(), BLOCKED)
}

async fn a_write_expires_before_its_commit(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let written = fixture.try_put_expiring(bucket, "a", 5, Expiry::At(fixture.now())).await;
    damage_if(written.is_ok() && !is_visible(fixture).await, NEVER_VISIBLE)
}
