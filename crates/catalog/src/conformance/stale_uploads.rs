//! Facts about uploads that nobody works on.

use std::time::Duration;

use s3o_model::ids::UploadId;

use super::races::{ROUNDS, both, nothing_leaks};
use super::scene::{LEASE, Scene};
use crate::{Intents, StaleUploads, Uploads, Verdict};

const TIMEOUT: Duration = Duration::from_hours(24);
/// Moments are stored in whole seconds, so a second more is waited.
const PAST: Duration = Duration::from_secs(24 * 3600 + 1);

async fn stale(scene: &Scene) -> Vec<UploadId> {
    scene.catalog.stale_uploads(TIMEOUT, 100).await.expect("a look").into_iter().map(|upload| upload.id).collect()
}

async fn abort(scene: &Scene, upload: UploadId) -> Option<u64> {
    scene.catalog.abort_stale_upload(upload, TIMEOUT).await.expect("a try")
}

/// An upload is stale once nothing happened to it for long enough, and is then aborted once.
pub async fn an_upload_without_activity_is_stale(scene: &Scene) {
    let bucket = scene.bucket("stale").await;
    let upload = scene.upload(bucket, "a").await;
    scene.part(upload, 1, 3).await;
    scene.part(upload, 2, 4).await;
    scene.wait_almost(TIMEOUT);
    assert_eq!((stale(scene).await, abort(scene, upload).await), (vec![], None));
    scene.clock.advance(Duration::from_secs(2));
    let found = scene.catalog.stale_uploads(TIMEOUT, 9).await.expect("a look").remove(0);
    assert_eq!((found.bucket.as_str(), found.key.as_str()), ("stale", "a"));
    assert!(found.idle > TIMEOUT && found.idle < TIMEOUT + Duration::from_secs(3), "{found:?}");
    assert_eq!(abort(scene, upload).await, Some(7), "bytes of its parts");
    assert_eq!((stale(scene).await, abort(scene, upload).await), (vec![], None));
    scene.clean_up().await;
    assert_eq!(scene.booked().await, (0, 0, 0));
}

/// A part that came lately keeps an old upload.
pub async fn a_part_is_a_sign_of_life(scene: &Scene) {
    let bucket = scene.bucket("parts").await;
    let upload = scene.upload(bucket, "a").await;
    scene.part(upload, 1, 3).await;
    scene.clock.advance(PAST / 2);
    scene.part(upload, 2, 3).await;
    scene.clock.advance(PAST / 2 + Duration::from_secs(1));
    assert_eq!((stale(scene).await, abort(scene, upload).await), (vec![], None));
    scene.clock.advance(PAST / 2);
    assert_eq!((stale(scene).await, abort(scene, upload).await), (vec![upload], Some(6)));
}

/// A part under way keeps its upload for as long as its lease is renewed.
pub async fn a_lease_is_a_sign_of_life(scene: &Scene) {
    let bucket = scene.bucket("leases").await;
    let (upload, other) = (scene.upload(bucket, "a").await, scene.upload(bucket, "a").await);
    let intent = scene.staged_part(upload, 1, 3).await;
    scene.clock.advance(PAST);
    scene.catalog.renew(&[intent.id], LEASE).await.expect("renewed");
    assert_eq!(stale(scene).await, [other], "another upload of the same key");
    assert_eq!(abort(scene, upload).await, None);
    scene.clock.advance(PAST);
    assert_eq!(stale(scene).await, [other], "the lease ended less than that ago");
    scene.clock.advance(LEASE);
    assert!(stale(scene).await.contains(&upload));
}

/// The oldest come first, and no more than asked for.
pub async fn the_oldest_come_first(scene: &Scene) {
    let bucket = scene.bucket("oldest").await;
    let mut uploads = Vec::new();
    for key in ["c", "a", "b"] {
        uploads.push(scene.upload(bucket, key).await);
        scene.clock.advance(Duration::from_mins(1));
    }
    scene.clock.advance(PAST);
    assert_eq!(stale(scene).await, uploads);
    assert_eq!(scene.catalog.stale_uploads(TIMEOUT, 2).await.expect("a look").len(), 2);
}

/// What was completed or aborted is not looked at again, however old.
pub async fn a_closed_upload_is_never_stale(scene: &Scene) {
    let bucket = scene.bucket("closed").await;
    let (aborted, completed) = (scene.upload(bucket, "a").await, scene.upload(bucket, "b").await);
    scene.catalog.abort_upload(aborted).await.expect("aborted");
    let parts = [scene.part(completed, 1, 1).await];
    scene.complete(completed, &parts).await.expect("completed");
    scene.clock.advance(PAST);
    assert_eq!(stale(scene).await, []);
    assert_eq!((abort(scene, aborted).await, abort(scene, completed).await), (None, None));
}

/// What happens between the look and the abort counts.
pub async fn activity_after_the_look_saves_an_upload(scene: &Scene) {
    let bucket = scene.bucket("saved").await;
    let sent = scene.upload(bucket, "a").await;
    scene.clock.advance(Duration::from_secs(1));
    let begun = scene.upload(bucket, "b").await;
    scene.clock.advance(PAST);
    assert_eq!(stale(scene).await, [sent, begun]);
    scene.part(sent, 1, 3).await;
    scene.staged_part(begun, 1, 3).await;
    assert_eq!((abort(scene, sent).await, abort(scene, begun).await), (None, None));
    assert_eq!(stale(scene).await, []);
}

/// An abort against a part: the part is stored and saves the upload, or finds it closed.
pub async fn abort_meets_a_part(scene: &Scene) {
    let bucket = scene.bucket("race").await;
    for round in 0..ROUNDS {
        let upload = scene.upload(bucket, "a").await;
        let intent = scene.staged_part(upload, 1, 5).await;
        // The writer was away for long, and comes back with the last of it.
        scene.clock.advance(PAST + LEASE);
        let (ours, theirs, sent) = (scene.clone(), scene.clone(), intent.clone());
        let aborting = async move { abort(&ours, upload).await };
        let sending = async move { theirs.commit_part(&sent).await.map(drop) };
        match both(aborting, sending, round).await {
            (Some(0), Err(error)) => {
                assert_eq!(error.verdict(), Some(Verdict::NoSuchUpload));
                scene.catalog.drop_write(intent.write, crate::Late::No).await.expect("dropped");
            }
            (None, Ok(())) => scene.catalog.abort_upload(upload).await.expect("it is still open"),
            other => panic!("{other:?}"),
        }
    }
    nothing_leaks(scene, bucket).await;
}

/// An abort against Complete: one of them closes the upload, whole.
pub async fn abort_meets_complete(scene: &Scene) {
    let bucket = scene.bucket("race").await;
    for round in 0..ROUNDS {
        let upload = scene.upload(bucket, "a").await;
        let parts = [scene.part(upload, 1, 3).await];
        scene.clock.advance(PAST);
        let (ours, theirs, row) = (scene.clone(), scene.clone(), scene.completion(upload, &parts).await);
        let aborting = async move { abort(&ours, upload).await };
        let completing = async move { theirs.catalog.complete_upload(row).await.map(drop) };
        let (aborted, completed) = both(aborting, completing, round).await;
        assert_eq!(aborted.is_none(), completed.is_ok(), "{aborted:?} {completed:?}");
    }
    nothing_leaks(scene, bucket).await;
}
