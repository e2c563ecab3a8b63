//! Tests of deduplication: which writes join known content, and whose bytes are kept.

use s3o_model::clock::Clock as _;
use s3o_model::ids::{BucketId, ContentId};
use s3o_model::intent::{Intent, IntentKind};

use super::fixture::sharing::{BODY_BYTES, digest};
use super::fixture::{ContentStanding, Fixture, LEASE, announced, at_once, backend, unannounced};
use super::races::{ROUNDS, assert_nothing_leaks, both, copy_if_present, run_concurrently};
use super::{quota_usage, refused};
use crate::{CommitPut, ContentPlan, Error, Late, PartSource, StoredBytes, Verdict, params};

/// The second write adds a reference, and its own bytes are queued with the reason `dedup`.
pub async fn equal_content_is_stored_once(fixture: &Fixture) {
    let bucket = fixture.bucket("once").await;
    let first = fixture.share(bucket, "a", 1).await;
    let intent = fixture.staged(bucket, "b", BODY_BYTES).await;
    fixture.commit_put(fixture.shared_put_of(&intent, 1)).await.expect("committed");
    assert_eq!(fixture.content_of(bucket, "b").await, first);
    assert_eq!(fixture.standing(first).await, ContentStanding::Live(2));
    assert_eq!((fixture.queued().await, fixture.usage().await), (vec![intent.physical_key], (5, 5, 0)));
    let reasons = fixture.rows("SELECT reason FROM cleanup_queue", vec![]).await;
    assert_eq!(reasons[0].text("reason").expect("a reason"), "dedup");
}

/// Digest, size or bucket differ, or the write is not deduplicated.
pub async fn different_content_is_stored_separately(fixture: &Fixture) {
    let (bucket, other) = (fixture.bucket("one").await, fixture.bucket("other").await);
    let first = fixture.share(bucket, "a", 1).await;
    assert_ne!(fixture.share(bucket, "b", 2).await, first);
    assert_ne!(fixture.share(other, "a", 1).await, first);
    let longer = fixture.staged(bucket, "c", BODY_BYTES + 1).await;
    fixture.commit_put(fixture.shared_put_of(&longer, 1)).await.expect("committed");
    assert_ne!(fixture.content_of(bucket, "c").await, first);
    let plain = fixture.staged(bucket, "d", BODY_BYTES).await;
    let put = CommitPut { plan: ContentPlan::Fresh(None), ..fixture.shared_put_of(&plain, 1) };
    fixture.commit_put(put).await.expect("committed");
    assert_ne!(fixture.content_of(bucket, "d").await, first);
    assert_eq!((fixture.standing(first).await, fixture.queued().await.len()), (ContentStanding::Live(1), 0));
}

/// They have equal digests and sizes like any other body.
pub async fn empty_bodies_share_one_content(fixture: &Fixture) {
    let bucket = fixture.bucket("empty").await;
    for name in ["a", "b"] {
        let intent = fixture.staged(bucket, name, 0).await;
        fixture.commit_put(fixture.shared_put_of(&intent, 0)).await.expect("committed");
    }
    let content = fixture.content_of(bucket, "a").await;
    assert_eq!(fixture.content_of(bucket, "b").await, content);
    assert_eq!((fixture.standing(content).await, fixture.usage().await), (ContentStanding::Live(2), (0, 0, 0)));
}

/// The other object stays readable until then.
pub async fn shared_bytes_are_queued_with_the_last_object(fixture: &Fixture) {
    let bucket = fixture.bucket("last").await;
    let content = fixture.share(bucket, "a", 1).await;
    fixture.share(bucket, "b", 1).await;
    fixture.clean_up().await;
    assert!(fixture.delete(bucket, "a").await);
    assert_eq!((fixture.standing(content).await, fixture.queued().await.len()), (ContentStanding::Live(1), 0));
    assert!(fixture.resolve("last", "b").await.object.is_some());
    assert!(fixture.delete(bucket, "b").await);
    assert_eq!((fixture.standing(content).await, fixture.queued().await.len()), (ContentStanding::Condemned, 1));
    assert_nothing_leaks(fixture, bucket).await;
}

