//! A store that refuses to delete: rows wait ever longer, the tenth refusal makes dead letters, and
//! they are sent back or discarded without the books and the bytes ever parting.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use s3o_catalog::{Cleanups as _, DeadLetters as _, Mode, Quotas as _};
use s3o_engine::DeleteObject;
use s3o_model::cleanup::Selection;
use s3o_model::conditions::WriteCondition;
use s3o_model::dead_letter::DeadLetter;
use s3o_workers::{Disposal, Disposed, Kept};

use crate::overtaken::Overtaken;
use s3o_tests::house::{House, bucket, key};

const FOREVER: Duration = Duration::from_hours(1);
const BYTES: [&[u8]; 2] = [b"12345", b"123"];

/// A house whose two objects were deleted, on a store that refuses to let go of them.
async fn refusing() -> House {
    let house = House::new(1 << 20, Mode::Inline).await;
    let client = Arc::new(());
    for (name, bytes) in ["a", "b"].into_iter().zip(BYTES) {
        house.engine.put_object(house.put(name, bytes, &client)).await.expect("stored");
        house
            .engine
            .delete_object(DeleteObject { bucket: bucket(), key: key(name), condition: WriteCondition::None })
            .await
            .expect("deleted");
    }
    house.flaky.refuse_deletes(true);
    house
}

/// The same, after the last refusal.
async fn buried() -> (House, Vec<DeadLetter>) {
    let house = refusing().await;
    for _ in 0..10 {
        house.clean_after(FOREVER).await;
    }
    let letters = letters(&house).await;
    assert_eq!(letters.len(), 2);
    (house, letters)
}

async fn letters(house: &House) -> Vec<DeadLetter> {
    house.catalog.dead_letters(&Selection::default(), 0, 10).await.expect("a page")
}

async fn orphan_bytes(house: &House) -> u64 {
    house.catalog.books().await.expect("books").iter().map(|books| books.orphan_bytes).sum()
}

async fn written_off(house: &House) -> u64 {
    house.catalog.written_off().await.expect("sums").iter().map(|(_, bytes)| bytes).sum()
}

async fn one(house: &House, disposal: Disposal, letter: &DeadLetter) -> Option<Disposed> {
    house.process.office.one(disposal, letter.id).await.expect("an answer")
}

async fn all(house: &House, disposal: Disposal, which: &Selection) -> Disposed {
    let bounds = house.process.office.bounds().await.expect("an answer").expect("dead letters");
    let (disposed, rest) = house.process.office.step(disposal, which, bounds).await.expect("an answer");
    assert_eq!(rest, None);
    disposed
}

#[tokio::test]
async fn the_tenth_refusal_makes_a_dead_letter_that_stays_in_the_books() {
    let house = refusing().await;
    for refusal in 1..10 {
        let report = house.clean_after(FOREVER).await;
        assert_eq!(report.items.into_iter().collect::<Vec<_>>(), [("retry", 2)], "refusal {refusal}");
    }
    let report = house.clean_after(FOREVER).await;
    assert_eq!(report.items.into_iter().collect::<Vec<_>>(), [("exhausted", 2)]);
    assert_eq!(report.by_backend.values().collect::<Vec<_>>(), [&2]);
    let event = serde_json::to_value(&report.events[0]).expect("serialises");
    assert_eq!(report.events[0].name, "cleanup_queue.dead_lettered");
    assert_eq!(
        (&event["backend"], &event["attempts"], &event["reason"]),
        (&"memory".into(), &10.into(), &"delete".into())
    );
    assert_eq!((&event["size_bytes"], &event["error"]), (&5.into(), &"injected: denied".into()));
    assert_eq!((letters(&house).await.len(), orphan_bytes(&house).await), (2, 8));
    house.flaky.clear();
    assert!(house.clean_after(FOREVER).await.items.is_empty(), "nobody tries a dead letter again");
}

#[tokio::test]
async fn who_lost_the_claim_buries_nothing_and_tells_of_nothing() {
    let house = refusing().await;
    for _ in 0..9 {
        house.clean_after(FOREVER).await;
    }
    let report = house.clean_over(Arc::new(Overtaken(house.catalog.clone())), FOREVER).await;
    assert_eq!(report.items.into_iter().collect::<Vec<_>>(), [("stale", 2)]);
    assert!(report.events.is_empty() && report.by_backend.is_empty());
    assert_eq!((letters(&house).await.len(), orphan_bytes(&house).await), (0, 8));
    assert_eq!(house.clean_after(FOREVER).await.items["exhausted"], 2, "whoever has the claim does");
}

#[tokio::test]
async fn rows_are_tried_again_when_they_are_due_and_not_before() {
    let house = refusing().await;
    assert_eq!(house.clean_after(FOREVER).await.items["retry"], 2);
    assert!(house.clean_after(Duration::from_secs(29)).await.items.is_empty(), "half of the first wait is certain");
    assert_eq!(house.clean_after(Duration::from_secs(31)).await.items["retry"], 2);
    assert!(house.clean_after(Duration::from_secs(59)).await.items.is_empty(), "the second is twice as long");
}

