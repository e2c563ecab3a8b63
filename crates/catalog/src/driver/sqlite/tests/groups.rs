//! Group commit: waiting units share a transaction, and a failed guard or a full disk in one of them does not affect
//! the others.

use s3o_model::conditions::WriteCondition;

use super::threaded_fixture;
use crate::conformance::fixture::{Fixture, at_once, bucket_name};
use crate::conformance::quota_usage;
use crate::unit::{Answer, Unit};
use crate::{Error, Verdict, params};

/// Runs long enough for other units to queue up behind it.
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

/// A unit that creates a bucket, then runs this statement.
fn two_steps(name: &str, sql: &'static str) -> Unit {
    let mut unit = bucket(name);
    unit.one(sql, vec![], Verdict::RunAgain);
    unit
}

async fn exists(fixture: &Fixture, name: &str) -> bool {
    fixture.catalog.bucket(&bucket_name(name)).await.expect("an answer").is_some()
}

/// Runs a unit between two others in one group, and returns the number of commits.
async fn run_in_the_middle(fixture: &Fixture, middle: Unit) -> ([Result<Vec<Answer>, Error>; 3], u64) {
    let before = fixture.catalog.effort().commits;
    // `join!` polls in order, and the first poll of a write hands its unit to the writer.
    let (counted, first, middle, last) = tokio::join!(
        fixture.write(slow()),
        fixture.write(bucket("first")),
        fixture.write(middle),
        fixture.write(bucket("last")),
    );
    counted.expect("counted");
    ([first, middle, last], fixture.catalog.effort().commits - before)
}

#[tokio::test]
async fn a_failed_guard_rolls_back_only_its_unit() {
    let fixture = threaded_fixture().await;
    let none = two_steps("middle", "SELECT 1 FROM buckets WHERE name = 'missing'");
    let ([first, middle, last], commits) = run_in_the_middle(&fixture, none).await;
    assert!(first.is_ok() && last.is_ok());
    assert_eq!(middle.expect_err("refused").verdict(), Some(Verdict::RunAgain));
    assert!(exists(&fixture, "first").await && !exists(&fixture, "middle").await && exists(&fixture, "last").await);
    assert!(commits < 3, "the units were not grouped: {commits} commits");
}

#[tokio::test]
async fn a_failed_statement_rolls_back_only_its_unit() {
    let fixture = threaded_fixture().await;
    let twice = two_steps("middle", "INSERT INTO buckets (name, created_at) VALUES ('first', 0)");
    let ([first, middle, last], commits) = run_in_the_middle(&fixture, twice).await;
    assert!(first.is_ok() && last.is_ok());
    assert!(matches!(middle, Err(Error::Internal(_))), "{middle:?}");
    assert!(exists(&fixture, "first").await && !exists(&fixture, "middle").await && exists(&fixture, "last").await);
    assert!(commits < 3, "the units were not grouped: {commits} commits");
}

/// Every statement of a unit may succeed and COMMIT still fail: then the unit must not be acknowledged.
#[tokio::test]
async fn a_unit_whose_commit_fails_is_not_acknowledged() {
    let fixture = threaded_fixture().await;
    let mut dangling = bucket("middle");
    // Checked at COMMIT instead of at the statement.
    dangling.run("PRAGMA defer_foreign_keys = ON", vec![]);
    dangling.run(
        "INSERT INTO content_parts (joined_id, number, start, whole_id, byte_offset, length) \
         VALUES ('x', 1, 0, 'y', 0, 0)",
        vec![],
    );
    let ([first, middle, last], commits) = run_in_the_middle(&fixture, dangling).await;
    assert!(first.is_ok() && middle.is_err() && last.is_ok(), "{first:?} {middle:?} {last:?}");
    assert!(exists(&fixture, "first").await && !exists(&fixture, "middle").await && exists(&fixture, "last").await);
    assert_eq!(commits, 3, "the COMMIT of the group failed, and each unit ran alone");
    quota_usage::check(&fixture).await;
}

/// Sets the limit of the file to its current size and this many pages.
async fn limit_growth(fixture: &Fixture, pages: i64) {
    let limit = fixture.number("PRAGMA page_count").await + pages;
    fixture.change(format!("PRAGMA max_page_count = {limit}").leak(), vec![]).await;
}

