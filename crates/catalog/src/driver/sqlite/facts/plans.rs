//! How SQLite goes about our statements: every one that a role runs is recorded and explained. A
//! statement that reads through a table which grows is a fault, however fast it is on little.

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
use crate::conformance::scene::{LEASE, Scene, bucket_name, key};
use crate::objects::expire::{LIVE, MARK_EXPIRED_IN};
use crate::unit::{Answer, Row, Statement, Unit};
use crate::{
    Authority, Buckets, Cleanups, DeadLetters, Discard, Driver, DriverLayer, DueBatch, DueRange, Error, Expiries,
    Intents, Late, Lifecycles, Objects, Overview, PartSource, StaleUploads, StuckObjects, Uploads, Verification,
    checks,
};

/// Remembers every statement that passes.
struct Recorder {
    inner: Sqlite,
    seen: Mutex<BTreeSet<&'static str>>,
}

#[async_trait]
impl DriverLayer for Recorder {
    fn inner(&self) -> &dyn Driver {
        &self.inner
    }

    async fn on_write(&self, unit: Unit) -> Result<Vec<Answer>, Error> {
        self.seen.lock().extend(unit.statements.iter().map(|statement| statement.sql));
        self.inner.write(unit).await
    }

    async fn on_read(&self, query: Statement) -> Result<Vec<Row>, Error> {
        self.seen.lock().insert(query.sql);
        self.inner.read(query).await
    }
}

/// Calls every method that requests and workers call often.
async fn everyday_life(scene: &Scene) {
    let bucket = scene.bucket("life").await;
    let content = scene.put(bucket, "a", 5).await;
    scene.put(bucket, "a", 5).await;
    let etag = scene.resolve("life", "a").await.object.expect("there").etag;
    for condition in [WriteCondition::IfMatch(Some(etag.clone())), WriteCondition::IfMatch(None)] {
        scene.commit(&scene.staged(bucket, "a", 1).await, condition).await.expect("committed");
    }
    scene.commit(&scene.staged(bucket, "b", 1).await, WriteCondition::IfAbsent).await.expect("committed");
    scene.copy((content, 5), bucket, "c").await.expect_err("it is condemned");
    scene.copy((scene.put(bucket, "d", 1).await, 1), bucket, "c").await.expect("copied");
    let object = scene.resolve("life", "c").await.object.expect("there");
    scene.catalog.set_object_tags(&object, &Tags::new()).await.expect("tagged");
    for prefix in ["", "a"] {
        let query = ListQuery { prefix: prefix.to_owned(), limit: 10, ..Default::default() };
        scene.catalog.list_objects(bucket, query).await.expect("listed");
    }
    for prefix in ["", "a"] {
        scene.catalog.open_uploads(bucket, prefix, ("", ""), 10).await.expect("listed");
    }
    multipart_life(scene, bucket).await;
    sharing_life(scene, bucket).await;
    scene.catalog.delete_object(bucket, &key("c"), Some(&object.etag), scene.token()).await.expect("deleted");
    assert!(scene.delete(bucket, "d").await);
    let targets = [(key("a"), None), (key("b"), Some(etag))];
    scene.catalog.delete_objects(bucket, &targets, scene.token()).await.expect("deleted");
    let intent = scene.staged(bucket, "e", 1).await;
    scene.catalog.renew(&[intent.id], Duration::from_secs(9)).await.expect("renewed");
    scene.catalog.note_upload(intent.id, &BackendUpload::Starting).await.expect("noted");
    scene.catalog.drop_write(intent.write, Late::No).await.expect("dropped");
    scene.catalog.requeue(&intent, &crate::Ended::default()).await.expect("queued");
    assert_eq!(scene.waiting().await.lanes.len(), 1);
    let (token, claimed) = scene.claim(3).await;
    let later = Outcome::Wait { delay: Duration::ZERO, why: String::new() };
    scene.settle(token, &claimed[..1], &later).await;
    scene.settle(token, &claimed[1..2], &Outcome::Deferred).await;
    dead_letters_life(scene).await;
    scene.clock.advance(Duration::from_hours(1));
    scene.catalog.free_stale_claims(Duration::from_mins(1), scene.token()).await.expect("freed");
    scene.catalog.bucket(&bucket_name("life")).await.expect("a look");
    upkeep(scene).await;
    lifecycle_life(scene, bucket).await;
    scene.clean_up().await;
    scene.catalog.delete_bucket(bucket).await.expect_err("not empty");
}

