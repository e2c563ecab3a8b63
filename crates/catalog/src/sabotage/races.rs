//! What only locks keep apart: two sessions of PostgreSQL, one of them held up in the middle of its unit. SQLite has one
//! writer and no such middle.

use std::time::Duration;

use s3o_model::cleanup::Outcome;
use s3o_model::content::Location;
use s3o_model::ids::BucketId;
use s3o_model::intent::Intent;

use super::Cut::{Guard, Words};
use super::held_up::{held_up, meet};
use super::{Told, broken, safeties, told};
use crate::conformance::scene::sharing::BODY_BYTES;
use crate::conformance::scene::{LEASE, Scene, Standing, backend};
use crate::{
    Audits, Buckets, Cleanups, Contents, Copies, Ended, Identities, Intents, Late, Objects, PartSource, Quotas,
    Settlement, StaleUploads, Uploads,
};

const OVER: &str = "the limit was exceeded";
const TWO_HANDS: &str = "two hold one row at a time";
const TOLD_TWICE: &str = "two tell that they settled one row";
const IN_USE: &str = "an upload in use was aborted";
const NO_BUCKET: &str = "an upload is open in a bucket that is gone";
const FROZEN: &str = "a write began after its backend was frozen";
const NOT_JOINED: &str = "a write of content that somebody made first failed";
const OVERWRITTEN: &str = "a count that had changed was overwritten";
const OUTLIVED: &str = "an object outlived a later delete";

safeties! { [postgres]
    room_is_judged_by_one_at_a_time by two_stages_meet: "stage",
        [Words("ORDER BY stripe /*lock*/", "ORDER BY stripe")], [OVER];
    a_claim_skips_what_others_take by two_claims_meet: "claim_cleanups",
        [Words(" /*skip*/", "")], [TWO_HANDS];
    a_settlement_holds_what_it_tells by a_settlement_meets_a_freed_claim: "settle_cleanups",
        [Words("ORDER BY id /*lock*/", "ORDER BY id")], [TOLD_TWICE];
    a_requeue_waits_for_a_settlement by a_requeue_meets_a_settlement: "requeue",
        [Words(" /*lock*/", "")], [broken::BOOKS];
    a_part_holds_its_upload_open by a_part_meets_abort: "commit_part",
        [Words(" /*share*/", "")], [broken::LEFTOVER];
    a_stale_upload_is_held_while_it_is_judged by a_part_meets_a_stale_abort: "abort_stale_upload",
        [Words(" /*lock*/", "")], [IN_USE];
    an_upload_holds_its_bucket by an_upload_meets_the_delete_of_its_bucket: "create_upload",
        [Words(" /*share*/", "")], [NO_BUCKET];
    a_write_holds_its_backend_open by a_stage_meets_a_freeze: "stage",
        [Words("draining = 0 /*share*/", "draining = 0")], [FROZEN];
    a_delete_looks_once_more by a_delete_meets_a_promotion: "delete_object",
        [Guard("SELECT key FROM objects WHERE bucket_id = $1 AND key = $2")], [OUTLIVED];
    a_recount_holds_what_it_counts by a_recount_meets_a_copy: "recount",
        [Words(" /*lock*/", ""), Words(" AND ref_count = s.counted", "")], [OVERWRITTEN];
    joined_content_is_taken_apart_by_one by two_expansions_meet: "expand_joined",
        [Words(" /*lock*/", "")], [broken::COUNT];
    a_write_joins_live_content by a_write_meets_the_last_delete: "commit_put",
        [Words(" AND state = 'live'", "")], [broken::OBJECT, broken::CONDEMNED, broken::MISPLACED];
    a_pin_holds_live_content by a_pin_meets_the_last_delete: "pin",
        [Words(" AND state = 'live'", ""), Guard("AND state = 'present' LIMIT 1")], [broken::CONDEMNED];
    a_suspicion_waits_for_whoever_joins by a_suspicion_meets_a_write: "suspect",
        [Words(" /*lock*/", "")], [broken::BOOKS];
    whoever_makes_content_second_joins by two_makers_of_one_content_meet: "commit_put",
        [Guard("ON CONFLICT (dedup_bucket")], [NOT_JOINED];
}

async fn two_stages_meet(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    scene.catalog.set_limit(&backend("disk"), Some(9)).await.expect("set");
    let slow = held_up(scene, "stage", "s.rest >= 0").await;
    let (one, other) = (scene.intent(bucket, "a", 5), scene.intent(bucket, "b", 5));
    let (first, second) = meet(&slow, slow.try_stage(&one), scene.try_stage(&other)).await;
    told(first.is_ok() && second.is_ok(), OVER)
}

