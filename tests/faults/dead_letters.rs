//! A store that refuses to delete: retries back off, the tenth refusal creates a dead letter, and an operator retries
//! or discards it while quota accounting and stored bytes stay equal.

use std::time::Duration;

use bytes::Bytes;
use s3o_catalog::Mode;
use s3o_model::cleanup::Selection;
use s3o_model::dead_letter::DeadLetter;
use s3o_workers::{Disposal, Disposed, Kept};

use crate::stale_claims::with_stale_claims;
use s3o_tests::harness::Harness;

const HOUR: Duration = Duration::from_hours(1);
const BYTES: [&[u8]; 2] = [b"12345", b"123"];

/// Two deleted objects on a store that refuses to delete their bytes.
async fn refusing() -> Harness {
    let harness = Harness::new(1 << 20, Mode::Inline).await;
    for (name, bytes) in ["a", "b"].into_iter().zip(BYTES) {
        harness.store(name, bytes).await.expect("stored");
        harness.delete(name).await;
    }
    harness.flaky.refuse_deletes(true);
    harness
}

/// The two dead letters after the last refusal.
async fn dead() -> (Harness, Vec<DeadLetter>) {
    let harness = refusing().await;
    for _ in 0..10 {
        harness.clean_after(HOUR).await;
    }
    let letters = letters(&harness).await;
    assert_eq!(letters.len(), 2);
    (harness, letters)
}

async fn letters(harness: &Harness) -> Vec<DeadLetter> {
    harness.catalog.dead_letters(&Selection::default(), 0, 10).await.expect("a page")
}

async fn orphan_bytes(harness: &Harness) -> u64 {
    harness.catalog.quota_usage().await.expect("a query").iter().map(|quota| quota.orphan_bytes).sum()
}

async fn written_off(harness: &Harness) -> u64 {
    harness.catalog.written_off().await.expect("sums").iter().map(|(_, bytes)| bytes).sum()
}

async fn one(harness: &Harness, disposal: Disposal, letter: &DeadLetter) -> Option<Disposed> {
    harness.process.dead_letters.one(disposal, letter.id).await.expect("an answer")
}

async fn all(harness: &Harness, disposal: Disposal, which: &Selection) -> Disposed {
    let bounds = harness.process.dead_letters.bounds().await.expect("an answer").expect("dead letters");
    let (disposed, rest) = harness.process.dead_letters.step(disposal, which, bounds).await.expect("an answer");
    assert_eq!(rest, None);
    disposed
}

#[tokio::test]
async fn tenth_refusal_creates_dead_letter_that_counts_as_orphan_bytes() {
    let harness = refusing().await;
    for refusal in 1..10 {
        let report = harness.clean_after(HOUR).await;
        assert_eq!(report.items.into_iter().collect::<Vec<_>>(), [("retry", 2)], "refusal {refusal}");
    }
    let report = harness.clean_after(HOUR).await;
    assert_eq!(report.items.into_iter().collect::<Vec<_>>(), [("exhausted", 2)]);
    assert_eq!(report.by_backend.values().collect::<Vec<_>>(), [&2]);
    let event = serde_json::to_value(&report.events[0]).expect("serialises");
    assert_eq!(report.events[0].name, "cleanup_queue.dead_lettered");
    assert_eq!(
        (&event["backend"], &event["attempts"], &event["reason"]),
        (&"memory".into(), &10.into(), &"delete".into())
    );
    assert_eq!((&event["size_bytes"], &event["error"]), (&5.into(), &"injected: denied".into()));
    assert_eq!((letters(&harness).await.len(), orphan_bytes(&harness).await), (2, 8));
    harness.flaky.clear();
    assert!(harness.clean_after(HOUR).await.items.is_empty(), "dead letters are not retried");
}

#[tokio::test]
async fn stale_claim_creates_no_dead_letter_and_no_event() {
    let harness = refusing().await;
    for _ in 0..9 {
        harness.clean_after(HOUR).await;
    }
    let report = harness.clean_over(with_stale_claims(harness.driver.clone()), HOUR).await;
    assert_eq!(report.items.into_iter().collect::<Vec<_>>(), [("stale", 2)]);
    assert!(report.events.is_empty() && report.by_backend.is_empty());
    assert_eq!((letters(&harness).await.len(), orphan_bytes(&harness).await), (0, 8));
    assert_eq!(harness.clean_after(HOUR).await.items["exhausted"], 2, "the current claim creates the dead letters");
}

#[tokio::test]
async fn rows_are_retried_when_due_and_not_before() {
    let harness = refusing().await;
    assert_eq!(harness.clean_after(HOUR).await.items["retry"], 2);
    assert!(harness.clean_after(Duration::from_secs(29)).await.items.is_empty(), "at least half of the first delay");
    assert_eq!(harness.clean_after(Duration::from_secs(31)).await.items["retry"], 2);
    assert!(harness.clean_after(Duration::from_secs(59)).await.items.is_empty(), "the second delay is twice as long");
}

#[tokio::test]
async fn outage_creates_no_dead_letters() {
    let harness = refusing().await;
    harness.flaky.go_away();
    for _ in 0..50 {
        harness.clean_after(HOUR).await;
    }
    let rows = harness.catalog.queued_cleanups(&Selection::default(), 0, 10).await.expect("a page");
    assert!(rows.len() == 2 && rows.iter().all(|row| row.cleanup.attempts == 0), "{rows:?}");
    harness.flaky.clear();
    assert_eq!(harness.clean_after(Duration::ZERO).await.items["success"], 2, "everything is deleted");
}

