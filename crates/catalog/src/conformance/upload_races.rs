//! Facts about what happens to an upload at the same time: Complete, Abort, parts and cleanup.

use std::time::Duration;

use super::races::{ROUNDS, both, nothing_leaks};
use super::scene::{Scene, at_once};
use super::{books, refused};
use crate::{Contents, Intents, Late, Uploads, Verdict};

/// Complete against a part that is sent again: the new part is in the object, or finds the upload
/// closed; never half of either.
pub async fn complete_meets_a_part_sent_again(scene: &Scene) {
    let bucket = scene.bucket("race").await;
    let mut wins = [0, 0];
    for round in 0..ROUNDS {
        let upload = scene.upload(bucket, "a").await;
        let parts = [scene.part(upload, 1, 3).await, scene.part(upload, 2, 4).await];
        let intent = scene.staged_part(upload, 2, 5).await;
        let (ours, theirs) = (scene.clone(), scene.clone());
        let (sent, row) = (intent.clone(), scene.completion(upload, &parts).await);
        let complete = async move { ours.catalog.complete_upload(row).await.map(drop) };
        let part = async move { theirs.commit_part(&sent).await.map(drop) };
        let (complete, part) = both(complete, part, round).await;
        match (complete, part) {
            (Ok(()), Err(error)) => {
                wins[0] += 1;
                assert_eq!(error.verdict(), Some(Verdict::NoSuchUpload));
                assert!(scene.catalog.drop_write(intent.write, Late::No).await.expect("dropped").was_open);
            }
            (Err(error), Ok(())) => {
                wins[1] += 1;
                assert_eq!(error.verdict(), Some(Verdict::RunAgain));
                scene.catalog.abort_upload(upload).await.expect("it is still open");
            }
            other => panic!("{other:?}"),
        }
        books::check(scene).await;
    }
    assert!(wins.iter().all(|won| *won > 0), "both orders were tried: {wins:?}");
    nothing_leaks(scene, bucket).await;
}

/// Complete against Abort: one of them closes the upload.
pub async fn complete_meets_abort(scene: &Scene) {
    let bucket = scene.bucket("race").await;
    for round in 0..ROUNDS {
        let upload = scene.upload(bucket, "a").await;
        let parts = [scene.part(upload, 1, 3).await];
        let (ours, theirs, row) = (scene.clone(), scene.clone(), scene.completion(upload, &parts).await);
        let complete = async move { ours.catalog.complete_upload(row).await.map(drop) };
        let abort = async move { theirs.catalog.abort_upload(upload).await };
        let (complete, abort) = both(complete, abort, round).await;
        assert_ne!(complete.is_ok(), abort.is_ok(), "{complete:?} {abort:?}");
        let loser = complete.and(abort).expect_err("one lost");
        assert_eq!(loser.verdict(), Some(Verdict::NoSuchUpload));
    }
    nothing_leaks(scene, bucket).await;
}

/// Complete against Complete: one makes the object, the other finds the upload closed.
pub async fn complete_meets_complete(scene: &Scene) {
    let bucket = scene.bucket("race").await;
    for _ in 0..ROUNDS {
        let upload = scene.upload(bucket, "a").await;
        let parts = [scene.part(upload, 1, 3).await, scene.part(upload, 2, 3).await];
        let mut rows = Vec::new();
        for _ in 0..4 {
            rows.push(scene.completion(upload, &parts).await);
        }
        let completes = rows.into_iter().map(|row| {
            let scene = scene.clone();
            async move { (row.content, scene.catalog.complete_upload(row).await.map(drop)) }
        });
        let (won, lost): (Vec<_>, Vec<_>) = at_once(completes.collect()).await.into_iter().partition(|c| c.1.is_ok());
        assert_eq!((won.len(), lost.len()), (1, 3));
        assert_eq!(scene.resolve("race", "a").await.object.expect("there").content, won[0].0);
        for (_, outcome) in lost {
            refused(outcome, Verdict::NoSuchUpload);
        }
    }
    nothing_leaks(scene, bucket).await;
}

/// Workers that expand the same content at once take each piece once.
pub async fn expanding_twice_counts_once(scene: &Scene) {
    let bucket = scene.bucket("race").await;
    for _ in 0..ROUNDS / 4 {
        let upload = scene.upload(bucket, "a").await;
        let mut parts = vec![scene.part(upload, 1, 3).await];
        scene.part(upload, 2, 3).await;
        parts.push(scene.part(upload, 3, 3).await);
        scene.complete(upload, &parts).await.expect("completed");
        assert!(scene.delete(bucket, "a").await);
        let workers = (0..4).map(|_| {
            let scene = scene.clone();
            async move {
                while scene.catalog.expand_joined(Duration::ZERO).await.expect("a step") {}
                while scene.catalog.expand_closed_upload().await.expect("a step") {}
            }
        });
        at_once(workers.collect()).await;
        books::check(scene).await;
    }
    nothing_leaks(scene, bucket).await;
}
