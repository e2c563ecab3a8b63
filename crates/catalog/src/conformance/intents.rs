//! Tests of intents.

use std::time::Duration;

use s3o_model::cleanup::BackendUpload;
use s3o_model::conditions::WriteCondition;
use s3o_model::ids::BucketId;
use s3o_model::intent::Intent;
use s3o_model::target::Target;

use super::fixture::{ContentStanding, Fixture, LEASE, backend};
use super::refused;
use crate::{Ended, Late, Verdict};

const WINDOW: Duration = Duration::from_hours(1);

/// Stages three copies of one write, on three backends.
async fn three_copies(fixture: &Fixture, bucket: BucketId) -> Vec<Intent> {
    let mut intents = vec![fixture.intent(bucket, "a", 5)];
    for name in ["cloud", "tape"] {
        fixture.attach(name, None).await;
        let other = fixture.intent(bucket, "a", 5);
        intents.push(Intent { write: intents[0].write, backend: backend(name), ..other });
    }
    for intent in &intents {
        fixture.try_stage(intent).await.expect("staged");
    }
    intents
}

/// `absent_ok_after` of each cleanup in the queue, in milliseconds.
async fn windows(fixture: &Fixture) -> Vec<Option<i64>> {
    let rows = fixture.rows("SELECT absent_ok_after FROM cleanup_queue ORDER BY id", vec![]).await;
    rows.iter().map(|row| row.opt_int("absent_ok_after").expect("a timestamp")).collect()
}

/// `stage` returns the end of the lease.
pub async fn intent_reserves_its_bytes_for_its_lease(fixture: &Fixture) {
    let bucket = fixture.bucket("hold").await;
    let until = fixture.try_stage(&fixture.intent(bucket, "a", 5)).await.expect("staged");
    assert_eq!(until, fixture.now().after(LEASE));
    assert_eq!(fixture.usage().await, (0, 0, 5));
    assert_eq!(fixture.catalog.depths().await.expect("counted").intents, 1);
}

/// Nothing is reserved there.
pub async fn frozen_draining_or_unknown_backend_refuses_intents(fixture: &Fixture) {
    let bucket = fixture.bucket("closed").await;
    let disk = backend("disk");
    fixture.set_frozen(&disk, Some("another mark")).await;
    refused(fixture.try_stage(&fixture.intent(bucket, "a", 5)).await, Verdict::Closed);
    fixture.set_frozen(&disk, None).await;
    fixture.change("UPDATE backends SET draining = 1", vec![]).await;
    refused(fixture.try_stage(&fixture.intent(bucket, "a", 5)).await, Verdict::Closed);
    let unknown = Intent { backend: backend("unknown"), ..fixture.intent(bucket, "a", 5) };
    refused(fixture.try_stage(&unknown).await, Verdict::Closed);
    assert_eq!((fixture.usage().await, fixture.catalog.depths().await.expect("counted").intents), ((0, 0, 0), 0));
}

/// Freezing the backend refuses only new intents.
pub async fn intent_staged_before_freeze_commits(fixture: &Fixture) {
    let intent = fixture.staged(fixture.bucket("closing").await, "a", 5).await;
    fixture.set_frozen(&backend("disk"), Some("another mark")).await;
    fixture.commit(&intent, WriteCondition::None).await.expect("committed");
}

/// The reaper fences the intent that was not renewed, and its bytes are queued.
pub async fn only_renewed_intents_commit_after_their_lease(fixture: &Fixture) {
    let bucket = fixture.bucket("renew").await;
    let (renewed, left) = (fixture.staged(bucket, "a", 5).await, fixture.staged(bucket, "b", 7).await);
    fixture.wait_almost(LEASE);
    let ends = fixture.catalog.renew(&[renewed.id], LEASE).await.expect("renewed");
    assert_eq!(ends, [(renewed.id, fixture.now().after(LEASE))]);
    assert!(fixture.reap(9, WINDOW).await.is_empty(), "both leases hold");
    fixture.clock.advance(Duration::from_millis(1));
    let fenced = fixture.reap(9, WINDOW).await;
    assert_eq!(fenced.iter().map(|intent| intent.id).collect::<Vec<_>>(), [left.id]);
    assert_eq!((fenced[0].size_bytes, &fenced[0].place), (7, &Some((backend("disk"), left.physical_key.clone()))));
    refused(fixture.commit(&left, WriteCondition::None).await, Verdict::Fenced);
    fixture.commit(&renewed, WriteCondition::None).await.expect("committed");
    assert_eq!((fixture.usage().await, fixture.queued().await), ((5, 7, 0), vec![left.physical_key]));
}

