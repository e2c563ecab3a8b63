//! Facts about content that a bucket keeps once: who joins it, whose bytes stay, and what is never joined.

use s3o_model::clock::Clock as _;
use s3o_model::ids::{BucketId, ContentId};
use s3o_model::intent::{Intent, IntentKind};

use super::races::{ROUNDS, both, copy_what_is_there, nothing_leaks, storm};
use super::scene::sharing::{BODY_BYTES, digest};
use super::scene::{LEASE, Scene, Standing, announced, at_once, backend, unannounced};
use super::{books, refused};
use crate::{CommitPut, Error, Intents, Landed, Late, Objects, PartSource, Quotas, Uploads, Verdict, params};

/// Equal bytes are one content: the second write counts one more, and its own bytes go.
pub async fn equal_content_is_kept_once(scene: &Scene) {
    let bucket = scene.bucket("once").await;
    let first = scene.share(bucket, "a", 1).await;
    let intent = scene.staged(bucket, "b", BODY_BYTES).await;
    scene.catalog.commit_put(scene.shared_put_of(&intent, 1)).await.expect("committed");
    assert_eq!(scene.content_of(bucket, "b").await, first);
    assert_eq!(scene.standing(first).await, Standing::Live(2));
    assert_eq!((scene.queued().await, scene.booked().await), (vec![intent.physical_key], (5, 5, 0)));
    let reasons = scene.rows("SELECT reason FROM cleanup_queue", vec![]).await;
    assert_eq!(reasons[0].text(0).expect("a reason"), "dedup");
}

/// What differs in digest, in size or in its bucket is other content; so is what a bucket without the setting gets.
pub async fn other_content_is_kept_apart(scene: &Scene) {
    let (bucket, other) = (scene.bucket("one").await, scene.bucket("other").await);
    let first = scene.share(bucket, "a", 1).await;
    assert_ne!(scene.share(bucket, "b", 2).await, first);
    assert_ne!(scene.share(other, "a", 1).await, first);
    let longer = scene.staged(bucket, "c", BODY_BYTES + 1).await;
    scene.catalog.commit_put(scene.shared_put_of(&longer, 1)).await.expect("committed");
    assert_ne!(scene.content_of(bucket, "c").await, first);
    let plain = scene.staged(bucket, "d", BODY_BYTES).await;
    let put = CommitPut { dedup: None, ..scene.shared_put_of(&plain, 1) };
    scene.catalog.commit_put(put).await.expect("committed");
    assert_ne!(scene.content_of(bucket, "d").await, first);
    assert_eq!((scene.standing(first).await, scene.queued().await.len()), (Standing::Live(1), 0));
}

/// Bodies of no bytes are equal, too.
pub async fn nothing_is_kept_once(scene: &Scene) {
    let bucket = scene.bucket("empty").await;
    for name in ["a", "b"] {
        let intent = scene.staged(bucket, name, 0).await;
        scene.catalog.commit_put(scene.shared_put_of(&intent, 0)).await.expect("committed");
    }
    let content = scene.content_of(bucket, "a").await;
    assert_eq!(scene.content_of(bucket, "b").await, content);
    assert_eq!((scene.standing(content).await, scene.booked().await), (Standing::Live(2), (0, 0, 0)));
}

/// The bytes of two objects stay when one of them goes, and go with the last.
pub async fn shared_bytes_go_with_the_last(scene: &Scene) {
    let bucket = scene.bucket("story").await;
    let content = scene.share(bucket, "a", 1).await;
    scene.share(bucket, "b", 1).await;
    scene.clean_up().await;
    assert!(scene.delete(bucket, "a").await);
    assert_eq!((scene.standing(content).await, scene.queued().await.len()), (Standing::Live(1), 0));
    assert!(scene.resolve("story", "b").await.object.is_some());
    assert!(scene.delete(bucket, "b").await);
    assert_eq!((scene.standing(content).await, scene.queued().await.len()), (Standing::Condemned, 1));
    nothing_leaks(scene, bucket).await;
}

