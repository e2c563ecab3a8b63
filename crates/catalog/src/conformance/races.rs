//! Tests of operations that run at the same time: exactly one wins, and no bytes are left over.

use std::time::Duration;

use s3o_model::conditions::WriteCondition;
use s3o_model::etag::ETag;
use s3o_model::ids::{BucketId, ContentId};

use super::fixture::{ContentStanding, Fixture, LEASE, at_once, key, md5_of};
use super::{quota_usage, refused};
use crate::{Error, Late, Verdict};

pub(super) const ROUNDS: usize = 40;

/// Commits this many writes of one key at the same time, each with its own content; returns their outcomes.
async fn commit_at_once(
    fixture: &Fixture,
    bucket: BucketId,
    writers: usize,
    condition: &WriteCondition,
) -> Vec<(ContentId, Result<(), Error>)> {
    let mut puts = Vec::new();
    for _ in 0..writers {
        let intent = fixture.staged(bucket, "a", 3).await;
        puts.push((intent.write, fixture.put_of(&intent, condition.clone())));
    }
    let commits = puts.into_iter().map(|(write, put)| {
        let fixture = fixture.clone();
        async move {
            let content = put.content;
            let outcome = fixture.commit_put(put).await.map(drop);
            if outcome.is_err() {
                assert!(fixture.catalog.drop_write(write, Late::No).await.expect("dropped").was_open);
            }
            (content, outcome)
        }
    });
    at_once(commits.collect()).await
}

/// The other content is condemned, and its bytes are queued.
pub async fn concurrent_first_puts_leave_one_live_content(fixture: &Fixture) {
    let bucket = fixture.bucket("race").await;
    for _ in 0..ROUNDS {
        let committed = commit_at_once(fixture, bucket, 2, &WriteCondition::None).await;
        let shown = fixture.resolve("race", "a").await.object.expect("there").content;
        for (content, outcome) in committed {
            outcome.expect("no condition");
            let expected = if content == shown { ContentStanding::Live(1) } else { ContentStanding::Condemned };
            assert_eq!(fixture.standing(content).await, expected);
        }
        assert_eq!((fixture.queued().await.len(), fixture.usage().await), (1, (3, 3, 0)));
        assert!(fixture.delete(bucket, "a").await);
        fixture.clean_up().await;
        assert_eq!(fixture.usage().await, (0, 0, 0));
    }
}

/// The others get `PreconditionFailed`.
pub async fn one_of_hundred_if_absent_writers_wins(fixture: &Fixture) {
    let bucket = fixture.bucket("first").await;
    let committed = commit_at_once(fixture, bucket, 100, &WriteCondition::IfAbsent).await;
    assert_one_winner(fixture, "first", committed).await;
    assert_eq!((fixture.usage().await, fixture.queued().await.len()), ((3, 297, 0), 99));
}

/// The others get `PreconditionFailed`.
pub async fn one_of_hundred_if_match_writers_wins(fixture: &Fixture) {
    let bucket = fixture.bucket("replace").await;
    let content = fixture.put(bucket, "a", 3).await;
    let condition = WriteCondition::IfMatch(Some(ETag::of_whole(md5_of(content))));
    let committed = commit_at_once(fixture, bucket, 100, &condition).await;
    assert_one_winner(fixture, "replace", committed).await;
    assert_eq!((fixture.usage().await, fixture.queued().await.len()), ((3, 300, 0), 100));
}