/// Fenced, dropped and committed intents are not, and `note_upload` refuses them.
pub async fn only_open_intents_are_renewed(fixture: &Fixture) {
    let bucket = fixture.bucket("renew").await;
    let fenced = fixture.staged(bucket, "fenced", 5).await;
    fixture.clock.advance(LEASE);
    fixture.reap(9, WINDOW).await;
    let (dropped, committed) =
        (fixture.staged(bucket, "dropped", 5).await, fixture.staged(bucket, "committed", 5).await);
    fixture.catalog.drop_write(dropped.write, Late::No).await.expect("dropped");
    fixture.commit(&committed, WriteCondition::None).await.expect("committed");
    let open = fixture.staged(bucket, "open", 5).await;
    let all = [fenced.id, dropped.id, committed.id, open.id];
    let renewed = fixture.catalog.renew(&all, LEASE).await.expect("renewed");
    assert_eq!(renewed.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [open.id]);
    refused(fixture.catalog.note_upload(fenced.id, &BackendUpload::Starting).await, Verdict::Fenced);
}

/// The reaper claims only an intent that is a millisecond older.
pub async fn lease_holds_to_its_last_millisecond(fixture: &Fixture) {
    let bucket = fixture.bucket("lease").await;
    let older = fixture.staged(bucket, "a", 5).await;
    fixture.clock.advance(Duration::from_millis(1));
    let younger = fixture.staged(bucket, "b", 5).await;
    fixture.wait_almost(LEASE);
    let fenced = fixture.reap(9, WINDOW).await;
    assert_eq!(fenced.iter().map(|intent| intent.id).collect::<Vec<_>>(), [older.id]);
    fixture.commit(&younger, WriteCondition::None).await.expect("committed");
}

/// Renewing, committing and dropping have no effect while the reaper resolves it.
pub async fn aborting_intent_is_fenced_for_its_owner(fixture: &Fixture) {
    let intent = fixture.staged(fixture.bucket("aborting").await, "a", 5).await;
    fixture.change("UPDATE pending_objects SET state = 'aborting'", vec![]).await;
    assert_eq!(fixture.catalog.renew(&[intent.id], LEASE).await.expect("a query"), []);
    refused(fixture.catalog.note_upload(intent.id, &BackendUpload::Starting).await, Verdict::Fenced);
    refused(fixture.commit(&intent, WriteCondition::None).await, Verdict::Fenced);
    assert!(!fixture.catalog.drop_write(intent.write, Late::No).await.expect("a query").was_open);
    assert_eq!((fixture.usage().await, fixture.queued().await), ((0, 0, 5), vec![]));
    fixture.change("UPDATE pending_objects SET state = 'open'", vec![]).await;
}

/// One expired lease is enough. Each copy gets a cleanup whose absence proves nothing before the window ends.
pub async fn copies_of_one_write_are_fenced_together(fixture: &Fixture) {
    let intents = three_copies(fixture, fixture.bucket("copies").await).await;
    fixture.clock.advance(LEASE);
    fixture.catalog.renew(&[intents[0].id, intents[1].id], LEASE).await.expect("renewed");
    let fenced = fixture.reap(1, WINDOW).await;
    assert_eq!(fenced.len(), 3);
    assert_eq!(windows(fixture).await, [Some(fixture.now().after(WINDOW).millis()); 3]);
    for name in ["disk", "cloud", "tape"] {
        let quota_usage = fixture.quota_usage(name).await;
        assert_eq!((quota_usage.orphan_bytes, quota_usage.reserved_bytes), (5, 0), "{name}");
    }
    refused(fixture.commit(&intents[0], WriteCondition::None).await, Verdict::Fenced);
}

