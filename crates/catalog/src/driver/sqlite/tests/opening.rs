//! Opening refuses a file that is damaged, newer or of another program, and does not change it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use super::{Mode, Sqlite, options};
use crate::Error;
use crate::conformance::fixture::{Fixture, clock};

fn open(folder: &Path) -> Result<Sqlite, Error> {
    Sqlite::open(&options(folder, Mode::Threaded, clock()))
}

fn file(folder: &Path) -> PathBuf {
    folder.join("catalog.db")
}

/// A folder with a catalog that was used and closed.
async fn closed_catalog() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = Fixture::over(Arc::new(open(folder.path()).expect("a catalog")), clock(), ());
    let bucket = fixture.bucket("closed").await;
    for number in 0..50 {
        fixture.put(bucket, &format!("k{number}"), 1).await;
    }
    folder
}

/// The error of opening the catalog; asserts that the database and its log are unchanged.
fn refusal(folder: &Path) -> Error {
    let contents = || ["", "-wal", "-journal"].map(|tail| fs::read(format!("{}{tail}", file(folder).display())).ok());
    let before = contents();
    let Err(error) = open(folder) else { panic!("it was opened") };
    assert!(contents() == before, "the refused file was changed");
    error
}

#[tokio::test]
async fn a_closed_catalog_opens_again() {
    let folder = closed_catalog().await;
    let fixture = Fixture::over(Arc::new(open(folder.path()).expect("a catalog")), clock(), ());
    assert_eq!(fixture.number("SELECT count(*) FROM objects").await, 50);
}

#[tokio::test]
async fn a_newer_catalog_is_refused() {
    let folder = closed_catalog().await;
    let connection = Connection::open(file(folder.path())).expect("a database");
    connection.pragma_update(None, "user_version", 99).expect("set");
    drop(connection);
    let error = refusal(folder.path());
    assert!(matches!(error, Error::Newer { found: 99, known } if known < 99), "{error}");
    assert!(error.to_string().contains("99"), "{error}");
}

#[tokio::test]
async fn a_newer_catalog_keeps_its_log() {
    let folder = closed_catalog().await;
    // After a crash, too, no generation file says that the log is empty.
    fs::remove_file(folder.path().join("catalog.db.generation")).expect("removed");
    let connection = Connection::open(file(folder.path())).expect("a database");
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).expect("set");
    connection.pragma_update(None, "user_version", 99).expect("set");
    drop(connection);
    assert!(matches!(refusal(folder.path()), Error::Newer { found: 99, .. }));
}

#[test]
fn a_database_of_another_program_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let connection = Connection::open(file(folder.path())).expect("a database");
    connection.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE bookmarks (url TEXT);").expect("created");
    drop(connection);
    let error = refusal(folder.path());
    assert!(matches!(&error, Error::Corrupt(why) if why.contains("another program")), "{error}");
}

#[test]
fn garbage_is_refused() {
    for garbage in [b"not a database at all".to_vec(), vec![0; 100_000], vec![b'x'; 100_000]] {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(file(folder.path()), garbage).expect("written");
        let error = refusal(folder.path());
        assert!(matches!(error, Error::Corrupt(_)), "{error}");
    }
}

#[tokio::test]
async fn a_truncated_catalog_is_refused() {
    let whole = closed_catalog().await;
    let bytes = fs::read(file(whole.path())).expect("read");
    for length in [bytes.len() - 4096, bytes.len() / 2, 4096, 4095, 100, 17] {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(file(folder.path()), &bytes[..length]).expect("written");
        let error = refusal(folder.path());
        assert!(matches!(error, Error::Corrupt(_)), "{length} bytes: {error}");
    }
}

#[tokio::test]
async fn a_catalog_whose_schema_is_damaged_is_refused() {
    let folder = closed_catalog().await;
    let mut bytes = fs::read(file(folder.path())).expect("read");
    bytes[100..4096].fill(0xAB);
    fs::write(file(folder.path()), bytes).expect("written");
    let error = refusal(folder.path());
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
}

#[tokio::test]
async fn a_second_opener_is_refused_until_the_first_closes() {
    let folder = closed_catalog().await;
    let first = open(folder.path()).expect("a catalog");
    assert!(matches!(refusal(folder.path()), Error::InUse(_)));
    drop(first);
    open(folder.path()).expect("a free catalog");
}

#[test]
fn a_missing_folder_is_away() {
    let folder = tempfile::tempdir().expect("a folder");
    assert!(matches!(open(&folder.path().join("never")), Err(Error::Away(_))));
    assert!(!folder.path().join("never").exists());
}
