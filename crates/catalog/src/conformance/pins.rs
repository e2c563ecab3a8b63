//! Facts about content that an intent holds: nothing is written for it, and nobody takes it away.

use std::time::Duration;

use s3o_model::ids::BucketId;
use s3o_model::intent::IntentKind;

use super::races::{ROUNDS, both, nothing_leaks};
use super::scene::sharing::BODY_BYTES;
use super::scene::{LEASE, Scene, Standing};
use super::{books, refused};
use crate::{Buckets, Intents, Landed, Late, PartSource, Pin, Uploads, Verdict};

/// A pin is a reference, takes no room, and becomes the object's.
pub async fn a_pinned_write_moves_no_byte(scene: &Scene) {
    let bucket = scene.bucket("pin").await;
    let content = scene.share(bucket, "a", 1).await;
    let (pin, held) = scene.pinned(bucket, "b", 1).await;
    assert_eq!((held.content, held.until.since(scene.now())), (content, LEASE));
    assert_eq!((scene.standing(content).await, scene.booked().await), (Standing::Live(2), (5, 0, 0)));
    books::check(scene).await;
    scene.commit_pinned(&pin, content).await.expect("committed");
    assert_eq!((scene.content_of(bucket, "b").await, scene.standing(content).await), (content, Standing::Live(2)));
    assert_eq!((scene.queued().await.len(), scene.booked().await), (0, (5, 0, 0)));
    assert_eq!(scene.catalog.intents_depth().await.expect("a count"), 0);
}

/// An object that is overwritten by what it is, without a byte written.
pub async fn a_pinned_overwrite_keeps_the_count(scene: &Scene) {
    let bucket = scene.bucket("pin").await;
    let content = scene.share(bucket, "a", 1).await;
    let (pin, _) = scene.pinned(bucket, "a", 1).await;
    scene.commit_pinned(&pin, content).await.expect("committed");
    assert_eq!((scene.standing(content).await, scene.queued().await.len()), (Standing::Live(1), 0));
    let other = scene.share(bucket, "b", 2).await;
    let (pin, _) = scene.pinned(bucket, "a", 2).await;
    scene.commit_pinned(&pin, other).await.expect("committed");
    assert_eq!((scene.standing(content).await, scene.standing(other).await), (Standing::Condemned, Standing::Live(2)));
}

/// Only live content of the bucket with a good copy is pinned.
pub async fn only_good_content_is_pinned(scene: &Scene) {
    let (bucket, other) = (scene.bucket("one").await, scene.bucket("other").await);
    let content = scene.share(bucket, "a", 1).await;
    let unknown = [
        scene.pin_of(bucket, "b", 2),
        scene.pin_of(other, "b", 1),
        Pin { size_bytes: BODY_BYTES + 1, ..scene.pin_of(bucket, "b", 1) },
    ];
    for pin in unknown {
        assert_eq!(scene.catalog.pin(&pin).await.expect("a look"), None);
    }
    for state in ["suspect", "lost"] {
        scene.call(content, state).await;
        assert_eq!(scene.catalog.pin(&scene.pin_of(bucket, "b", 1)).await.expect("a look"), None);
    }
    scene.call(content, "present").await;
    assert!(scene.delete(bucket, "a").await);
    assert_eq!(scene.catalog.pin(&scene.pin_of(bucket, "b", 1)).await.expect("a look"), None);
    assert_eq!(scene.catalog.intents_depth().await.expect("a count"), 0);
}

/// What is pinned outlives its last object; whoever gives the pin up condemns it.
pub async fn a_pin_given_up_was_the_last(scene: &Scene) {
    let bucket = scene.bucket("pin").await;
    let content = scene.share(bucket, "a", 1).await;
    let (pin, _) = scene.pinned(bucket, "b", 1).await;
    let (second, _) = scene.pinned(bucket, "c", 1).await;
    assert!(scene.delete(bucket, "a").await);
    assert_eq!((scene.standing(content).await, scene.booked().await), (Standing::Live(2), (5, 0, 0)));
    assert!(scene.catalog.drop_write(pin.write, Late::No).await.expect("given up").was_open);
    assert_eq!(scene.standing(content).await, Standing::Live(1));
    assert!(scene.catalog.drop_write(second.write, Late::No).await.expect("given up").was_open);
    assert_eq!((scene.standing(content).await, scene.booked().await), (Standing::Condemned, (0, 5, 0)));
    assert!(!scene.catalog.drop_write(second.write, Late::No).await.expect("a look").was_open);
    nothing_leaks(scene, bucket).await;
}

/// A pin whose owner is gone is let go of by the reaper, who condemns what it was the last to hold.
pub async fn a_left_pin_is_let_go(scene: &Scene) {
    let bucket = scene.bucket("pin").await;
    let content = scene.share(bucket, "a", 1).await;
    let (pin, _) = scene.pinned(bucket, "b", 1).await;
    assert!(scene.delete(bucket, "a").await);
    scene.clock.advance(LEASE);
    let left = scene.reap(9, Duration::from_hours(1)).await;
    assert!(left.len() == 1 && left[0].place.is_none() && left[0].write == pin.write, "{left:?}");
    assert_eq!((scene.standing(content).await, scene.queued().await.len()), (Standing::Condemned, 1));
    refused(scene.commit_pinned(&pin, content).await, Verdict::Fenced);
    assert!(scene.resolve("pin", "b").await.object.is_none());
}

