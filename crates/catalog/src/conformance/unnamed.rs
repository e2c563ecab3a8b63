//! Tests of keys that no row names: queued once, only if nothing names them, and never beside a commit that does.

use s3o_model::cleanup::Reason;
use s3o_model::conditions::WriteCondition;
use s3o_model::target::Target;

use super::fixture::{Fixture, at_once, backend, unannounced};
use super::refused;
use crate::{CommitPut, Error, Late, UNNAMED_UNIT_MAX, UNNAMED_WAITING_MAX, UnnamedKey, Verdict};

const ROUNDS: usize = 40;

fn stray(physical_key: &str, size_bytes: u64) -> UnnamedKey {
    UnnamedKey { physical_key: physical_key.to_owned(), target: Target::Key, size_bytes, expected: None }
}

fn draft(identifier: &str) -> UnnamedKey {
    UnnamedKey { target: Target::Draft, ..stray(&format!(".s3o/tmp/{identifier}"), 3) }
}

async fn enqueue(fixture: &Fixture, keys: &[UnnamedKey]) -> Result<Vec<UnnamedKey>, Error> {
    fixture.catalog.enqueue_unnamed(&backend("disk"), Reason::Reconcile, keys, fixture.token()).await
}

/// The bytes become orphan bytes in the same unit.
pub async fn unnamed_keys_are_queued_and_counted_once(fixture: &Fixture) {
    fixture.bucket("strays").await;
    let strays = [stray("b/a~1", 5), stray("b/b~2", 7)];
    assert_eq!(enqueue(fixture, &strays).await.expect("queued"), strays);
    assert_eq!((fixture.usage().await, fixture.queued().await.len()), ((0, 12, 0), 2));
    assert_eq!(enqueue(fixture, &strays).await.expect("an answer"), [], "their cleanups name them");
    assert_eq!(fixture.usage().await, (0, 12, 0));
    let (token, claimed) = fixture.claim(9).await;
    assert!(claimed.iter().all(|row| row.reason == "reconcile" && row.absent_ok_after.is_none()));
    fixture.settle(token, &claimed, &s3o_model::cleanup::Outcome::Done).await;
    assert_eq!(fixture.usage().await, (0, 0, 0));
}

/// A location, an open intent, a cleanup, a dead letter, a written-off finding.
pub async fn named_keys_are_not_queued(fixture: &Fixture) {
    let bucket = fixture.bucket("named").await;
    let mut intents = Vec::new();
    for _ in 0..5 {
        intents.push(fixture.staged(bucket, "a", 5).await);
    }
    for dead in &intents[3..] {
        fixture.catalog.drop_write(dead.write, Late::No).await.expect("dropped");
    }
    let (token, claimed) = fixture.claim(9).await;
    let refusal = s3o_model::cleanup::Outcome::DeadLetter { why: "refused".to_owned() };
    fixture.settle(token, &claimed, &refusal).await;
    let id = fixture.catalog.newest_dead_letter().await.expect("a query").expect("a dead letter");
    let discard = crate::Discard { id, written_off: Some("{}".to_owned()) };
    fixture.catalog.discard_dead_letters(&[discard], fixture.token()).await.expect("discarded");
    fixture.commit(&intents[0], WriteCondition::None).await.expect("committed");
    fixture.catalog.drop_write(intents[1].write, Late::No).await.expect("dropped");
    let usage = fixture.usage().await;
    let mut keys: Vec<UnnamedKey> = intents.iter().map(|intent| stray(&intent.physical_key, 5)).collect();
    keys.push(stray("b/unnamed~1", 1));
    assert_eq!(enqueue(fixture, &keys).await.expect("an answer"), keys[5..]);
    assert_eq!(fixture.usage().await, (usage.0, usage.1 + 1, usage.2));
}

/// The name of a draft is the identifier of the key that is written. A draft of committed bytes is not of a write.
pub async fn drafts_of_writes_are_not_queued(fixture: &Fixture) {
    let bucket = fixture.bucket("drafts").await;
    let (open, located) = (fixture.staged(bucket, "a", 5).await, fixture.staged(bucket, "b", 5).await);
    fixture.commit(&located, WriteCondition::None).await.expect("committed");
    let of = |intent: &s3o_model::intent::Intent| draft(intent.physical_key.rsplit('~').next().unwrap_or_default());
    let drafts = [of(&open), of(&located)];
    assert_eq!(enqueue(fixture, &drafts).await.expect("an answer"), drafts[1..]);
    assert_eq!(enqueue(fixture, &drafts).await.expect("an answer"), []);
    let (_, claimed) = fixture.claim(9).await;
    assert_eq!((claimed.len(), &claimed[0].target), (1, &Target::Draft));
    assert_eq!(fixture.catalog.confirm_unnamed(&backend("disk"), &drafts).await.expect("an answer"), []);
}