/// A write given up: one row in the queue.
async fn queued(scene: &Scene) -> Intent {
    let bucket = scene.bucket("house").await;
    let intent = scene.staged(bucket, "a", 5).await;
    scene.catalog.drop_write(intent.write, Late::No).await.expect("given up");
    intent
}

async fn two_claims_meet(scene: &Scene) -> Told {
    queued(scene).await;
    let slow = held_up(scene, "claim_cleanups", "UPDATE cleanup_queue").await;
    let (first, second) = meet(&slow, slow.claim(9), scene.claim(9)).await;
    told(first.1.len() + second.1.len() > 1, TWO_HANDS)
}

/// Somebody frees the claim and settles the row while its first holder is about to.
async fn a_settlement_meets_a_freed_claim(scene: &Scene) -> Told {
    queued(scene).await;
    let (token, claimed) = scene.claim(9).await;
    let settlements: Vec<Settlement> =
        claimed.iter().map(|row| Settlement { id: row.id, outcome: Outcome::Done }).collect();
    let slow = held_up(scene, "settle_cleanups", "SELECT id FROM cleanup_queue").await;
    let other = async {
        scene.catalog.free_stale_claims(Duration::ZERO, scene.token()).await.expect("freed");
        let (token, again) = scene.claim(9).await;
        scene.settle(token, &again, &Outcome::Done).await
    };
    let (first, second) = meet(&slow, slow.catalog.settle_cleanups(token, &settlements), other).await;
    told(first.expect("settled").len() + second > 1, TOLD_TWICE)
}

/// The bytes land while their cleanup is being settled.
async fn a_requeue_meets_a_settlement(scene: &Scene) -> Told {
    let intent = queued(scene).await;
    let (token, claimed) = scene.claim(9).await;
    let slow = held_up(scene, "settle_cleanups", "DELETE FROM cleanup_queue").await;
    let remains = Ended::default();
    let (_, again) =
        meet(&slow, slow.settle(token, &claimed, &Outcome::DoneAbsent), scene.catalog.requeue(&intent, &remains)).await;
    again.expect("queued again");
    Told::new()
}

async fn a_part_meets_abort(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let upload = scene.upload(bucket, "a").await;
    let part = scene.staged_part(upload, 1, 5).await;
    let slow = held_up(scene, "commit_part", "FROM multipart_uploads").await;
    let (_, aborted) = meet(&slow, slow.commit_part(&part), scene.catalog.abort_upload(upload)).await;
    aborted.expect("aborted");
    Told::new()
}

async fn a_part_meets_a_stale_abort(scene: &Scene) -> Told {
    const TIMEOUT: Duration = Duration::from_hours(24);
    let bucket = scene.bucket("house").await;
    let upload = scene.upload(bucket, "a").await;
    scene.clock.advance(TIMEOUT + Duration::from_secs(1));
    let content = scene.put(bucket, "b", 5).await;
    let part = scene.part_of(upload, 1, (content, 5), PartSource::Range { offset: 0 });
    let slow = held_up(scene, "commit_part", "INSERT INTO multipart_parts").await;
    let (part, aborted) =
        meet(&slow, slow.catalog.commit_part(part), scene.catalog.abort_stale_upload(upload, TIMEOUT)).await;
    part.expect("acknowledged");
    told(aborted.expect("a look").is_some(), IN_USE)
}

async fn an_upload_meets_the_delete_of_its_bucket(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let slow = held_up(scene, "create_upload", "FROM buckets").await;
    let (_, deleted) = meet(&slow, slow.upload(bucket, "a"), scene.catalog.delete_bucket(bucket)).await;
    told(deleted.is_ok(), NO_BUCKET)
}

/// The freeze is answered while the write is still on its way to its commit.
async fn a_stage_meets_a_freeze(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let (slow, intent) = (held_up(scene, "stage", "FROM backends").await, scene.intent(bucket, "a", 5));
    let freeze = async {
        scene.catalog.set_frozen(&backend("disk"), Some("another disk")).await.expect("frozen");
        scene.number("SELECT count(*) FROM pending_objects").await
    };
    let (staged, announced) = meet(&slow, slow.try_stage(&intent), freeze).await;
    told(staged.is_ok() && announced == 0, FROZEN)
}

async fn is_there(scene: &Scene) -> bool {
    scene.resolve("house", "a").await.object.is_some()
}

