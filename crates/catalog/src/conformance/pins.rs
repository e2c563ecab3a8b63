//! Tests of pins: intents that refer to known content instead of writing bytes.

use std::time::Duration;

use s3o_model::ids::BucketId;
use s3o_model::intent::IntentKind;

use super::fixture::sharing::{BODY_BYTES, PinRequest};
use super::fixture::{ContentStanding, Fixture, LEASE};
use super::races::{ROUNDS, assert_nothing_leaks, both};
use super::{quota_usage, refused};
use crate::{ContentPlan, Late, PartSource, StoredBytes, Verdict};

/// The pin counts as a reference, which the commit hands over to the object.
pub async fn pinned_write_uses_no_quota(fixture: &Fixture) {
    let bucket = fixture.bucket("pin").await;
    let content = fixture.share(bucket, "a", 1).await;
    let (pin, held) = fixture.pinned(bucket, "b", 1).await;
    assert_eq!((held.content, held.until.since(fixture.now())), (content, LEASE));
    assert_eq!((fixture.standing(content).await, fixture.usage().await), (ContentStanding::Live(2), (5, 0, 0)));
    quota_usage::check(fixture).await;
    fixture.commit_pinned(&pin, content).await.expect("committed");
    assert_eq!(
        (fixture.content_of(bucket, "b").await, fixture.standing(content).await),
        (content, ContentStanding::Live(2))
    );
    assert_eq!((fixture.queued().await.len(), fixture.usage().await), (0, (5, 0, 0)));
    assert_eq!(fixture.catalog.depths().await.expect("a count").intents, 0);
}

/// This holds if the object had the same content before; other content is released.
pub async fn pinned_overwrite_keeps_the_reference_count(fixture: &Fixture) {
    let bucket = fixture.bucket("pin").await;
    let content = fixture.share(bucket, "a", 1).await;
    let (pin, _) = fixture.pinned(bucket, "a", 1).await;
    fixture.commit_pinned(&pin, content).await.expect("committed");
    assert_eq!((fixture.standing(content).await, fixture.queued().await.len()), (ContentStanding::Live(1), 0));
    let other = fixture.share(bucket, "b", 2).await;
    let (pin, _) = fixture.pinned(bucket, "a", 2).await;
    fixture.commit_pinned(&pin, other).await.expect("committed");
    assert_eq!(
        (fixture.standing(content).await, fixture.standing(other).await),
        (ContentStanding::Condemned, ContentStanding::Live(2))
    );
}

/// The bucket, the digest and the size have to match.
pub async fn only_live_content_with_a_good_copy_is_pinned(fixture: &Fixture) {
    let (bucket, other) = (fixture.bucket("one").await, fixture.bucket("other").await);
    let content = fixture.share(bucket, "a", 1).await;
    let unknown = [
        fixture.pin_of(bucket, "b", 2),
        fixture.pin_of(other, "b", 1),
        PinRequest { size_bytes: BODY_BYTES + 1, ..fixture.pin_of(bucket, "b", 1) },
    ];
    for pin in unknown {
        assert_eq!(fixture.pin(&pin).await.expect("a query"), None);
    }
    for state in ["suspect", "lost"] {
        fixture.set_copy_states(content, state).await;
        assert_eq!(fixture.pin(&fixture.pin_of(bucket, "b", 1)).await.expect("a query"), None);
    }
    fixture.set_copy_states(content, "present").await;
    assert!(fixture.delete(bucket, "a").await);
    assert_eq!(fixture.pin(&fixture.pin_of(bucket, "b", 1)).await.expect("a query"), None);
    assert_eq!(fixture.catalog.depths().await.expect("a count").intents, 0);
}

