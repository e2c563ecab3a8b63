//! Guards of multipart uploads: parts, complete, abort and the delete of the bucket agree on the state of an upload.

use std::time::Duration;

use s3o_model::multipart::UploadState;

use super::Cut::{Guard, Words};
use super::{Damage, broken, damage_if, guards};
use crate::conformance::fixture::Fixture;

const IN_USE: &str = "an upload in use was aborted";
const CLOSED: &str = "a part of a closed upload was acknowledged";
const AFTER_ABORT: &str = "an aborted upload became an object";
const ANSWER_LOST: &str = "a completed upload lost its answer";
const BUCKET_DELETED: &str = "an upload is open in a deleted bucket";
const TOO_EARLY: &str = "bytes were queued for deletion while readers may read them";
const TIMEOUT: Duration = Duration::from_hours(24);

guards! { [sqlite]
    a_part_needs_an_open_upload in a_part_is_committed_after_abort: "commit_part",
        [Words("WHERE id = $1 AND state = 'open' /*share*/", "WHERE id = $1 /*share*/")], [CLOSED, broken::LEFTOVER];
    complete_needs_an_open_upload in an_aborted_upload_is_completed: "complete_upload",
        [Words("WHERE id = $1 AND state = 'open'", "WHERE id = $1")], [AFTER_ABORT, broken::LEFTOVER];
    abort_needs_an_open_upload in a_completed_upload_is_aborted: "abort_upload",
        [Words(" AND state = 'open'", "")], [ANSWER_LOST];
    complete_needs_the_parts_it_checked in a_part_is_replaced_before_complete: "complete_upload",
        [Guard("INSERT INTO content_parts")], [broken::COUNT, broken::JOINED];
    a_recent_part_keeps_an_upload_open in a_stale_upload_gets_a_part: "abort_stale_upload",
        [Words("coalesce((SELECT max(last_modified) FROM multipart_parts WHERE upload_id = u.id), 0)", "0")], [IN_USE];
    a_valid_lease_keeps_an_upload_open in a_stale_upload_gets_a_lease: "abort_stale_upload",
        [Words("coalesce((SELECT max(lease_until) FROM pending_objects q WHERE q.bucket_id = u.bucket_id \
          AND q.key = u.key AND q.upload_id = u.id AND q.state = 'open'), 0)", "0")], [IN_USE];
    an_upload_needs_its_bucket in an_upload_is_created_in_a_deleted_bucket: "create_upload",
        [Guard("FROM buckets")], [BUCKET_DELETED];
    a_bucket_with_open_uploads_is_not_deleted in a_bucket_with_an_upload_is_deleted: "delete_bucket",
        [Words("AND state = 'open'", "AND state = 'never'")], [BUCKET_DELETED];
    joined_content_is_kept_for_its_readers in a_joined_object_is_deleted: "read",
        [Words("c.condemned_at <= :now - $1", "c.condemned_at <= :now - $1 + $1")], [TOO_EARLY];
    a_closed_upload_with_parts_is_marked in an_upload_with_parts_is_aborted: "abort_upload",
        [Words("SET leftover = 1", "SET leftover = 0")], [broken::LEFTOVER];
}

async fn a_part_is_committed_after_abort(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let upload = fixture.upload(bucket, "a").await;
    let part = fixture.staged_part(upload, 1, 5).await;
    fixture.catalog.abort_upload(upload).await.expect("aborted");
    damage_if(fixture.commit_part(&part).await.is_ok(), CLOSED)
}

async fn an_aborted_upload_is_completed(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let upload = fixture.upload(bucket, "a").await;
    let parts = [fixture.part(upload, 1, 5).await];
    fixture.catalog.abort_upload(upload).await.expect("aborted");
    damage_if(fixture.complete(upload, &parts).await.is_ok(), AFTER_ABORT)
}

