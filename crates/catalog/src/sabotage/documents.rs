//! Sequences that documents about systems like this one prescribe, played on tables of their own as they are written, and
//! beside each what the catalog does when the same happens to it.

use std::time::Duration;

use s3o_model::cleanup::Outcome;
use s3o_model::conditions::WriteCondition;

use super::is_named;
use crate::conformance::books;
use crate::conformance::scene::{LEASE, Scene, Standing};
use crate::{Cleanups, Intents, Late, StuckObjects, params};

/// One test of each sequence on each database.
macro_rules! sequences {
    ($($name:ident)+) => {
        mod sqlite { $(sequences!(@test $name crate::driver::sqlite::facts::inline_scene);)+ }
        mod postgres { $(sequences!(@test $name crate::driver::postgres::facts::scene);)+ }
    };
    (@test $name:ident $scene:path) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let scene = $scene().await;
            super::$name(&scene).await;
            $crate::conformance::books::check(&scene).await;
        }
    };
}

sequences! {
    a_count_is_taken_down_twice
    a_late_delete_hits_a_newer_upload
    a_head_finds_older_bytes
    a_name_is_taken_for_a_claim
    a_counter_is_changed_apart_from_its_row
}

/// Statements as a document gives them, each a transaction of its own.
async fn as_written(scene: &Scene, statements: &[&'static str]) {
    for sql in statements {
        scene.change(sql, vec![]).await;
    }
}

async fn texts(scene: &Scene, sql: &'static str) -> Vec<String> {
    scene.rows(sql, vec![]).await.iter().map(|row| row.text(0).expect("text").to_owned()).collect()
}

/// Decrement, crash, reset by a watchdog, decrement again: shared content goes while it is used, and content of one object
/// ends below zero and never goes.
async fn a_count_is_taken_down_twice(scene: &Scene) {
    const DECREMENT: &str = "UPDATE doc_content SET ref_count = ref_count - (SELECT count(*) FROM doc_pastes p \
         WHERE p.content_hash = doc_content.content_hash AND p.expires_at < 100 AND p.status = 'DELETION_IN_PROGRESS')";
    const MARK: &str = "UPDATE doc_pastes SET status = 'DELETION_IN_PROGRESS' \
         WHERE expires_at < 100 AND status = 'NOT_EXPIRED'";
    as_written(
        scene,
        &[
            "CREATE TABLE doc_pastes (short_code TEXT, content_hash TEXT, expires_at INTEGER, status TEXT)",
            "CREATE TABLE doc_content (content_hash TEXT, ref_count INTEGER)",
            "INSERT INTO doc_content VALUES ('shared', 2), ('alone', 1)",
            "INSERT INTO doc_pastes VALUES ('a', 'shared', 1, 'NOT_EXPIRED'), ('b', 'shared', 999, 'NOT_EXPIRED'), \
             ('c', 'alone', 1, 'NOT_EXPIRED')",
            // The worker dies behind its decrement; the watchdog gives the rows back; the next worker begins again.
            MARK,
            DECREMENT,
            "UPDATE doc_pastes SET status = 'NOT_EXPIRED' WHERE status = 'DELETION_IN_PROGRESS'",
            MARK,
            DECREMENT,
            "DELETE FROM doc_pastes WHERE status = 'DELETION_IN_PROGRESS'",
        ],
    )
    .await;
    let doomed = "SELECT content_hash FROM doc_content WHERE ref_count = 0";
    assert_eq!(texts(scene, doomed).await, ["shared"], "bytes that b still needs are deleted");
    assert_eq!(scene.number("SELECT count(*) FROM doc_pastes WHERE content_hash = 'shared'").await, 1);
    assert_eq!(scene.number("SELECT ref_count FROM doc_content WHERE content_hash = 'alone'").await, -1, "it leaks");

    // Here a claim is not work that is half done: the row, its count and its cleanups change in one unit.
    let bucket = scene.bucket("house").await;
    let (minute, stuck) = (Duration::from_mins(1), Duration::from_hours(2));
    let (shared, alone) = (scene.mortal(bucket, "a", 5, minute).await, scene.mortal(bucket, "c", 5, minute).await);
    scene.copy((shared, 5), bucket, "b").await.expect("copied");
    scene.clock.advance(minute);
    for _ in 0..2 {
        assert_eq!(scene.claim_expiries(9).await.1, 2);
        scene.clock.advance(stuck);
        assert_eq!(scene.catalog.reset_stuck(stuck, 9).await.expect("reset").len(), 2);
        books::check(scene).await;
    }
    let (token, _) = scene.claim_expiries(9).await;
    assert_eq!((scene.remove_claimed(token).await.len(), scene.remove_claimed(token).await.len()), (2, 0));
    assert_eq!((scene.standing(shared).await, scene.standing(alone).await), (Standing::Live(1), Standing::Condemned));
}

/// A queue row that names a backend and a logical key: by the time it is worked on, the key holds something newer.
async fn a_late_delete_hits_a_newer_upload(scene: &Scene) {
    as_written(
        scene,
        &[
            "CREATE TABLE doc_store (name TEXT PRIMARY KEY, bytes TEXT)",
            "CREATE TABLE doc_objects (name TEXT PRIMARY KEY)",
            "CREATE TABLE doc_queue (backend TEXT, name TEXT)",
            "INSERT INTO doc_store VALUES ('a', 'first')",
            // The delete of the first bytes fails and is queued; the client uploads again; the queue is worked on.
            "INSERT INTO doc_queue VALUES ('disk', 'a')",
            "INSERT INTO doc_store VALUES ('a', 'second') ON CONFLICT (name) DO UPDATE SET bytes = excluded.bytes",
            "INSERT INTO doc_objects VALUES ('a')",
            "DELETE FROM doc_store WHERE name IN (SELECT name FROM doc_queue)",
        ],
    )
    .await;
    let lost = "SELECT name FROM doc_objects WHERE name NOT IN (SELECT name FROM doc_store)";
    assert_eq!(texts(scene, lost).await, ["a"], "an object without bytes");

    // Here the queue names the bytes of one write, and the newer write has others.
    let bucket = scene.bucket("house").await;
    scene.put(bucket, "a", 5).await;
    assert!(scene.delete(bucket, "a").await);
    scene.put(bucket, "a", 6).await;
    let located = texts(scene, "SELECT physical_key FROM object_locations").await;
    let (token, claimed) = scene.claim(9).await;
    assert!(claimed.iter().all(|cleanup| !located.contains(&cleanup.physical_key)));
    assert_eq!(scene.settle(token, &claimed, &Outcome::Done).await, 1);
}

/// An intent whose key answers to a HEAD is taken for one whose bytes arrived.
async fn a_head_finds_older_bytes(scene: &Scene) {
    as_written(
        scene,
        &[
            "CREATE TABLE doc_store (name TEXT PRIMARY KEY, bytes TEXT)",
            "CREATE TABLE doc_objects (name TEXT PRIMARY KEY, etag TEXT)",
            "CREATE TABLE doc_pending (name TEXT, etag TEXT)",
            "INSERT INTO doc_store VALUES ('a', 'first')",
            "INSERT INTO doc_objects VALUES ('a', 'first')",
            // The intent of the second write is there; its writer dies before the first byte. Then comes the reaper.
            "INSERT INTO doc_pending VALUES ('a', 'second')",
            "UPDATE doc_objects SET etag = (SELECT etag FROM doc_pending WHERE name = doc_objects.name) \
             WHERE name IN (SELECT p.name FROM doc_pending p JOIN doc_store s ON s.name = p.name)",
        ],
    )
    .await;
    let wrong = "SELECT o.name FROM doc_objects o JOIN doc_store s ON s.name = o.name WHERE o.etag <> s.bytes";
    assert_eq!(texts(scene, wrong).await, ["a"], "a row that says what its bytes are not");

    // Here the reaper is sent to a key that only the second write can have filled.
    let bucket = scene.bucket("house").await;
    scene.put(bucket, "a", 5).await;
    let located = texts(scene, "SELECT physical_key FROM object_locations").await;
    scene.staged(bucket, "a", 6).await;
    scene.clock.advance(LEASE);
    let expired = scene.catalog.claim_expired(scene.token(), 9, LEASE).await.expect("claimed");
    let places: Vec<_> = expired.iter().filter_map(|intent| intent.place.clone()).collect();
    assert_eq!(places.len(), 1);
    assert!(places.iter().all(|(_, physical_key)| !located.contains(physical_key)));
}

/// A row that is claimed by the name of an instance alone is settled by whoever bears it, however late.
async fn a_name_is_taken_for_a_claim(scene: &Scene) {
    as_written(
        scene,
        &[
            "CREATE TABLE doc_queue (name TEXT, claimed_by TEXT)",
            "INSERT INTO doc_queue VALUES ('a', NULL)",
            "UPDATE doc_queue SET claimed_by = 'one' WHERE claimed_by IS NULL",
            // Its claim is stale and freed; the write lands late; the row is claimed again, by the next run of the same
            // instance, which is about to delete the bytes. The first run wakes up: it saw nothing, so it is done.
            "UPDATE doc_queue SET claimed_by = NULL",
            "UPDATE doc_queue SET claimed_by = 'one' WHERE claimed_by IS NULL",
            "DELETE FROM doc_queue WHERE claimed_by = 'one'",
        ],
    )
    .await;
    assert_eq!(
        scene.number("SELECT count(*) FROM doc_queue").await,
        0,
        "the second run's row is gone, the bytes are not"
    );

    // Here each claim has a token of its own.
    let bucket = scene.bucket("house").await;
    let intent = scene.staged(bucket, "a", 5).await;
    scene.catalog.drop_write(intent.write, Late::Within(LEASE)).await.expect("given up");
    let one = scene.claimant();
    let again = s3o_model::claim::Claimant { instance: one.instance, token: scene.token() };
    let asleep = scene.catalog.claim_cleanups(&intent.backend, 9, &one).await.expect("claimed").cleanups;
    scene.catalog.free_stale_claims(Duration::ZERO, scene.token()).await.expect("freed");
    let awake = scene.catalog.claim_cleanups(&intent.backend, 9, &again).await.expect("claimed").cleanups;
    assert_eq!(scene.settle(one.token, &asleep, &Outcome::DoneAbsent).await, 0);
    assert!(is_named(scene, &intent.physical_key).await);
    assert_eq!(scene.settle(again.token, &awake, &Outcome::Done).await, 1);
}

/// Queueing and counting in two transactions: a crash between them is a drift that stays.
async fn a_counter_is_changed_apart_from_its_row(scene: &Scene) {
    as_written(
        scene,
        &[
            "CREATE TABLE doc_queue (name TEXT, size_bytes INTEGER)",
            "CREATE TABLE doc_quota (orphan_bytes INTEGER)",
            "INSERT INTO doc_quota VALUES (0)",
            // The row is queued, the process dies before the counter; later the row is done and counted off.
            "INSERT INTO doc_queue VALUES ('a', 5)",
            "DELETE FROM doc_queue",
            "UPDATE doc_quota SET orphan_bytes = orphan_bytes - 5",
        ],
    )
    .await;
    assert_eq!(scene.number("SELECT orphan_bytes FROM doc_quota").await, -5, "room that is not there");

    // Here there is no between: a unit that cannot do all does nothing.
    let bucket = scene.bucket("house").await;
    let intent = scene.staged(bucket, "a", 5).await;
    let book = "UPDATE backend_quotas SET reserved_bytes = $1 WHERE stripe = (SELECT stripe FROM pending_objects)";
    scene.change(book, params![0]).await;
    scene.catalog.drop_write(intent.write, Late::No).await.expect_err("the counter cannot go below nothing");
    assert_eq!((scene.queued().await, scene.booked().await), (vec![], (0, 0, 0)));
    scene.change(book, params![5]).await;
    scene.commit(&intent, WriteCondition::None).await.expect("as if nothing had been tried");
}
