//! Group commit: waiting units share a transaction, and neither a guard nor a full disk in one of
//! them reaches another.

use s3o_model::conditions::WriteCondition;

use super::threaded_scene;
use crate::conformance::books;
use crate::conformance::scene::{Scene, at_once, bucket_name};
use crate::unit::{Answer, Unit};
use crate::{Buckets, Error, Verdict, params};

/// Takes long enough for other units to queue up behind it.
fn slow() -> Unit {
    let mut unit = Unit::new("slow");
    unit.run(
        "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 2000000) \
         SELECT count(*) FROM numbers",
        vec![],
    );
    unit
}

fn bucket(name: &str) -> Unit {
    let mut unit = Unit::new("bucket");
    unit.run("INSERT INTO buckets (name, created_at) VALUES ($1, :now)", params![name]);
    unit
}

/// A unit that writes a little, then runs this.
fn two_steps(name: &str, sql: &'static str) -> Unit {
    let mut unit = bucket(name);
    unit.one(sql, vec![], Verdict::RunAgain);
    unit
}

async fn has(scene: &Scene, name: &str) -> bool {
    scene.catalog.bucket(&bucket_name(name)).await.expect("a look").is_some()
}

type Outcome = Result<Vec<Answer>, Error>;

/// Runs a unit between two others in one group; how many commits that took is returned.
async fn in_the_middle(scene: &Scene, middle: Unit) -> ([Outcome; 3], u64) {
    let before = scene.catalog.effort().commits;
    // `join!` polls in order, and the first poll of a write hands its unit to the writer.
    let (held, first, middle, last) = tokio::join!(
        scene.write(slow()),
        scene.write(bucket("first")),
        scene.write(middle),
        scene.write(bucket("last")),
    );
    held.expect("it only counts");
    ([first, middle, last], scene.catalog.effort().commits - before)
}

#[tokio::test]
async fn a_failing_guard_takes_back_its_own_unit_only() {
    let scene = threaded_scene().await;
    let none = two_steps("middle", "SELECT 1 FROM buckets WHERE name = 'nobody'");
    let ([first, middle, last], commits) = in_the_middle(&scene, none).await;
    assert!(first.is_ok() && last.is_ok());
    assert_eq!(middle.expect_err("refused").verdict(), Some(Verdict::RunAgain));
    assert!(has(&scene, "first").await && !has(&scene, "middle").await && has(&scene, "last").await);
    assert!(commits < 3, "they were no group: {commits} commits");
}

#[tokio::test]
async fn a_failing_statement_takes_back_its_own_unit_only() {
    let scene = threaded_scene().await;
    let twice = two_steps("middle", "INSERT INTO buckets (name, created_at) VALUES ('first', 0)");
    let ([first, middle, last], commits) = in_the_middle(&scene, twice).await;
    assert!(first.is_ok() && last.is_ok());
    assert!(matches!(middle, Err(Error::Internal(_))), "{middle:?}");
    assert!(has(&scene, "first").await && !has(&scene, "middle").await && has(&scene, "last").await);
    assert!(commits < 3, "they were no group: {commits} commits");
}

/// Every statement of a unit may succeed and COMMIT still fail: nobody may hear of success.
#[tokio::test]
async fn a_failing_commit_acknowledges_nobody_wrongly() {
    let scene = threaded_scene().await;
    let mut dangling = bucket("middle");
    // Checked at COMMIT instead of at the statement.
    dangling.run("PRAGMA defer_foreign_keys = ON", vec![]);
    dangling.run(
        "INSERT INTO content_parts (joined_id, number, start, whole_id, byte_offset, length) VALUES ('x', 1, 0, 'y', 0, 0)",
        vec![],
    );
    let ([first, middle, last], commits) = in_the_middle(&scene, dangling).await;
    assert!(first.is_ok() && middle.is_err() && last.is_ok(), "{first:?} {middle:?} {last:?}");
    assert!(has(&scene, "first").await && !has(&scene, "middle").await && has(&scene, "last").await);
    assert_eq!(commits, 3, "the group's COMMIT failed, and each ran by itself");
    books::check(&scene).await;
}

