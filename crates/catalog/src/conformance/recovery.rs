//! Facts about writes whose writer is gone, and about writes that nobody announced.

use std::time::Duration;

use s3o_model::conditions::WriteCondition;
use s3o_model::ids::{BucketId, ClaimToken};
use s3o_model::intent::{DeclaredDigests, Draft, Expired, Intent};

use super::races::both;
use super::scene::{LEASE, Scene, backend, md5_of, unannounced};
use super::{books, refused};
use crate::{CommitPut, Ended, Intents, Objects, Quotas, Verdict};

const WINDOW: Duration = Duration::from_hours(1);

/// A write that can be finished, left by its writer, claimed by a reaper.
async fn left(scene: &Scene, bucket: BucketId, key: &str) -> (Intent, ClaimToken, Expired) {
    let draft = Draft {
        declared: DeclaredDigests { md5: Some(md5_of(scene.content())), ..DeclaredDigests::default() },
        condition: WriteCondition::IfAbsent,
        ..Draft::default()
    };
    let intent = Intent { draft: Some(draft), ..scene.intent(bucket, key, 5) };
    scene.try_stage(&intent).await.expect("staged");
    scene.clock.advance(LEASE);
    let (token, mut claimed) = claim(scene).await;
    assert_eq!(claimed.len(), 1);
    (intent, token, claimed.remove(0))
}

async fn claim(scene: &Scene) -> (ClaimToken, Vec<Expired>) {
    let token = scene.token();
    (token, scene.catalog.claim_expired(token, 9, LEASE).await.expect("claimed"))
}

/// A claimed write comes with all that its object's row needs, and is finished with its bytes in
/// the books.
pub async fn a_left_write_is_finished(scene: &Scene) {
    let bucket = scene.bucket("left").await;
    let (intent, token, expired) = left(scene, bucket, "a").await;
    assert_eq!((&expired.draft, expired.superseded), (&intent.draft, false));
    assert_eq!((expired.bucket_name.as_deref(), expired.age), (Some("left"), LEASE));
    scene.promote(&intent, token).await.expect("promoted");
    assert_eq!(scene.booked().await, (5, 0, 0));
    assert_eq!(scene.queued().await, Vec::<String>::new());
}

/// A claim that was not renewed goes to the next who asks; then nothing its old holder says counts.
pub async fn a_lost_claim_resolves_nothing(scene: &Scene) {
    let bucket = scene.bucket("lost").await;
    let (intent, old, _) = left(scene, bucket, "a").await;
    assert_eq!(claim(scene).await.1, [], "it is claimed");
    scene.wait_almost(LEASE);
    scene.catalog.hold_expired(old, LEASE).await.expect("held");
    scene.wait_almost(LEASE);
    assert_eq!(claim(scene).await.1, [], "it was renewed");
    scene.clock.advance(LEASE);
    let (new, claimed) = claim(scene).await;
    assert_eq!(claimed.len(), 1);
    refused(scene.promote(&intent, old).await, Verdict::Fenced);
    assert!(!scene.catalog.abandon(old, intent.write, WINDOW).await.expect("a look"));
    assert!(!scene.catalog.postpone(old, intent.write, WINDOW).await.expect("a look"));
    assert_eq!(scene.booked().await, (0, 0, 5));
    scene.promote(&intent, new).await.expect("promoted");
    assert!(!scene.catalog.abandon(new, intent.write, WINDOW).await.expect("a look"), "it is resolved");
}

/// Whoever changed the key since and was told so comes later than the write.
pub async fn a_later_change_supersedes_a_left_write(scene: &Scene) {
    let bucket = scene.bucket("later").await;
    for change in ["put", "delete", "delete of nothing", "deletes"] {
        if change == "delete" {
            scene.put(bucket, "a", 2).await;
        }
        let (intent, token, _) = left(scene, bucket, "a").await;
        match change {
            "put" => drop(scene.put(bucket, "a", 3).await),
            "deletes" => {
                let targets = [("a".parse().expect("a key"), None)];
                scene.catalog.delete_objects(bucket, &targets, scene.token()).await.expect("deleted");
            }
            _ => drop(scene.delete(bucket, "a").await),
        }
        refused(scene.promote(&intent, token).await, Verdict::Superseded);
        assert!(scene.catalog.abandon(token, intent.write, WINDOW).await.expect("given up"), "{change}");
        scene.delete(bucket, "a").await;
    }
}

