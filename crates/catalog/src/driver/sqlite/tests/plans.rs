//! Query plans of SQLite: every statement that requests and workers run often is recorded and explained. A plan that
//! scans a growing table fails, however fast it is on little data.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use s3o_model::cleanup::{BackendUpload, Outcome, Selection};
use s3o_model::conditions::WriteCondition;
use s3o_model::expiry::Expiry;
use s3o_model::ids::BucketId;
use s3o_model::lifecycle::Expiration;
use s3o_model::listing::ListQuery;
use s3o_model::object::Tags;

use super::{Mode, Sqlite, clock, options};
use crate::conformance::copy_numbers;
use crate::conformance::fixture::{Fixture, LEASE, bucket_name, key};
use crate::objects::expire::{LIVE, MARK_EXPIRED_IN};
use crate::unit::{Answer, Row, Statement, Unit};
use crate::{Authority, Discard, Driver, DriverLayer, DueBatch, DueRange, Error, Late, PartSource, checks};

/// Records the SQL of every statement.
struct Recorder {
    inner: Sqlite,
    recorded_sql: Mutex<BTreeSet<&'static str>>,
}

#[async_trait]
impl DriverLayer for Recorder {
    fn inner(&self) -> &dyn Driver {
        &self.inner
    }

    async fn on_write(&self, unit: Unit) -> Result<Vec<Answer>, Error> {
        self.recorded_sql.lock().extend(unit.statements.iter().map(|statement| statement.sql));
        self.inner.write(unit).await
    }

    async fn on_read(&self, query: Statement) -> Result<Vec<Row>, Error> {
        self.recorded_sql.lock().insert(query.sql);
        self.inner.read(query).await
    }
}

/// Calls every method that requests and workers call often.
async fn run_everyday_operations(fixture: &Fixture) {
    let bucket = fixture.bucket("life").await;
    let content = fixture.put(bucket, "a", 5).await;
    fixture.put(bucket, "a", 5).await;
    let etag = fixture.resolve("life", "a").await.object.expect("present").etag;
    for condition in [WriteCondition::IfMatch(Some(etag.clone())), WriteCondition::IfMatch(None)] {
        fixture.commit(&fixture.staged(bucket, "a", 1).await, condition).await.expect("committed");
    }
    fixture.commit(&fixture.staged(bucket, "b", 1).await, WriteCondition::IfAbsent).await.expect("committed");
    fixture.copy((content, 5), bucket, "c").await.expect_err("condemned");
    fixture.copy((fixture.put(bucket, "d", 1).await, 1), bucket, "c").await.expect("copied");
    let object = fixture.resolve("life", "c").await.object.expect("present");
    fixture.catalog.set_object_tags(&object, &Tags::new()).await.expect("tagged");
    list_operations(fixture, bucket).await;
    multipart_operations(fixture, bucket).await;
    sharing_operations(fixture, bucket).await;
    fixture.delete_if(bucket, "c", Some(&object.etag)).await.expect("deleted");
    assert!(fixture.delete(bucket, "d").await);
    let targets = [(key("a"), None), (key("b"), Some(etag))];
    fixture.catalog.delete_objects(bucket, &targets, fixture.token()).await.expect("deleted");
    cleanup_operations(fixture, bucket).await;
    copy_numbers::run_operations(fixture, bucket).await;
    fixture.catalog.bucket(&bucket_name("life")).await.expect("an answer");
    worker_operations(fixture).await;
    lifecycle_operations(fixture, bucket).await;
    fixture.clean_up().await;
    fixture.catalog.delete_bucket(bucket).await.expect_err("not empty");
}

async fn list_operations(fixture: &Fixture, bucket: BucketId) {
    for prefix in ["", "a"] {
        let query = ListQuery { prefix: prefix.to_owned(), limit: 10, ..Default::default() };
        fixture.catalog.list_objects(bucket, query).await.expect("listed");
    }
    for prefix in ["", "a"] {
        fixture.catalog.open_uploads(bucket, prefix, ("", ""), 10).await.expect("listed");
    }
}

