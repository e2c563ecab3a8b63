//! What looking for work costs while another session holds a snapshot: nothing that was settled meanwhile leaves the
//! indexes.

use std::time::Duration;

use super::explained::{Explained, explained};
use super::session;
use crate::conformance::scene::{Scene, backend, clock};
use crate::{Ages, Cleanups};

/// Settled, at a thousand each second, up to this moment.
const SETTLE: &str = "
    INSERT INTO cleanup_queue (backend_name, physical_key, size_bytes, stripe, reason, due, created_at)
        SELECT 'disk', 'settled' || n, 0, 0, 'delete', {now} - 100000 + n, 0 FROM generate_series(1, 100000) n;
    UPDATE cleanup_queue SET token = 'settled', claimed_by = 'somebody', claimed_at = due;
    DELETE FROM cleanup_queue WHERE token = 'settled';
    INSERT INTO pending_objects (id, write_id, kind, bucket_id, key, backend_name, physical_key, size_bytes, stripe,
        owner, lease_until, created_at)
        SELECT n, n, 'object', 1, n, 'disk', n, 0, 0, 'somebody', {now} - 110000 + n, 0 FROM generate_series(1, 100000) n;
    DELETE FROM pending_objects;
    INSERT INTO contents (id, kind, size_bytes, ref_count, state, condemned_at)
        SELECT n, 'whole', 0, 0, 'condemned', {now} - 110000 + n FROM generate_series(1, 100000) n;
    DELETE FROM contents";

const QUEUE: &str =
    "INSERT INTO cleanup_queue (backend_name, physical_key, size_bytes, stripe, reason, due, created_at)
    SELECT 'disk', '{name}' || n, 0, 0, 'delete', {now}, 0 FROM generate_series(1, 400) n";

const NOW: &str = "(SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint)";

/// What a look for cleanups and the claim behind it cost, and what a look for ended leases does.
async fn cost(scene: &Scene, driver: &Explained) -> (u64, u64) {
    let age = Duration::from_secs(10);
    let ages = Ages { claims: age, joined: age, answers: age, condemned: age };
    driver.spent();
    let waiting = scene.catalog.waiting(&[backend("disk")], &ages).await.expect("a look");
    assert_eq!(waiting.lanes.len(), 1);
    scene.catalog.claim_cleanups(&backend("disk"), 100, &scene.claimant()).await.expect("claimed");
    let claim = driver.spent();
    scene.reap(100, Duration::ZERO).await;
    (claim, driver.spent())
}

#[tokio::test]
async fn a_claim_costs_at_most_double_behind_a_hundred_thousand_settled_rows() {
    let (scene, driver, schema) = explained().await;
    let (holder, other) = (session(&schema).await, session(&schema).await);
    let script = |sql: &str, name: &str| sql.replace("{now}", NOW).replace("{name}", name);
    holder.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM cleanup_queue").await.expect("a snapshot");
    other.batch_execute(&script(QUEUE, "early")).await.expect("a queue");
    cost(&scene, &driver).await;
    let fresh = cost(&scene, &driver).await;
    other.batch_execute(&script(SETTLE, "")).await.expect("settled");
    other.batch_execute(&script(QUEUE, "late")).await.expect("a queue");
    // The first look behind them reads what the last one has not seen yet.
    cost(&scene, &driver).await;
    let behind = cost(&scene, &driver).await;
    assert!(behind.0 <= 2 * fresh.0 && behind.1 <= 2 * fresh.1, "{behind:?} buffers, {fresh:?} before");
    // Who knows nothing begins at the start; that is what the others are spared.
    let stranger = Scene::over(driver.clone(), clock(), ());
    let from_the_start = cost(&stranger, &driver).await;
    assert!(from_the_start.0 > 2 * behind.0 && from_the_start.1 > 10 * behind.1, "{from_the_start:?}, {behind:?}");
    holder.batch_execute("COMMIT").await.expect("let go");
}
