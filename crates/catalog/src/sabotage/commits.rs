//! What keeps the commit of a write from meeting what became of its intents meanwhile.

use std::time::Duration;

use s3o_model::conditions::WriteCondition;
use s3o_model::etag::ETag;
use s3o_model::ids::{BucketId, ClaimToken, IntentId, WriteId};
use s3o_model::intent::Intent;
use s3o_model::object::Tags;

use super::Cut::{Guard, Words};
use super::{Told, broken, safeties, told};
use crate::conformance::scene::{LEASE, Scene, backend, key, md5_of};
use crate::{Intents, Late, Objects, params};

const NO_BYTES: &str = "an object without bytes was acknowledged";
const CAME_BACK: &str = "what was deleted came back";
const OLDER_WON: &str = "an older write displaced an acknowledged one";
const CLAIM_TAKEN: &str = "a claim that holds was taken";
const LOOKS_COMMITTED: &str = "a write that was given up looks committed";
const NEVER_SEEN: &str = "a copy that nobody looked at became a location";
const LOST_UPDATE: &str = "an object was displaced against the condition";
const OTHER_VERSION: &str = "another version got the tags";
const UNKNOWN_UPLOAD: &str = "an upload begins at a backend that no row knows of";

safeties! { [sqlite]
    a_writer_commits_only_what_it_holds by a_reaped_write_is_committed: "commit_put",
        [Guard("WHERE write_id = $1 AND state = 'open'")], [NO_BYTES, broken::NOWHERE];
    a_reaper_commits_only_what_it_holds by a_given_up_write_is_promoted: "commit_put",
        [Guard("WHERE write_id = $1 AND token = $2")], [NO_BYTES, broken::NOWHERE];
    only_open_intents_are_renewed by a_fenced_intent_is_renewed: "renew",
        [Words(" AND state = 'open'", "")], [LOOKS_COMMITTED];
    an_upload_is_noted_before_it_begins by a_reaped_write_begins_an_upload: "note_upload",
        [Guard("SET backend_upload")], [UNKNOWN_UPLOAD];
    copies_are_fenced_together by one_copy_runs_out: "claim_expired",
        [Words(" OR state = 'open'", "")], [NEVER_SEEN];
    a_claim_on_intents_holds_to_its_end by one_claimed_copy_runs_out: "claim_expired",
        [Words(" AND (lease_until <= :now OR state = 'open')", "")], [CLAIM_TAKEN];
    a_superseded_write_is_not_promoted by a_write_is_promoted_after_a_delete: "commit_put",
        [Words(" AND superseded = 1", " AND superseded = 2")], [CAME_BACK];
    a_delete_supersedes_writes_under_way by a_write_is_promoted_after_a_delete: "delete_object",
        [Words("SET superseded = 1", "SET superseded = 0")], [CAME_BACK];
    deletes_supersede_writes_under_way by a_write_is_promoted_after_deletes: "delete_objects",
        [Words("SET superseded = 1", "SET superseded = 0")], [CAME_BACK];
    a_put_supersedes_writes_under_way by a_write_is_promoted_after_a_put: "commit_put",
        [Words("SET superseded = 1", "SET superseded = 0")], [OLDER_WON];
    a_first_write_finds_nothing by a_second_first_write_comes: "commit_put",
        [Words(" WHERE objects.expires_at IS NOT NULL AND objects.expires_at <= :now", "")], [LOST_UPDATE];
    a_replacing_write_finds_what_it_names by a_write_replaces_an_old_version: "commit_put",
        [Words(" AND (CAST($13 AS TEXT) IS NULL OR etag = $13)", "")], [LOST_UPDATE];
    a_conditional_delete_finds_what_it_names by a_delete_names_an_old_version: "delete_object",
        [Words(" AND etag = $4", "")], [LOST_UPDATE];
    tags_are_those_of_a_version by tags_come_after_an_overwrite: "set_object_tags",
        [Words("version_id = $3", "CAST($3 AS TEXT) IS NOT NULL")], [OTHER_VERSION];
}

/// A write whose lease ran out, claimed by a reaper.
async fn left(scene: &Scene, bucket: BucketId) -> (Intent, ClaimToken) {
    let intent = scene.staged(bucket, "a", 5).await;
    scene.clock.advance(LEASE);
    (intent, scene.claim_left(1).await)
}

async fn a_reaped_write_is_committed(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let intent = scene.staged(bucket, "a", 5).await;
    scene.clock.advance(LEASE);
    assert_eq!(scene.reap(9, Duration::ZERO).await.len(), 1);
    told(scene.commit(&intent, WriteCondition::None).await.is_ok(), NO_BYTES)
}

async fn a_given_up_write_is_promoted(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let (intent, slow) = left(scene, bucket).await;
    scene.clock.advance(LEASE);
    assert_eq!(scene.reap(9, Duration::ZERO).await.len(), 1, "the claim was lost");
    told(scene.promote(&intent, slow).await.is_ok(), NO_BYTES)
}

/// The owner asks whether its commit happened, and goes by the lease that it was given last.
async fn a_fenced_intent_is_renewed(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let (intent, token) = left(scene, bucket).await;
    let renewed = scene.catalog.renew(&[intent.id], LEASE).await.expect("a renewal");
    assert!(scene.catalog.abandon(token, intent.write, Duration::ZERO).await.expect("given up"));
    let dropped = scene.catalog.drop_write(intent.write, Late::No).await.expect("a look");
    let before_its_end = renewed.iter().any(|(_, end)| dropped.now < *end);
    told(!dropped.was_open && before_its_end, LOOKS_COMMITTED)
}