async fn cleanup_operations(fixture: &Fixture, bucket: BucketId) {
    let intent = fixture.staged(bucket, "e", 1).await;
    fixture.catalog.renew(&[intent.id], Duration::from_secs(9)).await.expect("renewed");
    fixture.catalog.note_upload(intent.id, &BackendUpload::Starting).await.expect("noted");
    fixture.catalog.drop_write(intent.write, Late::No).await.expect("dropped");
    fixture.catalog.requeue(&intent.place(), intent.size_bytes, &crate::Ended::default()).await.expect("queued");
    assert_eq!(fixture.waiting().await.lanes.len(), 1);
    let (token, claimed) = fixture.claim(3).await;
    let later = Outcome::Wait { delay: Duration::ZERO, why: String::new() };
    fixture.settle(token, &claimed[..1], &later).await;
    fixture.settle(token, &claimed[1..2], &Outcome::Deferred).await;
    dead_letter_operations(fixture).await;
    fixture.clock.advance(Duration::from_hours(1));
    fixture.catalog.free_stale_claims(Duration::from_mins(1), fixture.token()).await.expect("freed");
}

/// Shared content: created, shared, pinned and released.
async fn sharing_operations(fixture: &Fixture, bucket: BucketId) {
    let content = fixture.share(bucket, "once", 1).await;
    assert_eq!(fixture.share(bucket, "again", 1).await, content);
    let (kept, _) = fixture.pinned(bucket, "kept", 1).await;
    fixture.commit_pinned(&kept, content).await.expect("committed");
    let (given_up, _) = fixture.pinned(bucket, "given-up", 1).await;
    fixture.catalog.drop_write(given_up.write, Late::No).await.expect("dropped");
    fixture.pinned(bucket, "left", 1).await;
    fixture.clock.advance(LEASE);
    assert_eq!(fixture.reap(9, Duration::ZERO).await.len(), 1);
}

/// Queries of the smaller workers and of the gauges.
async fn worker_operations(fixture: &Fixture) {
    const DELETE: &str = "UPDATE objects SET deletion_status = 'DELETION_IN_PROGRESS', deletion_initiated_at = 1 \
         WHERE bucket_id = $1 AND key = 'stuck'";
    fixture.catalog.oldest_due(Duration::ZERO).await.expect("an answer");
    let bucket = fixture.catalog.bucket(&bucket_name("life")).await.expect("an answer").expect("present").id;
    let upload = fixture.upload(bucket, "given-up").await;
    fixture.clock.advance(Duration::from_secs(2));
    let stale = fixture.catalog.stale_uploads(Duration::ZERO, 9).await.expect("an answer");
    assert!(stale.iter().any(|found| found.id == upload));
    fixture.catalog.abort_stale_upload(upload, Duration::ZERO).await.expect("an answer").expect("aborted");
    fixture.put(bucket, "stuck", 1).await;
    fixture.change(DELETE, crate::params![bucket]).await;
    assert!(!fixture.catalog.reset_stuck(Duration::ZERO, 9).await.expect("an answer").is_empty());
    expiry_operations(fixture, bucket).await;
}

/// Expired objects: claimed, halved and removed.
async fn expiry_operations(fixture: &Fixture, bucket: s3o_model::ids::BucketId) {
    let moment = Duration::from_millis(1);
    for key in ["mortal", "fleeting", "brief"] {
        fixture.put_expiring(bucket, key, 1, moment).await;
    }
    let late = Expiry::At(fixture.now().after(moment));
    fixture.try_put_expiring(bucket, "timed", 1, late).await.expect("stored");
    fixture.clock.advance(moment);
    let (token, claimed) = fixture.claim_expiries(2).await;
    assert_eq!(claimed, 2);
    assert_eq!(fixture.catalog.halve_claim(token, fixture.token()).await.expect("halved"), 1);
    fixture.catalog.note_unremovable(token, "a rule").await.expect("noted");
    assert_eq!(fixture.remove_claimed(token).await.len(), 1);
    assert!(fixture.catalog.has_live_objects(bucket).await.expect("an answer"));
    assert_eq!(fixture.catalog.remove_expired_in(bucket, 9, fixture.token()).await.expect("removed").len(), 3);
}

