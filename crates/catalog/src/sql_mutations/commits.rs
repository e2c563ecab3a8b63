//! Guards of commits: a write whose intents were reaped, claimed or superseded meanwhile is not committed, and a
//! conditional write replaces only the version it names.

use std::time::Duration;

use s3o_model::conditions::WriteCondition;
use s3o_model::etag::ETag;
use s3o_model::ids::{BucketId, ClaimToken, IntentId, WriteId};
use s3o_model::intent::Intent;
use s3o_model::object::Tags;

use super::Cut::{Guard, Words};
use super::{Damage, broken, damage_if, guards};
use crate::conformance::fixture::{Fixture, LEASE, backend, key, md5_of};
use crate::{Late, params};

const NO_BYTES: &str = "an object without bytes was acknowledged";
const REAPPEARED: &str = "a deleted object reappeared";
const OLDER_WON: &str = "an older write replaced an acknowledged newer one";
const CLAIM_TAKEN: &str = "a valid claim was taken by another worker";
const SEEMS_COMMITTED: &str = "an abandoned write seems to be committed";
const UNCHECKED_COPY: &str = "a copy that the reaper did not check became a location";
const LOST_UPDATE: &str = "an object was replaced although the condition failed";
const OTHER_VERSION: &str = "the tags were set on another version";
const UNKNOWN_UPLOAD: &str = "a backend upload was started that no row records";

guards! { [sqlite]
    a_writer_commits_only_its_open_intents in a_reaped_write_is_committed: "commit_put",
        [Guard("WHERE write_id = $1 AND state = 'open'")], [NO_BYTES, broken::NO_LOCATION];
    a_reaper_promotes_only_intents_it_claimed in an_abandoned_write_is_promoted: "commit_put",
        [Guard("WHERE write_id = $1 AND token = $2")], [NO_BYTES, broken::NO_LOCATION];
    only_open_intents_are_renewed in a_fenced_intent_is_renewed: "renew",
        [Words(" AND state = 'open'", "")], [SEEMS_COMMITTED];
    a_backend_upload_is_recorded_before_it_starts in a_reaped_write_starts_a_backend_upload: "note_upload",
        [Guard("SET backend_upload")], [UNKNOWN_UPLOAD];
    a_copy_added_while_others_are_fenced_is_not_promoted in a_copy_is_added_while_others_are_fenced: "commit_put",
        [Guard("AND token IS NULL")], [UNCHECKED_COPY];
    a_claim_on_intents_is_valid_until_it_expires in the_claim_on_one_copy_expires: "claim_expired",
        [Words(" AND (lease_until <= :now OR state = 'open')", "")], [CLAIM_TAKEN];
    a_superseded_write_is_not_promoted in a_write_is_promoted_after_a_delete: "commit_put",
        [Words(" AND superseded = 1", " AND superseded = 2")], [REAPPEARED];
    a_delete_supersedes_open_writes in a_write_is_promoted_after_a_delete: "delete_object",
        [Words("SET superseded = 1", "SET superseded = 0")], [REAPPEARED];
    a_batch_delete_supersedes_open_writes in a_write_is_promoted_after_a_batch_delete: "delete_objects",
        [Words("SET superseded = 1", "SET superseded = 0")], [REAPPEARED];
    a_put_supersedes_open_writes in a_write_is_promoted_after_a_put: "commit_put",
        [Words("SET superseded = 1", "SET superseded = 0")], [OLDER_WON];
    an_if_absent_write_needs_a_free_key in an_if_absent_write_finds_an_object: "commit_put",
        [Words(" WHERE objects.expires_at IS NOT NULL AND objects.expires_at <= :now", "")], [LOST_UPDATE];
    an_if_match_write_needs_the_named_etag in an_if_match_write_names_an_old_version: "commit_put",
        [Words(" AND (CAST($13 AS TEXT) IS NULL OR etag = $13)", "")], [LOST_UPDATE];
    a_conditional_delete_needs_the_named_etag in a_delete_names_an_old_version: "delete_object",
        [Words(" AND etag = $4", "")], [LOST_UPDATE];
    tags_are_set_on_the_version_that_was_read in tags_are_set_after_an_overwrite: "set_object_tags",
        [Words("version_id = $3", "CAST($3 AS TEXT) IS NOT NULL")], [OTHER_VERSION];
}