/// Pins keep content live after its last object was deleted.
pub async fn dropping_the_last_pin_condemns_the_content(fixture: &Fixture) {
    let bucket = fixture.bucket("pin").await;
    let content = fixture.share(bucket, "a", 1).await;
    let (pin, _) = fixture.pinned(bucket, "b", 1).await;
    let (second, _) = fixture.pinned(bucket, "c", 1).await;
    assert!(fixture.delete(bucket, "a").await);
    assert_eq!((fixture.standing(content).await, fixture.usage().await), (ContentStanding::Live(2), (5, 0, 0)));
    assert!(fixture.catalog.drop_write(pin.write, Late::No).await.expect("dropped").was_open);
    assert_eq!(fixture.standing(content).await, ContentStanding::Live(1));
    assert!(fixture.catalog.drop_write(second.write, Late::No).await.expect("dropped").was_open);
    assert_eq!((fixture.standing(content).await, fixture.usage().await), (ContentStanding::Condemned, (0, 5, 0)));
    assert!(!fixture.catalog.drop_write(second.write, Late::No).await.expect("a query").was_open);
    assert_nothing_leaks(fixture, bucket).await;
}

/// Content without another reference is condemned, and the commit of the pin is fenced.
pub async fn reaper_releases_expired_pin(fixture: &Fixture) {
    let bucket = fixture.bucket("pin").await;
    let content = fixture.share(bucket, "a", 1).await;
    let (pin, _) = fixture.pinned(bucket, "b", 1).await;
    assert!(fixture.delete(bucket, "a").await);
    fixture.clock.advance(LEASE);
    let left = fixture.reap(9, Duration::from_hours(1)).await;
    assert!(left.len() == 1 && left[0].place.is_none() && left[0].write == pin.write, "{left:?}");
    assert_eq!((fixture.standing(content).await, fixture.queued().await.len()), (ContentStanding::Condemned, 1));
    refused(fixture.commit_pinned(&pin, content).await, Verdict::Fenced);
    assert!(fixture.resolve("pin", "b").await.object.is_none());
}

/// Its content stays live, because an object refers to it.
pub async fn fenced_pin_does_not_commit(fixture: &Fixture) {
    let bucket = fixture.bucket("pin").await;
    let content = fixture.share(bucket, "a", 1).await;
    let (pin, _) = fixture.pinned(bucket, "b", 1).await;
    fixture.clock.advance(LEASE);
    let token = fixture.claim_expired_writes(1).await;
    refused(fixture.commit_pinned(&pin, content).await, Verdict::Fenced);
    assert!(fixture.catalog.abandon(token, pin.write, Duration::ZERO).await.expect("abandoned"));
    refused(fixture.commit_pinned(&pin, content).await, Verdict::Fenced);
    assert_eq!((fixture.standing(content).await, fixture.queued().await.len()), (ContentStanding::Live(1), 0));
}

/// The copies became suspect between pin and commit.
pub async fn pin_on_suspect_copies_is_refused(fixture: &Fixture) {
    let bucket = fixture.bucket("pin").await;
    let content = fixture.share(bucket, "a", 1).await;
    let (pin, _) = fixture.pinned(bucket, "b", 1).await;
    fixture.set_copy_states(content, "suspect").await;
    refused(fixture.commit_pinned(&pin, content).await, Verdict::ResolveAgain);
    assert!(fixture.resolve("pin", "b").await.object.is_none());
    assert!(fixture.catalog.drop_write(pin.write, Late::No).await.expect("dropped").was_open);
    assert_eq!(fixture.standing(content).await, ContentStanding::Live(1));
}

/// New pins and the commit of an earlier one get `NoSuchBucket`.
pub async fn pin_in_deleted_bucket_is_refused(fixture: &Fixture) {
    let (bucket, other) = (fixture.bucket("pin").await, fixture.bucket("other").await);
    let content = fixture.share(bucket, "a", 1).await;
    fixture.copy((content, BODY_BYTES), other, "a").await.expect("copied");
    let (pin, _) = fixture.pinned(bucket, "b", 1).await;
    assert!(fixture.delete(bucket, "a").await);
    fixture.catalog.delete_bucket(bucket).await.expect("deleted");
    refused(fixture.pin(&fixture.pin_of(bucket, "c", 1)).await, Verdict::NoSuchBucket);
    refused(fixture.commit_pinned(&pin, content).await, Verdict::NoSuchBucket);
    assert!(fixture.catalog.drop_write(pin.write, Late::No).await.expect("dropped").was_open);
    assert_eq!(fixture.standing(content).await, ContentStanding::Live(1));
}

