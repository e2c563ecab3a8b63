//! Tests of the cleanup queue.

use std::collections::BTreeSet;
use std::time::Duration;

use s3o_model::cleanup::{Cleanup, Outcome};
use s3o_model::clock::Clock as _;

use super::fixture::{AGE, Fixture, at_once, backend};
use crate::{Depths, Late, Waiting, params};

/// Queues this many rows of 1, 2, 3... bytes; returns their physical keys.
pub(super) async fn queue(fixture: &Fixture, rows: u64) -> Vec<String> {
    let bucket = fixture.bucket("queue").await;
    let mut keys = Vec::new();
    for number in 1..=rows {
        let intent = fixture.staged(bucket, &format!("k{number:04}"), number).await;
        fixture.catalog.drop_write(intent.write, Late::No).await.expect("dropped");
        keys.push(intent.physical_key);
    }
    keys
}

fn retry(delay: Duration) -> Outcome {
    Outcome::Retry { delay, why: "access denied".to_owned() }
}

/// It takes rows of its lane, the longest due first, up to its limit.
pub async fn claim_takes_due_rows_once(fixture: &Fixture) {
    let keys = queue(fixture, 5).await;
    fixture.change("UPDATE cleanup_queue SET due = due + 1000 - id", vec![]).await;
    assert_eq!(fixture.claim(9).await.1, [], "nothing is due");
    fixture.clock.advance(Duration::from_secs(1));
    let claimant = fixture.claimant();
    let elsewhere = fixture.catalog.claim_cleanups(&backend("cloud"), 9, &claimant).await.expect("claimed").cleanups;
    assert_eq!(elsewhere, []);
    let names = |claimed: Vec<Cleanup>| claimed.into_iter().map(|c| c.physical_key).collect::<BTreeSet<_>>();
    assert_eq!(names(fixture.claim(2).await.1), BTreeSet::from([keys[4].clone(), keys[3].clone()]));
    assert_eq!(names(fixture.claim(9).await.1), keys[..3].iter().cloned().collect());
    assert_eq!(fixture.claim(9).await.1, []);
}

/// The time comes from the clock that also set the timestamps in the rows.
pub async fn claim_returns_its_time(fixture: &Fixture) {
    queue(fixture, 2).await;
    fixture.clock.advance(Duration::from_secs(5));
    let claimed = fixture.catalog.claim_cleanups(&backend("disk"), 9, &fixture.claimant()).await.expect("claimed");
    assert_eq!((claimed.cleanups.len(), claimed.at), (2, fixture.clock.now()));
    assert_eq!(fixture.number("SELECT min(claimed_at) FROM cleanup_queue").await, claimed.at.millis());
}

/// A lane is the queue of one backend.
pub async fn lane_has_work_while_a_due_row_is_unclaimed(fixture: &Fixture) {
    let lanes = async || fixture.waiting().await.lanes.into_iter().collect::<Vec<_>>();
    assert_eq!(lanes().await, []);
    queue(fixture, 1).await;
    assert_eq!(lanes().await, [backend("disk")]);
    let (token, claimed) = fixture.claim(9).await;
    assert_eq!(lanes().await, [], "it is claimed");
    fixture.settle(token, &claimed, &retry(Duration::from_secs(1))).await;
    assert_eq!(lanes().await, [], "it is not due");
    fixture.clock.advance(Duration::from_secs(1));
    assert_eq!(lanes().await, [backend("disk")]);
}

/// This holds for a deferred row and for a freed claim, however long ago the row became due.
pub async fn row_that_lost_its_claim_is_seen_by_the_next_query(fixture: &Fixture) {
    queue(fixture, 2).await;
    let (token, claimed) = fixture.claim(1).await;
    let (_, rest) = fixture.claim(1).await;
    fixture.clock.advance(AGE);
    fixture.waiting().await;
    let waiting = fixture.waiting().await;
    assert!(waiting.claims && waiting.lanes.is_empty());
    assert_eq!(fixture.settle(token, &claimed, &Outcome::Deferred).await, 1);
    assert_eq!(fixture.waiting().await.lanes.len(), 1);
    let (again, claimed_again) = fixture.claim(9).await;
    assert_eq!(claimed_again, claimed);
    assert_eq!(fixture.settle(again, &claimed_again, &Outcome::Done).await, 1);
    assert!(fixture.waiting().await.lanes.is_empty());
    assert_eq!(fixture.catalog.free_stale_claims(AGE, fixture.token()).await.expect("freed").len(), 1);
    let waiting = fixture.waiting().await;
    assert!(!waiting.claims && waiting.lanes.len() == 1);
    assert_eq!(fixture.claim(9).await.1, rest);
}

/// Most queries start where the last one ended and skip rows that were due long before.
pub async fn row_below_the_low_water_mark_is_seen_within_ten_queries(fixture: &Fixture) {
    queue(fixture, 1).await;
    fixture.clock.advance(Duration::from_mins(1));
    assert_eq!(fixture.claim(9).await.1.len(), 1);
    fixture.waiting().await;
    fixture.change("UPDATE cleanup_queue SET token = NULL, claimed_by = NULL, claimed_at = NULL", vec![]).await;
    let mut queries = 1;
    while fixture.waiting().await.lanes.is_empty() {
        queries += 1;
    }
    assert!(queries <= 10, "{queries}");
    assert_eq!(fixture.claim(9).await.1.len(), 1);
}

