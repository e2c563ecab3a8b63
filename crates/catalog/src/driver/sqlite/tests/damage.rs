//! A database that is damaged, older than the one served last, or has the log of another database; and backups.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use super::{Mode, Sqlite, options};
use crate::conformance::fixture::{Fixture, bucket_name, clock, key};
use crate::unit::Unit;
use crate::{Catalog, Error, Integrity, params, restore_sqlite};

fn file(folder: &Path) -> PathBuf {
    folder.join("catalog.db")
}

fn open(folder: &Path) -> Result<Fixture, Error> {
    let clock = clock();
    let driver = Sqlite::open(&options(folder, Mode::Threaded, clock.clone()))?;
    Ok(Fixture::over(Arc::new(driver), clock, ()))
}

async fn filled(folder: &Path, name: &str) {
    let fixture = open(folder).expect("a catalog");
    let bucket = fixture.bucket(&format!("filled-{name}")).await;
    for number in 0..200 {
        fixture.put(bucket, &format!("{name}{number}"), 1).await;
    }
}

fn is_damaged(catalog: &Catalog) -> bool {
    matches!(catalog.condition().integrity(), Integrity::Damaged(_))
}

/// Overwrites the last leaf page of a table.
fn break_leaf(folder: &Path, table: &str) {
    let connection = Connection::open(file(folder)).expect("a database");
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
    let root: i64 = connection.query_row(sql, [table], |row| row.get(0)).expect("a table");
    drop(connection);
    let mut bytes = fs::read(file(folder)).expect("read");
    // The header of an interior page ends with the number of its right-most child.
    let at = usize::try_from((root - 1) * 4096 + 8).expect("small");
    let child = u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize;
    bytes[(child - 1) * 4096..child * 4096].fill(0xA5);
    fs::write(file(folder), bytes).expect("written");
}

#[tokio::test]
async fn an_intact_catalog_passes_its_check() {
    let folder = tempfile::tempdir().expect("a folder");
    filled(folder.path(), "a").await;
    let fixture = open(folder.path()).expect("a catalog");
    assert_eq!(fixture.catalog.check().await, Integrity::Sound);
}

#[tokio::test]
async fn a_check_finds_damage_that_no_statement_has_read() {
    let folder = tempfile::tempdir().expect("a folder");
    filled(folder.path(), "a").await;
    break_leaf(folder.path(), "objects");
    let fixture = open(folder.path()).expect("a catalog");
    assert!(!is_damaged(&fixture.catalog), "no statement has read the leaf yet");
    assert!(matches!(fixture.catalog.check().await, Integrity::Damaged(_)));
}

#[tokio::test]
async fn a_check_finds_a_partial_index_with_entries_of_no_row() {
    const INDEX: &str = "CREATE INDEX multipart_uploads_leftover ON multipart_uploads (closed_at)";
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = open(folder.path()).expect("a catalog");
    let bucket = fixture.bucket("data").await;
    fixture.upload(bucket, "a").await;
    drop(fixture);
    let connection = Connection::open(file(folder.path())).expect("a database");
    let damage = format!(
        "DROP INDEX multipart_uploads_leftover; {INDEX}; PRAGMA writable_schema = ON; \
         UPDATE sqlite_schema SET sql = '{INDEX} WHERE leftover = 1' WHERE name = 'multipart_uploads_leftover'"
    );
    connection.execute_batch(&damage).expect("damaged");
    drop(connection);
    let fixture = open(folder.path()).expect("a catalog");
    let Integrity::Damaged(why) = fixture.catalog.check().await else { panic!("the damage was not found") };
    assert!(why.contains("multipart_uploads_leftover has 1 entries for 0 rows"), "{why}");
}

