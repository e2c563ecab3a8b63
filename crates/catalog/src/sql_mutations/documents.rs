//! Unsafe sequences that documents about similar systems prescribe, run as written on separate tables, and then what
//! the catalog does in the same situation.

use std::time::Duration;

use s3o_model::cleanup::Outcome;
use s3o_model::conditions::WriteCondition;

use super::is_named;
use crate::conformance::fixture::{ContentStanding, Fixture, LEASE, first_text};
use crate::conformance::quota_usage;
use crate::{Late, params};

/// Declares a test for each sequence on each database.
macro_rules! sequences {
    ($($name:ident)+) => {
        mod sqlite { $(sequences!(@test $name crate::driver::sqlite::tests::inline_fixture);)+ }
        mod postgres { $(sequences!(@test $name crate::driver::postgres::tests::fixture);)+ }
    };
    (@test $name:ident $fixture:path) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let fixture = $fixture().await;
            super::$name(&fixture).await;
            $crate::conformance::quota_usage::check(&fixture).await;
        }
    };
}

sequences! {
    a_count_is_decremented_twice
    a_late_delete_removes_a_newer_upload
    a_head_finds_older_bytes
    an_instance_name_is_used_as_a_claim
    a_counter_is_updated_in_another_transaction
}

/// Runs the statements of a document, each in its own transaction.
async fn run_as_written(fixture: &Fixture, statements: &[&'static str]) {
    for sql in statements {
        fixture.change(sql, vec![]).await;
    }
}

async fn texts(fixture: &Fixture, sql: &'static str) -> Vec<String> {
    fixture.rows(sql, vec![]).await.iter().map(first_text).collect()
}

/// A worker decrements and crashes, a watchdog resets its rows, the next worker decrements again: shared content is
/// deleted while in use, and the count of unshared content becomes negative, so that its bytes are never deleted.
async fn a_count_is_decremented_twice(fixture: &Fixture) {
    decrement_twice_as_written(fixture).await;
    remove_after_repeated_claims(fixture).await;
}

async fn decrement_twice_as_written(fixture: &Fixture) {
    const DECREMENT: &str = "UPDATE doc_content SET ref_count = ref_count - (SELECT count(*) FROM doc_pastes p \
         WHERE p.content_hash = doc_content.content_hash AND p.expires_at < 100 AND p.status = 'DELETION_IN_PROGRESS')";
    const MARK: &str = "UPDATE doc_pastes SET status = 'DELETION_IN_PROGRESS' \
         WHERE expires_at < 100 AND status = 'NOT_EXPIRED'";
    run_as_written(
        fixture,
        &[
            "CREATE TABLE doc_pastes (short_code TEXT, content_hash TEXT, expires_at INTEGER, status TEXT)",
            "CREATE TABLE doc_content (content_hash TEXT, ref_count INTEGER)",
            "INSERT INTO doc_content VALUES ('shared', 2), ('alone', 1)",
            "INSERT INTO doc_pastes VALUES ('a', 'shared', 1, 'NOT_EXPIRED'), ('b', 'shared', 999, 'NOT_EXPIRED'), \
             ('c', 'alone', 1, 'NOT_EXPIRED')",
            // The worker crashes after its decrement, the watchdog resets the rows, the next worker starts over.
            MARK,
            DECREMENT,
            "UPDATE doc_pastes SET status = 'NOT_EXPIRED' WHERE status = 'DELETION_IN_PROGRESS'",
            MARK,
            DECREMENT,
            "DELETE FROM doc_pastes WHERE status = 'DELETION_IN_PROGRESS'",
        ],
    )
    .await;
    let unreferenced = "SELECT content_hash FROM doc_content WHERE ref_count = 0";
    assert_eq!(texts(fixture, unreferenced).await, ["shared"], "bytes that b still refers to are deleted");
    assert_eq!(fixture.number("SELECT count(*) FROM doc_pastes WHERE content_hash = 'shared'").await, 1);
    assert_eq!(fixture.number("SELECT ref_count FROM doc_content WHERE content_hash = 'alone'").await, -1, "it leaks");
}

/// In the catalog, one unit deletes the row, decrements its count and queues its cleanups.
async fn remove_after_repeated_claims(fixture: &Fixture) {
    let bucket = fixture.bucket("data").await;
    let (minute, stuck) = (Duration::from_mins(1), Duration::from_hours(2));
    let (shared, alone) =
        (fixture.put_expiring(bucket, "a", 5, minute).await, fixture.put_expiring(bucket, "c", 5, minute).await);
    fixture.copy((shared, 5), bucket, "b").await.expect("copied");
    fixture.clock.advance(minute);
    for _ in 0..2 {
        assert_eq!(fixture.claim_expiries(9).await.1, 2);
        fixture.clock.advance(stuck);
        assert_eq!(fixture.catalog.reset_stuck(stuck, 9).await.expect("reset").len(), 2);
        quota_usage::check(fixture).await;
    }
    let (token, _) = fixture.claim_expiries(9).await;
    assert_eq!((fixture.remove_claimed(token).await.len(), fixture.remove_claimed(token).await.len()), (2, 0));
    assert_eq!(
        (fixture.standing(shared).await, fixture.standing(alone).await),
        (ContentStanding::Live(1), ContentStanding::Condemned)
    );
}

/// A queue row names a backend and a logical key. When a worker processes it, the key holds newer bytes.
async fn a_late_delete_removes_a_newer_upload(fixture: &Fixture) {
    run_as_written(
        fixture,
        &[
            "CREATE TABLE doc_store (name TEXT PRIMARY KEY, bytes TEXT)",
            "CREATE TABLE doc_objects (name TEXT PRIMARY KEY)",
            "CREATE TABLE doc_queue (backend TEXT, name TEXT)",
            "INSERT INTO doc_store VALUES ('a', 'first')",
            // The delete of the first bytes fails and is queued. The client uploads again. A worker runs the queue.
            "INSERT INTO doc_queue VALUES ('disk', 'a')",
            "INSERT INTO doc_store VALUES ('a', 'second') ON CONFLICT (name) DO UPDATE SET bytes = excluded.bytes",
            "INSERT INTO doc_objects VALUES ('a')",
            "DELETE FROM doc_store WHERE name IN (SELECT name FROM doc_queue)",
        ],
    )
    .await;
    let lost = "SELECT name FROM doc_objects WHERE name NOT IN (SELECT name FROM doc_store)";
    assert_eq!(texts(fixture, lost).await, ["a"], "an object without bytes");

    // In the catalog, a cleanup names the physical key of one write, and the newer write has another one.
    let bucket = fixture.bucket("data").await;
    fixture.put(bucket, "a", 5).await;
    assert!(fixture.delete(bucket, "a").await);
    fixture.put(bucket, "a", 6).await;
    let located = texts(fixture, "SELECT physical_key FROM object_locations").await;
    let (token, claimed) = fixture.claim(9).await;
    assert!(claimed.iter().all(|cleanup| !located.contains(&cleanup.physical_key)));
    assert_eq!(fixture.settle(token, &claimed, &Outcome::Done).await, 1);
}

/// A reaper takes a HEAD that finds the logical key as proof that the bytes of the intent were written.
async fn a_head_finds_older_bytes(fixture: &Fixture) {
    run_as_written(
        fixture,
        &[
            "CREATE TABLE doc_store (name TEXT PRIMARY KEY, bytes TEXT)",
            "CREATE TABLE doc_objects (name TEXT PRIMARY KEY, etag TEXT)",
            "CREATE TABLE doc_pending (name TEXT, etag TEXT)",
            "INSERT INTO doc_store VALUES ('a', 'first')",
            "INSERT INTO doc_objects VALUES ('a', 'first')",
            // The second writer records its intent and crashes before the first byte. Then the reaper runs.
            "INSERT INTO doc_pending VALUES ('a', 'second')",
            "UPDATE doc_objects SET etag = (SELECT etag FROM doc_pending WHERE name = doc_objects.name) \
             WHERE name IN (SELECT p.name FROM doc_pending p JOIN doc_store s ON s.name = p.name)",
        ],
    )
    .await;
    let wrong = "SELECT o.name FROM doc_objects o JOIN doc_store s ON s.name = o.name WHERE o.etag <> s.bytes";
    assert_eq!(texts(fixture, wrong).await, ["a"], "the row has the ETag of other bytes");

    // In the catalog, the reaper checks a physical key that only the second write can have created.
    let bucket = fixture.bucket("data").await;
    fixture.put(bucket, "a", 5).await;
    let located = texts(fixture, "SELECT physical_key FROM object_locations").await;
    fixture.staged(bucket, "a", 6).await;
    fixture.clock.advance(LEASE);
    let expired = fixture.catalog.claim_expired(fixture.token(), 9, LEASE).await.expect("claimed");
    let places: Vec<_> = expired.iter().filter_map(|intent| intent.place.clone()).collect();
    assert_eq!(places.len(), 1);
    assert!(places.iter().all(|(_, physical_key)| !located.contains(physical_key)));
}

/// A claim that is only the name of an instance lets any run of that instance settle the row, however late.
async fn an_instance_name_is_used_as_a_claim(fixture: &Fixture) {
    run_as_written(
        fixture,
        &[
            "CREATE TABLE doc_queue (name TEXT, claimed_by TEXT)",
            "INSERT INTO doc_queue VALUES ('a', NULL)",
            "UPDATE doc_queue SET claimed_by = 'one' WHERE claimed_by IS NULL",
            // The claim becomes stale and is freed, and the bytes arrive late. The next run of the same instance claims
            // the row to delete them. Then the first run, which found no bytes, settles the row as done.
            "UPDATE doc_queue SET claimed_by = NULL",
            "UPDATE doc_queue SET claimed_by = 'one' WHERE claimed_by IS NULL",
            "DELETE FROM doc_queue WHERE claimed_by = 'one'",
        ],
    )
    .await;
    assert_eq!(
        fixture.number("SELECT count(*) FROM doc_queue").await,
        0,
        "the row of the second run is deleted, the bytes are not"
    );

    // In the catalog, each claim has its own token.
    let bucket = fixture.bucket("data").await;
    let intent = fixture.staged(bucket, "a", 5).await;
    fixture.catalog.drop_write(intent.write, Late::Within(LEASE)).await.expect("dropped");
    let first = fixture.claimant();
    let next = s3o_model::claim::Claimant { instance: first.instance, token: fixture.token() };
    let late = fixture.catalog.claim_cleanups(&intent.backend, 9, &first).await.expect("claimed").cleanups;
    fixture.catalog.free_stale_claims(Duration::ZERO, fixture.token()).await.expect("freed");
    let current = fixture.catalog.claim_cleanups(&intent.backend, 9, &next).await.expect("claimed").cleanups;
    assert_eq!(fixture.settle(first.token, &late, &Outcome::DoneAbsent).await, 0);
    assert!(is_named(fixture, &intent.physical_key).await);
    assert_eq!(fixture.settle(next.token, &current, &Outcome::Done).await, 1);
}

/// The queue and its counter are updated in two transactions: a crash between them leaves a permanent drift.
async fn a_counter_is_updated_in_another_transaction(fixture: &Fixture) {
    run_as_written(
        fixture,
        &[
            "CREATE TABLE doc_queue (name TEXT, size_bytes INTEGER)",
            "CREATE TABLE doc_quota (orphan_bytes INTEGER)",
            "INSERT INTO doc_quota VALUES (0)",
            // The row is queued, and the process crashes before it updates the counter. Later the row is settled.
            "INSERT INTO doc_queue VALUES ('a', 5)",
            "DELETE FROM doc_queue",
            "UPDATE doc_quota SET orphan_bytes = orphan_bytes - 5",
        ],
    )
    .await;
    assert_eq!(fixture.number("SELECT orphan_bytes FROM doc_quota").await, -5, "free space that does not exist");

    // In the catalog, both are one unit: if one statement fails, nothing is changed.
    let bucket = fixture.bucket("data").await;
    let intent = fixture.staged(bucket, "a", 5).await;
    let reserve = "UPDATE backend_quotas SET reserved_bytes = $1 WHERE stripe = (SELECT stripe FROM pending_objects)";
    fixture.change(reserve, params![0]).await;
    fixture.catalog.drop_write(intent.write, Late::No).await.expect_err("the counter cannot be negative");
    assert_eq!((fixture.queued().await, fixture.usage().await), (vec![], (0, 0, 0)));
    fixture.change(reserve, params![5]).await;
    fixture.commit(&intent, WriteCondition::None).await.expect("the failed unit changed nothing");
}