/// One row that is too large for the disk. It needs no statement journal, so SQLite rolls back the transaction.
const ONE_LARGE_ROW: &str = "UPDATE buckets SET tags = json_object('k', hex(zeroblob(1000000))) WHERE name = 'middle'";
/// Many rows, which need a statement journal: SQLite rolls back only the statement.
const MANY_ROWS: &str = "INSERT INTO buckets (name, created_at, tags) \
     WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 500) \
     SELECT 'b' || n, 0, json_object('k', hex(zeroblob(2000))) FROM numbers";

async fn commits_on_full_disk(sql: &'static str) -> u64 {
    let fixture = threaded_fixture().await;
    limit_growth(&fixture, 4).await;
    let ([first, middle, last], commits) = run_in_the_middle(&fixture, two_steps("middle", sql)).await;
    assert!(matches!(middle, Err(Error::Away(_))), "{middle:?}");
    assert!(first.is_ok() && last.is_ok(), "{first:?} {last:?}");
    assert!(exists(&fixture, "first").await && !exists(&fixture, "middle").await && exists(&fixture, "last").await);
    assert_eq!(fixture.number("SELECT count(*) FROM buckets").await, 2);
    limit_growth(&fixture, 10_000).await;
    let mut again = bucket("middle");
    again.run(sql, vec![]);
    fixture.write(again).await.expect("free space again");
    assert!(exists(&fixture, "middle").await);
    quota_usage::check(&fixture).await;
    commits
}

#[tokio::test]
async fn a_full_disk_that_rolls_back_the_group_fails_one_unit() {
    assert_eq!(commits_on_full_disk(ONE_LARGE_ROW).await, 3, "the group was rolled back, and each unit ran alone");
}

#[tokio::test]
async fn a_full_disk_that_rolls_back_a_statement_fails_one_unit() {
    assert!(commits_on_full_disk(MANY_ROWS).await < 3, "the group was committed without it");
}

/// Many writers on a disk that fills up: exactly the acknowledged objects exist.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_full_disk_acknowledges_only_stored_objects() {
    let fixture = threaded_fixture().await;
    let bucket = fixture.bucket("full").await;
    limit_growth(&fixture, 12).await;
    let writers = (0..200).map(|number| {
        let fixture = fixture.clone();
        async move {
            let intent = fixture.intent(bucket, &format!("{number:03}-{}", "x".repeat(500)), 1);
            let staged = fixture.try_stage(&intent).await;
            let committed = match staged {
                Ok(_) => fixture.commit(&intent, WriteCondition::None).await.map(drop),
                Err(error) => Err(error),
            };
            (intent.key, committed)
        }
    });
    let outcomes = at_once(writers.collect()).await;
    let refused = outcomes.iter().filter(|(_, outcome)| outcome.is_err()).count();
    assert!(refused > 0 && refused < outcomes.len(), "{refused} were refused");
    for (key, outcome) in outcomes {
        let found = fixture.resolve("full", key.as_str()).await.object.is_some();
        assert_eq!(found, outcome.is_ok(), "{key}: {outcome:?}");
        assert!(matches!(outcome, Ok(()) | Err(Error::Away(_))), "{outcome:?}");
    }
    limit_growth(&fixture, 10_000).await;
    fixture.put(bucket, "afterwards", 1).await;
    quota_usage::check(&fixture).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixteen_writers_share_commits() {
    let fixture = threaded_fixture().await;
    let bucket = fixture.bucket("shared").await;
    let before = fixture.catalog.effort();
    let writers = (0..16).map(|writer| {
        let fixture = fixture.clone();
        async move {
            for number in 0..50 {
                fixture.put(bucket, &format!("{writer}/{number}"), 1).await;
            }
        }
    });
    at_once(writers.collect()).await;
    let effort = fixture.catalog.effort();
    let (units, commits) = (effort.units - before.units, effort.commits - before.commits);
    assert_eq!(units, 16 * 50 * 2);
    assert!(commits * 2 < units, "{commits} commits for {units} units");
    quota_usage::check(&fixture).await;
}
