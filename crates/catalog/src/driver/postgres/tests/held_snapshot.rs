//! The cost of queries for work while another session holds a snapshot, so that settled rows stay in the indexes.

use std::time::Duration;

use super::explained::{Explained, explained};
use super::session;
use crate::Ages;
use crate::conformance::fixture::{Fixture, backend, clock};

/// Rows that were settled until now, a thousand per second.
const SETTLE: &str = "
    INSERT INTO cleanup_queue (backend_name, physical_key, size_bytes, stripe, reason, due, created_at)
        SELECT 'disk', 'settled' || n, 0, 0, 'delete', {now} - 100000 + n, 0 FROM generate_series(1, 100000) n;
    UPDATE cleanup_queue SET token = 'settled', claimed_by = 'instance', claimed_at = due;
    DELETE FROM cleanup_queue WHERE token = 'settled';
    INSERT INTO pending_objects (id, write_id, kind, bucket_id, key, backend_name, physical_key, size_bytes, stripe,
        owner, lease_until, created_at)
        SELECT n, n, 'object', 1, n, 'disk', n, 0, 0, 'instance', {now} - 110000 + n, 0
        FROM generate_series(1, 100000) n;
    DELETE FROM pending_objects;
    INSERT INTO contents (id, kind, size_bytes, ref_count, state, condemned_at)
        SELECT n, 'whole', 0, 0, 'condemned', {now} - 110000 + n FROM generate_series(1, 100000) n;
    DELETE FROM contents";

const QUEUE: &str =
    "INSERT INTO cleanup_queue (backend_name, physical_key, size_bytes, stripe, reason, due, created_at)
    SELECT 'disk', '{name}' || n, 0, 0, 'delete', {now}, 0 FROM generate_series(1, 400) n";

const NOW: &str = "(SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint)";

/// Buffers of a query for cleanups with the claim that follows, and of a query for expired leases.
async fn cost(fixture: &Fixture, driver: &Explained) -> (u64, u64) {
    let age = Duration::from_secs(10);
    let ages = Ages { claims: age, joined: age, answers: age, condemned: age };
    driver.take_buffers();
    let waiting = fixture.catalog.waiting(&[backend("disk")], &ages).await.expect("an answer");
    assert_eq!(waiting.lanes.len(), 1);
    fixture.catalog.claim_cleanups(&backend("disk"), 100, &fixture.claimant()).await.expect("claimed");
    let claim = driver.take_buffers();
    fixture.reap(100, Duration::ZERO).await;
    (claim, driver.take_buffers())
}

#[tokio::test]
async fn a_claim_costs_at_most_double_behind_a_hundred_thousand_settled_rows() {
    let (fixture, driver, schema) = explained().await;
    let (holder, other) = (session(&schema).await, session(&schema).await);
    let script = |sql: &str, name: &str| sql.replace("{now}", NOW).replace("{name}", name);
    holder.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM cleanup_queue").await.expect("a snapshot");
    other.batch_execute(&script(QUEUE, "early")).await.expect("a queue");
    cost(&fixture, &driver).await;
    let before = cost(&fixture, &driver).await;
    other.batch_execute(&script(SETTLE, "")).await.expect("settled");
    other.batch_execute(&script(QUEUE, "late")).await.expect("a queue");
    // The first query after the settlement reads the rows that were added since the last one.
    cost(&fixture, &driver).await;
    let after = cost(&fixture, &driver).await;
    assert!(after.0 <= 2 * before.0 && after.1 <= 2 * before.1, "{after:?} buffers, {before:?} before");
    // A catalog without a remembered position reads from the start of the index.
    let new_catalog = Fixture::over(driver.clone(), clock(), ());
    let from_the_start = cost(&new_catalog, &driver).await;
    assert!(from_the_start.0 > 2 * after.0 && from_the_start.1 > 10 * after.1, "{from_the_start:?}, {after:?}");
    holder.batch_execute("COMMIT").await.expect("committed");
}
