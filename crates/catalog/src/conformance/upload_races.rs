//! Tests of uploads while Complete, Abort, parts and cleanup run at the same time.

use std::time::Duration;

use super::fixture::{Fixture, at_once};
use super::races::{ROUNDS, assert_nothing_leaks, both};
use super::{quota_usage, refused};
use crate::{Late, Verdict};

/// Complete gets `RunAgain`, or the part gets `NoSuchUpload`. Both orders occur.
pub async fn complete_during_replaced_part_fails_or_closes_upload(fixture: &Fixture) {
    let bucket = fixture.bucket("race").await;
    let mut wins = [0, 0];
    for round in 0..ROUNDS {
        let upload = fixture.upload(bucket, "a").await;
        let parts = [fixture.part(upload, 1, 3).await, fixture.part(upload, 2, 4).await];
        let intent = fixture.staged_part(upload, 2, 5).await;
        let (ours, theirs) = (fixture.clone(), fixture.clone());
        let (sent, row) = (intent.clone(), fixture.completion(upload, &parts).await);
        let complete = async move { ours.catalog.complete_upload(row).await.map(drop) };
        let part = async move { theirs.commit_part(&sent).await.map(drop) };
        let (complete, part) = both(complete, part, round).await;
        match (complete, part) {
            (Ok(()), Err(error)) => {
                wins[0] += 1;
                assert_eq!(error.verdict(), Some(Verdict::NoSuchUpload));
                assert!(fixture.catalog.drop_write(intent.write, Late::No).await.expect("dropped").was_open);
            }
            (Err(error), Ok(())) => {
                wins[1] += 1;
                assert_eq!(error.verdict(), Some(Verdict::RunAgain));
                fixture.catalog.abort_upload(upload).await.expect("it is still open");
            }
            other => panic!("{other:?}"),
        }
        quota_usage::check(fixture).await;
    }
    assert!(wins.iter().all(|won| *won > 0), "both orders were tried: {wins:?}");
    assert_nothing_leaks(fixture, bucket).await;
}

/// The other one gets `NoSuchUpload`.
pub async fn complete_during_abort_closes_upload_once(fixture: &Fixture) {
    let bucket = fixture.bucket("race").await;
    for round in 0..ROUNDS {
        let upload = fixture.upload(bucket, "a").await;
        let parts = [fixture.part(upload, 1, 3).await];
        let (ours, theirs, row) = (fixture.clone(), fixture.clone(), fixture.completion(upload, &parts).await);
        let complete = async move { ours.catalog.complete_upload(row).await.map(drop) };
        let abort = async move { theirs.catalog.abort_upload(upload).await };
        let (complete, abort) = both(complete, abort, round).await;
        assert_ne!(complete.is_ok(), abort.is_ok(), "{complete:?} {abort:?}");
        let loser = complete.and(abort).expect_err("one lost");
        assert_eq!(loser.verdict(), Some(Verdict::NoSuchUpload));
    }
    assert_nothing_leaks(fixture, bucket).await;
}

/// The others get `NoSuchUpload`.
pub async fn concurrent_completes_create_one_object(fixture: &Fixture) {
    let bucket = fixture.bucket("race").await;
    for _ in 0..ROUNDS {
        let upload = fixture.upload(bucket, "a").await;
        let parts = [fixture.part(upload, 1, 3).await, fixture.part(upload, 2, 3).await];
        let mut rows = Vec::new();
        for _ in 0..4 {
            rows.push(fixture.completion(upload, &parts).await);
        }
        let completes = rows.into_iter().map(|row| {
            let fixture = fixture.clone();
            async move { (row.content, fixture.catalog.complete_upload(row).await.map(drop)) }
        });
        let (won, lost): (Vec<_>, Vec<_>) = at_once(completes.collect()).await.into_iter().partition(|c| c.1.is_ok());
        assert_eq!((won.len(), lost.len()), (1, 3));
        assert_eq!(fixture.resolve("race", "a").await.object.expect("there").content, won[0].0);
        for (_, outcome) in lost {
            refused(outcome, Verdict::NoSuchUpload);
        }
    }
    assert_nothing_leaks(fixture, bucket).await;
}

/// Four workers expand the same content and the same upload.
pub async fn concurrent_expansions_release_each_piece_once(fixture: &Fixture) {
    let bucket = fixture.bucket("race").await;
    for _ in 0..ROUNDS / 4 {
        let upload = fixture.upload(bucket, "a").await;
        let mut parts = vec![fixture.part(upload, 1, 3).await];
        fixture.part(upload, 2, 3).await;
        parts.push(fixture.part(upload, 3, 3).await);
        fixture.complete(upload, &parts).await.expect("completed");
        assert!(fixture.delete(bucket, "a").await);
        let workers = (0..4).map(|_| {
            let fixture = fixture.clone();
            async move {
                while fixture.catalog.expand_joined(Duration::ZERO).await.expect("a step") {}
                while fixture.catalog.expand_closed_upload().await.expect("a step") {}
            }
        });
        at_once(workers.collect()).await;
        quota_usage::check(fixture).await;
    }
    assert_nothing_leaks(fixture, bucket).await;
}