/// An object that is overwritten by what it is keeps its content and its count.
pub async fn an_overwrite_by_the_same_keeps_the_count(scene: &Scene) {
    let bucket = scene.bucket("same").await;
    let content = scene.share(bucket, "a", 1).await;
    let kept = scene.places(content).await;
    assert_eq!(scene.share(bucket, "a", 1).await, content);
    assert_eq!((scene.standing(content).await, scene.places(content).await), (Standing::Live(1), kept));
    assert_eq!(scene.booked().await, (5, 5, 0));
}

/// Condemned content is not found and does not come back: the same bytes are content of their own.
pub async fn condemned_content_is_not_joined(scene: &Scene) {
    let bucket = scene.bucket("gone").await;
    let first = scene.share(bucket, "a", 1).await;
    assert!(scene.delete(bucket, "a").await);
    let second = scene.share(bucket, "b", 1).await;
    assert_ne!(second, first);
    assert_eq!((scene.standing(first).await, scene.standing(second).await), (Standing::Condemned, Standing::Live(1)));
    assert_eq!(scene.share(bucket, "c", 1).await, second);
}

/// A good new copy takes the place of one that is suspect or lost, on its own backend or on another.
pub async fn a_good_copy_replaces_a_bad_one(scene: &Scene) {
    let bucket = scene.bucket("bad").await;
    let bad = [("suspect", "disk"), ("suspect", "cloud"), ("lost", "disk"), ("lost", "cloud")];
    for (body, (state, place)) in (1..).zip(bad) {
        let content = scene.share(bucket, &format!("a{body}"), body).await;
        let old = scene.places(content).await.remove(0).0;
        scene.call(content, state).await;
        assert_eq!(scene.share_on(place, bucket, &format!("b{body}"), body).await, content);
        let places = scene.places(content).await;
        assert!(places.len() == 1 && places[0].0 != old && places[0].1 == "present", "{places:?}");
        assert_eq!(scene.standing(content).await, Standing::Live(2));
        assert!(scene.queued().await.contains(&old) && scene.queued().await.len() == usize::from(body));
        books::check(scene).await;
    }
}

/// A good copy stays where it is, wherever the new one lies.
pub async fn a_good_copy_is_not_replaced(scene: &Scene) {
    let bucket = scene.bucket("good").await;
    let content = scene.share(bucket, "a", 1).await;
    let kept = scene.places(content).await;
    assert_eq!(scene.share_on("cloud", bucket, "b", 1).await, content);
    assert_eq!(scene.places(content).await, kept);
    assert_eq!((scene.books("cloud").await.orphan_bytes, scene.booked().await), (5, (5, 0, 0)));
}

/// Two copies of one write: content with fewer good ones gets what it lacks, and nothing lies twice in one place.
pub async fn missing_copies_are_added(scene: &Scene) {
    let bucket = scene.bucket("two").await;
    let content = scene.share(bucket, "a", 1).await;
    scene.attach("cloud", None).await;
    let disk = scene.staged(bucket, "b", BODY_BYTES).await;
    let cloud = Intent { backend: backend("cloud"), write: disk.write, ..scene.intent(bucket, "b", BODY_BYTES) };
    scene.try_stage(&cloud).await.expect("staged");
    let put = CommitPut { landed: announced(disk.write, 2), ..scene.shared_put_of(&disk, 1) };
    scene.catalog.commit_put(put).await.expect("committed");
    assert_eq!((scene.places(content).await.len(), scene.queued().await), (2, vec![disk.physical_key]));
    assert_eq!((scene.books("cloud").await.used_bytes, scene.booked().await), (5, (5, 5, 0)));
}