#[tokio::test]
async fn a_damaged_catalog_answers_only_with_what_it_finds() {
    let folder = tempfile::tempdir().expect("a folder");
    filled(folder.path(), "a").await;
    break_leaf(folder.path(), "objects");
    let fixture = open(folder.path()).expect("a catalog");
    let (catalog, name) = (&fixture.catalog, bucket_name("filled-a"));
    let last = catalog.resolve(&name, &key("a99")).await;
    assert!(matches!(last, Err(Error::Corrupt(_))), "its row was on the overwritten leaf: {last:?}");
    assert!(is_damaged(catalog), "one statement that reads damaged pages is enough");
    let found = catalog.resolve(&name, &key("a0")).await.expect("a row").expect("a bucket");
    assert!(found.object.is_some());
    let absent = catalog.resolve(&name, &key("A")).await;
    assert!(matches!(absent, Err(Error::Away(_))), "an absence proves nothing: {absent:?}");
    assert!(catalog.bucket(&name).await.expect("a row").is_some());
    assert!(matches!(catalog.bucket(&bucket_name("never")).await, Err(Error::Away(_))));
    assert!(matches!(catalog.buckets().await, Err(Error::Away(_))), "a list may miss something");
    assert!(matches!(catalog.create_bucket(&bucket_name("new"), None).await, Err(Error::Away(_))));
    assert!(matches!(catalog.backup(&folder.path().join("copy")).await, Err(Error::Away(_))));
}

/// The schema shows an index of all objects, and the index has none of them: only a scan of the table finds them.
#[tokio::test]
async fn a_contradiction_of_index_and_table_marks_the_catalog_damaged() {
    const INDEX: &str = "CREATE INDEX objects_content ON objects (content_id)";
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = open(folder.path()).expect("a catalog");
    let bucket = fixture.bucket("data").await;
    let content = fixture.put(bucket, "a", 1).await;
    assert_eq!(fixture.catalog.confirm_suspects(&[content]).await.expect("both agree")[0].found, 1);
    drop(fixture);
    let connection = Connection::open(file(folder.path())).expect("a database");
    let empty_index = format!(
        "DROP INDEX objects_content; {INDEX} WHERE content_id = ''; PRAGMA writable_schema = ON; \
         UPDATE sqlite_schema SET sql = '{INDEX}' WHERE name = 'objects_content'"
    );
    connection.execute_batch(&empty_index).expect("damaged");
    drop(connection);
    let fixture = open(folder.path()).expect("a catalog");
    assert!(!is_damaged(&fixture.catalog));
    let confirmed = fixture.catalog.confirm_suspects(&[content]).await;
    assert!(matches!(&confirmed, Err(Error::Corrupt(why)) if why.contains("indexes show 0")), "{confirmed:?}");
    assert!(is_damaged(&fixture.catalog), "no later audit may trust the index either");
    assert!(fixture.catalog.recount(&[]).await.is_err(), "nothing is repaired any more");
}

#[tokio::test]
async fn contradicting_rows_make_a_catalog_doubtful() {
    let folder = tempfile::tempdir().expect("a folder");
    filled(folder.path(), "a").await;
    let fixture = open(folder.path()).expect("a catalog");
    fixture.change("UPDATE contents SET ref_count = 2 WHERE size_bytes = 1", vec![]).await;
    assert!(matches!(fixture.catalog.check().await, Integrity::Doubtful(_)));
    fixture.delete(fixture.bucket("other").await, "nothing").await;
    assert!(fixture.catalog.condition().accept_doubt());
}

#[tokio::test]
async fn an_older_database_is_damaged_until_it_is_accepted() {
    let folder = tempfile::tempdir().expect("a folder");
    filled(folder.path(), "a").await;
    let older = fs::read(file(folder.path())).expect("read");
    filled(folder.path(), "b").await;
    fs::write(file(folder.path()), &older).expect("written");
    assert!(
        !is_damaged(&open(folder.path()).expect("a catalog").catalog),
        "a crash between both writes has the same effect"
    );
    filled(folder.path(), "c").await;
    fs::write(file(folder.path()), &older).expect("written");
    for _ in 0..2 {
        assert!(is_damaged(&open(folder.path()).expect("a catalog").catalog), "every time it is opened");
    }
    assert_eq!(restore_sqlite(&file(folder.path()), &file(folder.path())).expect("accepted"), None);
    assert!(!is_damaged(&open(folder.path()).expect("a catalog").catalog));
}