#[tokio::test]
async fn an_outage_makes_no_dead_letters() {
    let house = refusing().await;
    house.flaky.go_away();
    for _ in 0..50 {
        house.clean_after(FOREVER).await;
    }
    let rows = house.catalog.queued_cleanups(&Selection::default(), 0, 10).await.expect("a page");
    assert!(rows.len() == 2 && rows.iter().all(|row| row.cleanup.attempts == 0), "{rows:?}");
    house.flaky.clear();
    assert_eq!(house.clean_after(Duration::ZERO).await.items["success"], 2, "all of it goes at once");
}

#[tokio::test]
async fn a_retry_after_the_store_was_mended_empties_everything() {
    let (house, dead) = buried().await;
    let disposed = one(&house, Disposal::Retry, &dead[0]).await.expect("it is there");
    assert_eq!((disposed.events[0].name, disposed.kept.len()), ("dlq.retried", 0));
    assert_eq!(one(&house, Disposal::Retry, &dead[0]).await, None, "it is no dead letter any more");
    assert_eq!(house.clean_after(Duration::ZERO).await.items["retry"], 1, "a retried row begins anew");
    let elsewhere = Selection { backend: Some("elsewhere".parse().expect("a name")), ..Selection::default() };
    assert_eq!(all(&house, Disposal::Retry, &elsewhere).await, Disposed::default());
    let deleted = Selection { reason: Some("delete".to_owned()), ..Selection::default() };
    assert_eq!(all(&house, Disposal::Retry, &deleted).await.events.len(), 1);
    house.flaky.clear();
    house.settle().await;
    assert_eq!((house.memory.total_bytes(), orphan_bytes(&house).await), (0, 0));
}

#[tokio::test]
async fn many_are_disposed_of_in_bounded_steps() {
    const FILL: &str = "INSERT INTO cleanup_dlq (original_id, backend_name, physical_key, size_bytes, stripe, reason, \
         attempts, created_at, dead_since) \
         WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 2500) \
         SELECT n, 'memory', 'k' || n, 0, 0, 'delete', 10, 0, 0 FROM numbers";
    let house = House::new(1 << 20, Mode::Inline).await;
    house.change(FILL).await;
    let mut bounds = house.process.office.bounds().await.expect("an answer");
    // Who comes later is not meant.
    house.change("UPDATE cleanup_dlq SET id = 9999 WHERE id = 2500").await;
    let mut steps = Vec::new();
    while let Some(here) = bounds {
        let (disposed, rest) =
            house.process.office.step(Disposal::Retry, &Selection::default(), here).await.expect("an answer");
        steps.push(disposed.events.len());
        bounds = rest;
    }
    assert_eq!(steps, [1000, 1000, 499]);
    assert_eq!(house.clean_after(Duration::ZERO).await.items.values().sum::<u64>(), 2499, "those retried");
}

#[tokio::test]
async fn a_discard_looks_first() {
    let (house, dead) = buried().await;
    let gently = Disposal::Discard { force: false };
    assert_eq!(one(&house, gently, &dead[0]).await.expect("it is there").kept, [Kept::StillThere]);
    house.flaky.go_away();
    let kept = one(&house, gently, &dead[0]).await.expect("it is there").kept;
    assert!(matches!(kept.as_slice(), [Kept::NotProven(_)]), "{kept:?}");
    house.flaky.come_back();
    assert_eq!((letters(&house).await.len(), orphan_bytes(&house).await), (2, 8), "nothing changed");
    // Somebody deleted one of them by other means.
    house.memory.corrupt(&dead[0].physical_key, None::<Bytes>);
    let disposed = all(&house, gently, &Selection::default()).await;
    assert_eq!(disposed.kept, [Kept::StillThere]);
    let event = serde_json::to_value(&disposed.events[0]).expect("serialises");
    assert_eq!((&event["physical_key"], &event["written_off"]), (&dead[0].physical_key.clone().into(), &false.into()));
    assert_eq!((orphan_bytes(&house).await, written_off(&house).await), (3, 0));
    assert_eq!(house.memory.total_bytes(), 3);
}

#[tokio::test]
async fn a_discard_believes_an_absence_when_its_time_has_come_by_the_clock_of_the_catalog() {
    let (house, dead) = buried().await;
    house.memory.corrupt(&dead[0].physical_key, None::<Bytes>);
    house.change("UPDATE cleanup_dlq SET absent_ok_after = :now + 60000").await;
    let gently = Disposal::Discard { force: false };
    let kept = one(&house, gently, &dead[0]).await.expect("it is there").kept;
    assert!(matches!(kept.as_slice(), [Kept::NotProven(_)]), "{kept:?}");
    house.clock.advance(Duration::from_mins(1));
    assert_eq!(one(&house, gently, &dead[0]).await.expect("it is there").kept, []);
    assert_eq!(letters(&house).await.len(), 1);
}

#[tokio::test]
async fn force_leaves_a_finding_so_that_the_sums_hold() {
    let (house, dead) = buried().await;
    let by_force = Disposal::Discard { force: true };
    let disposed = one(&house, by_force, &dead[1]).await.expect("it is there");
    assert_eq!(disposed.events[0].details["written_off"], true);
    assert_eq!((orphan_bytes(&house).await, written_off(&house).await, house.memory.total_bytes()), (5, 3, 8));
    house.flaky.go_away();
    assert_eq!(all(&house, by_force, &Selection::default()).await.events.len(), 1, "also when nobody can tell");
    assert_eq!((orphan_bytes(&house).await, written_off(&house).await, house.memory.total_bytes()), (0, 8, 8));
    assert_eq!(house.process.office.bounds().await.expect("an answer"), None);
}
