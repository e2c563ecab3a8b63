//! A catalog of the version before targets opens, and its rows do what they did.

use std::sync::Arc;
use std::time::Duration;

use super::{Postgres, PostgresOptions, fresh_schema, session, url};
use crate::conformance::fixture::{Fixture, clock};
use crate::conformance::quota_usage;
use crate::migrations::POSTGRES;
use crate::migrations::tests::{BEFORE_TARGETS, MIGRATED, SHOWN, WRITTEN_BEFORE};

#[tokio::test]
async fn rows_written_before_targets_are_split_by_target() {
    let schema = fresh_schema().await;
    let older = session(&schema).await;
    for step in &POSTGRES[..BEFORE_TARGETS] {
        older.batch_execute(step).await.expect("a step");
    }
    let version = format!(
        "CREATE TABLE s3o_schema (version BIGINT NOT NULL); \
        INSERT INTO s3o_schema VALUES ({BEFORE_TARGETS})"
    );
    older.batch_execute(&format!("{WRITTEN_BEFORE} {version}")).await.expect("rows");
    let (clock, wait_max) = (clock(), Duration::from_mins(1));
    let options =
        PostgresOptions { url: url(), connections: 2, wait_max, schema: Some(schema), clock: Some(clock.clone()) };
    let driver = Postgres::open(&options).await.expect("a newer catalog");
    let fixture = Fixture::over(Arc::new(driver), clock, ());
    let rows = fixture.rows(SHOWN, vec![]).await;
    assert_eq!(rows.iter().map(|row| row.text("shown").expect("text")).collect::<Vec<_>>(), MIGRATED);
    quota_usage::check(&fixture).await;
    assert_eq!(fixture.claim(9).await.1.len(), 6);
}