#[tokio::test]
async fn a_missing_or_older_generation_file_is_rewritten() {
    let folder = tempfile::tempdir().expect("a folder");
    let noted = folder.path().join("catalog.db.generation");
    filled(folder.path(), "a").await;
    let first = fs::read(&noted).expect("noted");
    assert_eq!(fs::metadata(&noted).expect("a file").permissions().mode() & 0o777, 0o600);
    filled(folder.path(), "b").await;
    for change in [|noted: &Path, _: &[u8]| fs::remove_file(noted), |noted: &Path, old: &[u8]| fs::write(noted, old)] {
        change(&noted, &first).expect("changed");
        assert!(!is_damaged(&open(folder.path()).expect("a catalog").catalog));
        assert_ne!(fs::read(&noted).expect("noted"), first);
    }
}

#[tokio::test]
async fn a_log_after_a_clean_stop_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    filled(folder.path(), "a").await;
    let connection = Connection::open(file(folder.path())).expect("a database");
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).expect("set");
    connection.execute("UPDATE contents SET ref_count = 7", []).expect("changed");
    drop(connection);
    let refused = open(folder.path()).map(drop);
    assert!(matches!(&refused, Err(Error::Corrupt(why)) if why.contains("another copy")), "{refused:?}");
    fs::remove_file(folder.path().join("catalog.db-wal")).expect("removed");
    let fixture = open(folder.path()).expect("a catalog");
    assert_eq!(fixture.number("SELECT max(ref_count) FROM contents").await, 1);
}

#[tokio::test]
async fn the_log_is_truncated_to_64_mib_after_a_checkpoint() {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = open(folder.path()).expect("a catalog");
    let mut unit = Unit::new("limit");
    unit.run("PRAGMA journal_size_limit", params![]);
    assert_eq!(
        fixture.write(unit).await.expect("a number")[0].rows[0].int("journal_size_limit").expect("a number"),
        64 << 20
    );
}

#[tokio::test]
async fn a_backup_is_complete_and_can_be_restored() {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("copy");
    let fixture = open(folder.path()).expect("a catalog");
    let bucket = fixture.bucket("kept").await;
    fixture.put(bucket, "before", 5).await;
    assert!(fixture.catalog.backup(&copy).await.expect("a copy") > 0);
    assert_eq!(fs::metadata(&copy).expect("a file").permissions().mode() & 0o777, 0o600);
    assert!(matches!(fixture.catalog.backup(&copy).await, Err(Error::Away(_))), "an existing file is not overwritten");
    fixture.put(bucket, "after", 5).await;
    assert!(matches!(restore_sqlite(&copy, &file(folder.path())), Err(Error::InUse(_))));
    drop(fixture);
    let kept = restore_sqlite(&copy, &file(folder.path())).expect("restored").expect("a backup of the old file");
    assert!(kept.exists());
    let fixture = open(folder.path()).expect("a catalog");
    assert_eq!(fixture.catalog.check().await, Integrity::Sound);
    assert!(fixture.resolve("kept", "before").await.object.is_some());
    assert!(fixture.resolve("kept", "after").await.object.is_none());
}

#[tokio::test]
async fn a_damaged_or_foreign_file_is_not_restored() {
    let folder = tempfile::tempdir().expect("a folder");
    filled(folder.path(), "a").await;
    let before = fs::read(file(folder.path())).expect("read");
    let other = tempfile::tempdir().expect("a folder");
    filled(other.path(), "b").await;
    break_leaf(other.path(), "objects");
    let garbage = folder.path().join("garbage");
    fs::write(&garbage, b"no database at all").expect("written");
    let empty = folder.path().join("empty");
    fs::write(&empty, b"").expect("written");
    for from in [file(other.path()), garbage, empty, folder.path().join("never")] {
        restore_sqlite(&from, &file(folder.path())).expect_err("it is not whole");
        assert!(fs::read(file(folder.path())).expect("read") == before, "{}", from.display());
    }
}