/// The copy of the content does not change either.
pub async fn overwrite_with_equal_content_keeps_the_reference_count(fixture: &Fixture) {
    let bucket = fixture.bucket("same").await;
    let content = fixture.share(bucket, "a", 1).await;
    let kept = fixture.copies_of(content).await;
    assert_eq!(fixture.share(bucket, "a", 1).await, content);
    assert_eq!((fixture.standing(content).await, fixture.copies_of(content).await), (ContentStanding::Live(1), kept));
    assert_eq!(fixture.usage().await, (5, 5, 0));
}

/// The same bytes become new content, which later writes join.
pub async fn condemned_content_is_not_joined(fixture: &Fixture) {
    let bucket = fixture.bucket("gone").await;
    let first = fixture.share(bucket, "a", 1).await;
    assert!(fixture.delete(bucket, "a").await);
    let second = fixture.share(bucket, "b", 1).await;
    assert_ne!(second, first);
    assert_eq!(
        (fixture.standing(first).await, fixture.standing(second).await),
        (ContentStanding::Condemned, ContentStanding::Live(1))
    );
    assert_eq!(fixture.share(bucket, "c", 1).await, second);
}

/// The new copy may be on the same backend or on another one.
pub async fn new_copy_replaces_suspect_or_lost_copy(fixture: &Fixture) {
    let bucket = fixture.bucket("bad").await;
    let bad = [("suspect", "disk"), ("suspect", "cloud"), ("lost", "disk"), ("lost", "cloud")];
    for (body, (state, place)) in (1..).zip(bad) {
        let content = fixture.share(bucket, &format!("a{body}"), body).await;
        let old = fixture.copies_of(content).await.remove(0).0;
        fixture.set_copy_states(content, state).await;
        assert_eq!(fixture.share_on(place, bucket, &format!("b{body}"), body).await, content);
        let places = fixture.copies_of(content).await;
        assert!(places.len() == 1 && places[0].0 != old && places[0].1 == "present", "{places:?}");
        assert_eq!(fixture.standing(content).await, ContentStanding::Live(2));
        assert!(fixture.queued().await.contains(&old) && fixture.queued().await.len() == usize::from(body));
        quota_usage::check(fixture).await;
    }
}

/// The bytes of the new write are queued, even on another backend.
pub async fn present_copy_is_not_replaced(fixture: &Fixture) {
    let bucket = fixture.bucket("good").await;
    let content = fixture.share(bucket, "a", 1).await;
    let kept = fixture.copies_of(content).await;
    assert_eq!(fixture.share_on("cloud", bucket, "b", 1).await, content);
    assert_eq!(fixture.copies_of(content).await, kept);
    assert_eq!((fixture.quota_usage("cloud").await.orphan_bytes, fixture.usage().await), (5, (5, 0, 0)));
}

/// A write with two copies adds the one that the content lacks. No backend stores the content twice.
pub async fn missing_copies_are_added(fixture: &Fixture) {
    let bucket = fixture.bucket("two").await;
    fixture.catalog.set_factors(2, &[]).await.expect("set");
    let content = fixture.share(bucket, "a", 1).await;
    fixture.attach("cloud", None).await;
    let disk = fixture.staged(bucket, "b", BODY_BYTES).await;
    let cloud = Intent { backend: backend("cloud"), write: disk.write, ..fixture.intent(bucket, "b", BODY_BYTES) };
    fixture.try_stage(&cloud).await.expect("staged");
    let put = CommitPut { stored: announced(disk.write, 2), ..fixture.shared_put_of(&disk, 1) };
    fixture.commit_put(put).await.expect("committed");
    assert_eq!((fixture.copies_of(content).await.len(), fixture.queued().await), (2, vec![disk.physical_key]));
    assert_eq!((fixture.quota_usage("cloud").await.used_bytes, fixture.usage().await), (5, (5, 5, 0)));
}