/// A pin that was fenced commits nothing, though its content lives on.
pub async fn a_fenced_pin_commits_nothing(scene: &Scene) {
    let bucket = scene.bucket("pin").await;
    let content = scene.share(bucket, "a", 1).await;
    let (pin, _) = scene.pinned(bucket, "b", 1).await;
    scene.clock.advance(LEASE);
    let token = scene.claim_left(1).await;
    refused(scene.commit_pinned(&pin, content).await, Verdict::Fenced);
    assert!(scene.catalog.abandon(token, pin.write, Duration::ZERO).await.expect("given up"));
    refused(scene.commit_pinned(&pin, content).await, Verdict::Fenced);
    assert_eq!((scene.standing(content).await, scene.queued().await.len()), (Standing::Live(1), 0));
}

/// Copies that turned out bad since they were pinned are not what a write is acknowledged with.
pub async fn a_pin_on_bytes_that_went_bad_is_refused(scene: &Scene) {
    let bucket = scene.bucket("pin").await;
    let content = scene.share(bucket, "a", 1).await;
    let (pin, _) = scene.pinned(bucket, "b", 1).await;
    scene.call(content, "suspect").await;
    refused(scene.commit_pinned(&pin, content).await, Verdict::ResolveAgain);
    assert!(scene.resolve("pin", "b").await.object.is_none());
    assert!(scene.catalog.drop_write(pin.write, Late::No).await.expect("given up").was_open);
    assert_eq!(scene.standing(content).await, Standing::Live(1));
}

/// A bucket that is gone takes no pin.
pub async fn a_pin_finds_its_bucket_gone(scene: &Scene) {
    let (bucket, other) = (scene.bucket("pin").await, scene.bucket("other").await);
    let content = scene.share(bucket, "a", 1).await;
    scene.copy((content, BODY_BYTES), other, "a").await.expect("copied");
    let (pin, _) = scene.pinned(bucket, "b", 1).await;
    assert!(scene.delete(bucket, "a").await);
    scene.catalog.delete_bucket(bucket).await.expect("deleted");
    refused(scene.catalog.pin(&scene.pin_of(bucket, "c", 1)).await, Verdict::NoSuchBucket);
    refused(scene.commit_pinned(&pin, content).await, Verdict::NoSuchBucket);
    assert!(scene.catalog.drop_write(pin.write, Late::No).await.expect("given up").was_open);
    assert_eq!(scene.standing(content).await, Standing::Live(1));
}

/// A part is pinned like an object, as long as its upload is open.
pub async fn a_part_is_pinned_while_its_upload_is_open(scene: &Scene) {
    let bucket = scene.bucket("pin").await;
    let content = scene.share(bucket, "a", 1).await;
    let upload = scene.upload(bucket, "b").await;
    let part = Pin { kind: IntentKind::Part { upload, number: 1 }, ..scene.pin_of(bucket, "b", 1) };
    assert!(scene.catalog.pin(&part).await.expect("a look").is_some());
    let landed = Landed::Pinned { write: part.write, content };
    let source = PartSource::Written { landed, sha256: Some(part.sha256), dedup: Some(bucket) };
    let commit = scene.part_of(upload, 1, (scene.content(), BODY_BYTES), source);
    scene.catalog.commit_part(commit).await.expect("committed");
    assert_eq!((scene.standing(content).await, scene.booked().await), (Standing::Live(2), (5, 0, 0)));
    scene.complete(upload, &[(1, content)]).await.expect("completed");
    let late = Pin { kind: IntentKind::Part { upload, number: 2 }, ..scene.pin_of(bucket, "b", 1) };
    refused(scene.catalog.pin(&late).await, Verdict::NoSuchUpload);
    nothing_leaks(scene, bucket).await;
}

async fn pin_and_commit(scene: Scene, bucket: BucketId) -> bool {
    let pin = scene.pin_of(bucket, "b", 1);
    match scene.catalog.pin(&pin).await.expect("a look") {
        Some(held) => scene.commit_pinned(&pin, held.content).await.map(drop).expect("what is held stays"),
        None => return false,
    }
    true
}

/// A pin against the last delete of its content: what was pinned is readable, or nothing was pinned.
pub async fn a_pin_meets_the_last_delete(scene: &Scene) {
    let bucket = scene.bucket("race").await;
    for round in 0..ROUNDS {
        let content = scene.share(bucket, "a", 1).await;
        let theirs = scene.clone();
        let delete = async move { theirs.delete(bucket, "a").await };
        let (pinned, deleted) = both(pin_and_commit(scene.clone(), bucket), delete, round).await;
        assert!(deleted);
        let expected = if pinned { Standing::Live(1) } else { Standing::Condemned };
        assert_eq!(scene.standing(content).await, expected);
        books::check(scene).await;
        nothing_leaks(scene, bucket).await;
    }
}

/// A pin against the reaper of another on the same content: each lets go of its own.
pub async fn pins_are_let_go_one_by_one(scene: &Scene) {
    let bucket = scene.bucket("race").await;
    for round in 0..ROUNDS {
        let content = scene.share(bucket, "a", 1).await;
        let (dead, _) = scene.pinned(bucket, "b", 1).await;
        scene.clock.advance(LEASE);
        let (pin, _) = scene.pinned(bucket, "c", 1).await;
        assert!(scene.delete(bucket, "a").await);
        let (ours, theirs, write) = (scene.clone(), scene.clone(), pin.write);
        let give_up = async move { ours.catalog.drop_write(write, Late::No).await.expect("given up").was_open };
        let reap = async move { theirs.reap(9, Duration::ZERO).await };
        let (open, reaped) = both(give_up, reap, round).await;
        assert!(open && reaped.len() == 1 && reaped[0].write == dead.write, "{reaped:?}");
        assert_eq!(scene.standing(content).await, Standing::Condemned);
        nothing_leaks(scene, bucket).await;
    }
}
