//! Tests of writes whose writer is gone, and of writes without an intent.

use std::time::Duration;

use s3o_model::conditions::WriteCondition;
use s3o_model::ids::{BucketId, ClaimToken};
use s3o_model::intent::{DeclaredDigests, Draft, Expired, Intent};

use super::fixture::{Fixture, LEASE, backend, md5_of, unannounced};
use super::races::both;
use super::{quota_usage, refused};
use crate::{CommitPut, Ended, Verdict};

const WINDOW: Duration = Duration::from_hours(1);

/// A write with a draft whose lease expired and which a reaper has claimed.
async fn unfinished_write(fixture: &Fixture, bucket: BucketId, key: &str) -> (Intent, ClaimToken, Expired) {
    let draft = Draft {
        declared: DeclaredDigests { md5: Some(md5_of(fixture.content())), ..DeclaredDigests::default() },
        condition: WriteCondition::IfAbsent,
        ..Draft::default()
    };
    let intent = Intent { draft: Some(draft), ..fixture.intent(bucket, key, 5) };
    fixture.try_stage(&intent).await.expect("staged");
    fixture.clock.advance(LEASE);
    let (token, mut claimed) = claim(fixture).await;
    assert_eq!(claimed.len(), 1);
    (intent, token, claimed.remove(0))
}

async fn claim(fixture: &Fixture) -> (ClaimToken, Vec<Expired>) {
    let token = fixture.token();
    (token, fixture.catalog.claim_expired(token, 9, LEASE).await.expect("claimed"))
}

/// The claim returns all that the row of the object needs.
pub async fn unfinished_write_is_promoted(fixture: &Fixture) {
    let bucket = fixture.bucket("left").await;
    let (intent, token, expired) = unfinished_write(fixture, bucket, "a").await;
    assert_eq!((&expired.draft, expired.superseded), (&intent.draft, false));
    assert_eq!((expired.bucket_name.as_deref(), expired.age), (Some("left"), LEASE));
    fixture.promote(&intent, token).await.expect("promoted");
    assert_eq!(fixture.usage().await, (5, 0, 0));
    assert_eq!(fixture.queued().await, Vec::<String>::new());
}

/// A claim that was not renewed passes to the next reaper, and the old token is refused.
pub async fn lost_claim_resolves_nothing(fixture: &Fixture) {
    let bucket = fixture.bucket("lost").await;
    let (intent, old, _) = unfinished_write(fixture, bucket, "a").await;
    assert_eq!(claim(fixture).await.1, [], "it is claimed");
    fixture.wait_almost(LEASE);
    fixture.catalog.hold_expired(old, LEASE).await.expect("held");
    fixture.wait_almost(LEASE);
    assert_eq!(claim(fixture).await.1, [], "it was renewed");
    fixture.clock.advance(LEASE);
    let (new, claimed) = claim(fixture).await;
    assert_eq!(claimed.len(), 1);
    refused(fixture.promote(&intent, old).await, Verdict::Fenced);
    assert!(!fixture.catalog.abandon(old, intent.write, WINDOW).await.expect("a query"));
    assert!(!fixture.catalog.postpone(old, intent.write, WINDOW).await.expect("a query"));
    assert_eq!(fixture.usage().await, (0, 0, 5));
    fixture.promote(&intent, new).await.expect("promoted");
    assert!(!fixture.catalog.abandon(new, intent.write, WINDOW).await.expect("a query"), "it is resolved");
}

/// This holds for every change that was acknowledged, also for a delete that found nothing.
pub async fn later_change_supersedes_unfinished_write(fixture: &Fixture) {
    let bucket = fixture.bucket("later").await;
    for change in ["put", "delete", "delete of nothing", "deletes"] {
        if change == "delete" {
            fixture.put(bucket, "a", 2).await;
        }
        let (intent, token, _) = unfinished_write(fixture, bucket, "a").await;
        match change {
            "put" => drop(fixture.put(bucket, "a", 3).await),
            "deletes" => {
                let targets = [("a".parse().expect("a key"), None)];
                fixture.catalog.delete_objects(bucket, &targets, fixture.token()).await.expect("deleted");
            }
            _ => drop(fixture.delete(bucket, "a").await),
        }
        refused(fixture.promote(&intent, token).await, Verdict::Superseded);
        assert!(fixture.catalog.abandon(token, intent.write, WINDOW).await.expect("abandoned"), "{change}");
        fixture.delete(bucket, "a").await;
    }
}