async fn a_reaped_write_begins_an_upload(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let intent = scene.staged(bucket, "a", 5).await;
    scene.clock.advance(LEASE);
    scene.reap(9, Duration::ZERO).await;
    let noted = scene.catalog.note_upload(intent.id, &s3o_model::cleanup::BackendUpload::Starting).await;
    told(noted.is_ok(), UNKNOWN_UPLOAD)
}

/// Two copies of one write, on `disk` and `cloud`.
async fn two_copies(scene: &Scene) -> (Intent, Intent) {
    let bucket = scene.bucket("house").await;
    scene.attach("cloud", None).await;
    let first = scene.staged(bucket, "a", 5).await;
    let id = scene.content().uuid();
    let physical_key = format!("a~{}", id.as_simple());
    let second = Intent { id: IntentId::new(id), backend: backend("cloud"), physical_key, ..first.clone() };
    scene.try_stage(&second).await.expect("staged");
    (first, second)
}

/// A reaper looks at the copies it was given, and at no other.
async fn one_copy_runs_out(scene: &Scene) -> Told {
    let (first, _) = two_copies(scene).await;
    scene.wait_almost(LEASE);
    scene.catalog.renew(&[first.id], LEASE).await.expect("renewed");
    scene.clock.advance(Duration::from_millis(1));
    let token = scene.token();
    let looked_at = scene.catalog.claim_expired(token, 9, LEASE).await.expect("claimed").len();
    let promoted = scene.catalog.commit_put(scene.promotion(&first, token, looked_at)).await;
    let places = scene.number("SELECT count(*) FROM object_locations").await;
    told(promoted.is_ok() && usize::try_from(places) != Ok(looked_at), NEVER_SEEN)
}

async fn one_claimed_copy_runs_out(scene: &Scene) -> Told {
    two_copies(scene).await;
    scene.clock.advance(LEASE);
    let holder = scene.claim_left(2).await;
    scene.change("UPDATE pending_objects SET lease_until = :now WHERE backend_name = 'cloud'", vec![]).await;
    scene.catalog.claim_expired(scene.token(), 9, LEASE).await.expect("claimed");
    let held = "SELECT id FROM pending_objects WHERE token = $1 AND lease_until > :now";
    told(scene.rows(held, params![holder]).await.is_empty(), CLAIM_TAKEN)
}

async fn a_write_is_promoted_after_a_delete(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let (intent, token) = left(scene, bucket).await;
    scene.delete(bucket, "a").await;
    scene.promote(&intent, token).await.map(drop).unwrap_or_default();
    told(scene.resolve("house", "a").await.object.is_some(), CAME_BACK)
}

async fn a_write_is_promoted_after_deletes(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let (intent, token) = left(scene, bucket).await;
    scene.catalog.delete_objects(bucket, &[(key("a"), None)], scene.token()).await.expect("deleted");
    scene.promote(&intent, token).await.map(drop).unwrap_or_default();
    told(scene.resolve("house", "a").await.object.is_some(), CAME_BACK)
}

async fn a_write_is_promoted_after_a_put(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let (intent, token) = left(scene, bucket).await;
    let newer = scene.put(bucket, "a", 6).await;
    scene.promote(&intent, token).await.map(drop).unwrap_or_default();
    told(shown(scene).await != Some(newer), OLDER_WON)
}

async fn shown(scene: &Scene) -> Option<s3o_model::ids::ContentId> {
    scene.resolve("house", "a").await.object.map(|object| object.content)
}

/// Commits a write under a condition; one that is refused is given up.
async fn write_if(scene: &Scene, bucket: BucketId, condition: WriteCondition) {
    let intent = scene.staged(bucket, "a", 5).await;
    if scene.commit(&intent, condition).await.is_err() {
        drop_open(scene, intent.write).await;
    }
}

async fn drop_open(scene: &Scene, write: WriteId) {
    assert!(scene.catalog.drop_write(write, Late::No).await.expect("dropped").was_open);
}

async fn a_second_first_write_comes(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let first = scene.put(bucket, "a", 5).await;
    write_if(scene, bucket, WriteCondition::IfAbsent).await;
    told(shown(scene).await != Some(first), LOST_UPDATE)
}

async fn a_write_replaces_an_old_version(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let seen = ETag::of_whole(md5_of(scene.put(bucket, "a", 5).await));
    let newer = scene.put(bucket, "a", 5).await;
    write_if(scene, bucket, WriteCondition::IfMatch(Some(seen))).await;
    told(shown(scene).await != Some(newer), LOST_UPDATE)
}

async fn a_delete_names_an_old_version(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let seen = ETag::of_whole(md5_of(scene.put(bucket, "a", 5).await));
    let newer = scene.put(bucket, "a", 5).await;
    scene.catalog.delete_object(bucket, &key("a"), Some(&seen), scene.token()).await.unwrap_or_default();
    told(shown(scene).await != Some(newer), LOST_UPDATE)
}

async fn tags_come_after_an_overwrite(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    scene.put(bucket, "a", 5).await;
    let seen = scene.resolve("house", "a").await.object.expect("there");
    scene.put(bucket, "a", 5).await;
    told(scene.catalog.set_object_tags(&seen, &Tags::default()).await.is_ok(), OTHER_VERSION)
}