#[tokio::test]
async fn retry_after_repair_deletes_everything() {
    let (harness, dead) = dead().await;
    let disposed = one(&harness, Disposal::Retry, &dead[0]).await.expect("a dead letter");
    assert_eq!((disposed.events[0].name, disposed.kept.len()), ("dlq.retried", 0));
    assert_eq!(one(&harness, Disposal::Retry, &dead[0]).await, None, "it is not a dead letter any more");
    assert_eq!(harness.clean_after(Duration::ZERO).await.items["retry"], 1, "a retried row starts over");
    let elsewhere = Selection { backend: Some("elsewhere".parse().expect("a name")), ..Selection::default() };
    assert_eq!(all(&harness, Disposal::Retry, &elsewhere).await, Disposed::default());
    let deleted = Selection { reason: Some("delete".to_owned()), ..Selection::default() };
    assert_eq!(all(&harness, Disposal::Retry, &deleted).await.events.len(), 1);
    harness.flaky.clear();
    harness.settle().await;
    assert_eq!((harness.memory.total_bytes(), orphan_bytes(&harness).await), (0, 0));
}

#[tokio::test]
async fn many_dead_letters_are_disposed_of_in_bounded_steps() {
    const FILL: &str = "INSERT INTO cleanup_dlq (original_id, backend_name, physical_key, size_bytes, stripe, reason, \
         attempts, created_at, dead_since) \
         WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 2500) \
         SELECT n, 'memory', 'k' || n, 0, 0, 'delete', 10, 0, 0 FROM numbers";
    let harness = Harness::new(1 << 20, Mode::Inline).await;
    harness.change(FILL).await;
    let mut bounds = harness.process.dead_letters.bounds().await.expect("an answer");
    // A dead letter after the bounds is not part of the operation.
    harness.change("UPDATE cleanup_dlq SET id = 9999 WHERE id = 2500").await;
    let mut steps = Vec::new();
    while let Some(here) = bounds {
        let (disposed, rest) =
            harness.process.dead_letters.step(Disposal::Retry, &Selection::default(), here).await.expect("an answer");
        steps.push(disposed.events.len());
        bounds = rest;
    }
    assert_eq!(steps, [1000, 1000, 499]);
    assert_eq!(harness.clean_after(Duration::ZERO).await.items.values().sum::<u64>(), 2499, "the retried rows");
}

#[tokio::test]
async fn discard_probes_first() {
    let (harness, dead) = dead().await;
    let without_force = Disposal::Discard { force: false };
    assert_eq!(one(&harness, without_force, &dead[0]).await.expect("a dead letter").kept, [Kept::StillThere]);
    harness.flaky.go_away();
    let kept = one(&harness, without_force, &dead[0]).await.expect("a dead letter").kept;
    assert!(matches!(kept.as_slice(), [Kept::NotProven(_)]), "{kept:?}");
    harness.flaky.come_back();
    assert_eq!((letters(&harness).await.len(), orphan_bytes(&harness).await), (2, 8), "nothing changed");
    // An operator deleted one of them on the backend.
    harness.memory.corrupt(&dead[0].physical_key, None::<Bytes>);
    let disposed = all(&harness, without_force, &Selection::default()).await;
    assert_eq!(disposed.kept, [Kept::StillThere]);
    let event = serde_json::to_value(&disposed.events[0]).expect("serialises");
    assert_eq!((&event["physical_key"], &event["written_off"]), (&dead[0].physical_key.clone().into(), &false.into()));
    assert_eq!((orphan_bytes(&harness).await, written_off(&harness).await), (3, 0));
    assert_eq!(harness.memory.total_bytes(), 3);
}

#[tokio::test]
async fn discard_accepts_absence_only_after_absent_ok_after() {
    let (harness, dead) = dead().await;
    harness.memory.corrupt(&dead[0].physical_key, None::<Bytes>);
    harness.change("UPDATE cleanup_dlq SET absent_ok_after = :now + 60000").await;
    let without_force = Disposal::Discard { force: false };
    let kept = one(&harness, without_force, &dead[0]).await.expect("a dead letter").kept;
    assert!(matches!(kept.as_slice(), [Kept::NotProven(_)]), "{kept:?}");
    harness.clock.advance(Duration::from_mins(1));
    assert_eq!(one(&harness, without_force, &dead[0]).await.expect("a dead letter").kept, []);
    assert_eq!(letters(&harness).await.len(), 1);
}

#[tokio::test]
async fn forced_discard_records_written_off_bytes() {
    let (harness, dead) = dead().await;
    let forced = Disposal::Discard { force: true };
    let disposed = one(&harness, forced, &dead[1]).await.expect("a dead letter");
    assert_eq!(disposed.events[0].details["written_off"], true);
    assert_eq!((orphan_bytes(&harness).await, written_off(&harness).await, harness.memory.total_bytes()), (5, 3, 8));
    harness.flaky.go_away();
    assert_eq!(
        all(&harness, forced, &Selection::default()).await.events.len(),
        1,
        "also while the backend is unreachable"
    );
    assert_eq!((orphan_bytes(&harness).await, written_off(&harness).await, harness.memory.total_bytes()), (0, 8, 8));
    assert_eq!(harness.process.dead_letters.bounds().await.expect("an answer"), None);
}
