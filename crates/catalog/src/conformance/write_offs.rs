//! Tests of write-offs: nothing names the backend afterwards, and what is lost is reported.

use std::time::Duration;

use s3o_model::ids::ContentId;

use super::fixture::replicas::COPY_BYTES as SIZE;
use super::fixture::{Fixture, LEASE, backend};
use super::refused;
use crate::{Late, ReplicaSource, Verdict, WriteOffTotal, lost_contents};

/// Writes off everything on `disk` and finishes its removal.
async fn write_off(fixture: &Fixture) -> Vec<WriteOffTotal> {
    let disk = backend("disk");
    fixture.catalog.begin_write_off(&disk).await.expect("begun");
    let mut position = String::new();
    while let Some(last) = fixture.catalog.write_off_copies(&disk, &position).await.expect("written off") {
        position = last;
    }
    while fixture.catalog.write_off_queues(&disk).await.expect("written off") {}
    fixture.catalog.finish_removal(&disk).await.expect("removed");
    assert_eq!(fixture.counters("disk").await, (0, 0, 0));
    fixture.catalog.write_off_totals(&disk).await.expect("totals")
}

fn total(kind: &str, count: u64, bytes: u64) -> WriteOffTotal {
    WriteOffTotal { kind: kind.to_owned(), count, bytes }
}

/// Descriptions of the contents that are reported as lost.
async fn lost(fixture: &Fixture) -> Vec<String> {
    let (check, catalog) = (lost_contents(), &fixture.catalog);
    let Some(end) = catalog.page_end(check, &check.start(), 1000).await.expect("a page") else { return Vec::new() };
    catalog.broken(check, &check.start(), &end).await.expect("a query")
}

async fn state_of(fixture: &Fixture, content: ContentId) -> String {
    let sql = "SELECT state FROM object_locations WHERE content_id = $1 AND backend_name = 'disk'";
    fixture.rows(sql, crate::params![content]).await[0].string("state").expect("a state")
}

/// A copy goes if another one counts; the content is then short of a copy.
pub async fn replaced_copy_is_written_off_without_a_trace(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(2).await;
    let content = fixture.put_copies(bucket, &["disk", "east"], 2).await;
    assert_eq!(write_off(fixture).await, []);
    assert_eq!((fixture.places_of(content).await, fixture.copy_work(false).await.len()), (vec!["east".into()], 1));
    assert!(fixture.catalog.known_backend(&backend("disk")).await.expect("known").removed);
    refused(fixture.catalog.begin_write_off(&backend("disk")).await, Verdict::Closed);
    refused(fixture.catalog.begin_write_off(&backend("unknown")).await, Verdict::NoSuchObject);
}

/// The last copy stays as a lost one, which is not queued for deletion with its object.
pub async fn last_copy_is_lost(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(1).await;
    let content = fixture.put_copies(bucket, &["disk"], 1).await;
    assert_eq!(write_off(fixture).await, [total("lost_copies", 1, SIZE)]);
    assert_eq!(state_of(fixture, content).await, "lost");
    fixture.review().await;
    assert!(fixture.copy_work(false).await.is_empty(), "nothing can be done for it");
    assert_eq!(lost(fixture).await, [format!("content {content}, {SIZE} bytes")]);
    assert!(fixture.delete(bucket, "a").await);
    assert!(fixture.queued().await.is_empty() && fixture.places_of(content).await.is_empty());
    assert!(lost(fixture).await.is_empty());
}

/// A copy on a draining or unhealthy backend replaces none, although it can be read.
pub async fn copy_that_does_not_count_replaces_none(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(2).await;
    let content = fixture.put_copies(bucket, &["disk", "east"], 2).await;
    fixture.change("UPDATE backends SET unhealthy_since = 1 WHERE name = 'east'", vec![]).await;
    assert_eq!(write_off(fixture).await, [total("lost_copies", 1, SIZE)]);
    assert_eq!((state_of(fixture, content).await, fixture.places_of(content).await.len()), ("lost".to_owned(), 2));
    assert!(lost(fixture).await.is_empty(), "one copy can be read");
    let source = fixture.copy_on(content, "east").await;
    let west = fixture.stage_replica(content, "west").await.expect("staged");
    fixture.commit_replica(&west, &source, ReplicaSource::Nothing).await.expect("copied");
}