/// Stages `a`, lets its lease expire and claims it as a reaper.
async fn claimed_by_reaper(fixture: &Fixture, bucket: BucketId) -> (Intent, ClaimToken) {
    let intent = fixture.staged(bucket, "a", 5).await;
    fixture.clock.advance(LEASE);
    (intent, fixture.claim_expired_writes(1).await)
}

async fn a_reaped_write_is_committed(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let intent = fixture.staged(bucket, "a", 5).await;
    fixture.clock.advance(LEASE);
    assert_eq!(fixture.reap(9, Duration::ZERO).await.len(), 1);
    damage_if(fixture.commit(&intent, WriteCondition::None).await.is_ok(), NO_BYTES)
}

async fn an_abandoned_write_is_promoted(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let (intent, slow) = claimed_by_reaper(fixture, bucket).await;
    fixture.clock.advance(LEASE);
    assert_eq!(fixture.reap(9, Duration::ZERO).await.len(), 1, "the claim was lost");
    damage_if(fixture.promote(&intent, slow).await.is_ok(), NO_BYTES)
}

/// The owner takes a write that is not open for committed, as long as the last lease it was granted is valid.
async fn a_fenced_intent_is_renewed(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let (intent, token) = claimed_by_reaper(fixture, bucket).await;
    let renewed = fixture.catalog.renew(&[intent.id], LEASE).await.expect("a renewal");
    assert!(fixture.catalog.abandon(token, intent.write, Duration::ZERO).await.expect("abandoned"));
    let dropped = fixture.catalog.drop_write(intent.write, Late::No).await.expect("an answer");
    let before_lease_end = renewed.iter().any(|(_, end)| dropped.now < *end);
    damage_if(!dropped.was_open && before_lease_end, SEEMS_COMMITTED)
}

async fn a_reaped_write_starts_a_backend_upload(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let intent = fixture.staged(bucket, "a", 5).await;
    fixture.clock.advance(LEASE);
    fixture.reap(9, Duration::ZERO).await;
    let noted = fixture.catalog.note_upload(intent.id, &s3o_model::cleanup::BackendUpload::Starting).await;
    damage_if(noted.is_ok(), UNKNOWN_UPLOAD)
}

/// Two copies of one write, on `disk` and `cloud`.
async fn two_copies(fixture: &Fixture) -> (Intent, Intent) {
    let bucket = fixture.bucket("data").await;
    fixture.attach("cloud", None).await;
    let first = fixture.staged(bucket, "a", 5).await;
    let id = fixture.content().uuid();
    let physical_key = format!("a~{}", id.as_simple());
    let second = Intent { id: IntentId::new(id), backend: backend("cloud"), physical_key, ..first.clone() };
    fixture.try_stage(&second).await.expect("staged");
    (first, second)
}

/// Another copy of the write was committed while the claim waited for the locks of the first one.
async fn a_copy_is_added_while_others_are_fenced(fixture: &Fixture) -> Damage {
    let (first, second) = two_copies(fixture).await;
    fixture.clock.advance(LEASE);
    let token = fixture.claim_expired_writes(2).await;
    let unclaim = "UPDATE pending_objects SET state = 'open', token = NULL WHERE id = $1";
    fixture.change(unclaim, crate::params![second.id]).await;
    let promoted = fixture.commit_put(fixture.promotion(&first, token, 1)).await;
    let locations = fixture.number("SELECT count(*) FROM object_locations").await;
    damage_if(promoted.is_ok() && locations != 1, UNCHECKED_COPY)
}

/// A reaper checks only the copies that its claim returned.
pub(super) async fn the_lease_of_one_copy_expires(fixture: &Fixture) -> Damage {
    let (first, _) = two_copies(fixture).await;
    fixture.wait_almost(LEASE);
    fixture.catalog.renew(&[first.id], LEASE).await.expect("renewed");
    fixture.clock.advance(Duration::from_millis(1));
    let token = fixture.token();
    let checked = fixture.catalog.claim_expired(token, 9, LEASE).await.expect("claimed").len();
    let promoted = fixture.commit_put(fixture.promotion(&first, token, checked)).await;
    let locations = fixture.number("SELECT count(*) FROM object_locations").await;
    damage_if(promoted.is_ok() && usize::try_from(locations) != Ok(checked), UNCHECKED_COPY)
}

