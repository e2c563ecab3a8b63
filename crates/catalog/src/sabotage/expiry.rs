//! What keeps objects alive until their time has passed, hides them from then on, and lets each go once.

use std::time::Duration;

use s3o_model::conditions::WriteCondition;
use s3o_model::expiry::Expiry;
use s3o_model::ids::BucketId;
use s3o_model::listing::ListQuery;
use s3o_model::object::Tags;

use super::Cut::{Guard, Words};
use super::{Told, broken, safeties, told};
use crate::conformance::scene::{Scene, key};
use crate::{Expiries, Objects, StuckObjects, params};

const WRITTEN_ANEW: &str = "what was written anew was removed";
const STOLEN: &str = "two hold the same claim";
const TOO_EARLY: &str = "an object went before its time";
const LOST: &str = "a claim that was lost removed something";
const TAKEN: &str = "a claim was taken from whoever still works";
const SEEN: &str = "what has expired was seen";
const MET: &str = "a condition met what has expired";
const IN_THE_WAY: &str = "what has expired kept a write away";
const NEVER_THERE: &str = "an object that was acknowledged was never there";

safeties! { [sqlite]
    a_claim_takes_what_is_nobodys by two_workers_claim: "claim_expiries",
        [Words(" AND deletion_status = 'NOT_EXPIRED'", "")], [STOLEN];
    a_removal_names_rows_by_its_claim by a_slow_worker_wakes_up: "remove_claimed",
        [Words("token = $1", "deletion_status = 'DELETION_IN_PROGRESS'"), Guard("LEFT JOIN objects o")], [LOST];
    a_write_clears_the_claim by an_object_is_written_between: "commit_put",
        [Words(", token = NULL", "")], [broken::MARK];
    a_conditional_write_clears_the_claim by an_object_is_replaced_between: "commit_put",
        [Words(", token = NULL", "")], [broken::MARK];
    a_copy_clears_the_claim by an_object_is_copied_between: "commit_copy",
        [Words(", token = NULL", "")], [broken::MARK];
    a_reset_takes_the_claim_away by a_slow_worker_wakes_up_before_the_next: "reset_stuck",
        [Words(", token = NULL", "")], [LOST];
    a_reset_leaves_young_claims by a_watchdog_comes_early: "reset_stuck",
        [Words(" AND deletion_initiated_at <= :now - $1", "")], [TAKEN];
    a_bucket_is_emptied_of_what_expired by a_bucket_is_emptied: "remove_expired_in",
        [Words(" AND expires_at <= :now", ""), Guard("o.expires_at > :now")], [TOO_EARLY];
    a_look_hides_what_expired by somebody_looks: "read",
        [Words(" AND (o.expires_at IS NULL OR o.expires_at > :now)", "")], [SEEN];
    a_list_hides_what_expired by somebody_lists: "read",
        [Words("AND (expires_at IS NULL OR expires_at > :now) ", "")], [SEEN];
    tags_are_those_of_the_living by somebody_tags: "set_object_tags",
        [Words(" AND (expires_at IS NULL OR expires_at > :now)", "")], [SEEN];
    a_match_needs_the_living by somebody_replaces: "commit_put",
        [Words(" AND (expires_at IS NULL OR expires_at > :now)", "")], [MET];
    a_delete_that_matches_needs_the_living by somebody_deletes_what_matches: "delete_object",
        [Words(" AND (expires_at IS NULL OR expires_at > :now)", "")], [MET];
    a_batch_that_matches_needs_the_living by somebody_deletes_a_batch: "delete_objects",
        [Words(" AND (expires_at IS NULL OR expires_at > :now)", "")], [MET];
    what_expired_counts_as_absent by somebody_writes_where_nothing_is: "commit_put",
        [Words("objects.expires_at IS NOT NULL AND objects.expires_at <= :now", "1 = 0")], [IN_THE_WAY];
    what_appears_has_not_ceased by a_moment_passes_before_the_commit: "commit_put",
        [Guard("SELECT 1 WHERE $1 > :now")], [NEVER_THERE];
}

const MINUTE: Duration = Duration::from_mins(1);
const STUCK: Duration = Duration::from_hours(2);

/// The keys that a claim removes; none where the removal is refused.
async fn removed(scene: &Scene, token: s3o_model::ids::ClaimToken) -> Vec<String> {
    let gone = scene.catalog.remove_claimed(token).await.unwrap_or_default();
    gone.into_iter().map(|object| object.key).collect()
}

/// A bucket with an object `a` whose time has passed.
async fn expired(scene: &Scene) -> BucketId {
    let bucket = scene.bucket("house").await;
    scene.mortal(bucket, "a", 5, MINUTE).await;
    scene.clock.advance(MINUTE);
    bucket
}

async fn is_there(scene: &Scene) -> bool {
    let sql = "SELECT key FROM objects WHERE key = 'a' AND (expires_at IS NULL OR expires_at > :now)";
    !scene.rows(sql, vec![]).await.is_empty()
}

async fn an_object_is_written_between(scene: &Scene) -> Told {
    let bucket = expired(scene).await;
    let (token, _) = scene.claim_expiries(9).await;
    scene.put(bucket, "a", 7).await;
    removed(scene, token).await;
    told(!is_there(scene).await, WRITTEN_ANEW)
}