async fn assert_one_winner(fixture: &Fixture, bucket: &str, committed: Vec<(ContentId, Result<(), Error>)>) {
    let shown = fixture.resolve(bucket, "a").await.object.expect("there").content;
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

/// Runs both futures at the same time. Even rounds spawn the first one first, odd rounds the second one.
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

/// Deletes the bucket's objects, runs cleanup, and asserts that no row and no byte is left.
pub(super) async fn assert_nothing_leaks(fixture: &Fixture, bucket: BucketId) {
    for name in ["a", "b", "c", "d"] {
        fixture.delete(bucket, name).await;
    }
    fixture.clean_up().await;
    assert_eq!((fixture.usage().await, fixture.queued().await), ((0, 0, 0), vec![]));
    assert_eq!(fixture.number("SELECT count(*) FROM contents").await, 0);
    assert_eq!(fixture.number("SELECT count(*) FROM object_locations").await, 0);
}

/// One of them fails: the put with `NoSuchBucket` or the delete with `NotEmpty`.
pub async fn bucket_delete_during_put_deletes_bucket_or_keeps_object(fixture: &Fixture) {
    for round in 0..ROUNDS {
        let bucket = fixture.bucket(&format!("race-{round}")).await;
        let intent = fixture.staged(bucket, "a", 3).await;
        let (ours, theirs) = (fixture.clone(), fixture.clone());
        let put = intent.clone();
        let commit = async move { ours.commit(&put, WriteCondition::None).await.map(drop) };
        let delete = async move { theirs.catalog.delete_bucket(bucket).await };
        match both(commit, delete, round).await {
            (Ok(()), Err(error)) => {
                assert_eq!(error.verdict(), Some(Verdict::NotEmpty));
                assert!(fixture.delete(bucket, "a").await);
            }
            (Err(error), Ok(())) => {
                assert_eq!(error.verdict(), Some(Verdict::NoSuchBucket));
                assert!(fixture.catalog.drop_write(intent.write, Late::No).await.expect("dropped").was_open);
            }
            other => panic!("{other:?}"),
        }
    }
    fixture.clean_up().await;
    assert_eq!((fixture.usage().await, fixture.queued().await), ((0, 0, 0), vec![]));
}

/// A copy that fails gets `ResolveAgain`.
pub async fn copy_during_delete_of_its_source_keeps_bytes_or_fails(fixture: &Fixture) {
    let bucket = fixture.bucket("race").await;
    for round in 0..ROUNDS {
        let content = fixture.put(bucket, "a", 3).await;
        let (ours, theirs) = (fixture.clone(), fixture.clone());
        let copy = async move { ours.copy((content, 3), bucket, "b").await.map(drop) };
        let delete = async move { theirs.delete(bucket, "a").await };
        match both(copy, delete, round).await {
            (Ok(()), true) => assert_eq!(fixture.standing(content).await, ContentStanding::Live(1)),
            (outcome, true) => refused(outcome, Verdict::ResolveAgain),
            other => panic!("{other:?}"),
        }
        quota_usage::check(fixture).await;
    }
    assert_nothing_leaks(fixture, bucket).await;
}

/// The lease of the write has just expired.
pub async fn reap_during_commit_fences_it_or_finds_nothing(fixture: &Fixture) {
    let bucket = fixture.bucket("race").await;
    for round in 0..ROUNDS {
        let intent = fixture.staged(bucket, "a", 3).await;
        fixture.clock.advance(LEASE);
        let (ours, theirs, write) = (fixture.clone(), fixture.clone(), intent.clone());
        let commit = async move { ours.commit(&write, WriteCondition::None).await.map(drop) };
        let reap = async move { theirs.reap(9, Duration::ZERO).await };
        match both(commit, reap, round).await {
            (Ok(()), fenced) => assert!(fenced.is_empty(), "{fenced:?}"),
            (outcome, fenced) => {
                refused(outcome, Verdict::Fenced);
                assert_eq!(fenced.len(), 1);
            }
        }
        quota_usage::check(fixture).await;
    }
    assert_nothing_leaks(fixture, bucket).await;
}

/// The driver may run units in one transaction. A failed guard rolls back only its own unit.
pub async fn failing_unit_fails_alone(fixture: &Fixture) {
    let bucket = fixture.bucket("alone").await;
    let mut intents = Vec::new();
    for number in 0..64 {
        let intent = fixture.staged(bucket, &format!("k{number:02}"), 1).await;
        if number % 3 == 0 {
            fixture.catalog.drop_write(intent.write, Late::No).await.expect("dropped");
        }
        intents.push(intent);
    }
    let commits = intents.into_iter().map(|intent| {
        let fixture = fixture.clone();
        async move { fixture.commit(&intent, WriteCondition::None).await.map(drop) }
    });
    for (number, outcome) in at_once(commits.collect()).await.into_iter().enumerate() {
        let there = fixture.resolve("alone", &format!("k{number:02}")).await.object.is_some();
        assert_eq!(there, number % 3 != 0);
        match outcome {
            Ok(()) => assert!(there),
            refusal => refused(refusal, Verdict::Fenced),
        }
    }
}

/// Twelve workers put, copy, delete and complete uploads on four keys; afterwards no bytes are left over.
pub async fn concurrent_operations_keep_quotas_exact(fixture: &Fixture) {
    let bucket = fixture.bucket("mixed").await;
    run_concurrently(
        fixture,
        12,
        move |fixture, _, choice| async move { random_operation(&fixture, bucket, choice).await },
    )
    .await;
    quota_usage::check(fixture).await;
    assert_nothing_leaks(fixture, bucket).await;
}

/// Runs `step` 20 times on each of `workers` tasks, with the number of the task and a number that selects the
/// operation.
pub(super) async fn run_concurrently<F>(
    fixture: &Fixture,
    workers: usize,
    step: impl Fn(Fixture, usize, usize) -> F + Copy + Send + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let busy = (0..workers).map(|worker| {
        let fixture = fixture.clone();
        async move {
            for round in 0..20 {
                step(fixture.clone(), worker, worker * 7 + round * 5).await;
            }
        }
    });
    at_once(busy.collect()).await;
}

/// Copies one key of the bucket `mixed` to another, if it is there.
pub(super) async fn copy_if_present(fixture: &Fixture, bucket: BucketId, (from, to): (&str, &str)) {
    let found = fixture.resolve("mixed", from).await.object;
    if let Some(object) = found
        && let Err(error) = fixture.copy((object.content, object.size_bytes), bucket, to).await
    {
        assert_eq!(error.verdict(), Some(Verdict::ResolveAgain), "{error}");
    }
}

/// Runs the operation that `choice` selects.
pub(super) async fn random_operation(fixture: &Fixture, bucket: BucketId, choice: usize) {
    let (name, other) = (["a", "b", "c", "d"][choice % 4], ["b", "c", "d", "a"][choice % 4]);
    match choice % 6 {
        0 | 1 => drop(fixture.put(bucket, name, 3).await),
        2 => copy_if_present(fixture, bucket, (name, other)).await,
        3 => drop(fixture.delete(bucket, name).await),
        4 => {
            let targets = [(key(name), None), (key(other), None)];
            fixture.catalog.delete_objects(bucket, &targets, fixture.token()).await.expect("deleted");
        }
        _ => {
            let upload = fixture.upload(bucket, name).await;
            let parts = [fixture.part(upload, 1, 3).await, fixture.part(upload, 2, 3).await];
            fixture.complete(upload, &parts[choice % 2..]).await.expect("completed");
        }
    }
}