/// Content that is kept once: made, joined, pinned, and let go of.
async fn sharing_life(scene: &Scene, bucket: BucketId) {
    let content = scene.share(bucket, "once", 1).await;
    assert_eq!(scene.share(bucket, "again", 1).await, content);
    let (kept, _) = scene.pinned(bucket, "kept", 1).await;
    scene.commit_pinned(&kept, content).await.expect("committed");
    let (given_up, _) = scene.pinned(bucket, "given-up", 1).await;
    scene.catalog.drop_write(given_up.write, Late::No).await.expect("given up");
    scene.pinned(bucket, "left", 1).await;
    scene.clock.advance(LEASE);
    assert_eq!(scene.reap(9, Duration::ZERO).await.len(), 1);
}

/// What the smaller workers and the gauges ask for.
async fn upkeep(scene: &Scene) {
    const DELETE: &str = "UPDATE objects SET deletion_status = 'DELETION_IN_PROGRESS', deletion_initiated_at = 1 \
         WHERE bucket_id = $1 AND key = 'stuck'";
    scene.catalog.oldest_due(Duration::ZERO).await.expect("a look");
    let bucket = scene.catalog.bucket(&bucket_name("life")).await.expect("a look").expect("there").id;
    let upload = scene.upload(bucket, "given-up").await;
    scene.clock.advance(Duration::from_secs(2));
    let stale = scene.catalog.stale_uploads(Duration::ZERO, 9).await.expect("a look");
    assert!(stale.iter().any(|found| found.id == upload));
    scene.catalog.abort_stale_upload(upload, Duration::ZERO).await.expect("a try").expect("aborted");
    scene.put(bucket, "stuck", 1).await;
    scene.change(DELETE, crate::params![bucket]).await;
    assert!(!scene.catalog.reset_stuck(Duration::ZERO, 9).await.expect("a look").is_empty());
    expiries(scene, bucket).await;
}

/// What becomes of objects whose time has passed.
async fn expiries(scene: &Scene, bucket: s3o_model::ids::BucketId) {
    let moment = Duration::from_millis(1);
    for key in ["mortal", "fleeting", "brief"] {
        scene.mortal(bucket, key, 1, moment).await;
    }
    let late = Expiry::At(scene.now().after(moment));
    scene.try_mortal(bucket, "timed", 1, late).await.expect("stored");
    scene.clock.advance(moment);
    let (token, claimed) = scene.claim_expiries(2).await;
    assert_eq!(claimed, 2);
    assert_eq!(scene.catalog.halve_claim(token, scene.token()).await.expect("halved"), 1);
    scene.catalog.note_unremovable(token, "a rule").await.expect("noted");
    assert_eq!(scene.remove_claimed(token).await.len(), 1);
    assert!(scene.catalog.has_live_objects(bucket).await.expect("a look"));
    assert_eq!(scene.catalog.remove_expired_in(bucket, 9, scene.token()).await.expect("removed").len(), 3);
}

async fn lifecycle_life(scene: &Scene, bucket: BucketId) {
    scene.catalog.set_lifecycle(bucket, Some(&[])).await.expect("set");
    let ruled = scene.catalog.ruled_bucket("", &["life"]).await.expect("a look").expect("ruled");
    scene.catalog.lifecycle(bucket).await.expect("a look");
    scene.put(bucket, "due", 1).await;
    let upload = scene.upload(bucket, "due").await;
    let threshold = Expiration::Date(scene.now()).threshold();
    for before in [None, Some("dux".to_owned())] {
        let range = DueRange { bucket, from: "due".to_owned(), before, threshold };
        let objects = &scene.catalog.due_objects(&range, 9).await.expect("a page").objects;
        for by_tags in [true, false] {
            let authority = Authority::Bucket(ruled.revision);
            let batch = DueBatch { bucket, authority, threshold, objects, by_tags };
            scene.catalog.delete_due(&batch, scene.token()).await.expect("deleted");
        }
        scene.catalog.due_uploads(&range, None, 9).await.expect("a look");
    }
    scene.catalog.abort_due(upload, ruled.revision, threshold).await.expect("a try").expect("aborted");
}

async fn dead_letters_life(scene: &Scene) {
    let (token, claimed) = scene.claim(2).await;
    scene.settle(token, &claimed, &Outcome::DeadLetter { why: String::new() }).await;
    let everything = Selection::default();
    scene.catalog.queued_cleanups(&everything, 0, 10).await.expect("a page");
    let letters = scene.catalog.dead_letters(&everything, 0, 10).await.expect("a page");
    assert_eq!(scene.catalog.newest_dead_letter().await.expect("a look"), Some(letters[1].id));
    assert!(scene.catalog.dead_letter(letters[0].id).await.expect("a look").is_some());
    scene.catalog.retry_dead_letters(&[letters[0].id], scene.token()).await.expect("sent back");
    let discard = Discard { id: letters[1].id, written_off: Some("{}".to_owned()) };
    assert_eq!(scene.catalog.discard_dead_letters(&[discard], scene.token()).await.expect("discarded").len(), 1);
}