/// The limit counts writes.
pub async fn reap_is_bounded_and_takes_oldest_leases_first(fixture: &Fixture) {
    let bucket = fixture.bucket("bounded").await;
    let mut staged = Vec::new();
    for number in 0..5 {
        staged.push(fixture.staged(bucket, &format!("k{number}"), 1).await.id);
        fixture.clock.advance(Duration::from_millis(1));
    }
    fixture.clock.advance(LEASE);
    let mut reaped = Vec::new();
    for expected in [2, 2, 1, 0] {
        let mut fenced = fixture.reap(2, WINDOW).await;
        assert_eq!(fenced.len(), expected);
        fenced.sort_by_key(|intent| intent.id);
        reaped.extend(fenced.into_iter().map(|intent| intent.id));
    }
    assert_eq!(reaped, staged);
}

/// Each copy gets a cleanup. Only a write whose bytes may arrive late has `absent_ok_after`.
pub async fn dropped_write_is_queued_once(fixture: &Fixture) {
    let intents = three_copies(fixture, fixture.bucket("drop").await).await;
    let write = intents[0].write;
    assert!(fixture.catalog.drop_write(write, Late::Within(WINDOW)).await.expect("dropped").was_open);
    assert_eq!(windows(fixture).await, [Some(fixture.now().after(WINDOW).millis()); 3]);
    assert!(!fixture.catalog.drop_write(write, Late::No).await.expect("a query").was_open);
    refused(fixture.commit(&intents[0], WriteCondition::None).await, Verdict::Fenced);
    let known = fixture.staged(intents[0].bucket, "b", 1).await;
    assert!(fixture.catalog.drop_write(known.write, Late::No).await.expect("dropped").was_open);
    assert_eq!(windows(fixture).await[3], None, "its end was known");
    assert_eq!(fixture.number("SELECT count(*) FROM cleanup_queue WHERE reason = 'put_orphan'").await, 4);
}

/// The cleanup needs the ID to abort the upload on the backend. The object has a cleanup of its own.
pub async fn backend_upload_of_intent_is_kept_in_its_cleanup(fixture: &Fixture) {
    let bucket = fixture.bucket("uploads").await;
    let known = [BackendUpload::None, BackendUpload::Starting, BackendUpload::Started("id".to_owned())];
    for upload in &known {
        let intent = fixture.staged(bucket, "a", 1).await;
        fixture.catalog.note_upload(intent.id, upload).await.expect("noted");
        fixture.catalog.drop_write(intent.write, Late::No).await.expect("dropped");
    }
    let (_, mut claimed) = fixture.claim(9).await;
    claimed.sort_by(|one, other| one.target.cmp(&other.target));
    let targets: Vec<_> = claimed.iter().map(|cleanup| (&cleanup.target, cleanup.size_bytes)).collect();
    let upload = Target::Upload("id".to_owned());
    let object = (&Target::Key, 1);
    assert_eq!(targets, [object, object, object, (&upload, 0), (&Target::StartingUpload, 0)]);
}

/// A fenced write that stored its bytes is queued again, whether its first cleanup is still queued or was settled.
pub async fn requeued_write_is_counted_once(fixture: &Fixture) {
    let intent = fixture.staged(fixture.bucket("requeue").await, "a", 5).await;
    fixture.clock.advance(LEASE);
    fixture.reap(9, WINDOW).await;
    for _ in 0..2 {
        let ended = Ended { backend_version: Some("v7".to_owned()), ..Ended::default() };
        fixture.catalog.requeue(&intent.place(), intent.size_bytes, &ended).await.expect("queued");
        assert_eq!((fixture.usage().await, fixture.queued().await.len()), ((0, 5, 0), 1));
    }
    let (token, claimed) = fixture.claim(9).await;
    assert_eq!(claimed[0].target, Target::Version("v7".to_owned()));
    fixture.settle(token, &claimed, &s3o_model::cleanup::Outcome::Done).await;
    assert_eq!(fixture.usage().await, (0, 0, 0));
    fixture.catalog.requeue(&intent.place(), intent.size_bytes, &Ended::default()).await.expect("queued");
    assert_eq!((fixture.usage().await, fixture.queued().await), ((0, 5, 0), vec![intent.physical_key]));
}