/// A write that is finished by the reaper joins as its writer would have.
pub async fn a_left_write_joins(scene: &Scene) {
    let bucket = scene.bucket("left").await;
    let content = scene.share(bucket, "a", 1).await;
    let intent = scene.staged(bucket, "b", BODY_BYTES).await;
    scene.clock.advance(LEASE);
    let token = scene.claim_left(1).await;
    let landed = Landed::Reaped { write: intent.write, copies: 1, token };
    let put = CommitPut { landed, ..scene.shared_put_of(&intent, 1) };
    scene.catalog.commit_put(put).await.expect("promoted");
    assert_eq!((scene.content_of(bucket, "b").await, scene.standing(content).await), (content, Standing::Live(2)));
    assert_eq!((scene.queued().await, scene.booked().await), (vec![intent.physical_key], (5, 5, 0)));
}

fn unannounced_put(scene: &Scene, bucket: BucketId, key: &str) -> CommitPut {
    let intent = scene.intent(bucket, key, BODY_BYTES);
    CommitPut { landed: unannounced(&intent), ..scene.shared_put_of(&intent, 1) }
}

/// Bytes that nobody announced join, too, and the limit holds for them.
pub async fn unannounced_bytes_join(scene: &Scene) {
    let bucket = scene.bucket("direct").await;
    scene.catalog.commit_put(unannounced_put(scene, bucket, "a")).await.expect("committed");
    let content = scene.content_of(bucket, "a").await;
    scene.catalog.commit_put(unannounced_put(scene, bucket, "b")).await.expect("committed");
    assert_eq!((scene.content_of(bucket, "b").await, scene.standing(content).await), (content, Standing::Live(2)));
    assert_eq!((scene.queued().await.len(), scene.booked().await), (1, (5, 5, 0)));
    let versions = scene.rows("SELECT backend_version FROM cleanup_queue", vec![]).await;
    assert_eq!(versions[0].text(0).expect("a version"), "v1");
    scene.catalog.set_limit(&backend("disk"), Some(14)).await.expect("set");
    refused(scene.catalog.commit_put(unannounced_put(scene, bucket, "c")).await, Verdict::NoRoom);
    scene.call(content, "lost").await;
    scene.catalog.set_limit(&backend("disk"), None).await.expect("set");
    scene.catalog.commit_put(unannounced_put(scene, bucket, "c")).await.expect("committed");
    assert_eq!((scene.places(content).await[0].1.as_str(), scene.booked().await), ("present", (5, 10, 0)));
}

async fn shared_part(scene: &Scene, intent: &Intent, body: u8) -> Result<ContentId, Error> {
    let IntentKind::Part { upload, number } = intent.kind else { panic!("not a part") };
    let (landed, sha256) = (announced(intent.write, 1), Some(digest(body)));
    let source = PartSource::Written { landed, sha256, dedup: Some(intent.bucket) };
    scene.catalog.commit_part(scene.part_of(upload, number, (scene.content(), BODY_BYTES), source)).await?;
    let parts = scene.catalog.parts(upload, number - 1, 1).await?;
    Ok(parts[0].content)
}

/// Parts are whole contents: equal ones are kept once, in one upload, across uploads, and beside objects.
pub async fn equal_parts_are_kept_once(scene: &Scene) {
    let bucket = scene.bucket("parts").await;
    let content = scene.share(bucket, "a", 1).await;
    for name in ["b", "c"] {
        let upload = scene.upload(bucket, name).await;
        let mut parts = Vec::new();
        for number in [1, 2] {
            let intent = scene.staged_part(upload, number, BODY_BYTES).await;
            parts.push((number, shared_part(scene, &intent, 1).await.expect("committed")));
        }
        assert_eq!(parts, [(1, content), (2, content)]);
        // One that is sent again stays what it is.
        let again = scene.staged_part(upload, 2, BODY_BYTES).await;
        assert_eq!(shared_part(scene, &again, 1).await.expect("committed"), content);
        scene.complete(upload, &parts).await.expect("completed");
    }
    assert_eq!((scene.standing(content).await, scene.booked().await.0), (Standing::Live(5), 5));
    books::check(scene).await;
    nothing_leaks(scene, bucket).await;
}

/// What a key refers to.
async fn shown(scene: &Scene, bucket: BucketId, name: &str) -> ContentId {
    scene.content_of(bucket, name).await
}

