//! Facts about what happens at the same time: whoever wins, one does, and nothing leaks.

use std::time::Duration;

use s3o_model::conditions::WriteCondition;
use s3o_model::etag::ETag;
use s3o_model::ids::{BucketId, ContentId};

use super::scene::{LEASE, Scene, Standing, at_once, key, md5_of};
use super::{books, refused};
use crate::{Buckets, Error, Intents, Late, Objects, Verdict};

pub(super) const ROUNDS: usize = 40;

/// Commits that write, each with a content of its own, at once; which were committed is returned.
async fn commit_at_once(
    scene: &Scene,
    bucket: BucketId,
    writers: usize,
    condition: &WriteCondition,
) -> Vec<(ContentId, Result<(), Error>)> {
    let mut puts = Vec::new();
    for _ in 0..writers {
        let intent = scene.staged(bucket, "a", 3).await;
        puts.push((intent.write, scene.put_of(&intent, condition.clone())));
    }
    let commits = puts.into_iter().map(|(write, put)| {
        let scene = scene.clone();
        async move {
            let content = put.content;
            let outcome = scene.catalog.commit_put(put).await.map(drop);
            if outcome.is_err() {
                assert!(scene.catalog.drop_write(write, Late::No).await.expect("dropped").was_open);
            }
            (content, outcome)
        }
    });
    at_once(commits.collect()).await
}

/// Two first PUTs of one key: one content is live, the other is condemned and its bytes queued.
pub async fn two_first_puts_leave_one_content(scene: &Scene) {
    let bucket = scene.bucket("race").await;
    for _ in 0..ROUNDS {
        let committed = commit_at_once(scene, bucket, 2, &WriteCondition::None).await;
        let shown = scene.resolve("race", "a").await.object.expect("there").content;
        for (content, outcome) in committed {
            outcome.expect("nothing was asked");
            let expected = if content == shown { Standing::Live(1) } else { Standing::Condemned };
            assert_eq!(scene.standing(content).await, expected);
        }
        assert_eq!((scene.queued().await.len(), scene.booked().await), (1, (3, 3, 0)));
        assert!(scene.delete(bucket, "a").await);
        scene.clean_up().await;
        assert_eq!(scene.booked().await, (0, 0, 0));
    }
}

/// A hundred writers who each want to be the first: one is.
pub async fn one_of_a_hundred_first_writers_wins(scene: &Scene) {
    let bucket = scene.bucket("first").await;
    let committed = commit_at_once(scene, bucket, 100, &WriteCondition::IfAbsent).await;
    assert_one_winner(scene, "first", committed).await;
    assert_eq!((scene.booked().await, scene.queued().await.len()), ((3, 297, 0), 99));
}

/// A hundred writers who each want to replace the same version: one does.
pub async fn one_of_a_hundred_replacing_writers_wins(scene: &Scene) {
    let bucket = scene.bucket("replace").await;
    let content = scene.put(bucket, "a", 3).await;
    let condition = WriteCondition::IfMatch(Some(ETag::of_whole(md5_of(content))));
    let committed = commit_at_once(scene, bucket, 100, &condition).await;
    assert_one_winner(scene, "replace", committed).await;
    assert_eq!((scene.booked().await, scene.queued().await.len()), ((3, 300, 0), 100));
}

async fn assert_one_winner(scene: &Scene, bucket: &str, committed: Vec<(ContentId, Result<(), Error>)>) {
    let shown = scene.resolve(bucket, "a").await.object.expect("there").content;
    let mut winners = 0;
    for (content, outcome) in committed {
        match outcome {
            Ok(()) => {
                winners += 1;
                assert_eq!(content, shown);
            }
            Err(error) => assert_eq!(error.verdict(), Some(Verdict::PreconditionFailed)),
        }
    }
    assert_eq!(winners, 1);
}

/// Runs two at once, the first of them first in every other round.
pub(super) async fn both<A: Send + 'static, B: Send + 'static>(
    one: impl Future<Output = A> + Send + 'static,
    other: impl Future<Output = B> + Send + 'static,
    round: usize,
) -> (A, B) {
    if round.is_multiple_of(2) {
        let (one, other) = (tokio::task::spawn(one), tokio::task::spawn(other));
        (one.await.expect("it ends"), other.await.expect("it ends"))
    } else {
        let (other, one) = (tokio::task::spawn(other), tokio::task::spawn(one));
        (one.await.expect("it ends"), other.await.expect("it ends"))
    }
}

/// What is left when the bucket's objects are deleted and cleanup has run is nothing.
pub(super) async fn nothing_leaks(scene: &Scene, bucket: BucketId) {
    for name in ["a", "b", "c", "d"] {
        scene.delete(bucket, name).await;
    }
    scene.clean_up().await;
    assert_eq!((scene.booked().await, scene.queued().await), ((0, 0, 0), vec![]));
    assert_eq!(scene.number("SELECT count(*) FROM contents").await, 0);
    assert_eq!(scene.number("SELECT count(*) FROM object_locations").await, 0);
}

/// A bucket's delete against a PUT: the object is there and so is the bucket, or neither is.
pub async fn bucket_delete_meets_put(scene: &Scene) {
    for round in 0..ROUNDS {
        let bucket = scene.bucket(&format!("race-{round}")).await;
        let intent = scene.staged(bucket, "a", 3).await;
        let (ours, theirs) = (scene.clone(), scene.clone());
        let put = intent.clone();
        let commit = async move { ours.commit(&put, WriteCondition::None).await.map(drop) };
        let delete = async move { theirs.catalog.delete_bucket(bucket).await };
        match both(commit, delete, round).await {
            (Ok(()), Err(error)) => {
                assert_eq!(error.verdict(), Some(Verdict::NotEmpty));
                assert!(scene.delete(bucket, "a").await);
            }
            (Err(error), Ok(())) => {
                assert_eq!(error.verdict(), Some(Verdict::NoSuchBucket));
                assert!(scene.catalog.drop_write(intent.write, Late::No).await.expect("dropped").was_open);
            }
            other => panic!("{other:?}"),
        }
    }
    scene.clean_up().await;
    assert_eq!((scene.booked().await, scene.queued().await), ((0, 0, 0), vec![]));
}