/// The commit of the writer would have joined it as well.
pub async fn promoted_write_joins_known_content(fixture: &Fixture) {
    let bucket = fixture.bucket("left").await;
    let content = fixture.share(bucket, "a", 1).await;
    let intent = fixture.staged(bucket, "b", BODY_BYTES).await;
    fixture.clock.advance(LEASE);
    let token = fixture.claim_expired_writes(1).await;
    let stored =
        StoredBytes::Reaped { write: intent.write, copies: 1, backend_versions: Vec::new(), failed: Vec::new(), token };
    let put = CommitPut { stored, ..fixture.shared_put_of(&intent, 1) };
    fixture.commit_put(put).await.expect("promoted");
    assert_eq!(
        (fixture.content_of(bucket, "b").await, fixture.standing(content).await),
        (content, ContentStanding::Live(2))
    );
    assert_eq!((fixture.queued().await, fixture.usage().await), (vec![intent.physical_key], (5, 5, 0)));
}

fn unannounced_put(fixture: &Fixture, bucket: BucketId, key: &str) -> CommitPut {
    let intent = fixture.intent(bucket, key, BODY_BYTES);
    CommitPut { stored: unannounced(&intent), ..fixture.shared_put_of(&intent, 1) }
}

/// The limit applies to it.
pub async fn write_without_intent_joins_known_content(fixture: &Fixture) {
    let bucket = fixture.bucket("direct").await;
    fixture.commit_put(unannounced_put(fixture, bucket, "a")).await.expect("committed");
    let content = fixture.content_of(bucket, "a").await;
    fixture.commit_put(unannounced_put(fixture, bucket, "b")).await.expect("committed");
    assert_eq!(
        (fixture.content_of(bucket, "b").await, fixture.standing(content).await),
        (content, ContentStanding::Live(2))
    );
    assert_eq!((fixture.queued().await.len(), fixture.usage().await), (1, (5, 5, 0)));
    let versions = fixture.rows("SELECT target FROM cleanup_queue", vec![]).await;
    assert_eq!(versions[0].text("target").expect("a target"), "version:v1");
    fixture.catalog.set_limit(&backend("disk"), Some(14)).await.expect("set");
    refused(fixture.commit_put(unannounced_put(fixture, bucket, "c")).await, Verdict::NoSpace);
    fixture.set_copy_states(content, "lost").await;
    fixture.catalog.set_limit(&backend("disk"), None).await.expect("set");
    fixture.commit_put(unannounced_put(fixture, bucket, "c")).await.expect("committed");
    assert_eq!((fixture.copies_of(content).await[0].1.as_str(), fixture.usage().await), ("present", (5, 10, 0)));
}

async fn shared_part(fixture: &Fixture, intent: &Intent, body: u8) -> Result<ContentId, Error> {
    let IntentKind::Part { upload, number } = intent.kind else { panic!("not a part") };
    let (stored, sha256) = (announced(intent.write, 1), Some(digest(body)));
    let source = PartSource::Written { stored, sha256, plan: ContentPlan::Fresh(Some(intent.bucket)) };
    fixture.store_part(fixture.part_of(upload, number, (fixture.content(), BODY_BYTES), source)).await?;
    let parts = fixture.catalog.parts(upload, number - 1, 1).await?;
    Ok(parts[0].content)
}

/// That applies within one upload, in two uploads, and together with objects.
pub async fn equal_parts_are_stored_once(fixture: &Fixture) {
    let bucket = fixture.bucket("parts").await;
    let content = fixture.share(bucket, "a", 1).await;
    for name in ["b", "c"] {
        let upload = fixture.upload(bucket, name).await;
        let mut parts = Vec::new();
        for number in [1, 2] {
            let intent = fixture.staged_part(upload, number, BODY_BYTES).await;
            parts.push((number, shared_part(fixture, &intent, 1).await.expect("committed")));
        }
        assert_eq!(parts, [(1, content), (2, content)]);
        // A part that is sent again keeps its content.
        let again = fixture.staged_part(upload, 2, BODY_BYTES).await;
        assert_eq!(shared_part(fixture, &again, 1).await.expect("committed"), content);
        fixture.complete(upload, &parts).await.expect("completed");
    }
    assert_eq!((fixture.standing(content).await, fixture.usage().await.0), (ContentStanding::Live(5), 5));
    quota_usage::check(fixture).await;
    assert_nothing_leaks(fixture, bucket).await;
}