/// The object is alive again when the clock goes back: the write that needs it does not lose to the old claim.
async fn an_object_is_replaced_between(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    scene.mortal(bucket, "a", 5, MINUTE).await;
    let claim = "UPDATE objects SET token = $1, deletion_status = 'DELETION_IN_PROGRESS', deletion_initiated_at = :now";
    let token = scene.token();
    scene.change(claim, params![token]).await;
    let intent = scene.staged(bucket, "a", 7).await;
    scene.commit(&intent, WriteCondition::IfMatch(None)).await.expect("committed");
    removed(scene, token).await;
    told(!is_there(scene).await, WRITTEN_ANEW)
}

async fn an_object_is_copied_between(scene: &Scene) -> Told {
    let bucket = expired(scene).await;
    let source = scene.put(bucket, "source", 7).await;
    let (token, _) = scene.claim_expiries(9).await;
    scene.copy((source, 7), bucket, "a").await.expect("copied");
    removed(scene, token).await;
    told(!is_there(scene).await, WRITTEN_ANEW)
}

/// The first takes one of two.
async fn two_workers_claim(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    for key in ["a", "b"] {
        scene.mortal(bucket, key, 5, MINUTE).await;
    }
    scene.clock.advance(MINUTE);
    let ((_, one), (_, other)) = (scene.claim_expiries(1).await, scene.claim_expiries(9).await);
    assert_eq!(one, 1);
    told(other > 1, STOLEN)
}

async fn a_slow_worker_wakes_up(scene: &Scene) -> Told {
    expired(scene).await;
    let (slow, _) = scene.claim_expiries(9).await;
    scene.clock.advance(STUCK);
    scene.catalog.reset_stuck(STUCK, 9).await.expect("reset");
    assert_eq!(scene.claim_expiries(9).await.1, 1, "the next one has it");
    told(!removed(scene, slow).await.is_empty(), LOST)
}

async fn a_slow_worker_wakes_up_before_the_next(scene: &Scene) -> Told {
    expired(scene).await;
    let (slow, _) = scene.claim_expiries(9).await;
    scene.clock.advance(STUCK);
    assert_eq!(scene.catalog.reset_stuck(STUCK, 9).await.expect("reset").len(), 1);
    told(!removed(scene, slow).await.is_empty(), LOST)
}

/// One claim is old, the other one young.
async fn a_watchdog_comes_early(scene: &Scene) -> Told {
    let bucket = expired(scene).await;
    scene.claim_expiries(9).await;
    scene.clock.advance(STUCK);
    scene.mortal(bucket, "b", 5, Duration::from_millis(1)).await;
    scene.clock.advance(Duration::from_millis(1));
    let (young, claimed) = scene.claim_expiries(9).await;
    scene.catalog.reset_stuck(STUCK, 9).await.expect("reset");
    told(claimed == 1 && removed(scene, young).await.is_empty(), TAKEN)
}

async fn a_bucket_is_emptied(scene: &Scene) -> Told {
    let bucket = expired(scene).await;
    scene.put(bucket, "alive", 5).await;
    let removed = scene.catalog.remove_expired_in(bucket, 9, scene.token()).await.expect("removed");
    told(removed.len() > 1, TOO_EARLY)
}

async fn somebody_looks(scene: &Scene) -> Told {
    expired(scene).await;
    told(scene.resolve("house", "a").await.object.is_some(), SEEN)
}

async fn somebody_lists(scene: &Scene) -> Told {
    let bucket = expired(scene).await;
    let query = ListQuery { limit: 10, ..ListQuery::default() };
    let page = scene.catalog.list_objects(bucket, query).await.expect("a page");
    told(!page.entries.is_empty(), SEEN)
}

async fn somebody_tags(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    scene.mortal(bucket, "a", 5, MINUTE).await;
    let object = scene.resolve("house", "a").await.object.expect("there");
    scene.clock.advance(MINUTE);
    told(scene.catalog.set_object_tags(&object, &Tags::new()).await.is_ok(), SEEN)
}

async fn somebody_replaces(scene: &Scene) -> Told {
    let bucket = expired(scene).await;
    let intent = scene.staged(bucket, "a", 7).await;
    told(scene.commit(&intent, WriteCondition::IfMatch(None)).await.is_ok(), MET)
}

/// The `ETag` of the object, from when it was alive.
async fn etag_of_the_dead(scene: &Scene, bucket: BucketId) -> s3o_model::etag::ETag {
    scene.mortal(bucket, "a", 5, MINUTE).await;
    let etag = scene.resolve("house", "a").await.object.expect("there").etag;
    scene.clock.advance(MINUTE);
    etag
}

async fn somebody_deletes_what_matches(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let etag = etag_of_the_dead(scene, bucket).await;
    told(scene.catalog.delete_object(bucket, &key("a"), Some(&etag), scene.token()).await.is_ok(), MET)
}

async fn somebody_deletes_a_batch(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let targets = [(key("a"), Some(etag_of_the_dead(scene, bucket).await))];
    let gone = scene.catalog.delete_objects(bucket, &targets, scene.token()).await.expect("a batch");
    told(!gone.is_empty(), MET)
}

async fn somebody_writes_where_nothing_is(scene: &Scene) -> Told {
    let bucket = expired(scene).await;
    let intent = scene.staged(bucket, "a", 7).await;
    told(scene.commit(&intent, WriteCondition::IfAbsent).await.is_err(), IN_THE_WAY)
}

async fn a_moment_passes_before_the_commit(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let written = scene.try_mortal(bucket, "a", 5, Expiry::At(scene.now())).await;
    told(written.is_ok() && !is_there(scene).await, NEVER_THERE)
}