/// Writers of one content at the same moment, none of which found it: one makes it, the others join.
pub async fn first_writers_of_one_content_share_it(scene: &Scene) {
    let bucket = scene.bucket("race").await;
    for _ in 0..ROUNDS {
        let writers = ["a", "b", "c", "d"].map(|name| {
            let scene = scene.clone();
            async move { scene.share(bucket, name, 1).await }
        });
        at_once(writers.into()).await;
        let content = shown(scene, bucket, "a").await;
        for name in ["b", "c", "d"] {
            assert_eq!(shown(scene, bucket, name).await, content);
        }
        assert_eq!((scene.standing(content).await, scene.booked().await), (Standing::Live(4), (5, 15, 0)));
        nothing_leaks(scene, bucket).await;
    }
}

/// A write against the last delete of the same content: it joins what lives, or makes content of its own.
pub async fn a_write_meets_the_last_delete(scene: &Scene) {
    let bucket = scene.bucket("race").await;
    for round in 0..ROUNDS {
        let old = scene.share(bucket, "a", 1).await;
        let intent = scene.staged(bucket, "b", BODY_BYTES).await;
        let (ours, theirs) = (scene.clone(), scene.clone());
        let put = ours.shared_put_of(&intent, 1);
        let write = async move { ours.catalog.commit_put(put).await.map(drop) };
        let delete = async move { theirs.delete(bucket, "a").await };
        let (written, deleted) = both(write, delete, round).await;
        written.expect("committed");
        assert!(deleted);
        let content = shown(scene, bucket, "b").await;
        let expected = if content == old { Standing::Live(1) } else { Standing::Condemned };
        assert_eq!(scene.standing(old).await, expected);
        assert_eq!(scene.places(content).await.len(), 1);
        books::check(scene).await;
        nothing_leaks(scene, bucket).await;
    }
}

/// Overwrites, deletes, copies, pins and deaths over few bodies and few keys at once: every count is exact.
pub async fn a_storm_of_equal_bodies_leaves_the_books_in_order(scene: &Scene) {
    let bucket = scene.bucket("storm").await;
    storm(scene, 12, move |scene, _, choice| async move { stir(&scene, bucket, choice).await }).await;
    books::check(scene).await;
    nothing_leaks(scene, bucket).await;
}

async fn stir(scene: &Scene, bucket: BucketId, choice: usize) {
    let (name, other) = (["a", "b", "c", "d"][choice % 4], ["b", "c", "d", "a"][choice % 4]);
    let body = u8::try_from(choice % 3).expect("small");
    match choice % 7 {
        0 | 1 => {
            let intent = scene.staged(bucket, name, BODY_BYTES).await;
            scene.catalog.commit_put(scene.shared_put_of(&intent, body)).await.expect("committed");
        }
        2 | 3 => pin_and_end(scene, bucket, name, (body, choice)).await,
        4 => copy_what_is_there(scene, bucket, (name, other)).await,
        5 => drop(scene.delete(bucket, name).await),
        _ => {
            let upload = scene.upload(bucket, name).await;
            let intent = scene.staged_part(upload, 1, BODY_BYTES).await;
            let part = (1, shared_part(scene, &intent, body).await.expect("committed"));
            scene.complete(upload, &[part]).await.expect("completed");
        }
    }
}

/// A pin that is committed, given up, or left for the reaper.
async fn pin_and_end(scene: &Scene, bucket: BucketId, name: &str, (body, choice): (u8, usize)) {
    let pin = scene.pin_of(bucket, name, body);
    let Some(held) = scene.catalog.pin(&pin).await.expect("a look") else { return };
    assert!(held.until > scene.clock.now());
    match choice % 3 {
        0 => drop(scene.commit_pinned(&pin, held.content).await.expect("committed")),
        1 => assert!(scene.catalog.drop_write(pin.write, Late::No).await.expect("given up").was_open),
        _ => scene
            .change("UPDATE pending_objects SET lease_until = :now WHERE id = $1", params![pin.id])
            .await
            .truncate(0),
    }
}
