//! What letting go of content costs behind much that was condemned within the last hour, while the database still
//! believes that nothing is.

use super::explained::{Explained, explained};
use super::session;
use crate::Expiries;
use crate::conformance::scene::Scene;

const FILL: &str = "
    INSERT INTO buckets (name, created_at) VALUES ('bucket', 0);
    INSERT INTO contents (id, kind, size_bytes, ref_count) SELECT n, 'whole', 0, 1 FROM generate_series(1, 30000) n;
    INSERT INTO object_locations (content_id, backend_name, physical_key, size_bytes, stripe, verified_at)
        SELECT n, 'disk', n, 0, 0, 0 FROM generate_series(1, 30000) n;
    INSERT INTO objects (bucket_id, key, content_id, version_id, size_bytes, etag, headers, metadata, tags, last_modified)
        SELECT (SELECT id FROM buckets), n, n, n, 0, '', '{}', '{}', '{}', 0 FROM generate_series(1, 30000) n;
    ANALYZE contents, object_locations, objects";

const CONDEMN: &str = "
    DELETE FROM objects WHERE key::bigint > 10000;
    DELETE FROM object_locations WHERE physical_key::bigint > 10000;
    UPDATE contents SET state = 'condemned', condemned_at = 0, ref_count = 0 WHERE id::bigint > 10000";

/// What it costs to remove a hundred objects from this key on.
async fn cost(scene: &Scene, driver: &Explained, other: &tokio_postgres::Client, from: u32) -> u64 {
    let (token, end) = (scene.token(), from + 99);
    let claim = format!("UPDATE objects SET token = '{token}' WHERE key::bigint BETWEEN {from} AND {end}");
    assert_eq!(other.execute(&claim, &[]).await.expect("claimed"), 100);
    driver.spent();
    scene.catalog.remove_claimed(token).await.expect("removed");
    driver.spent()
}

#[tokio::test]
async fn what_was_condemned_lately_costs_nothing_more() {
    let (scene, driver, schema) = explained().await;
    let other = session(&schema).await;
    other.batch_execute(FILL).await.expect("filled");
    let alone = cost(&scene, &driver, &other, 1).await;
    other.batch_execute(CONDEMN).await.expect("condemned");
    let behind = cost(&scene, &driver, &other, 1001).await;
    assert!(behind <= 2 * alone, "{behind} buffers, {alone} before");
    let left = other.query_one("SELECT count(*) FROM object_locations", &[]).await.expect("counted");
    assert_eq!(left.get::<_, i64>(0), 10_000 - 200, "both hundreds went with their locations");
}
