//! Facts about intents.

use std::time::Duration;

use s3o_model::cleanup::BackendUpload;
use s3o_model::conditions::WriteCondition;
use s3o_model::ids::BucketId;
use s3o_model::intent::Intent;

use super::refused;
use super::scene::{LEASE, Scene, Standing, backend};
use crate::{Cleanups, Ended, Identities, Intents, Late, Verdict};

const WINDOW: Duration = Duration::from_hours(1);

/// Three copies of one write, on three backends.
async fn three_copies(scene: &Scene, bucket: BucketId) -> Vec<Intent> {
    let mut intents = vec![scene.intent(bucket, "a", 5)];
    for name in ["cloud", "tape"] {
        scene.attach(name, None).await;
        let other = scene.intent(bucket, "a", 5);
        intents.push(Intent { write: intents[0].write, backend: backend(name), ..other });
    }
    for intent in &intents {
        scene.try_stage(intent).await.expect("staged");
    }
    intents
}

/// When absence proves something, for each cleanup in the queue.
async fn windows(scene: &Scene) -> Vec<Option<i64>> {
    let rows = scene.rows("SELECT absent_ok_after FROM cleanup_queue ORDER BY id", vec![]).await;
    rows.iter().map(|row| row.opt_int(0).expect("a moment")).collect()
}

/// An intent reserves its room and holds for its lease.
pub async fn an_intent_reserves_and_holds(scene: &Scene) {
    let bucket = scene.bucket("hold").await;
    let until = scene.try_stage(&scene.intent(bucket, "a", 5)).await.expect("staged");
    assert_eq!(until, scene.now().after(LEASE));
    assert_eq!(scene.booked().await, (0, 0, 5));
    assert_eq!(scene.catalog.intents_depth().await.expect("counted"), 1);
}

/// A backend that is frozen, draining or unknown takes no writes, and keeps nothing reserved.
pub async fn a_closed_backend_takes_no_writes(scene: &Scene) {
    let bucket = scene.bucket("closed").await;
    let disk = backend("disk");
    scene.catalog.set_frozen(&disk, Some("another mark")).await.expect("frozen");
    refused(scene.try_stage(&scene.intent(bucket, "a", 5)).await, Verdict::Closed);
    scene.catalog.set_frozen(&disk, None).await.expect("thawed");
    scene.change("UPDATE backends SET draining = 1", vec![]).await;
    refused(scene.try_stage(&scene.intent(bucket, "a", 5)).await, Verdict::Closed);
    let unknown = Intent { backend: backend("unknown"), ..scene.intent(bucket, "a", 5) };
    refused(scene.try_stage(&unknown).await, Verdict::Closed);
    assert_eq!((scene.booked().await, scene.catalog.intents_depth().await.expect("counted")), ((0, 0, 0), 0));
}

/// A write that was announced before its backend closed may still be committed.
pub async fn a_backend_that_closes_lets_writes_end(scene: &Scene) {
    let intent = scene.staged(scene.bucket("closing").await, "a", 5).await;
    scene.catalog.set_frozen(&backend("disk"), Some("another mark")).await.expect("frozen");
    scene.commit(&intent, WriteCondition::None).await.expect("committed");
}

/// A renewed intent outlives its first lease and commits; one that was not renewed is fenced.
pub async fn only_renewed_intents_commit(scene: &Scene) {
    let bucket = scene.bucket("renew").await;
    let (renewed, left) = (scene.staged(bucket, "a", 5).await, scene.staged(bucket, "b", 7).await);
    scene.wait_almost(LEASE);
    let ends = scene.catalog.renew(&[renewed.id], LEASE).await.expect("renewed");
    assert_eq!(ends, [(renewed.id, scene.now().after(LEASE))]);
    assert!(scene.reap(9, WINDOW).await.is_empty(), "both leases hold");
    scene.clock.advance(Duration::from_millis(1));
    let fenced = scene.reap(9, WINDOW).await;
    assert_eq!(fenced.iter().map(|intent| intent.id).collect::<Vec<_>>(), [left.id]);
    assert_eq!((fenced[0].size_bytes, &fenced[0].place), (7, &Some((backend("disk"), left.physical_key.clone()))));
    refused(scene.commit(&left, WriteCondition::None).await, Verdict::Fenced);
    scene.commit(&renewed, WriteCondition::None).await.expect("committed");
    assert_eq!((scene.booked().await, scene.queued().await), ((5, 7, 0), vec![left.physical_key]));
}

/// What was fenced, dropped or committed cannot be renewed.
pub async fn only_open_intents_are_renewed(scene: &Scene) {
    let bucket = scene.bucket("renew").await;
    let fenced = scene.staged(bucket, "fenced", 5).await;
    scene.clock.advance(LEASE);
    scene.reap(9, WINDOW).await;
    let (dropped, committed) = (scene.staged(bucket, "dropped", 5).await, scene.staged(bucket, "committed", 5).await);
    scene.catalog.drop_write(dropped.write, Late::No).await.expect("dropped");
    scene.commit(&committed, WriteCondition::None).await.expect("committed");
    let open = scene.staged(bucket, "open", 5).await;
    let all = [fenced.id, dropped.id, committed.id, open.id];
    let renewed = scene.catalog.renew(&all, LEASE).await.expect("renewed");
    assert_eq!(renewed.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [open.id]);
    refused(scene.catalog.note_upload(fenced.id, &BackendUpload::Starting).await, Verdict::Fenced);
}