/// None of them finds the content before it writes. One creates it, the others join.
pub async fn concurrent_first_writers_share_one_content(fixture: &Fixture) {
    let bucket = fixture.bucket("race").await;
    for _ in 0..ROUNDS {
        let writers = ["a", "b", "c", "d"].map(|name| {
            let fixture = fixture.clone();
            async move { fixture.share(bucket, name, 1).await }
        });
        at_once(writers.into()).await;
        let content = fixture.content_of(bucket, "a").await;
        for name in ["b", "c", "d"] {
            assert_eq!(fixture.content_of(bucket, name).await, content);
        }
        assert_eq!((fixture.standing(content).await, fixture.usage().await), (ContentStanding::Live(4), (5, 15, 0)));
        assert_nothing_leaks(fixture, bucket).await;
    }
}

/// The content that it refers to is live and has one copy.
pub async fn write_during_last_delete_joins_or_creates_content(fixture: &Fixture) {
    let bucket = fixture.bucket("race").await;
    for round in 0..ROUNDS {
        let old = fixture.share(bucket, "a", 1).await;
        let intent = fixture.staged(bucket, "b", BODY_BYTES).await;
        let (ours, theirs) = (fixture.clone(), fixture.clone());
        let put = ours.shared_put_of(&intent, 1);
        let write = async move { ours.commit_put(put).await.map(drop) };
        let delete = async move { theirs.delete(bucket, "a").await };
        let (written, deleted) = both(write, delete, round).await;
        written.expect("committed");
        assert!(deleted);
        let content = fixture.content_of(bucket, "b").await;
        let expected = if content == old { ContentStanding::Live(1) } else { ContentStanding::Condemned };
        assert_eq!(fixture.standing(old).await, expected);
        assert_eq!(fixture.copies_of(content).await.len(), 1);
        quota_usage::check(fixture).await;
        assert_nothing_leaks(fixture, bucket).await;
    }
}

/// Twelve workers overwrite, delete, copy and pin; some pins are left to the reaper.
pub async fn concurrent_operations_on_equal_bodies_keep_counts_exact(fixture: &Fixture) {
    let bucket = fixture.bucket("mixed").await;
    run_concurrently(fixture, 12, move |fixture, _, choice| async move {
        random_shared_operation(&fixture, bucket, choice).await;
    })
    .await;
    quota_usage::check(fixture).await;
    assert_nothing_leaks(fixture, bucket).await;
}

/// Runs the operation that `choice` selects, with one of three bodies.
async fn random_shared_operation(fixture: &Fixture, bucket: BucketId, choice: usize) {
    let (name, other) = (["a", "b", "c", "d"][choice % 4], ["b", "c", "d", "a"][choice % 4]);
    let body = u8::try_from(choice % 3).expect("small");
    match choice % 7 {
        0 | 1 => {
            let intent = fixture.staged(bucket, name, BODY_BYTES).await;
            fixture.commit_put(fixture.shared_put_of(&intent, body)).await.expect("committed");
        }
        2 | 3 => pin_and_end(fixture, bucket, name, (body, choice)).await,
        4 => copy_if_present(fixture, bucket, (name, other)).await,
        5 => drop(fixture.delete(bucket, name).await),
        _ => {
            let upload = fixture.upload(bucket, name).await;
            let intent = fixture.staged_part(upload, 1, BODY_BYTES).await;
            let part = (1, shared_part(fixture, &intent, body).await.expect("committed"));
            fixture.complete(upload, &[part]).await.expect("completed");
        }
    }
}

/// Pins known content, then commits the pin, drops it, or leaves it to the reaper.
async fn pin_and_end(fixture: &Fixture, bucket: BucketId, name: &str, (body, choice): (u8, usize)) {
    let pin = fixture.pin_of(bucket, name, body);
    let Some(held) = fixture.pin(&pin).await.expect("a query") else { return };
    assert!(held.until > fixture.clock.now());
    match choice % 3 {
        0 => drop(fixture.commit_pinned(&pin, held.content).await.expect("committed")),
        1 => assert!(fixture.catalog.drop_write(pin.write, Late::No).await.expect("dropped").was_open),
        _ => fixture
            .change("UPDATE pending_objects SET lease_until = :now WHERE id = $1", params![pin.id])
            .await
            .truncate(0),
    }
}
