//! The cost of releasing content when much content was condemned within the last hour and the statistics of the
//! database are from before.

use super::explained::{Explained, explained};
use super::session;
use crate::conformance::fixture::Fixture;

const FILL: &str = "
    INSERT INTO buckets (name, created_at) VALUES ('bucket', 0);
    INSERT INTO contents (id, kind, size_bytes, ref_count) SELECT n, 'whole', 0, 1 FROM generate_series(1, 30000) n;
    INSERT INTO object_locations (content_id, backend_name, physical_key, size_bytes, stripe, verified_at)
        SELECT n, 'disk', n, 0, 0, 0 FROM generate_series(1, 30000) n;
    INSERT INTO objects
        (bucket_id, key, content_id, version_id, size_bytes, etag, headers, metadata, tags, last_modified)
        SELECT (SELECT id FROM buckets), n, n, n, 0, '', '{}', '{}', '{}', 0 FROM generate_series(1, 30000) n;
    ANALYZE contents, object_locations, objects";

const CONDEMN: &str = "
    DELETE FROM objects WHERE key::bigint > 10000;
    DELETE FROM object_locations WHERE physical_key::bigint > 10000;
    UPDATE contents SET state = 'condemned', condemned_at = 0, ref_count = 0 WHERE id::bigint > 10000";

/// Buffers touched by the removal of a hundred objects, starting with this key.
async fn cost(fixture: &Fixture, driver: &Explained, other: &tokio_postgres::Client, from: u32) -> u64 {
    let (token, end) = (fixture.token(), from + 99);
    let claim = format!("UPDATE objects SET token = '{token}' WHERE key::bigint BETWEEN {from} AND {end}");
    assert_eq!(other.execute(&claim, &[]).await.expect("claimed"), 100);
    driver.take_buffers();
    fixture.catalog.remove_claimed(token).await.expect("removed");
    driver.take_buffers()
}

#[tokio::test]
async fn recently_condemned_content_at_most_doubles_the_cost() {
    let (fixture, driver, schema) = explained().await;
    let other = session(&schema).await;
    other.batch_execute(FILL).await.expect("filled");
    let before = cost(&fixture, &driver, &other, 1).await;
    other.batch_execute(CONDEMN).await.expect("condemned");
    let after = cost(&fixture, &driver, &other, 1001).await;
    assert!(after <= 2 * before, "{after} buffers, {before} before");
    let left = other.query_one("SELECT count(*) FROM object_locations", &[]).await.expect("counted");
    assert_eq!(left.get::<_, i64>(0), 10_000 - 200, "the removed objects lost their locations");
}