/// A lease holds to its last millisecond, though another one has just ended.
pub async fn a_lease_holds_to_its_end(scene: &Scene) {
    let bucket = scene.bucket("lease").await;
    let older = scene.staged(bucket, "a", 5).await;
    scene.clock.advance(Duration::from_millis(1));
    let younger = scene.staged(bucket, "b", 5).await;
    scene.wait_almost(LEASE);
    let fenced = scene.reap(9, WINDOW).await;
    assert_eq!(fenced.iter().map(|intent| intent.id).collect::<Vec<_>>(), [older.id]);
    scene.commit(&younger, WriteCondition::None).await.expect("committed");
}

/// An intent that is being resolved is its owner's no more, though its row still stands.
pub async fn an_aborting_intent_has_lost_its_owner(scene: &Scene) {
    let intent = scene.staged(scene.bucket("aborting").await, "a", 5).await;
    scene.change("UPDATE pending_objects SET state = 'aborting'", vec![]).await;
    assert_eq!(scene.catalog.renew(&[intent.id], LEASE).await.expect("asked"), []);
    refused(scene.catalog.note_upload(intent.id, &BackendUpload::Starting).await, Verdict::Fenced);
    refused(scene.commit(&intent, WriteCondition::None).await, Verdict::Fenced);
    assert!(!scene.catalog.drop_write(intent.write, Late::No).await.expect("asked").was_open);
    assert_eq!((scene.booked().await, scene.queued().await), ((0, 0, 5), vec![]));
    scene.change("UPDATE pending_objects SET state = 'open'", vec![]).await;
}

/// Copies of one write are fenced together, though only one lease ran out, and each becomes a
/// cleanup whose absence proves nothing before the window ends.
pub async fn copies_are_fenced_together(scene: &Scene) {
    let intents = three_copies(scene, scene.bucket("copies").await).await;
    scene.clock.advance(LEASE);
    scene.catalog.renew(&[intents[0].id, intents[1].id], LEASE).await.expect("renewed");
    let fenced = scene.reap(1, WINDOW).await;
    assert_eq!(fenced.len(), 3);
    assert_eq!(windows(scene).await, [Some(scene.now().after(WINDOW).millis()); 3]);
    for name in ["disk", "cloud", "tape"] {
        let books = scene.books(name).await;
        assert_eq!((books.orphan_bytes, books.reserved_bytes), (5, 0), "{name}");
    }
    refused(scene.commit(&intents[0], WriteCondition::None).await, Verdict::Fenced);
}

/// One reap takes no more writes than it was told to, the oldest leases first.
pub async fn a_reap_is_bounded(scene: &Scene) {
    let bucket = scene.bucket("bounded").await;
    let mut staged = Vec::new();
    for number in 0..5 {
        staged.push(scene.staged(bucket, &format!("k{number}"), 1).await.id);
        scene.clock.advance(Duration::from_millis(1));
    }
    scene.clock.advance(LEASE);
    let mut reaped = Vec::new();
    for expected in [2, 2, 1, 0] {
        let mut fenced = scene.reap(2, WINDOW).await;
        assert_eq!(fenced.len(), expected);
        fenced.sort_by_key(|intent| intent.id);
        reaped.extend(fenced.into_iter().map(|intent| intent.id));
    }
    assert_eq!(reaped, staged);
}

/// A write that was given up becomes cleanups, once.
pub async fn a_write_is_dropped_once(scene: &Scene) {
    let intents = three_copies(scene, scene.bucket("drop").await).await;
    let write = intents[0].write;
    assert!(scene.catalog.drop_write(write, Late::Within(WINDOW)).await.expect("dropped").was_open);
    assert_eq!(windows(scene).await, [Some(scene.now().after(WINDOW).millis()); 3]);
    assert!(!scene.catalog.drop_write(write, Late::No).await.expect("asked").was_open);
    refused(scene.commit(&intents[0], WriteCondition::None).await, Verdict::Fenced);
    let known = scene.staged(intents[0].bucket, "b", 1).await;
    assert!(scene.catalog.drop_write(known.write, Late::No).await.expect("dropped").was_open);
    assert_eq!(windows(scene).await[3], None, "its end was known");
    assert_eq!(scene.number("SELECT count(*) FROM cleanup_queue WHERE reason = 'put_orphan'").await, 4);
}

/// What is known of a backend upload goes with the intent into its cleanup.
pub async fn what_is_known_of_an_upload_reaches_cleanup(scene: &Scene) {
    let bucket = scene.bucket("uploads").await;
    let known = [BackendUpload::None, BackendUpload::Starting, BackendUpload::Started("id".to_owned())];
    for upload in &known {
        let intent = scene.staged(bucket, "a", 1).await;
        scene.catalog.note_upload(intent.id, upload).await.expect("noted");
        scene.catalog.drop_write(intent.write, Late::No).await.expect("dropped");
    }
    let (_, mut claimed) = scene.claim(9).await;
    claimed.sort_by_key(|cleanup| cleanup.id);
    assert_eq!(claimed.into_iter().map(|cleanup| cleanup.upload).collect::<Vec<_>>(), known);
}

