//! The database's own check finds an index that has lost a row.

use super::{Postgres, explained::explained, session};
use crate::Driver as _;

/// An index whose function gives another answer from now on: its entries fit no row any more.
const SPOIL: &str = "CREATE FUNCTION spoilt(text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT $1 $$; \
     INSERT INTO buckets (name, created_at) VALUES ('spoilt', 0); \
     CREATE INDEX spoilt_names ON buckets (spoilt(name)); \
     CREATE OR REPLACE FUNCTION spoilt(text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT $1 || '!' $$";

#[tokio::test]
async fn a_damaged_index_is_found_where_amcheck_is_installed() {
    let (_scene, driver, schema) = explained().await;
    let session = session(&schema).await;
    let check = || async { Postgres::check_integrity(driver.inner()).await };
    let missing = check().await.expect_err("not installed").to_string();
    assert!(missing.contains("CREATE EXTENSION amcheck"), "{missing}");
    session.batch_execute(&format!("CREATE EXTENSION amcheck SCHEMA {schema}")).await.expect("installed");
    assert_eq!(check().await.expect("checked"), Vec::<String>::new());
    session.batch_execute(SPOIL).await.expect("spoilt");
    let faults = check().await.expect("checked");
    session.batch_execute("DROP EXTENSION amcheck").await.expect("removed");
    assert!(faults.len() == 1 && faults[0].starts_with("spoilt_names: "), "{faults:?}");
}
