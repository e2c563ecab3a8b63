//! The amcheck extension finds an index whose entries match no row.

use super::{Postgres, explained::explained, session};
use crate::Driver as _;

/// Replaces the function of an index, so that its entries match no row any more.
const DAMAGE: &str = "CREATE FUNCTION damaged(text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT $1 $$; \
     INSERT INTO buckets (name, created_at) VALUES ('damaged', 0); \
     CREATE INDEX damaged_names ON buckets (damaged(name)); \
     CREATE OR REPLACE FUNCTION damaged(text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT $1 || '!' $$";

#[tokio::test]
async fn a_damaged_index_is_found_where_amcheck_is_installed() {
    let (_fixture, driver, schema) = explained().await;
    let session = session(&schema).await;
    let check = || async { Postgres::check_integrity(driver.inner()).await };
    let missing = check().await.expect_err("not installed").to_string();
    assert!(missing.contains("CREATE EXTENSION amcheck"), "{missing}");
    session.batch_execute(&format!("CREATE EXTENSION amcheck SCHEMA {schema}")).await.expect("installed");
    assert_eq!(check().await.expect("checked"), Vec::<String>::new());
    session.batch_execute(DAMAGE).await.expect("damaged");
    let faults = check().await.expect("checked");
    session.batch_execute("DROP EXTENSION amcheck").await.expect("removed");
    assert!(faults.len() == 1 && faults[0].starts_with("damaged_names: "), "{faults:?}");
}
