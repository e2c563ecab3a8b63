//! Tests of the totals and ages that metrics export.

use std::time::Duration;

use super::fixture::sharing::BODY_BYTES;
use super::fixture::{Fixture, LEASE};
use crate::{BucketCount, Late, OldestDue};

const STALE: Duration = Duration::from_hours(1);

/// Rows that become due later do not count.
pub async fn oldest_due_is_zero_without_due_rows(fixture: &Fixture) {
    assert_eq!(fixture.catalog.oldest_due(STALE).await.expect("a query"), OldestDue::default());
    let bucket = fixture.bucket("quiet").await;
    fixture.staged(bucket, "a", 1).await;
    fixture.upload(bucket, "b").await;
    let dropped = fixture.staged(bucket, "c", 1).await;
    fixture.catalog.drop_write(dropped.write, Late::No).await.expect("dropped");
    fixture.change("UPDATE cleanup_queue SET due = due + 1000", vec![]).await;
    assert_eq!(fixture.catalog.oldest_due(STALE).await.expect("a query"), OldestDue::default());
}

/// Claimed rows count too, because the worker that claimed them may be dead.
pub async fn oldest_due_reports_each_queue(fixture: &Fixture) {
    let bucket = fixture.bucket("due").await;
    fixture.upload(bucket, "b").await;
    fixture.staged(bucket, "a", 1).await;
    for key in ["c", "d"] {
        let dropped = fixture.staged(bucket, key, 1).await;
        fixture.catalog.drop_write(dropped.write, Late::No).await.expect("dropped");
        fixture.clock.advance(Duration::from_secs(10));
    }
    let cleanup = || async { fixture.catalog.oldest_due(STALE).await.expect("a query").cleanup };
    assert_eq!(cleanup().await, Duration::from_secs(20));
    let (_, claimed) = fixture.claim(1).await;
    assert_eq!(
        (claimed.len(), cleanup().await),
        (1, Duration::from_secs(20)),
        "the worker that claimed it may be dead"
    );
    fixture.clock.advance(LEASE);
    let due = fixture.catalog.oldest_due(STALE).await.expect("a query");
    assert_eq!((due.pending_intents, due.stale_multipart), (Duration::from_secs(20), Duration::ZERO));
    fixture.clock.advance(STALE);
    let waited = fixture.catalog.oldest_due(STALE).await.expect("a query").stale_multipart;
    assert!(waited >= LEASE && waited < LEASE + Duration::from_secs(30), "{waited:?}");
}

/// Objects by bucket and locations by backend, including those with none.
pub async fn objects_and_locations_are_counted(fixture: &Fixture) {
    let (bucket, _) = (fixture.bucket("full").await, fixture.bucket("empty").await);
    fixture.attach("cloud", None).await;
    let content = fixture.put(bucket, "a", 3).await;
    fixture.put(bucket, "b", 4).await;
    fixture.copy((content, 3), bucket, "c").await.expect("copied");
    fixture.put(bucket, "deleted", 5).await;
    fixture.rm(bucket, "deleted", STALE).await;
    let count = |bucket: &str, [objects, bytes, trash_objects, trash_bytes, saved]: [u64; 5]| {
        let bucket = bucket.to_owned();
        BucketCount { bucket, objects, bytes, trash_objects, trash_bytes, saved }
    };
    let counted = fixture.catalog.count_objects().await.expect("counted");
    assert_eq!(counted, [count("empty", [0; 5]), count("full", [3, 10, 1, 5, 3])]);
    let located = fixture.catalog.count_locations().await.expect("counted");
    let located: Vec<_> = located.iter().map(|(backend, count)| (backend.as_str(), *count)).collect();
    assert_eq!(located, [("cloud", 0), ("disk", 2)]);
}

/// Saved bytes are the bytes of a bucket's objects minus the bytes of the contents they refer to, pieces of joined
/// content included. What a bucket shares only with another bucket is not saved.
pub async fn savings_are_counted_by_bucket(fixture: &Fixture) {
    let (bucket, other) = (fixture.bucket("full").await, fixture.bucket("other").await);
    let saved = async || {
        let counted = fixture.catalog.count_objects().await.expect("counted");
        counted.iter().map(|count| count.saved).collect::<Vec<_>>()
    };
    let content = fixture.share(bucket, "a", 1).await;
    fixture.copy((content, BODY_BYTES), other, "a").await.expect("copied");
    assert_eq!(saved().await, [0, 0], "each has it once");
    fixture.share(bucket, "b", 1).await;
    fixture.share(bucket, "c", 2).await;
    let (pin, _) = fixture.pinned(bucket, "d", 2).await;
    assert_eq!(saved().await, [BODY_BYTES, 0], "a pin is no object");
    assert!(fixture.catalog.drop_write(pin.write, Late::No).await.expect("dropped").was_open);
    let upload = fixture.upload(bucket, "joined").await;
    let parts = fixture.parts_of(upload, 3, (content, BODY_BYTES)).await;
    let joined = fixture.complete(upload, &parts).await.expect("completed");
    assert_eq!(saved().await, [4 * BODY_BYTES, 0]);
    fixture.copy((joined, 3 * BODY_BYTES), bucket, "copied").await.expect("copied");
    assert_eq!(saved().await, [7 * BODY_BYTES, 0]);
    fixture.copy((joined, 3 * BODY_BYTES), other, "copied").await.expect("copied");
    assert_eq!(saved().await, [7 * BODY_BYTES, 3 * BODY_BYTES]);
}