/// Later it gets `NoSuchUpload`.
pub async fn part_is_pinned_while_its_upload_is_open(fixture: &Fixture) {
    let bucket = fixture.bucket("pin").await;
    let content = fixture.share(bucket, "a", 1).await;
    let upload = fixture.upload(bucket, "b").await;
    let part = PinRequest { kind: IntentKind::Part { upload, number: 1 }, ..fixture.pin_of(bucket, "b", 1) };
    assert!(fixture.pin(&part).await.expect("a query").is_some());
    let stored = StoredBytes::Pinned { write: part.write, content, copies: 1 };
    let source = PartSource::Written { stored, sha256: Some(part.sha256), plan: ContentPlan::Pinned(content) };
    let commit = fixture.part_of(upload, 1, (fixture.content(), BODY_BYTES), source);
    fixture.store_part(commit).await.expect("committed");
    assert_eq!((fixture.standing(content).await, fixture.usage().await), (ContentStanding::Live(2), (5, 0, 0)));
    fixture.complete(upload, &[(1, content)]).await.expect("completed");
    let late = PinRequest { kind: IntentKind::Part { upload, number: 2 }, ..fixture.pin_of(bucket, "b", 1) };
    refused(fixture.pin(&late).await, Verdict::NoSuchUpload);
    assert_nothing_leaks(fixture, bucket).await;
}

async fn pin_and_commit(fixture: Fixture, bucket: BucketId) -> bool {
    let pin = fixture.pin_of(bucket, "b", 1);
    match fixture.pin(&pin).await.expect("a query") {
        Some(held) => fixture.commit_pinned(&pin, held.content).await.map(drop).expect("pinned content stays live"),
        None => return false,
    }
    true
}

/// The pinned write is readable, or nothing was pinned and the content is condemned.
pub async fn pin_during_last_delete_keeps_content_or_fails(fixture: &Fixture) {
    let bucket = fixture.bucket("race").await;
    for round in 0..ROUNDS {
        let content = fixture.share(bucket, "a", 1).await;
        let theirs = fixture.clone();
        let delete = async move { theirs.delete(bucket, "a").await };
        let (pinned, deleted) = both(pin_and_commit(fixture.clone(), bucket), delete, round).await;
        assert!(deleted);
        let expected = if pinned { ContentStanding::Live(1) } else { ContentStanding::Condemned };
        assert_eq!(fixture.standing(content).await, expected);
        quota_usage::check(fixture).await;
        assert_nothing_leaks(fixture, bucket).await;
    }
}

/// Both pins refer to the same content, which is condemned with the second one.
pub async fn concurrent_drop_and_reap_release_one_pin_each(fixture: &Fixture) {
    let bucket = fixture.bucket("race").await;
    for round in 0..ROUNDS {
        let content = fixture.share(bucket, "a", 1).await;
        let (dead, _) = fixture.pinned(bucket, "b", 1).await;
        fixture.clock.advance(LEASE);
        let (pin, _) = fixture.pinned(bucket, "c", 1).await;
        assert!(fixture.delete(bucket, "a").await);
        let (ours, theirs, write) = (fixture.clone(), fixture.clone(), pin.write);
        let give_up = async move { ours.catalog.drop_write(write, Late::No).await.expect("dropped").was_open };
        let reap = async move { theirs.reap(9, Duration::ZERO).await };
        let (open, reaped) = both(give_up, reap, round).await;
        assert!(open && reaped.len() == 1 && reaped[0].write == dead.write, "{reaped:?}");
        assert_eq!(fixture.standing(content).await, ContentStanding::Condemned);
        assert_nothing_leaks(fixture, bucket).await;
    }
}