/// Lets the file grow by this many pages and no more.
async fn leave_room(scene: &Scene, pages: i64) {
    let limit = scene.number("PRAGMA page_count").await + pages;
    scene.change(format!("PRAGMA max_page_count = {limit}").leak(), vec![]).await;
}

/// One row too large for the disk. It needs no statement journal, so SQLite rolls back all.
const ONE_LARGE_ROW: &str = "UPDATE buckets SET tags = json_object('k', hex(zeroblob(1000000))) WHERE name = 'middle'";
/// Many rows, which do: SQLite rolls back the statement alone.
const MANY_ROWS: &str = "INSERT INTO buckets (name, created_at, tags) \
     WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 500) \
     SELECT 'b' || n, 0, json_object('k', hex(zeroblob(2000))) FROM numbers";

async fn a_full_disk(sql: &'static str) -> u64 {
    let scene = threaded_scene().await;
    leave_room(&scene, 4).await;
    let ([first, middle, last], commits) = in_the_middle(&scene, two_steps("middle", sql)).await;
    assert!(matches!(middle, Err(Error::Away(_))), "{middle:?}");
    assert!(first.is_ok() && last.is_ok(), "{first:?} {last:?}");
    assert!(has(&scene, "first").await && !has(&scene, "middle").await && has(&scene, "last").await);
    assert_eq!(scene.number("SELECT count(*) FROM buckets").await, 2);
    leave_room(&scene, 10_000).await;
    let mut again = bucket("middle");
    again.run(sql, vec![]);
    scene.write(again).await.expect("there is room again");
    assert!(has(&scene, "middle").await);
    books::check(&scene).await;
    commits
}

#[tokio::test]
async fn a_full_disk_that_rolls_back_the_group_fails_one_unit() {
    assert_eq!(a_full_disk(ONE_LARGE_ROW).await, 3, "the group was rolled back, and each ran by itself");
}

#[tokio::test]
async fn a_full_disk_that_rolls_back_a_statement_fails_one_unit() {
    assert!(a_full_disk(MANY_ROWS).await < 3, "the group was committed without it");
}

/// Many writers on a disk that fills up: what was acknowledged is there, what was refused is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_disk_that_fills_up_tells_the_truth() {
    let scene = threaded_scene().await;
    let bucket = scene.bucket("full").await;
    leave_room(&scene, 12).await;
    let writers = (0..200).map(|number| {
        let scene = scene.clone();
        async move {
            let intent = scene.intent(bucket, &format!("{number:03}-{}", "x".repeat(500)), 1);
            let staged = scene.try_stage(&intent).await;
            let committed = match staged {
                Ok(_) => scene.commit(&intent, WriteCondition::None).await.map(drop),
                Err(error) => Err(error),
            };
            (intent.key, committed)
        }
    });
    let outcomes = at_once(writers.collect()).await;
    let refused = outcomes.iter().filter(|(_, outcome)| outcome.is_err()).count();
    assert!(refused > 0 && refused < outcomes.len(), "{refused} were refused");
    for (key, outcome) in outcomes {
        let found = scene.resolve("full", key.as_str()).await.object.is_some();
        assert_eq!(found, outcome.is_ok(), "{key}: {outcome:?}");
        assert!(matches!(outcome, Ok(()) | Err(Error::Away(_))), "{outcome:?}");
    }
    leave_room(&scene, 10_000).await;
    scene.put(bucket, "afterwards", 1).await;
    books::check(&scene).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixteen_writers_share_commits() {
    let scene = threaded_scene().await;
    let bucket = scene.bucket("shared").await;
    let before = scene.catalog.effort();
    let writers = (0..16).map(|writer| {
        let scene = scene.clone();
        async move {
            for number in 0..50 {
                scene.put(bucket, &format!("{writer}/{number}"), 1).await;
            }
        }
    });
    at_once(writers.collect()).await;
    let effort = scene.catalog.effort();
    let (units, commits) = (effort.units - before.units, effort.commits - before.commits);
    assert_eq!(units, 16 * 50 * 2);
    assert!(commits * 2 < units, "{commits} commits for {units} units");
    books::check(&scene).await;
}