/// `waiting` reports condemned content at the millisecond at which it is old enough, and an aborted upload at once.
pub async fn condemned_content_and_aborted_uploads_are_seen_in_time(fixture: &Fixture) {
    assert_eq!(fixture.waiting().await, Waiting::default());
    let bucket = fixture.bucket("seen").await;
    fixture.put(bucket, "a", 1).await;
    assert!(fixture.delete(bucket, "a").await);
    let (token, claimed) = fixture.claim(9).await;
    assert_eq!(fixture.settle(token, &claimed, &Outcome::Done).await, 1);
    fixture.wait_almost(AGE);
    assert_eq!(fixture.waiting().await, Waiting::default());
    fixture.clock.advance(Duration::from_millis(1));
    assert!(fixture.waiting().await.contents);
    assert_eq!(fixture.catalog.forget_condemned(AGE).await.expect("a step"), 1);
    assert_eq!(fixture.waiting().await, Waiting::default());
    let upload = fixture.upload(bucket, "b").await;
    fixture.part(upload, 1, 1).await;
    fixture.catalog.abort_upload(upload).await.expect("aborted");
    assert!(fixture.waiting().await.contents);
}

/// A row that was settled before releases nothing.
pub async fn settlement_deletes_done_rows_and_releases_their_bytes(fixture: &Fixture) {
    queue(fixture, 4).await;
    assert_eq!(fixture.usage().await, (0, 10, 0));
    let (token, mut claimed) = fixture.claim(9).await;
    claimed.sort_by_key(|cleanup| cleanup.id);
    assert_eq!(fixture.settle(token, &claimed[1..2], &Outcome::Done).await, 1);
    assert_eq!(fixture.usage().await, (0, 8, 0));
    assert_eq!(fixture.settle(token, &claimed[3..], &Outcome::DoneAbsent).await, 1);
    assert_eq!(fixture.usage().await, (0, 4, 0));
    assert_eq!(fixture.settle(token, &claimed, &Outcome::Done).await, 2, "two were settled before");
    assert_eq!((fixture.usage().await, fixture.queued().await), ((0, 0, 0), vec![]));
}

/// Done, deferred, waiting and retried rows in one call.
pub async fn settlement_applies_one_outcome_per_row(fixture: &Fixture) {
    queue(fixture, 4).await;
    let (token, mut claimed) = fixture.claim(9).await;
    claimed.sort_by_key(|cleanup| cleanup.id);
    let wait = Outcome::Wait { delay: Duration::from_secs(5), why: "outcome unknown".to_owned() };
    let outcomes = [Outcome::Done, Outcome::Deferred, wait, retry(Duration::from_secs(9))];
    let settlements: Vec<crate::Settlement> =
        claimed.iter().zip(outcomes).map(|(row, outcome)| crate::Settlement { id: row.id, outcome }).collect();
    assert_eq!(fixture.catalog.settle_cleanups(token, &settlements).await.expect("settled").len(), 4);
    let due = |claimed: &[Cleanup]| claimed.iter().map(|c| (c.id, c.attempts)).collect::<Vec<_>>();
    assert_eq!(due(&fixture.claim(9).await.1), [(claimed[1].id, 0)], "a deferred row stays due");
    fixture.clock.advance(Duration::from_secs(5));
    assert_eq!(due(&fixture.claim(9).await.1), [(claimed[2].id, 0)], "waiting spends no attempt");
    fixture.clock.advance(Duration::from_secs(4));
    assert_eq!(due(&fixture.claim(9).await.1), [(claimed[3].id, 1)], "a refusal spends an attempt");
    let errors = fixture.rows("SELECT last_error FROM cleanup_queue WHERE attempts = 1", vec![]).await;
    assert_eq!(errors[0].text("last_error").expect("an error"), "access denied");
}

/// This holds for every outcome; the claim that replaced it is unchanged.
pub async fn stale_token_settles_nothing(fixture: &Fixture) {
    queue(fixture, 2).await;
    let (stale, claimed) = fixture.claim(9).await;
    fixture.settle(stale, &claimed, &Outcome::Deferred).await;
    let (token, again) = fixture.claim(9).await;
    let dead = Outcome::DeadLetter { why: "access denied".to_owned() };
    for outcome in [Outcome::Done, Outcome::Deferred, retry(Duration::from_secs(9)), dead] {
        assert_eq!(fixture.settle(stale, &claimed, &outcome).await, 0);
    }
    assert_eq!((fixture.usage().await, fixture.claim(9).await.1), ((0, 3, 0), vec![]), "the claim is unchanged");
    assert_eq!(fixture.settle(token, &again, &retry(Duration::ZERO)).await, 2);
    assert!(fixture.claim(9).await.1.iter().all(|cleanup| cleanup.attempts == 1));
}

