//! What keeps an upload in one state for everybody.

use std::time::Duration;

use s3o_model::multipart::UploadState;

use super::Cut::{Guard, Words};
use super::{Told, broken, safeties, told};
use crate::conformance::scene::Scene;
use crate::{Buckets, Contents, StaleUploads, Uploads};

const IN_USE: &str = "an upload in use was aborted";
const GONE: &str = "a part was acknowledged in an upload that is gone";
const AFTER_ABORT: &str = "an aborted upload became an object";
const FORGOTTEN: &str = "a completed upload does not know its answer";
const NO_BUCKET: &str = "an upload is open in a bucket that is gone";
const READER: &str = "bytes were queued while readers may read them";
const TIMEOUT: Duration = Duration::from_hours(24);

safeties! { [sqlite]
    a_part_finds_its_upload_open by a_part_comes_after_abort: "commit_part",
        [Words("WHERE id = $1 AND state = 'open' /*share*/", "WHERE id = $1 /*share*/")], [GONE, broken::LEFTOVER];
    complete_finds_its_upload_open by complete_comes_after_abort: "complete_upload",
        [Words("WHERE id = $1 AND state = 'open'", "WHERE id = $1")], [AFTER_ABORT, broken::LEFTOVER];
    abort_finds_its_upload_open by abort_comes_after_complete: "abort_upload",
        [Words(" AND state = 'open'", "")], [FORGOTTEN];
    complete_finds_the_parts_it_checked by a_part_is_replaced_under_complete: "complete_upload",
        [Guard("INSERT INTO content_parts")], [broken::COUNT, broken::JOINED];
    a_part_is_a_sign_of_life by a_part_comes_after_the_look: "abort_stale_upload",
        [Words("coalesce((SELECT max(last_modified) FROM multipart_parts WHERE upload_id = u.id), 0)", "0")], [IN_USE];
    a_lease_is_a_sign_of_life by a_part_begins_after_the_look: "abort_stale_upload",
        [Words("coalesce((SELECT max(lease_until) FROM pending_objects q WHERE q.bucket_id = u.bucket_id \
          AND q.key = u.key AND q.upload_id = u.id AND q.state = 'open'), 0)", "0")], [IN_USE];
    an_upload_finds_its_bucket by an_upload_comes_after_its_bucket: "create_upload",
        [Guard("FROM buckets")], [NO_BUCKET];
    a_bucket_with_uploads_stays by a_bucket_goes_before_its_upload: "delete_bucket",
        [Words("AND state = 'open'", "AND state = 'nobody'")], [NO_BUCKET];
    joined_content_waits_for_its_readers by a_joined_object_goes: "read",
        [Words("c.condemned_at <= :now - $1", "c.condemned_at <= :now - $1 + $1")], [READER];
    a_closed_upload_says_that_it_holds_parts by parts_are_left: "abort_upload",
        [Words("SET leftover = 1", "SET leftover = 0")], [broken::LEFTOVER];
}

async fn a_part_comes_after_abort(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let upload = scene.upload(bucket, "a").await;
    let part = scene.staged_part(upload, 1, 5).await;
    scene.catalog.abort_upload(upload).await.expect("aborted");
    told(scene.commit_part(&part).await.is_ok(), GONE)
}

async fn complete_comes_after_abort(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let upload = scene.upload(bucket, "a").await;
    let parts = [scene.part(upload, 1, 5).await];
    scene.catalog.abort_upload(upload).await.expect("aborted");
    told(scene.complete(upload, &parts).await.is_ok(), AFTER_ABORT)
}

async fn abort_comes_after_complete(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let upload = scene.upload(bucket, "a").await;
    let parts = [scene.part(upload, 1, 5).await];
    scene.complete(upload, &parts).await.expect("completed");
    scene.catalog.abort_upload(upload).await.unwrap_or_default();
    let found = scene.catalog.upload(upload).await.expect("a look").expect("kept");
    told(!matches!(found.state, UploadState::Completed(_)), FORGOTTEN)
}

async fn a_part_is_replaced_under_complete(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let upload = scene.upload(bucket, "a").await;
    let checked = [scene.part(upload, 1, 5).await, scene.part(upload, 2, 5).await];
    scene.part(upload, 2, 5).await;
    scene.complete(upload, &checked).await.map(drop).unwrap_or_default();
    Told::new()
}

/// An upload that a look took for stale, before something happened to it.
async fn looked_at(scene: &Scene) -> s3o_model::ids::UploadId {
    let bucket = scene.bucket("house").await;
    let upload = scene.upload(bucket, "a").await;
    scene.clock.advance(TIMEOUT + Duration::from_secs(1));
    assert_eq!(scene.catalog.stale_uploads(TIMEOUT, 9).await.expect("a look").len(), 1);
    upload
}

async fn a_part_comes_after_the_look(scene: &Scene) -> Told {
    let upload = looked_at(scene).await;
    scene.part(upload, 1, 5).await;
    told(scene.catalog.abort_stale_upload(upload, TIMEOUT).await.expect("a look").is_some(), IN_USE)
}

async fn a_part_begins_after_the_look(scene: &Scene) -> Told {
    let upload = looked_at(scene).await;
    scene.staged_part(upload, 1, 5).await;
    told(scene.catalog.abort_stale_upload(upload, TIMEOUT).await.expect("a look").is_some(), IN_USE)
}

async fn parts_are_left(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let upload = scene.upload(bucket, "a").await;
    scene.part(upload, 1, 5).await;
    scene.catalog.abort_upload(upload).await.expect("aborted");
    Told::new()
}

async fn is_without_bucket(scene: &Scene) -> Told {
    let lone = "SELECT count(*) FROM multipart_uploads WHERE bucket_id NOT IN (SELECT id FROM buckets)";
    told(scene.number(lone).await > 0, NO_BUCKET)
}

async fn an_upload_comes_after_its_bucket(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let upload = scene.upload(bucket, "a").await;
    let mut later = scene.catalog.upload(upload).await.expect("a look").expect("the upload");
    later.id = s3o_model::ids::UploadId::new(scene.content().uuid());
    scene.catalog.abort_upload(upload).await.expect("aborted");
    scene.clean_up().await;
    scene.catalog.delete_bucket(bucket).await.expect("deleted");
    scene.catalog.create_upload(&later).await.map(drop).unwrap_or_default();
    is_without_bucket(scene).await
}

async fn a_bucket_goes_before_its_upload(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    scene.upload(bucket, "a").await;
    scene.catalog.delete_bucket(bucket).await.unwrap_or_default();
    is_without_bucket(scene).await
}

async fn a_joined_object_goes(scene: &Scene) -> Told {
    const GRACE: Duration = Duration::from_mins(10);
    let bucket = scene.bucket("house").await;
    let upload = scene.upload(bucket, "a").await;
    let parts = [scene.part(upload, 1, 5).await];
    scene.complete(upload, &parts).await.expect("completed");
    assert!(scene.delete(bucket, "a").await);
    scene.wait_almost(GRACE);
    scene.catalog.expand_joined(GRACE).await.expect("a look");
    told(!scene.queued().await.is_empty(), READER)
}