/// Queued deletes, dead letters and intents end as one finding per kind.
pub async fn queues_are_written_off_as_one_finding_per_kind(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(1).await;
    for _ in 0..3 {
        fixture.put_copies(bucket, &["disk"], 1).await;
    }
    let dead = "INSERT INTO cleanup_dlq (original_id, backend_name, physical_key, size_bytes, stripe, reason, \
         attempts, created_at, dead_since) SELECT id, backend_name, physical_key, size_bytes, stripe, reason, 10, 1, 1 \
         FROM cleanup_queue ORDER BY id LIMIT 1";
    fixture.change(dead, vec![]).await;
    fixture.change("DELETE FROM cleanup_queue WHERE id IN (SELECT original_id FROM cleanup_dlq)", vec![]).await;
    fixture.stage_copies(&fixture.copy_intents(bucket, &["disk"])).await.expect("staged");
    fixture.clock.advance(LEASE);
    let expected = [
        total("lost_copies", 1, SIZE),
        total("written_off_cleanups", 1, SIZE),
        total("written_off_dead_letters", 1, SIZE),
        total("written_off_intents", 1, SIZE),
    ];
    assert_eq!(write_off(fixture).await, expected);
}

/// The writer of a live intent may not have read the answer of its COMMIT: without its intent it would take the write
/// for committed.
pub async fn intent_is_kept_until_its_lease_ends(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(1).await;
    let disk = backend("disk");
    let intents = fixture.copy_intents(bucket, &["disk"]);
    fixture.stage_copies(&intents).await.expect("staged");
    fixture.catalog.begin_write_off(&disk).await.expect("begun");
    assert!(!fixture.catalog.write_off_queues(&disk).await.expect("nothing"));
    refused(fixture.catalog.finish_removal(&disk).await, Verdict::NotEmpty);
    fixture.clock.advance(LEASE);
    assert!(fixture.catalog.write_off_queues(&disk).await.expect("written off"));
    assert!(!fixture.catalog.drop_write(intents[0].write, Late::No).await.expect("dropped").was_open);
    fixture.catalog.finish_removal(&disk).await.expect("removed");
}

/// A step repeats nothing that an earlier one did, and none begins before the write-off.
pub async fn interrupted_write_off_continues(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(1).await;
    let disk = backend("disk");
    fixture.put_copies(bucket, &["disk"], 1).await;
    refused(fixture.catalog.write_off_copies(&disk, "").await, Verdict::Closed);
    fixture.catalog.begin_write_off(&disk).await.expect("begun");
    assert!(fixture.catalog.write_off_copies(&disk, "").await.expect("written off").is_some());
    assert!(fixture.catalog.write_off_copies(&disk, "").await.expect("nothing").is_none());
    assert_eq!(write_off(fixture).await, [total("lost_copies", 1, SIZE)]);
}

/// A write that ends after the removal leaves a finding: a queued delete would wait forever.
pub async fn write_that_ends_after_the_removal_leaves_a_finding(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(1).await;
    let intents = fixture.copy_intents(bucket, &["disk"]);
    fixture.stage_copies(&intents).await.expect("staged");
    fixture.clock.advance(LEASE);
    write_off(fixture).await;
    let ended = crate::Ended { late: Late::Within(Duration::from_hours(1)), ..crate::Ended::default() };
    fixture.catalog.requeue(&intents[0].place(), SIZE, &ended).await.expect("recorded");
    assert!(fixture.queued().await.is_empty());
    assert_eq!(fixture.number("SELECT count(*) FROM findings WHERE kind = 'written_off'").await, 1);
    assert_eq!(fixture.counters("disk").await, (0, 0, 0));
}

/// The lost copy is gone with its backend.
pub async fn overwrite_of_a_lost_object_queues_nothing(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(1).await;
    fixture.put_copies(bucket, &["disk"], 1).await;
    write_off(fixture).await;
    let again = fixture.put_copies(bucket, &["east"], 1).await;
    assert_eq!((fixture.places_of(again).await, fixture.queued().await.len()), (vec!["east".into()], 0));
    assert!(lost(fixture).await.is_empty());
}
