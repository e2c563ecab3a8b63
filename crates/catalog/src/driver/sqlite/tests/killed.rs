//! Recovery of the database and the log that a killed process leaves behind.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::{Mode, Sqlite, options};
use crate::conformance::fixture::{Fixture, clock};
use crate::conformance::quota_usage;

const OBJECTS: usize = 60;

/// A catalog that is still open, so that its log has not been checkpointed.
async fn open_catalog(folder: &Path) -> Fixture {
    let clock = clock();
    let driver = Sqlite::open(&options(folder, Mode::Threaded, clock.clone())).expect("a catalog");
    let fixture = Fixture::over(Arc::new(driver), clock, ());
    let bucket = fixture.bucket("killed").await;
    for number in 0..OBJECTS {
        fixture.put(bucket, &format!("k{number}"), 1).await;
    }
    fixture
}

/// Copies the files as they are now, with the log truncated to this length, and opens the copy.
fn copy_and_open(from: &Path, log_bytes: usize) -> Fixture {
    let folder = tempfile::tempdir().expect("a folder");
    fs::copy(from.join("catalog.db"), folder.path().join("catalog.db")).expect("copied");
    let log = fs::read(from.join("catalog.db-wal")).expect("a log");
    fs::write(folder.path().join("catalog.db-wal"), &log[..log_bytes.min(log.len())]).expect("copied");
    let clock = clock();
    let driver = Sqlite::open(&options(folder.path(), Mode::Threaded, clock.clone())).expect("recovered");
    Fixture::over(Arc::new(driver), clock, folder)
}

async fn objects(fixture: &Fixture) -> usize {
    usize::try_from(fixture.number("SELECT count(*) FROM objects").await).expect("a count")
}

#[tokio::test]
async fn the_log_of_a_killed_process_is_recovered() {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = open_catalog(folder.path()).await;
    let copy = copy_and_open(folder.path(), usize::MAX);
    assert_eq!(objects(&copy).await, OBJECTS, "every acknowledged object exists");
    quota_usage::check(&copy).await;
    drop(fixture);
}

#[tokio::test]
async fn a_torn_log_loses_whole_units_from_its_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = open_catalog(folder.path()).await;
    let length = fs::metadata(folder.path().join("catalog.db-wal")).expect("a log").len();
    let length = usize::try_from(length).expect("a small log");
    let mut last = OBJECTS + 1;
    for step in 0..20 {
        let copy = copy_and_open(folder.path(), length - step * 40_961);
        quota_usage::check(&copy).await;
        let found = objects(&copy).await;
        assert!(found <= last);
        last = found;
        copy.attach("disk", None).await;
    }
    assert!(last < OBJECTS, "truncation removed some objects");
    drop(fixture);
}
