//! Tests of several copies of one content: written together, or added later.

use std::time::Duration;

use s3o_model::content::Location;

use super::fixture::replicas::COPY_BYTES as SIZE;
use super::fixture::{ContentStanding, Fixture, LEASE, backend};
use super::refused;
use crate::{FailedCopy, Late, Replica, ReplicaSource, Verdict};

const WINDOW: Duration = Duration::from_hours(1);

/// Both copies are locations, and each backend counts its own.
pub async fn write_of_two_copies_is_located_twice(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(2).await;
    let content = fixture.put_copies(bucket, &["west", "disk"], 2).await;
    assert_eq!(fixture.places_of(content).await, ["disk", "west"]);
    assert_eq!((fixture.counters("disk").await, fixture.counters("west").await), ((5, 0, 0), (5, 0, 0)));
    assert!(fixture.copy_work(false).await.is_empty());
    assert!(fixture.delete(bucket, "a").await);
    assert_eq!((fixture.queued().await.len(), fixture.counters("west").await), (2, (0, 5, 0)));
}

/// The commit names the copies that were stored; the others never become locations.
pub async fn commit_enqueues_cleanup_of_failed_copy(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(2).await;
    let intents = fixture.copy_intents(bucket, &["disk", "east"]);
    fixture.stage_copies(&intents).await.expect("staged");
    let failed = vec![FailedCopy { intent: intents[1].id, late: Late::Within(WINDOW) }];
    let put = fixture.put_of_copies(&intents, failed, 2);
    let content = put.content;
    fixture.commit_put(put).await.expect("committed");
    assert_eq!(fixture.places_of(content).await, ["disk"]);
    assert_eq!(fixture.queued().await, [intents[1].physical_key.clone()]);
    assert_eq!((fixture.counters("disk").await, fixture.counters("east").await), ((5, 0, 0), (0, 5, 0)));
    let late = fixture.number("SELECT absent_ok_after FROM cleanup_queue").await;
    assert_eq!(late, fixture.now().after(WINDOW).millis());
    let lacking = fixture.copy_work(false).await;
    assert_eq!((lacking.len(), lacking[0].counting(), lacking[0].factor), (1, 1, 2));
}

/// If one backend is full, no intent is inserted and no byte is reserved.
pub async fn copies_are_staged_together_or_not_at_all(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(2).await;
    fixture.attach("east", Some(SIZE - 1)).await;
    refused(fixture.stage_copies(&fixture.copy_intents(bucket, &["disk", "east"])).await, Verdict::NoSpace);
    fixture.set_frozen(&backend("west"), Some("wrong disk")).await;
    refused(fixture.stage_copies(&fixture.copy_intents(bucket, &["west", "disk"])).await, Verdict::Closed);
    assert_eq!((fixture.number("SELECT count(*) FROM pending_objects").await, fixture.usage().await), (0, (0, 0, 0)));
}

/// A write with too few copies is work until another copy is committed.
pub async fn missing_copy_is_written_once(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(2).await;
    let content = fixture.put_copies(bucket, &["disk"], 2).await;
    let source = fixture.copy_on(content, "disk").await;
    assert_eq!(fixture.copy_work(false).await.len(), 1);
    let (east, west) = (
        fixture.stage_replica(content, "east").await.expect("staged"),
        fixture.stage_replica(content, "west").await.expect("staged"),
    );
    refused(fixture.stage_replica(content, "east").await, Verdict::NotNeeded);
    assert_eq!(fixture.counters("east").await, (0, 0, 5));
    fixture.commit_replica(&east, &source, ReplicaSource::Nothing).await.expect("committed");
    assert_eq!(
        (fixture.places_of(content).await, fixture.counters("east").await),
        (vec!["disk".into(), "east".into()], (5, 0, 0))
    );
    assert!(fixture.copy_work(false).await.is_empty());
    // A second replicator, whose lock was lost, copied to another backend.
    refused(fixture.commit_replica(&west, &source, ReplicaSource::Nothing).await, Verdict::NotNeeded);
    fixture.catalog.drop_write(west.write, Late::No).await.expect("dropped");
    assert_eq!((fixture.places_of(content).await.len(), fixture.counters("west").await), (2, (0, 5, 0)));
    let reason = fixture.rows("SELECT reason FROM cleanup_queue", vec![]).await;
    assert_eq!(reason[0].text("reason").expect("text"), "replication");
}