async fn the_claim_on_one_copy_expires(fixture: &Fixture) -> Damage {
    two_copies(fixture).await;
    fixture.clock.advance(LEASE);
    let holder = fixture.claim_expired_writes(2).await;
    fixture.change("UPDATE pending_objects SET lease_until = :now WHERE backend_name = 'cloud'", vec![]).await;
    fixture.catalog.claim_expired(fixture.token(), 9, LEASE).await.expect("claimed");
    let held = "SELECT id FROM pending_objects WHERE token = $1 AND lease_until > :now";
    damage_if(fixture.rows(held, params![holder]).await.is_empty(), CLAIM_TAKEN)
}

async fn a_write_is_promoted_after_a_delete(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let (intent, token) = claimed_by_reaper(fixture, bucket).await;
    fixture.delete(bucket, "a").await;
    fixture.promote(&intent, token).await.map(drop).unwrap_or_default();
    damage_if(fixture.resolve("data", "a").await.object.is_some(), REAPPEARED)
}

async fn a_write_is_promoted_after_a_batch_delete(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let (intent, token) = claimed_by_reaper(fixture, bucket).await;
    fixture.catalog.delete_objects(bucket, &[(key("a"), None)], fixture.token()).await.expect("deleted");
    fixture.promote(&intent, token).await.map(drop).unwrap_or_default();
    damage_if(fixture.resolve("data", "a").await.object.is_some(), REAPPEARED)
}

async fn a_write_is_promoted_after_a_put(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let (intent, token) = claimed_by_reaper(fixture, bucket).await;
    let newer = fixture.put(bucket, "a", 6).await;
    fixture.promote(&intent, token).await.map(drop).unwrap_or_default();
    damage_if(current_content(fixture).await != Some(newer), OLDER_WON)
}

async fn current_content(fixture: &Fixture) -> Option<s3o_model::ids::ContentId> {
    fixture.resolve("data", "a").await.object.map(|object| object.content)
}

/// Commits a write under a condition, and drops the write if the commit is refused.
async fn write_if(fixture: &Fixture, bucket: BucketId, condition: WriteCondition) {
    let intent = fixture.staged(bucket, "a", 5).await;
    if fixture.commit(&intent, condition).await.is_err() {
        drop_open(fixture, intent.write).await;
    }
}

async fn drop_open(fixture: &Fixture, write: WriteId) {
    assert!(fixture.catalog.drop_write(write, Late::No).await.expect("dropped").was_open);
}

async fn an_if_absent_write_finds_an_object(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let first = fixture.put(bucket, "a", 5).await;
    write_if(fixture, bucket, WriteCondition::IfAbsent).await;
    damage_if(current_content(fixture).await != Some(first), LOST_UPDATE)
}

async fn an_if_match_write_names_an_old_version(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let seen = ETag::of_whole(md5_of(fixture.put(bucket, "a", 5).await));
    let newer = fixture.put(bucket, "a", 5).await;
    write_if(fixture, bucket, WriteCondition::IfMatch(Some(seen))).await;
    damage_if(current_content(fixture).await != Some(newer), LOST_UPDATE)
}

async fn a_delete_names_an_old_version(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let seen = ETag::of_whole(md5_of(fixture.put(bucket, "a", 5).await));
    let newer = fixture.put(bucket, "a", 5).await;
    fixture.delete_if(bucket, "a", Some(&seen)).await.unwrap_or_default();
    damage_if(current_content(fixture).await != Some(newer), LOST_UPDATE)
}

async fn tags_are_set_after_an_overwrite(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    fixture.put(bucket, "a", 5).await;
    let seen = fixture.resolve("data", "a").await.object.expect("an object");
    fixture.put(bucket, "a", 5).await;
    damage_if(fixture.catalog.set_object_tags(&seen, &Tags::default()).await.is_ok(), OTHER_VERSION)
}