/// A fenced write that ended after all is queued again, and booked exactly once, whether its
/// first cleanup still stands or was settled.
pub async fn a_requeued_write_is_booked_once(scene: &Scene) {
    let intent = scene.staged(scene.bucket("requeue").await, "a", 5).await;
    scene.clock.advance(LEASE);
    scene.reap(9, WINDOW).await;
    for _ in 0..2 {
        let ended = Ended { backend_version: Some("v7".to_owned()), ..Ended::default() };
        scene.catalog.requeue(&intent, &ended).await.expect("queued");
        assert_eq!((scene.booked().await, scene.queued().await.len()), ((0, 5, 0), 1));
    }
    let (token, claimed) = scene.claim(9).await;
    assert_eq!(claimed[0].backend_version.as_deref(), Some("v7"));
    scene.settle(token, &claimed, &s3o_model::cleanup::Outcome::Done).await;
    assert_eq!(scene.booked().await, (0, 0, 0));
    scene.catalog.requeue(&intent, &Ended::default()).await.expect("queued");
    assert_eq!((scene.booked().await, scene.queued().await), ((0, 5, 0), vec![intent.physical_key]));
}

/// Who claimed the first cleanup may have looked before the bytes landed: its answer is void.
pub async fn a_requeue_ends_the_claim(scene: &Scene) {
    let intent = scene.staged(scene.bucket("requeue").await, "a", 5).await;
    scene.catalog.drop_write(intent.write, Late::No).await.expect("dropped");
    let (token, claimed) = scene.claim(9).await;
    scene.catalog.requeue(&intent, &Ended::default()).await.expect("queued");
    assert_eq!(scene.settle(token, &claimed, &s3o_model::cleanup::Outcome::DoneAbsent).await, 0);
    assert_eq!(scene.claim(9).await.1.len(), 1, "it is looked at again, at once");
}

/// A write that ended without an answer may still land, and may have left an upload.
pub async fn a_requeued_write_is_waited_for(scene: &Scene) {
    let intent = scene.staged(scene.bucket("requeue").await, "a", 5).await;
    scene.clock.advance(LEASE);
    scene.reap(9, WINDOW).await;
    scene.clock.advance(WINDOW);
    let (token, claimed) = scene.claim(9).await;
    scene.settle(token, &claimed, &s3o_model::cleanup::Outcome::DoneAbsent).await;
    let ended = Ended { upload: BackendUpload::Starting, late: Late::Within(WINDOW), ..Ended::default() };
    scene.catalog.requeue(&intent, &ended).await.expect("queued");
    let (_, claimed) = scene.claim(9).await;
    assert_eq!(claimed[0].upload, BackendUpload::Starting);
    assert_eq!(claimed[0].absent_ok_after, Some(scene.now().after(WINDOW)));
}

/// A write that was committed after all is in use.
pub async fn a_committed_write_is_not_requeued(scene: &Scene) {
    let intent = scene.staged(scene.bucket("requeue").await, "a", 5).await;
    scene.catalog.requeue(&intent, &Ended::default()).await.expect("nothing to do");
    scene.commit(&intent, WriteCondition::None).await.expect("committed");
    scene.catalog.requeue(&intent, &Ended::default()).await.expect("nothing to do");
    assert_eq!((scene.booked().await, scene.queued().await.len()), ((5, 0, 0), 0));
}

/// The flag of a later change is for the reaper; a live owner commits, so the last commit wins.
pub async fn a_superseded_owner_still_commits(scene: &Scene) {
    let bucket = scene.bucket("last").await;
    let slow = scene.staged(bucket, "a", 5).await;
    let quick = scene.put(bucket, "a", 7).await;
    scene.commit(&slow, WriteCondition::None).await.expect("committed");
    assert_eq!(scene.resolve("last", "a").await.object.expect("there").size_bytes, 5);
    assert_eq!(scene.standing(quick).await, Standing::Condemned);
}

/// A process that takes a catalog over ends the leases and claims of the one before it.
pub async fn a_takeover_ends_leases_and_claims(scene: &Scene) {
    let bucket = scene.bucket("takeover").await;
    scene.put(bucket, "a", 5).await;
    assert!(scene.delete(bucket, "a").await);
    let (token, claimed) = scene.claim(9).await;
    let intent = scene.staged(bucket, "b", 1).await;
    scene.catalog.take_over().await.expect("taken over");
    assert_eq!(scene.settle(token, &claimed, &s3o_model::cleanup::Outcome::Done).await, 0);
    assert_eq!(scene.claim(9).await.1.len(), 1);
    let fenced = scene.reap(9, WINDOW).await;
    assert_eq!(fenced.iter().map(|fenced| fenced.id).collect::<Vec<_>>(), [intent.id]);
    assert_eq!(scene.catalog.depths().await.expect("counted").intents, 0);
}
