//! What a killed process leaves behind: the file and its log, as they were at that moment.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::{Mode, Sqlite, options};
use crate::conformance::books;
use crate::conformance::scene::{Scene, clock};

const OBJECTS: usize = 60;

/// A catalog that is still open, so that its log was not folded in, and its folder.
async fn open_catalog(folder: &Path) -> Scene {
    let clock = clock();
    let driver = Sqlite::open(&options(folder, Mode::Threaded, clock.clone())).expect("a catalog");
    let scene = Scene::over(Arc::new(driver), clock, ());
    let bucket = scene.bucket("killed").await;
    for number in 0..OBJECTS {
        scene.put(bucket, &format!("k{number}"), 1).await;
    }
    scene
}

/// Copies what is on the disk right now, the log cut to this length, and opens the copy.
fn copy_and_open(from: &Path, log_bytes: usize) -> Scene {
    let folder = tempfile::tempdir().expect("a folder");
    fs::copy(from.join("catalog.db"), folder.path().join("catalog.db")).expect("copied");
    let log = fs::read(from.join("catalog.db-wal")).expect("a log");
    fs::write(folder.path().join("catalog.db-wal"), &log[..log_bytes.min(log.len())]).expect("copied");
    let clock = clock();
    let driver = Sqlite::open(&options(folder.path(), Mode::Threaded, clock.clone())).expect("it recovers");
    Scene::over(Arc::new(driver), clock, folder)
}

async fn objects(scene: &Scene) -> usize {
    usize::try_from(scene.number("SELECT count(*) FROM objects").await).expect("a count")
}

#[tokio::test]
async fn the_log_of_a_killed_process_is_recovered() {
    let folder = tempfile::tempdir().expect("a folder");
    let scene = open_catalog(folder.path()).await;
    let copy = copy_and_open(folder.path(), usize::MAX);
    assert_eq!(objects(&copy).await, OBJECTS, "what was acknowledged is there");
    books::check(&copy).await;
    drop(scene);
}

#[tokio::test]
async fn a_torn_log_loses_whole_units_from_its_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let scene = open_catalog(folder.path()).await;
    let length = fs::metadata(folder.path().join("catalog.db-wal")).expect("a log").len();
    let length = usize::try_from(length).expect("a small log");
    let mut last = OBJECTS + 1;
    for step in 0..20 {
        let copy = copy_and_open(folder.path(), length - step * 40_961);
        books::check(&copy).await;
        let found = objects(&copy).await;
        assert!(found <= last);
        last = found;
        copy.attach("disk", None).await;
    }
    assert!(last < OBJECTS, "the cuts were felt");
    drop(scene);
}