/// The write is finished after the delete looked for the object's row, and before it looked for intents.
async fn a_delete_meets_a_promotion(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let intent = scene.staged(bucket, "a", 5).await;
    scene.clock.advance(LEASE);
    let token = scene.claim_left(1).await;
    let slow = held_up(scene, "delete_object", "UPDATE objects SET token").await;
    let (_, promoted) = meet(&slow, slow.delete(bucket, "a"), scene.promote(&intent, token)).await;
    promoted.expect("promoted before the delete");
    told(is_there(scene).await, OUTLIVED)
}

async fn a_recount_meets_a_copy(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let content = scene.put(bucket, "a", 5).await;
    // Only a count that is wrong is put right.
    scene.change("UPDATE contents SET ref_count = ref_count + 3", vec![]).await;
    let seen = scene.catalog.confirm_suspects(&[content]).await.expect("counted");
    let slow = held_up(scene, "commit_copy", "ref_count + 1").await;
    let (copied, recounted) = meet(&slow, slow.copy((content, 5), bucket, "b"), scene.catalog.recount(&seen)).await;
    copied.expect("copied");
    recounted.expect("recounted");
    let standing = scene.standing(content).await;
    scene.recount(&[content]).await;
    told(standing != Standing::Live(5), OVERWRITTEN)
}

/// A joined object's only piece, which another object shares.
async fn shared_piece(scene: &Scene, bucket: BucketId) {
    let content = scene.put(bucket, "a", 5).await;
    scene.copy((content, 5), bucket, "b").await.expect("copied");
    let upload = scene.upload(bucket, "joined").await;
    let part = scene.part_of(upload, 1, (content, 5), PartSource::Range { offset: 0 });
    scene.catalog.commit_part(part).await.expect("committed");
    scene.complete(upload, &[(1, content)]).await.expect("completed");
    assert!(scene.delete(bucket, "joined").await);
}

async fn two_expansions_meet(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    shared_piece(scene, bucket).await;
    let slow = held_up(scene, "expand_joined", "SET ref_count").await;
    let expand = |scene: Scene| async move { scene.catalog.expand_joined(Duration::ZERO).await };
    let (first, second) = meet(&slow, expand((*slow).clone()), expand(scene.clone())).await;
    first.and(second).expect("steps");
    Told::new()
}

/// The content is found while its last reference is on its way out.
async fn a_write_meets_the_last_delete(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    scene.share(bucket, "a", 1).await;
    let put = scene.shared_put_of(&scene.staged(bucket, "b", BODY_BYTES).await, 1);
    let slow = held_up(scene, "delete_object", "SET state = 'condemned'").await;
    let (deleted, written) = meet(&slow, slow.delete(bucket, "a"), scene.catalog.commit_put(put)).await;
    assert!(deleted);
    written.expect("acknowledged");
    Told::new()
}

async fn a_pin_meets_the_last_delete(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    scene.share(bucket, "a", 1).await;
    let pin = scene.pin_of(bucket, "b", 1);
    let slow = held_up(scene, "delete_object", "SET state = 'condemned'").await;
    let (deleted, pinned) = meet(&slow, slow.delete(bucket, "a"), scene.catalog.pin(&pin)).await;
    assert!(deleted);
    pinned.expect("a look");
    Told::new()
}

/// The write has looked for copies that must make way, and found none.
async fn a_suspicion_meets_a_write(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let content = scene.share(bucket, "a", 1).await;
    let copy = Location { backend: backend("disk"), physical_key: scene.places(content).await.remove(0).0 };
    let put = scene.shared_put_of(&scene.staged(bucket, "b", BODY_BYTES).await, 1);
    let slow = held_up(scene, "commit_put", "'dedup', :now, :now FROM object_locations").await;
    let (written, told) = meet(&slow, slow.catalog.commit_put(put), scene.catalog.suspect(content, &copy)).await;
    written.expect("acknowledged");
    assert!(told.expect("told"));
    Told::new()
}

/// Neither found it.
async fn two_makers_of_one_content_meet(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let mut puts = Vec::new();
    for name in ["a", "b"] {
        puts.push(scene.shared_put_of(&scene.staged(bucket, name, BODY_BYTES).await, 1));
    }
    let slow = held_up(scene, "commit_put", "INSERT INTO contents").await;
    let (other, held) = (puts.remove(1), puts.remove(0));
    let (first, second) = meet(&slow, slow.catalog.commit_put(held), scene.catalog.commit_put(other)).await;
    first.expect("acknowledged");
    told(second.is_err(), NOT_JOINED)
}