/// A refused promotion changes nothing.
pub async fn promotion_checks_the_condition_of_the_write(fixture: &Fixture) {
    let bucket = fixture.bucket("condition").await;
    fixture.put(bucket, "a", 3).await;
    let (intent, token, _) = unfinished_write(fixture, bucket, "a").await;
    let put = CommitPut { condition: WriteCondition::IfAbsent, ..fixture.promotion(&intent, token, 1) };
    refused(fixture.commit_put(put).await, Verdict::PreconditionFailed);
    assert_eq!(fixture.usage().await, (3, 0, 5), "nothing changed");
}

/// It can be claimed again when the delay has passed.
pub async fn postponed_write_stays_fenced(fixture: &Fixture) {
    let bucket = fixture.bucket("unclear").await;
    let (intent, token, _) = unfinished_write(fixture, bucket, "a").await;
    assert!(fixture.catalog.postpone(token, intent.write, WINDOW).await.expect("left"));
    refused(fixture.commit(&intent, WriteCondition::None).await, Verdict::Fenced);
    fixture.wait_almost(WINDOW);
    assert_eq!(claim(fixture).await.1, []);
    fixture.clock.advance(Duration::from_millis(1));
    assert_eq!(claim(fixture).await.1.len(), 1);
}

/// A fenced writer requeues its bytes while the reaper holds the write, while a location names them, and after both.
pub async fn requeue_skips_bytes_that_another_row_names(fixture: &Fixture) {
    let bucket = fixture.bucket("back").await;
    let (intent, token, _) = unfinished_write(fixture, bucket, "a").await;
    fixture.catalog.requeue(&intent.place(), intent.size_bytes, &Ended::default()).await.expect("a query");
    assert_eq!((fixture.queued().await, fixture.usage().await), (vec![], (0, 0, 5)), "the reaper holds it");
    fixture.promote(&intent, token).await.expect("promoted");
    fixture.catalog.requeue(&intent.place(), intent.size_bytes, &Ended::default()).await.expect("a query");
    assert_eq!((fixture.queued().await, fixture.usage().await), (vec![], (5, 0, 0)), "a location names it");
    assert!(fixture.delete(bucket, "a").await);
    fixture.clean_up().await;
    fixture.catalog.requeue(&intent.place(), intent.size_bytes, &Ended::default()).await.expect("queued");
    assert_eq!(
        (fixture.queued().await, fixture.usage().await),
        (vec![intent.physical_key], (0, 5, 0)),
        "nothing names it"
    );
}

/// They run at the same time: the delete removes the promoted object, or the promotion is superseded.
pub async fn promotion_never_follows_an_acknowledged_delete(fixture: &Fixture) {
    let bucket = fixture.bucket("race").await;
    for round in 0..40 {
        let (intent, token, _) = unfinished_write(fixture, bucket, "a").await;
        let (ours, theirs, write) = (fixture.clone(), fixture.clone(), intent.clone());
        let promoting = async move { ours.promote(&write, token).await };
        let deleting = async move { theirs.delete(bucket, "a").await };
        let (promoted, deleted) = both(promoting, deleting, round).await;
        match promoted {
            Ok(_) => assert!(deleted, "round {round}: the object came back"),
            outcome => {
                refused(outcome, Verdict::Superseded);
                assert!(fixture.catalog.abandon(token, intent.write, WINDOW).await.expect("abandoned"));
            }
        }
        assert!(!fixture.delete(bucket, "a").await, "round {round}");
        quota_usage::check(fixture).await;
    }
    fixture.clean_up().await;
    assert_eq!(fixture.usage().await, (0, 0, 0));
}

/// The commit gets `NoSpace`, and the bytes are queued for deletion.
pub async fn write_without_intent_keeps_the_limit(fixture: &Fixture) {
    let bucket = fixture.bucket("direct").await;
    fixture.catalog.set_limit(&backend("disk"), Some(9)).await.expect("set");
    let direct = |key: &str| {
        let intent = fixture.intent(bucket, key, 5);
        (CommitPut { stored: unannounced(&intent), ..fixture.put_of(&intent, WriteCondition::None) }, intent)
    };
    let ((first, _), (second, intent)) = (direct("a"), direct("b"));
    fixture.commit_put(first).await.expect("committed");
    refused(fixture.commit_put(second).await, Verdict::NoSpace);
    assert_eq!(fixture.usage().await, (5, 0, 0));
    fixture
        .catalog
        .requeue(
            &intent.place(),
            intent.size_bytes,
            &Ended { backend_version: Some("v1".to_owned()), ..Ended::default() },
        )
        .await
        .expect("queued");
    assert_eq!((fixture.usage().await, fixture.queued().await), ((5, 5, 0), vec![intent.physical_key]));
    fixture.clean_up().await;
    assert_eq!(fixture.usage().await, (5, 0, 0));
}
