//! Facts about how long what is due has waited, and how much there is.

use std::time::Duration;

use super::scene::sharing::BODY_BYTES;
use super::scene::{LEASE, Scene};
use crate::{BucketCount, Intents, Late, OldestDue, Overview};

const STALE: Duration = Duration::from_hours(1);

/// Where nothing is due, nothing has waited, however much there is.
pub async fn nothing_due_has_not_waited(scene: &Scene) {
    assert_eq!(scene.catalog.oldest_due(STALE).await.expect("a look"), OldestDue::default());
    let bucket = scene.bucket("quiet").await;
    scene.staged(bucket, "a", 1).await;
    scene.upload(bucket, "b").await;
    let dropped = scene.staged(bucket, "c", 1).await;
    scene.catalog.drop_write(dropped.write, Late::No).await.expect("dropped");
    scene.change("UPDATE cleanup_queue SET due = due + 1000", vec![]).await;
    assert_eq!(scene.catalog.oldest_due(STALE).await.expect("a look"), OldestDue::default());
}

/// The oldest row of each queue is told, claimed or not.
pub async fn the_oldest_of_each_queue_is_told(scene: &Scene) {
    let bucket = scene.bucket("due").await;
    scene.upload(bucket, "b").await;
    scene.staged(bucket, "a", 1).await;
    for key in ["c", "d"] {
        let dropped = scene.staged(bucket, key, 1).await;
        scene.catalog.drop_write(dropped.write, Late::No).await.expect("dropped");
        scene.clock.advance(Duration::from_secs(10));
    }
    let cleanup = || async { scene.catalog.oldest_due(STALE).await.expect("a look").cleanup };
    assert_eq!(cleanup().await, Duration::from_secs(20));
    let (_, claimed) = scene.claim(1).await;
    assert_eq!((claimed.len(), cleanup().await), (1, Duration::from_secs(20)), "who claimed it may be dead");
    scene.clock.advance(LEASE);
    let due = scene.catalog.oldest_due(STALE).await.expect("a look");
    assert_eq!((due.pending_intents, due.stale_multipart), (Duration::from_secs(20), Duration::ZERO));
    scene.clock.advance(STALE);
    let waited = scene.catalog.oldest_due(STALE).await.expect("a look").stale_multipart;
    assert!(waited >= LEASE && waited < LEASE + Duration::from_secs(30), "{waited:?}");
}

/// Objects are counted by bucket, locations by backend, and zero is a count.
pub async fn objects_and_locations_are_counted(scene: &Scene) {
    let (bucket, _) = (scene.bucket("full").await, scene.bucket("empty").await);
    scene.attach("cloud", None).await;
    let content = scene.put(bucket, "a", 3).await;
    scene.put(bucket, "b", 4).await;
    scene.copy((content, 3), bucket, "c").await.expect("copied");
    let count = |bucket: &str, objects, bytes, saved| BucketCount { bucket: bucket.to_owned(), objects, bytes, saved };
    let counted = scene.catalog.count_objects().await.expect("counted");
    assert_eq!(counted, [count("empty", 0, 0, 0), count("full", 3, 10, 3)]);
    let located = scene.catalog.count_locations().await.expect("counted");
    let located: Vec<_> = located.iter().map(|(backend, count)| (backend.as_str(), *count)).collect();
    assert_eq!(located, [("cloud", 0), ("disk", 2)]);
}

/// What a bucket did not have to store is the bytes of its objects without those of the contents they refer to, pieces of
/// joined content included. What only other buckets share is not its own.
pub async fn savings_are_counted_by_bucket(scene: &Scene) {
    let (bucket, other) = (scene.bucket("full").await, scene.bucket("other").await);
    let saved = async || {
        let counted = scene.catalog.count_objects().await.expect("counted");
        counted.iter().map(|count| count.saved).collect::<Vec<_>>()
    };
    let content = scene.share(bucket, "a", 1).await;
    scene.copy((content, BODY_BYTES), other, "a").await.expect("copied");
    assert_eq!(saved().await, [0, 0], "each has it once");
    scene.share(bucket, "b", 1).await;
    scene.share(bucket, "c", 2).await;
    let (pin, _) = scene.pinned(bucket, "d", 2).await;
    assert_eq!(saved().await, [BODY_BYTES, 0], "a pin is no object");
    assert!(scene.catalog.drop_write(pin.write, Late::No).await.expect("given up").was_open);
    let upload = scene.upload(bucket, "joined").await;
    let parts = scene.parts_of(upload, 3, (content, BODY_BYTES)).await;
    let joined = scene.complete(upload, &parts).await.expect("completed");
    assert_eq!(saved().await, [4 * BODY_BYTES, 0]);
    scene.copy((joined, 3 * BODY_BYTES), bucket, "copied").await.expect("copied");
    assert_eq!(saved().await, [7 * BODY_BYTES, 0]);
    scene.copy((joined, 3 * BODY_BYTES), other, "copied").await.expect("copied");
    assert_eq!(saved().await, [7 * BODY_BYTES, 3 * BODY_BYTES]);
}
