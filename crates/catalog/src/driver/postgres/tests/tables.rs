//! Queries that confirm an index read the table and not the index.

use super::explained::explained;
use super::session;
use crate::audits::BY_TABLE;
use crate::unit::Statement;
use crate::verification::NAMED_BY_TABLE;
use crate::{Driver, params};

const FILL: &str = "INSERT INTO contents (id, kind, size_bytes, ref_count) \
     SELECT 'c' || n, 'whole', 1, 1 FROM generate_series(1, 60000) n; \
     INSERT INTO buckets (name, created_at) VALUES ('filled', 0); \
     INSERT INTO objects \
     (bucket_id, key, content_id, version_id, size_bytes, etag, headers, metadata, tags, last_modified) \
     SELECT (SELECT id FROM buckets), 'k' || n, 'c' || n, '', 1, '', '{}', '{}', '{}', 0 \
     FROM generate_series(1, 60000) n; \
     ANALYZE";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn references_are_confirmed_without_an_index() {
    let (_fixture, driver, schema) = explained().await;
    session(&schema).await.batch_execute(FILL).await.expect("filled");
    let sql: &'static str = format!("EXPLAIN (COSTS OFF) {BY_TABLE}").leak();
    let explain = || Statement::new(sql, params!["[\"c7\"]"]);
    let (as_chosen, by_table) = driver.read_both_ways(explain(), explain()).await.expect("two plans");
    let has_index =
        |plan: &[crate::unit::Row]| plan.iter().any(|row| row.text("QUERY PLAN").expect("a line").contains("Index"));
    assert!(has_index(&as_chosen), "{as_chosen:?}");
    assert!(!has_index(&by_table), "{by_table:?}");
}

const LOCATE: &str = "INSERT INTO object_locations (content_id, backend_name, physical_key, size_bytes, stripe) \
     SELECT id, 'disk', id, 1, 0 FROM contents; ANALYZE";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_are_confirmed_without_an_index() {
    let (_fixture, driver, schema) = explained().await;
    session(&schema).await.batch_execute(&format!("{FILL}; {LOCATE}")).await.expect("filled");
    let sql: &'static str = format!("EXPLAIN (COSTS OFF) {}", *NAMED_BY_TABLE).leak();
    let explain = || Statement::new(sql, params!["disk", "[\"c7\"]"]);
    let (as_chosen, by_table) = driver.read_both_ways(explain(), explain()).await.expect("two plans");
    let has_index =
        |plan: &[crate::unit::Row]| plan.iter().any(|row| row.text("QUERY PLAN").expect("a line").contains("Index"));
    assert!(has_index(&as_chosen), "{as_chosen:?}");
    assert!(!has_index(&by_table), "{by_table:?}");
}