async fn lifecycle_operations(fixture: &Fixture, bucket: BucketId) {
    fixture.catalog.set_lifecycle(bucket, Some(&[])).await.expect("set");
    let ruled = fixture.catalog.ruled_bucket("", &["life"]).await.expect("an answer").expect("rules");
    fixture.catalog.lifecycle(bucket).await.expect("an answer");
    fixture.put(bucket, "due", 1).await;
    let upload = fixture.upload(bucket, "due").await;
    let threshold = Expiration::Date(fixture.now()).threshold();
    for before in [None, Some("dux".to_owned())] {
        let range = DueRange { bucket, from: "due".to_owned(), before, threshold };
        let objects = &fixture.catalog.due_objects(&range, 9).await.expect("a page").objects;
        for by_tags in [true, false] {
            let authority = Authority::Bucket(ruled.revision);
            let batch = DueBatch { bucket, authority, threshold, objects, by_tags };
            fixture.catalog.delete_due(&batch, fixture.token()).await.expect("deleted");
        }
        fixture.catalog.due_uploads(&range, None, 9).await.expect("an answer");
    }
    fixture.catalog.abort_due(upload, ruled.revision, threshold).await.expect("an answer").expect("aborted");
}

async fn dead_letter_operations(fixture: &Fixture) {
    let (token, claimed) = fixture.claim(2).await;
    fixture.settle(token, &claimed, &Outcome::DeadLetter { why: String::new() }).await;
    let everything = Selection::default();
    fixture.catalog.queued_cleanups(&everything, 0, 10).await.expect("a page");
    let letters = fixture.catalog.dead_letters(&everything, 0, 10).await.expect("a page");
    assert_eq!(fixture.catalog.newest_dead_letter().await.expect("an answer"), Some(letters[1].id));
    assert!(fixture.catalog.dead_letter(letters[0].id).await.expect("an answer").is_some());
    fixture.catalog.retry_dead_letters(&[letters[0].id], fixture.token()).await.expect("sent back");
    let discard = Discard { id: letters[1].id, written_off: Some("{}".to_owned()) };
    assert_eq!(fixture.catalog.discard_dead_letters(&[discard], fixture.token()).await.expect("discarded").len(), 1);
}

async fn multipart_operations(fixture: &Fixture, bucket: s3o_model::ids::BucketId) {
    let upload = fixture.upload(bucket, "joined").await;
    let parts = [fixture.part(upload, 1, 3).await, fixture.part(upload, 2, 3).await];
    fixture.part(upload, 3, 3).await;
    let (_, source) = parts[0];
    let range = fixture.part_of(upload, 4, (source, 1), PartSource::Range { offset: 1 });
    fixture.store_part(range).await.expect("committed");
    let joined = fixture.complete(upload, &parts).await.expect("completed");
    fixture.catalog.pieces(joined, 0, 9, 10).await.expect("pieces");
    fixture.catalog.numbered_pieces(joined, 0, 10).await.expect("pieces");
    assert!(fixture.delete(bucket, "joined").await);
    let given_up = fixture.upload(bucket, "given-up").await;
    fixture.part(given_up, 1, 1).await;
    fixture.catalog.abort_upload(given_up).await.expect("aborted");
    fixture.upload(bucket, "kept-open").await;
}

/// Tables that a plan may scan: results and parameters of the statement itself, the few backends, and an index that
/// holds only rows which wait for this statement.
const BOUNDED: [&str; 13] = [
    "s",
    "t",
    "json_each",
    "(subquery-",
    "CONSTANT ROW",
    "backends",
    "backend_quotas",
    "cluster",
    "copy_review",
    "copy_epoch",
    "usage_ceilings",
    // Few rows wait for copies, and the count of those that are due ends at a bound.
    "copy_work",
    "u USING COVERING INDEX multipart_uploads_leftover",
];