/// The worker may have checked the backend before the bytes were stored, so its result is refused.
pub async fn requeue_ends_the_claim_of_the_cleanup(fixture: &Fixture) {
    let intent = fixture.staged(fixture.bucket("requeue").await, "a", 5).await;
    fixture.catalog.drop_write(intent.write, Late::No).await.expect("dropped");
    let (token, claimed) = fixture.claim(9).await;
    fixture.catalog.requeue(&intent.place(), intent.size_bytes, &Ended::default()).await.expect("queued");
    assert_eq!(fixture.settle(token, &claimed, &s3o_model::cleanup::Outcome::DoneAbsent).await, 0);
    assert_eq!(fixture.claim(9).await.1.len(), 1, "it is due again at once");
}

/// Its bytes may still arrive, and it may have left an upload.
pub async fn requeued_write_without_answer_keeps_absent_ok_after(fixture: &Fixture) {
    let intent = fixture.staged(fixture.bucket("requeue").await, "a", 5).await;
    fixture.clock.advance(LEASE);
    fixture.reap(9, WINDOW).await;
    fixture.clock.advance(WINDOW);
    let (token, claimed) = fixture.claim(9).await;
    fixture.settle(token, &claimed, &s3o_model::cleanup::Outcome::DoneAbsent).await;
    let ended = Ended { upload: BackendUpload::Starting, late: Late::Within(WINDOW), ..Ended::default() };
    fixture.catalog.requeue(&intent.place(), intent.size_bytes, &ended).await.expect("queued");
    let (_, mut claimed) = fixture.claim(9).await;
    claimed.sort_by(|one, other| one.target.cmp(&other.target));
    assert_eq!(claimed.iter().map(|row| &row.target).collect::<Vec<_>>(), [&Target::Key, &Target::StartingUpload]);
    assert!(claimed.iter().all(|row| row.absent_ok_after == Some(fixture.now().after(WINDOW))));
}

/// An open one is not either.
pub async fn committed_write_is_not_requeued(fixture: &Fixture) {
    let intent = fixture.staged(fixture.bucket("requeue").await, "a", 5).await;
    fixture.catalog.requeue(&intent.place(), intent.size_bytes, &Ended::default()).await.expect("nothing to do");
    fixture.commit(&intent, WriteCondition::None).await.expect("committed");
    fixture.catalog.requeue(&intent.place(), intent.size_bytes, &Ended::default()).await.expect("nothing to do");
    assert_eq!((fixture.usage().await, fixture.queued().await.len()), ((5, 0, 0), 0));
}

/// Only the reaper reads the flag. A live owner commits, so the last commit wins.
pub async fn superseded_intent_still_commits(fixture: &Fixture) {
    let bucket = fixture.bucket("last").await;
    let slow = fixture.staged(bucket, "a", 5).await;
    let quick = fixture.put(bucket, "a", 7).await;
    fixture.commit(&slow, WriteCondition::None).await.expect("committed");
    assert_eq!(fixture.resolve("last", "a").await.object.expect("there").size_bytes, 5);
    assert_eq!(fixture.standing(quick).await, ContentStanding::Condemned);
}

/// This is for a process that opens the catalog after another one ended.
pub async fn takeover_ends_leases_and_claims(fixture: &Fixture) {
    let bucket = fixture.bucket("takeover").await;
    fixture.put(bucket, "a", 5).await;
    assert!(fixture.delete(bucket, "a").await);
    let (token, claimed) = fixture.claim(9).await;
    let intent = fixture.staged(bucket, "b", 1).await;
    fixture.catalog.take_over().await.expect("taken over");
    assert_eq!(fixture.settle(token, &claimed, &s3o_model::cleanup::Outcome::Done).await, 0);
    assert_eq!(fixture.claim(9).await.1.len(), 1);
    let fenced = fixture.reap(9, WINDOW).await;
    assert_eq!(fenced.iter().map(|fenced| fenced.id).collect::<Vec<_>>(), [intent.id]);
    assert_eq!(fixture.catalog.depths().await.expect("counted").intents, 0);
}