/// More wait on the backend until the queue has capacity.
pub async fn number_of_waiting_keys_is_bounded(fixture: &Fixture) {
    fixture.bucket("many").await;
    let strays = |unit: usize| -> Vec<UnnamedKey> {
        (0..UNNAMED_UNIT_MAX).map(|number| stray(&format!("b/{unit}-{number:04}~1"), 0)).collect()
    };
    for unit in 0..UNNAMED_WAITING_MAX / UNNAMED_UNIT_MAX {
        assert_eq!(enqueue(fixture, &strays(unit)).await.expect("queued").len(), UNNAMED_UNIT_MAX);
    }
    assert_eq!(enqueue(fixture, &strays(99)).await.expect("an answer").len(), 0);
    let (token, claimed) = fixture.claim(7).await;
    fixture.settle(token, &claimed, &s3o_model::cleanup::Outcome::Done).await;
    assert_eq!(enqueue(fixture, &strays(99)).await.expect("queued").len(), 7);
    let too_many = [strays(0), strays(1)].concat();
    assert!(matches!(enqueue(fixture, &too_many).await, Err(Error::Internal(_))));
}

/// Nothing deletes there any more.
pub async fn removed_backend_takes_no_unnamed_keys(fixture: &Fixture) {
    fixture.bucket("removed").await;
    fixture.change("UPDATE backends SET removing_since = 1 WHERE name = 'disk'", vec![]).await;
    refused(enqueue(fixture, &[stray("b/a~1", 1)]).await, Verdict::Closed);
    fixture.change("UPDATE backends SET removing_since = NULL", vec![]).await;
}

/// By key and target.
pub async fn keys_are_confirmed_by_their_tables(fixture: &Fixture) {
    let intent = fixture.staged(fixture.bucket("confirmed").await, "a", 5).await;
    fixture.commit(&intent, WriteCondition::None).await.expect("committed");
    let upload = UnnamedKey { target: Target::StartingUpload, ..stray(&intent.physical_key, 0) };
    let keys = [stray(&intent.physical_key, 5), upload, stray("b/unnamed~1", 1)];
    let confirmed = fixture.catalog.confirm_unnamed(&backend("disk"), &keys).await.expect("an answer");
    assert_eq!(confirmed, keys[1..]);
}

/// A commit in direct mode names bytes that no row named before.
fn direct_commit(fixture: &Fixture, intent: &s3o_model::intent::Intent) -> CommitPut {
    CommitPut { stored: unannounced(intent), ..fixture.put_of(intent, WriteCondition::None) }
}

/// Its bytes will be deleted.
pub async fn direct_commit_of_a_queued_key_is_refused(fixture: &Fixture) {
    let intent = fixture.intent(fixture.bucket("direct").await, "a", 5);
    assert_eq!(enqueue(fixture, &[stray(&intent.physical_key, 5)]).await.expect("queued").len(), 1);
    refused(fixture.commit_put(direct_commit(fixture, &intent)).await, Verdict::Fenced);
    assert_eq!(fixture.usage().await, (0, 5, 0));
}

/// Its writer was suspended while two passes found the bytes and the cleanup deleted them. Younger keys are committed.
pub async fn direct_commit_of_a_deleted_key_is_refused(fixture: &Fixture) {
    let bucket = fixture.bucket("suspended").await;
    let named = |key: &str| {
        let intent = fixture.intent(bucket, key, 5);
        s3o_model::intent::Intent { physical_key: format!("suspended/{}", intent.physical_key), ..intent }
    };
    let late = named("late");
    assert_eq!(enqueue(fixture, &[stray(&late.physical_key, 5)]).await.expect("queued").len(), 1);
    let (token, claimed) = fixture.claim(9).await;
    fixture.settle(token, &claimed, &s3o_model::cleanup::Outcome::Done).await;
    refused(fixture.commit_put(direct_commit(fixture, &late)).await, Verdict::Fenced);
    let planted = stray("suspended/planted~7fffffffffff70008000000000000001", 1);
    assert_eq!(enqueue(fixture, &[planted]).await.expect("queued").len(), 1);
    fixture.clock.advance(std::time::Duration::from_millis(1));
    fixture.commit_put(direct_commit(fixture, &named("next"))).await.expect("committed");
}

/// Never both: a key would be named by a location and by a cleanup.
pub async fn direct_commit_or_queue_wins(fixture: &Fixture) {
    let bucket = fixture.bucket("race").await;
    for _ in 0..ROUNDS {
        let intent = fixture.intent(bucket, "a", 5);
        let (one, other) = (fixture.clone(), fixture.clone());
        let (commit, key) = (direct_commit(fixture, &intent), stray(&intent.physical_key, 5));
        let outcomes = at_once(vec![
            Box::pin(async move { one.commit_put(commit).await.is_ok() })
                as std::pin::Pin<Box<dyn Future<Output = bool> + Send>>,
            Box::pin(async move { enqueue(&other, &[key]).await.is_ok_and(|queued| !queued.is_empty()) }),
        ])
        .await;
        assert_ne!(outcomes[0], outcomes[1], "one of them gives way");
    }
}