/// Searches that return every row of a bucket, a backend or a state.
const UNBOUNDED: [&str; 4] = ["(bucket_id=?)", "(backend_name=?)", "(kind=?)", "(token>?)"];

/// True if a step of the plan costs more with more rows.
fn cost_grows(steps: &[String]) -> bool {
    let is_intermediate = |table: &str| {
        steps.iter().any(|step| ["CO-ROUTINE", "MATERIALIZE"].iter().any(|kind| *step == format!("{kind} {table}")))
    };
    // A backend has a few stripes and records and at most one announced change, however many objects it has.
    let few = ["SEARCH backend_quotas ", "SEARCH backend_changes ", "SEARCH identity_records "];
    steps.iter().any(|step| {
        let Some(table) = step.strip_prefix("SCAN ").map(|table| table.trim_end_matches(" LEFT-JOIN")) else {
            let is_small = few.iter().any(|few| step.starts_with(few));
            return !is_small && UNBOUNDED.iter().any(|search| step.ends_with(search));
        };
        !is_intermediate(table) && !BOUNDED.iter().any(|bounded| table.starts_with(bounded))
    })
}

/// Existence checks stop at the first row they find; the delete of an empty bucket is one. Expired objects of a bucket
/// are removed page by page once it has no others. The factors of all buckets are compared once per start, and read
/// once when the state of a backend changes.
fn stops_at_first_row(sql: &str) -> bool {
    sql.starts_with("DELETE FROM buckets")
        || sql.contains("factor <> coalesce(")
        || sql.starts_with("INSERT INTO copy_review")
        || [LIVE, MARK_EXPIRED_IN].contains(&sql)
}

fn recorded() -> (Arc<Recorder>, Fixture) {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = clock();
    let inner = Sqlite::open(&options(folder.path(), Mode::Threaded, clock.clone())).expect("a catalog");
    let recorder = Arc::new(Recorder { inner, recorded_sql: Mutex::default() });
    (recorder.clone(), Fixture::over(recorder, clock, folder))
}

/// Fails if a recorded statement costs more with more rows.
async fn assert_no_cost_grows(recorder: &Recorder, at_least: usize) {
    let recorded_sql = std::mem::take(&mut *recorder.recorded_sql.lock());
    assert!(recorded_sql.len() >= at_least, "only {} statements were recorded", recorded_sql.len());
    let mut faults = Vec::new();
    for sql in &recorded_sql {
        let explain: &'static str = format!("EXPLAIN QUERY PLAN {sql}").leak();
        let rows = recorder.inner.read(Statement::new(explain, vec![])).await.expect("a plan");
        let steps: Vec<String> = rows.iter().map(|row| row.string("detail").expect("a step")).collect();
        if cost_grows(&steps) && !stops_at_first_row(sql) {
            faults.push(format!("{sql}\n    {}", steps.join("\n    ")));
        }
    }
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), recorded_sql.len(), faults.join("\n"));
}

#[tokio::test]
async fn no_statement_scans_a_growing_table() {
    let (recorder, fixture) = recorded();
    run_everyday_operations(&fixture).await;
    assert_no_cost_grows(&recorder, 100).await;
}

#[tokio::test]
async fn cost_of_a_verification_page_does_not_grow() {
    let (recorder, fixture) = recorded();
    run_everyday_operations(&fixture).await;
    recorder.recorded_sql.lock().clear();
    for check in checks() {
        let start = check.start();
        fixture.catalog.page_end(check, &start, 10).await.expect("a page");
        fixture.catalog.broken(check, &start, &start).await.expect("a check");
    }
    let disk = "disk".parse().expect("a name");
    fixture.catalog.naming_rows(&disk, &["a"]).await.expect("rows");
    fixture.catalog.rows_between(&disk, ("a", None), 10).await.expect("rows");
    assert_no_cost_grows(&recorder, checks().len() + 2).await;
}