async fn multipart_life(scene: &Scene, bucket: s3o_model::ids::BucketId) {
    let upload = scene.upload(bucket, "joined").await;
    let parts = [scene.part(upload, 1, 3).await, scene.part(upload, 2, 3).await];
    scene.part(upload, 3, 3).await;
    let (_, source) = parts[0];
    let range = scene.part_of(upload, 4, (source, 1), PartSource::Range { offset: 1 });
    scene.catalog.commit_part(range).await.expect("committed");
    let joined = scene.complete(upload, &parts).await.expect("completed");
    scene.catalog.pieces(joined, 0, 9, 10).await.expect("pieces");
    scene.catalog.numbered_pieces(joined, 0, 10).await.expect("pieces");
    assert!(scene.delete(bucket, "joined").await);
    let given_up = scene.upload(bucket, "given-up").await;
    scene.part(given_up, 1, 1).await;
    scene.catalog.abort_upload(given_up).await.expect("aborted");
    scene.upload(bucket, "kept-open").await;
}

/// What a plan may read through: what this statement itself made or was given, the few backends,
/// and an index that holds only what waits for this very statement.
const SHORT: [&str; 9] = [
    "s",
    "t",
    "json_each",
    "(subquery-",
    "CONSTANT ROW",
    "backends",
    "backend_quotas",
    "cluster",
    "u USING COVERING INDEX multipart_uploads_leftover",
];

/// Searches that find as much as a bucket, a backend or a state holds.
const WIDE: [&str; 4] = ["(bucket_id=?)", "(backend_name=?)", "(kind=?)", "(token>?)"];

/// The steps of a plan that cost more, the more there is.
fn grows(steps: &[String]) -> bool {
    let made_here = |table: &str| {
        steps.iter().any(|step| ["CO-ROUTINE", "MATERIALIZE"].iter().any(|made| *step == format!("{made} {table}")))
    };
    steps.iter().any(|step| match step.strip_prefix("SCAN ") {
        Some(table) => !made_here(table) && !SHORT.iter().any(|short| table.starts_with(short)),
        // A backend has a few stripes, however much it holds.
        None => !step.starts_with("SEARCH backend_quotas ") && WIDE.iter().any(|wide| step.ends_with(wide)),
    })
}

/// Existence checks stop at the first row they find, and an emptied bucket's delete is one. What has expired in a bucket
/// is removed page by page once nothing else is in it.
fn stops_at_the_first(sql: &str) -> bool {
    sql.starts_with("DELETE FROM buckets") || [LIVE, MARK_EXPIRED_IN].contains(&sql)
}

fn recorded() -> (Arc<Recorder>, Scene) {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = clock();
    let inner = Sqlite::open(&options(folder.path(), Mode::Threaded, clock.clone())).expect("a catalog");
    let recorder = Arc::new(Recorder { inner, seen: Mutex::default() });
    (recorder.clone(), Scene::over(recorder, clock, folder))
}

/// Fails if a statement that was seen costs more, the more there is.
async fn nothing_grows(recorder: &Recorder, at_least: usize) {
    let seen = std::mem::take(&mut *recorder.seen.lock());
    assert!(seen.len() >= at_least, "only {} statements were seen", seen.len());
    let mut faults = Vec::new();
    for sql in &seen {
        let explain: &'static str = format!("EXPLAIN QUERY PLAN {sql}").leak();
        let rows = recorder.inner.read(Statement::new(explain, vec![])).await.expect("a plan");
        let steps: Vec<String> = rows.iter().map(|row| row.text(3).expect("a step").to_owned()).collect();
        if grows(&steps) && !stops_at_the_first(sql) {
            faults.push(format!("{sql}\n    {}", steps.join("\n    ")));
        }
    }
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), seen.len(), faults.join("\n"));
}

#[tokio::test]
async fn no_statement_reads_through_what_grows() {
    let (recorder, scene) = recorded();
    everyday_life(&scene).await;
    nothing_grows(&recorder, 100).await;
}

#[tokio::test]
async fn a_page_of_a_verification_costs_the_same_at_any_size() {
    let (recorder, scene) = recorded();
    everyday_life(&scene).await;
    recorder.seen.lock().clear();
    for check in checks() {
        let start = check.start();
        scene.catalog.page_end(check, &start, 10).await.expect("a page");
        scene.catalog.broken(check, &start, &start).await.expect("a check");
    }
    let disk = "disk".parse().expect("a name");
    scene.catalog.naming_rows(&disk, &["a"]).await.expect("rows");
    scene.catalog.located_keys(&disk, "a", None, 10).await.expect("keys");
    nothing_grows(&recorder, checks().len() + 2).await;
}
