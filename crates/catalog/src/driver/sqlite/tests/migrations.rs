//! A catalog of the version before targets opens, and its rows do what they did.

use std::sync::Arc;

use rusqlite::Connection;

use super::{Mode, Sqlite, options};
use crate::conformance::fixture::{Fixture, clock};
use crate::conformance::quota_usage;
use crate::driver::sqlite::open::APPLICATION_ID;
use crate::migrations::SQLITE;
use crate::migrations::tests::{BEFORE_TARGETS, MIGRATED, SHOWN, WRITTEN_BEFORE};

#[tokio::test]
async fn rows_written_before_targets_are_split_by_target() {
    let folder = tempfile::tempdir().expect("a folder");
    let older = Connection::open(folder.path().join("catalog.db")).expect("a database");
    for step in &SQLITE[..BEFORE_TARGETS] {
        older.execute_batch(step).expect("a step");
    }
    let version = format!("PRAGMA user_version = {BEFORE_TARGETS}; PRAGMA application_id = {APPLICATION_ID}");
    older.execute_batch(&format!("{WRITTEN_BEFORE} {version}")).expect("rows");
    drop(older);
    let clock = clock();
    let driver = Sqlite::open(&options(folder.path(), Mode::Inline, clock.clone())).expect("a newer catalog");
    let fixture = Fixture::over(Arc::new(driver), clock, ());
    let rows = fixture.rows(SHOWN, vec![]).await;
    assert_eq!(rows.iter().map(|row| row.text("shown").expect("text")).collect::<Vec<_>>(), MIGRATED);
    quota_usage::check(&fixture).await;
    assert_eq!(fixture.claim(9).await.1.len(), 6);
}