async fn a_completed_upload_is_aborted(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let upload = fixture.upload(bucket, "a").await;
    let parts = [fixture.part(upload, 1, 5).await];
    fixture.complete(upload, &parts).await.expect("completed");
    fixture.catalog.abort_upload(upload).await.unwrap_or_default();
    let found = fixture.catalog.upload(upload).await.expect("an answer").expect("the upload");
    damage_if(!matches!(found.state, UploadState::Completed(_)), ANSWER_LOST)
}

async fn a_part_is_replaced_before_complete(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let upload = fixture.upload(bucket, "a").await;
    let checked = [fixture.part(upload, 1, 5).await, fixture.part(upload, 2, 5).await];
    fixture.part(upload, 2, 5).await;
    fixture.complete(upload, &checked).await.map(drop).unwrap_or_default();
    Damage::new()
}

/// An upload that `stale_uploads` returned.
async fn stale_upload(fixture: &Fixture) -> s3o_model::ids::UploadId {
    let bucket = fixture.bucket("data").await;
    let upload = fixture.upload(bucket, "a").await;
    fixture.clock.advance(TIMEOUT + Duration::from_secs(1));
    assert_eq!(fixture.catalog.stale_uploads(TIMEOUT, 9).await.expect("an answer").len(), 1);
    upload
}

async fn a_stale_upload_gets_a_part(fixture: &Fixture) -> Damage {
    let upload = stale_upload(fixture).await;
    fixture.part(upload, 1, 5).await;
    damage_if(fixture.catalog.abort_stale_upload(upload, TIMEOUT).await.expect("an answer").is_some(), IN_USE)
}

async fn a_stale_upload_gets_a_lease(fixture: &Fixture) -> Damage {
    let upload = stale_upload(fixture).await;
    fixture.staged_part(upload, 1, 5).await;
    damage_if(fixture.catalog.abort_stale_upload(upload, TIMEOUT).await.expect("an answer").is_some(), IN_USE)
}

async fn an_upload_with_parts_is_aborted(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let upload = fixture.upload(bucket, "a").await;
    fixture.part(upload, 1, 5).await;
    fixture.catalog.abort_upload(upload).await.expect("aborted");
    Damage::new()
}

async fn open_without_bucket(fixture: &Fixture) -> Damage {
    let without_bucket = "SELECT count(*) FROM multipart_uploads WHERE bucket_id NOT IN (SELECT id FROM buckets)";
    damage_if(fixture.number(without_bucket).await > 0, BUCKET_DELETED)
}

async fn an_upload_is_created_in_a_deleted_bucket(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let upload = fixture.upload(bucket, "a").await;
    let mut later = fixture.catalog.upload(upload).await.expect("an answer").expect("the upload");
    later.id = s3o_model::ids::UploadId::new(fixture.content().uuid());
    fixture.catalog.abort_upload(upload).await.expect("aborted");
    fixture.clean_up().await;
    fixture.catalog.delete_bucket(bucket).await.expect("deleted");
    fixture.catalog.create_upload(&later).await.map(drop).unwrap_or_default();
    open_without_bucket(fixture).await
}

async fn a_bucket_with_an_upload_is_deleted(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    fixture.upload(bucket, "a").await;
    fixture.catalog.delete_bucket(bucket).await.unwrap_or_default();
    open_without_bucket(fixture).await
}

async fn a_joined_object_is_deleted(fixture: &Fixture) -> Damage {
    const GRACE: Duration = Duration::from_mins(10);
    let bucket = fixture.bucket("data").await;
    let upload = fixture.upload(bucket, "a").await;
    let parts = [fixture.part(upload, 1, 5).await];
    fixture.complete(upload, &parts).await.expect("completed");
    assert!(fixture.delete(bucket, "a").await);
    fixture.wait_almost(GRACE);
    fixture.catalog.expand_joined(GRACE).await.expect("an answer");
    damage_if(!fixture.queued().await.is_empty(), TOO_EARLY)
}