/// A copy against the delete of its source: the copy has its bytes, or must resolve again.
pub async fn copy_meets_delete_of_its_source(scene: &Scene) {
    let bucket = scene.bucket("race").await;
    for round in 0..ROUNDS {
        let content = scene.put(bucket, "a", 3).await;
        let (ours, theirs) = (scene.clone(), scene.clone());
        let copy = async move { ours.copy((content, 3), bucket, "b").await.map(drop) };
        let delete = async move { theirs.delete(bucket, "a").await };
        match both(copy, delete, round).await {
            (Ok(()), true) => assert_eq!(scene.standing(content).await, Standing::Live(1)),
            (outcome, true) => refused(outcome, Verdict::ResolveAgain),
            other => panic!("{other:?}"),
        }
        books::check(scene).await;
    }
    nothing_leaks(scene, bucket).await;
}

/// The reaper against the commit of a write whose lease just ran out: one of them has it.
pub async fn reap_meets_commit(scene: &Scene) {
    let bucket = scene.bucket("race").await;
    for round in 0..ROUNDS {
        let intent = scene.staged(bucket, "a", 3).await;
        scene.clock.advance(LEASE);
        let (ours, theirs, write) = (scene.clone(), scene.clone(), intent.clone());
        let commit = async move { ours.commit(&write, WriteCondition::None).await.map(drop) };
        let reap = async move { theirs.reap(9, Duration::ZERO).await };
        match both(commit, reap, round).await {
            (Ok(()), fenced) => assert!(fenced.is_empty(), "{fenced:?}"),
            (outcome, fenced) => {
                refused(outcome, Verdict::Fenced);
                assert_eq!(fenced.len(), 1);
            }
        }
        books::check(scene).await;
    }
    nothing_leaks(scene, bucket).await;
}

/// Units that run together fail alone: a guard that does not hold takes back its own unit only.
pub async fn a_failing_unit_fails_alone(scene: &Scene) {
    let bucket = scene.bucket("alone").await;
    let mut intents = Vec::new();
    for number in 0..64 {
        let intent = scene.staged(bucket, &format!("k{number:02}"), 1).await;
        if number % 3 == 0 {
            scene.catalog.drop_write(intent.write, Late::No).await.expect("dropped");
        }
        intents.push(intent);
    }
    let commits = intents.into_iter().map(|intent| {
        let scene = scene.clone();
        async move { scene.commit(&intent, WriteCondition::None).await.map(drop) }
    });
    for (number, outcome) in at_once(commits.collect()).await.into_iter().enumerate() {
        let there = scene.resolve("alone", &format!("k{number:02}")).await.object.is_some();
        assert_eq!(there, number % 3 != 0);
        match outcome {
            Ok(()) => assert!(there),
            refusal => refused(refusal, Verdict::Fenced),
        }
    }
}

/// Everything at once on four keys: whatever the order, the books hold and nothing leaks.
pub async fn a_storm_leaves_the_books_in_order(scene: &Scene) {
    let bucket = scene.bucket("storm").await;
    storm(scene, 12, move |scene, _, choice| async move { stir(&scene, bucket, choice).await }).await;
    books::check(scene).await;
    nothing_leaks(scene, bucket).await;
}

/// Has so many workers do something at once, each again and again: what, they are told by a number.
pub(super) async fn storm<F>(
    scene: &Scene,
    workers: usize,
    stir: impl Fn(Scene, usize, usize) -> F + Copy + Send + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let busy = (0..workers).map(|worker| {
        let scene = scene.clone();
        async move {
            for step in 0..20 {
                stir(scene.clone(), worker, worker * 7 + step * 5).await;
            }
        }
    });
    at_once(busy.collect()).await;
}

/// Copies one key of the bucket `storm` to another, if there is anything.
pub(super) async fn copy_what_is_there(scene: &Scene, bucket: BucketId, (from, to): (&str, &str)) {
    let found = scene.resolve("storm", from).await.object;
    if let Some(object) = found
        && let Err(error) = scene.copy((object.content, object.size_bytes), bucket, to).await
    {
        assert_eq!(error.verdict(), Some(Verdict::ResolveAgain), "{error}");
    }
}

pub(super) async fn stir(scene: &Scene, bucket: BucketId, choice: usize) {
    let (name, other) = (["a", "b", "c", "d"][choice % 4], ["b", "c", "d", "a"][choice % 4]);
    match choice % 6 {
        0 | 1 => drop(scene.put(bucket, name, 3).await),
        2 => copy_what_is_there(scene, bucket, (name, other)).await,
        3 => drop(scene.delete(bucket, name).await),
        4 => {
            let targets = [(key(name), None), (key(other), None)];
            scene.catalog.delete_objects(bucket, &targets, scene.token()).await.expect("deleted");
        }
        _ => {
            let upload = scene.upload(bucket, name).await;
            let parts = [scene.part(upload, 1, 3).await, scene.part(upload, 2, 3).await];
            scene.complete(upload, &parts[choice % 2..]).await.expect("completed");
        }
    }
}
