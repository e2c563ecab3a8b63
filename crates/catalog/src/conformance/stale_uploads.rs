//! Tests of uploads without activity.

use std::time::Duration;

use s3o_model::ids::UploadId;

use super::fixture::{Fixture, LEASE};
use super::races::{ROUNDS, assert_nothing_leaks, both};
use crate::Verdict;

const TIMEOUT: Duration = Duration::from_hours(24);
/// Longer than the timeout by a second, because timestamps are stored in whole seconds.
const PAST: Duration = Duration::from_secs(24 * 3600 + 1);

async fn stale(fixture: &Fixture) -> Vec<UploadId> {
    fixture.catalog.stale_uploads(TIMEOUT, 100).await.expect("a query").into_iter().map(|upload| upload.id).collect()
}

async fn abort(fixture: &Fixture, upload: UploadId) -> Option<u64> {
    fixture.catalog.abort_stale_upload(upload, TIMEOUT).await.expect("a try")
}

/// It is aborted once, which returns the bytes of its parts.
pub async fn upload_without_activity_is_stale(fixture: &Fixture) {
    let bucket = fixture.bucket("stale").await;
    let upload = fixture.upload(bucket, "a").await;
    fixture.part(upload, 1, 3).await;
    fixture.part(upload, 2, 4).await;
    fixture.wait_almost(TIMEOUT);
    assert_eq!((stale(fixture).await, abort(fixture, upload).await), (vec![], None));
    fixture.clock.advance(Duration::from_secs(2));
    let found = fixture.catalog.stale_uploads(TIMEOUT, 9).await.expect("a query").remove(0);
    assert_eq!((found.bucket.as_str(), found.key.as_str()), ("stale", "a"));
    assert!(found.idle > TIMEOUT && found.idle < TIMEOUT + Duration::from_secs(3), "{found:?}");
    assert_eq!(abort(fixture, upload).await, Some(7), "bytes of its parts");
    assert_eq!((stale(fixture).await, abort(fixture, upload).await), (vec![], None));
    fixture.clean_up().await;
    assert_eq!(fixture.usage().await, (0, 0, 0));
}

/// The upload itself is older than the timeout.
pub async fn stored_part_counts_as_activity(fixture: &Fixture) {
    let bucket = fixture.bucket("parts").await;
    let upload = fixture.upload(bucket, "a").await;
    fixture.part(upload, 1, 3).await;
    fixture.clock.advance(PAST / 2);
    fixture.part(upload, 2, 3).await;
    fixture.clock.advance(PAST / 2 + Duration::from_secs(1));
    assert_eq!((stale(fixture).await, abort(fixture, upload).await), (vec![], None));
    fixture.clock.advance(PAST / 2);
    assert_eq!((stale(fixture).await, abort(fixture, upload).await), (vec![upload], Some(6)));
}

/// Another upload of the same key is stale.
pub async fn lease_of_a_part_counts_as_activity(fixture: &Fixture) {
    let bucket = fixture.bucket("leases").await;
    let (upload, other) = (fixture.upload(bucket, "a").await, fixture.upload(bucket, "a").await);
    let intent = fixture.staged_part(upload, 1, 3).await;
    fixture.clock.advance(PAST);
    fixture.catalog.renew(&[intent.id], LEASE).await.expect("renewed");
    assert_eq!(stale(fixture).await, [other], "another upload of the same key");
    assert_eq!(abort(fixture, upload).await, None);
    fixture.clock.advance(PAST);
    assert_eq!(stale(fixture).await, [other], "the lease ended less than that ago");
    fixture.clock.advance(LEASE);
    assert!(stale(fixture).await.contains(&upload));
}

/// The limit applies.
pub async fn oldest_stale_uploads_are_listed_first(fixture: &Fixture) {
    let bucket = fixture.bucket("oldest").await;
    let mut uploads = Vec::new();
    for key in ["c", "a", "b"] {
        uploads.push(fixture.upload(bucket, key).await);
        fixture.clock.advance(Duration::from_mins(1));
    }
    fixture.clock.advance(PAST);
    assert_eq!(stale(fixture).await, uploads);
    assert_eq!(fixture.catalog.stale_uploads(TIMEOUT, 2).await.expect("a query").len(), 2);
}

/// A completed or aborted upload stays closed, however long ago that was.
pub async fn closed_upload_is_never_stale(fixture: &Fixture) {
    let bucket = fixture.bucket("closed").await;
    let (aborted, completed) = (fixture.upload(bucket, "a").await, fixture.upload(bucket, "b").await);
    fixture.catalog.abort_upload(aborted).await.expect("aborted");
    let parts = [fixture.part(completed, 1, 1).await];
    fixture.complete(completed, &parts).await.expect("completed");
    fixture.clock.advance(PAST);
    assert_eq!(stale(fixture).await, []);
    assert_eq!((abort(fixture, aborted).await, abort(fixture, completed).await), (None, None));
}

/// `abort_stale_upload` checks the activity again.
pub async fn activity_after_the_query_prevents_the_abort(fixture: &Fixture) {
    let bucket = fixture.bucket("saved").await;
    let sent = fixture.upload(bucket, "a").await;
    fixture.clock.advance(Duration::from_secs(1));
    let begun = fixture.upload(bucket, "b").await;
    fixture.clock.advance(PAST);
    assert_eq!(stale(fixture).await, [sent, begun]);
    fixture.part(sent, 1, 3).await;
    fixture.staged_part(begun, 1, 3).await;
    assert_eq!((abort(fixture, sent).await, abort(fixture, begun).await), (None, None));
    assert_eq!(stale(fixture).await, []);
}

/// The part gets `NoSuchUpload`, or the abort has no effect.
pub async fn abort_during_part_closes_upload_or_keeps_part(fixture: &Fixture) {
    let bucket = fixture.bucket("race").await;
    for round in 0..ROUNDS {
        let upload = fixture.upload(bucket, "a").await;
        let intent = fixture.staged_part(upload, 1, 5).await;
        // The lease expired long ago; the writer commits its part now.
        fixture.clock.advance(PAST + LEASE);
        let (ours, theirs, sent) = (fixture.clone(), fixture.clone(), intent.clone());
        let aborting = async move { abort(&ours, upload).await };
        let sending = async move { theirs.commit_part(&sent).await.map(drop) };
        match both(aborting, sending, round).await {
            (Some(0), Err(error)) => {
                assert_eq!(error.verdict(), Some(Verdict::NoSuchUpload));
                fixture.catalog.drop_write(intent.write, crate::Late::No).await.expect("dropped");
            }
            (None, Ok(())) => fixture.catalog.abort_upload(upload).await.expect("it is still open"),
            other => panic!("{other:?}"),
        }
    }
    assert_nothing_leaks(fixture, bucket).await;
}

/// Exactly one of them succeeds.
pub async fn abort_during_complete_closes_upload_once(fixture: &Fixture) {
    let bucket = fixture.bucket("race").await;
    for round in 0..ROUNDS {
        let upload = fixture.upload(bucket, "a").await;
        let parts = [fixture.part(upload, 1, 3).await];
        fixture.clock.advance(PAST);
        let (ours, theirs, row) = (fixture.clone(), fixture.clone(), fixture.completion(upload, &parts).await);
        let aborting = async move { abort(&ours, upload).await };
        let completing = async move { theirs.catalog.complete_upload(row).await.map(drop) };
        let (aborted, completed) = both(aborting, completing, round).await;
        assert_eq!(aborted.is_none(), completed.is_ok(), "{aborted:?} {completed:?}");
    }
    assert_nothing_leaks(fixture, bucket).await;
}