/// The condition of the write holds for its promotion, too.
pub async fn a_left_write_keeps_its_condition(scene: &Scene) {
    let bucket = scene.bucket("condition").await;
    scene.put(bucket, "a", 3).await;
    let (intent, token, _) = left(scene, bucket, "a").await;
    let put = CommitPut { condition: WriteCondition::IfAbsent, ..scene.promotion(&intent, token, 1) };
    refused(scene.catalog.commit_put(put).await, Verdict::PreconditionFailed);
    assert_eq!(scene.booked().await, (3, 0, 5), "nothing changed");
}

/// A write that nobody can judge waits, still fenced, and keeps no other from being resolved.
pub async fn an_unclear_write_waits(scene: &Scene) {
    let bucket = scene.bucket("unclear").await;
    let (intent, token, _) = left(scene, bucket, "a").await;
    assert!(scene.catalog.postpone(token, intent.write, WINDOW).await.expect("left"));
    refused(scene.commit(&intent, WriteCondition::None).await, Verdict::Fenced);
    scene.wait_almost(WINDOW);
    assert_eq!(claim(scene).await.1, []);
    scene.clock.advance(Duration::from_millis(1));
    assert_eq!(claim(scene).await.1.len(), 1);
}

/// A writer that was fenced and comes back queues its bytes only if nothing else names them.
pub async fn bytes_that_were_finished_are_not_queued(scene: &Scene) {
    let bucket = scene.bucket("back").await;
    let (intent, token, _) = left(scene, bucket, "a").await;
    scene.catalog.requeue(&intent, &Ended::default()).await.expect("a look");
    assert_eq!((scene.queued().await, scene.booked().await), (vec![], (0, 0, 5)), "the reaper holds it");
    scene.promote(&intent, token).await.expect("promoted");
    scene.catalog.requeue(&intent, &Ended::default()).await.expect("a look");
    assert_eq!((scene.queued().await, scene.booked().await), (vec![], (5, 0, 0)), "a location names it");
    assert!(scene.delete(bucket, "a").await);
    scene.clean_up().await;
    scene.catalog.requeue(&intent, &Ended::default()).await.expect("queued");
    assert_eq!((scene.queued().await, scene.booked().await), (vec![intent.physical_key], (0, 5, 0)), "nothing does");
}

/// A delete that was answered is never followed by the promotion of a write from before it.
pub async fn promotion_meets_delete(scene: &Scene) {
    let bucket = scene.bucket("race").await;
    for round in 0..40 {
        let (intent, token, _) = left(scene, bucket, "a").await;
        let (ours, theirs, write) = (scene.clone(), scene.clone(), intent.clone());
        let promoting = async move { ours.promote(&write, token).await };
        let deleting = async move { theirs.delete(bucket, "a").await };
        let (promoted, deleted) = both(promoting, deleting, round).await;
        match promoted {
            Ok(_) => assert!(deleted, "round {round}: the object came back"),
            outcome => {
                refused(outcome, Verdict::Superseded);
                assert!(scene.catalog.abandon(token, intent.write, WINDOW).await.expect("given up"));
            }
        }
        assert!(!scene.delete(bucket, "a").await, "round {round}");
        books::check(scene).await;
    }
    scene.clean_up().await;
    assert_eq!(scene.booked().await, (0, 0, 0));
}

/// Bytes that nobody announced are committed within the limit, or not at all.
pub async fn unannounced_bytes_keep_the_limit(scene: &Scene) {
    let bucket = scene.bucket("direct").await;
    scene.catalog.set_limit(&backend("disk"), Some(9)).await.expect("set");
    let direct = |key: &str| {
        let intent = scene.intent(bucket, key, 5);
        (CommitPut { landed: unannounced(&intent), ..scene.put_of(&intent, WriteCondition::None) }, intent)
    };
    let ((first, _), (second, intent)) = (direct("a"), direct("b"));
    scene.catalog.commit_put(first).await.expect("committed");
    refused(scene.catalog.commit_put(second).await, Verdict::NoRoom);
    assert_eq!(scene.booked().await, (5, 0, 0));
    scene
        .catalog
        .requeue(&intent, &Ended { backend_version: Some("v1".to_owned()), ..Ended::default() })
        .await
        .expect("queued");
    assert_eq!((scene.booked().await, scene.queued().await), ((5, 5, 0), vec![intent.physical_key]));
    scene.clean_up().await;
    assert_eq!(scene.booked().await, (5, 0, 0));
}