/// Freed claims are returned with their holder. Claims younger than the grace period stay.
pub async fn stale_claims_are_freed_once(fixture: &Fixture) {
    queue(fixture, 3).await;
    let (old, claimed) = fixture.claim(2).await;
    fixture.clock.advance(Duration::from_mins(9));
    let (young, rest) = fixture.claim(2).await;
    fixture.clock.advance(Duration::from_mins(1));
    let grace = Duration::from_mins(10);
    let freed = fixture.catalog.free_stale_claims(grace, fixture.token()).await.expect("freed");
    let named: Vec<_> = freed.iter().map(|claim| (&claim.backend, &claim.physical_key)).collect();
    let expected: Vec<_> = claimed.iter().map(|cleanup| (&cleanup.backend, &cleanup.physical_key)).collect();
    assert_eq!(named, expected, "{freed:?}");
    assert!(freed.iter().all(|claim| !claim.claimed_by.is_empty()));
    assert_eq!(fixture.catalog.free_stale_claims(grace, fixture.token()).await.expect("freed"), []);
    assert_eq!(fixture.settle(old, &claimed, &Outcome::Done).await, 0);
    assert_eq!(fixture.settle(young, &rest, &Outcome::Done).await, 1);
    let (_, again) = fixture.claim(9).await;
    assert_eq!(again.iter().map(|cleanup| cleanup.attempts).collect::<Vec<_>>(), [0, 0]);
}

/// Uploads count while they are open.
pub async fn depths_count_rows_of_each_queue(fixture: &Fixture) {
    queue(fixture, 2).await;
    let other = fixture.bucket("other").await;
    let closed = fixture.upload(other, "a").await;
    fixture.catalog.abort_upload(closed).await.expect("aborted");
    let open = fixture.upload(other, "b").await;
    fixture.staged_part(open, 1, 1).await;
    let depths = fixture.catalog.depths().await.expect("counted");
    let expected = Depths { cleanups: 2, intents: 1, uploads: 1, ..Depths::default() };
    assert_eq!(depths, expected);
}

/// Six workers together settle every row, each row once.
pub async fn concurrent_claims_never_overlap(fixture: &Fixture) {
    const ROWS: i64 = 3_000;
    const FILL: &str = "INSERT INTO cleanup_queue \
         (backend_name, physical_key, size_bytes, stripe, reason, due, created_at) \
         WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < $1) \
         SELECT 'disk', 'k' || n, 1, 0, 'delete', :now, :now FROM numbers";
    fixture.attach("disk", None).await;
    fixture.change(FILL, params![ROWS]).await;
    fixture.change("UPDATE backend_quotas SET orphan_bytes = $1 WHERE stripe = 0", params![ROWS]).await;
    let claimers = (0..6).map(|_| {
        let fixture = fixture.clone();
        async move {
            let mut mine = Vec::new();
            loop {
                let (token, claimed) = fixture.claim(37).await;
                if claimed.is_empty() {
                    return mine;
                }
                assert_eq!(fixture.settle(token, &claimed, &Outcome::Done).await, claimed.len());
                mine.extend(claimed.into_iter().map(|cleanup| cleanup.physical_key));
            }
        }
    });
    let all: Vec<String> = at_once(claimers.collect()).await.into_iter().flatten().collect();
    assert_eq!(all.len(), usize::try_from(ROWS).expect("small"));
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    assert_eq!(fixture.usage().await, (0, 0, 0));
}

/// A row whose key a location or an open intent names is not handed out. Its bytes stay on the backend.
pub async fn cleanup_of_referenced_key_creates_a_finding(fixture: &Fixture) {
    const NAME: &str = "UPDATE cleanup_queue SET physical_key = $1 WHERE physical_key = $2";
    let bucket = fixture.bucket("used").await;
    fixture.put(bucket, "a", 5).await;
    let used = fixture.rows("SELECT physical_key FROM object_locations", vec![]).await[0]
        .string("physical_key")
        .expect("a key");
    let open = fixture.staged(bucket, "b", 5).await;
    queue(fixture, 3).await;
    let keys = fixture.queued().await;
    fixture.change(NAME, params![used.as_str(), keys[0].as_str()]).await;
    fixture.change(NAME, params![open.physical_key.as_str(), keys[1].as_str()]).await;
    let orphan = fixture.usage().await.1;
    let claimed = fixture.catalog.claim_cleanups(&backend("disk"), 9, &fixture.claimant()).await.expect("claimed");
    assert_eq!((claimed.cleanups.len(), claimed.named.len()), (1, 2));
    assert_eq!(claimed.cleanups[0].physical_key, keys[2]);
    let named: u64 = claimed.named.iter().map(|cleanup| cleanup.size_bytes).sum();
    assert_eq!(fixture.usage().await.1 + named, orphan, "the bytes of these rows are no orphan bytes");
    assert_eq!(fixture.queued().await, keys[2..]);
    assert_eq!(fixture.number("SELECT count(*) FROM findings WHERE kind = 'still_named'").await, 2);
}