/// Content that was deleted while it was copied is condemned at once; the new bytes become a cleanup.
pub async fn copy_of_deleted_content_is_refused(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(2).await;
    let content = fixture.put_copies(bucket, &["disk"], 2).await;
    let source = fixture.copy_on(content, "disk").await;
    let east = fixture.stage_replica(content, "east").await.expect("staged");
    assert!(fixture.delete(bucket, "a").await);
    assert_eq!(fixture.standing(content).await, ContentStanding::Condemned);
    refused(fixture.commit_replica(&east, &source, ReplicaSource::Nothing).await, Verdict::ResolveAgain);
    refused(fixture.stage_replica(content, "west").await, Verdict::NotNeeded);
    fixture.catalog.settle_copy_work(content).await.expect("settled");
    assert!(fixture.copy_work(false).await.is_empty());
    fixture.catalog.drop_write(east.write, Late::No).await.expect("dropped");
    assert_eq!(fixture.queued().await.len(), 2);
}

/// The reaper claims a copy whose writer died and turns it into a cleanup; it has no bucket and no key.
pub async fn cleanup_of_expired_copy_is_enqueued(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(2).await;
    let content = fixture.put_copies(bucket, &["disk"], 2).await;
    let east = fixture.stage_replica(content, "east").await.expect("staged");
    fixture.clock.advance(LEASE);
    let token = fixture.token();
    let claimed = fixture.catalog.claim_expired(token, 10, LEASE).await.expect("claimed");
    assert_eq!((claimed.len(), claimed[0].key.clone(), claimed[0].id), (1, None, east.intent));
    let source = fixture.copy_on(content, "disk").await;
    refused(fixture.commit_replica(&east, &source, ReplicaSource::Nothing).await, Verdict::Fenced);
    assert!(fixture.catalog.abandon(token, east.write, WINDOW).await.expect("abandoned"));
    assert_eq!((fixture.queued().await, fixture.counters("east").await), (vec![east.target.physical_key], (0, 5, 0)));
    assert_eq!(fixture.copy_work(false).await.len(), 1);
}

/// A suspect copy does not count, is replaced by a new one on the same backend, and counts again once it is confirmed.
pub async fn suspect_copy_is_work_until_it_is_replaced_or_confirmed(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(1).await;
    let content = fixture.put_copies(bucket, &["disk"], 1).await;
    let copy = fixture.copy_on(content, "disk").await;
    assert!(fixture.catalog.suspect(content, &copy).await.expect("marked"));
    assert_eq!(fixture.copy_work(false).await[0].counting(), 0);
    fixture.catalog.confirm_copy(content, &copy, fixture.now()).await.expect("confirmed");
    assert!(fixture.copy_work(false).await.is_empty());
    assert!(fixture.catalog.suspect(content, &copy).await.expect("marked"));
    let replaced = fixture.stage_replica(content, "disk").await.expect("staged");
    let elsewhere = Location { backend: backend("east"), physical_key: "unknown".to_owned(), backend_version: None };
    fixture.commit_replica(&replaced, &elsewhere, ReplicaSource::Nothing).await.expect("committed");
    assert_eq!(
        (fixture.queued().await, fixture.copy_on(content, "disk").await),
        (vec![copy.physical_key], replaced.target)
    );
    assert_eq!((fixture.usage().await, fixture.copy_work(false).await.len()), ((5, 5, 0), 0));
}

/// A source that was opened before its backend was accepted may have been on another store.
pub async fn source_read_before_an_accept_does_not_count(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(2).await;
    let content = fixture.put_copies(bucket, &["disk"], 2).await;
    let (source, stage) =
        (fixture.copy_on(content, "disk").await, fixture.stage_replica(content, "east").await.expect("staged"));
    let read_since = fixture.now();
    fixture.clock.advance(Duration::from_secs(1));
    let accepted = crate::params![fixture.now().millis()];
    fixture.change("UPDATE backends SET trust_from = $1 WHERE name = 'disk'", accepted).await;
    fixture.clock.advance(Duration::from_secs(1));
    let (intent, backend, replaces) = (stage.intent, backend("east"), ReplicaSource::Nothing);
    let replica = Replica { intent, content, backend, backend_version: None, source, read_since, replaces };
    fixture.catalog.commit_replica(&replica).await.expect("committed");
    assert_eq!(fixture.copy_work(false).await[0].counting(), 1, "the new copy alone");
}
