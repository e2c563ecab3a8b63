//! Tests of the effects of each fault.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use s3o_model::clock::{ManualClock, Timestamp};
use s3o_model::entropy::SeededEntropy;

use super::{Fault, Flaky};
use crate::{Backend, DeleteAnswer, DeleteKey, Error, Memory, Probe, body};

fn backend() -> (Arc<Memory>, Flaky) {
    let memory = Arc::new(Memory::new("memory".parse().expect("valid")));
    (memory.clone(), Flaky::new(memory))
}

async fn put(flaky: &Flaky, key: &str) -> Result<crate::Written, Error> {
    flaky.put(key, 3, body::whole(Bytes::from("abc"))).await
}

#[tokio::test]
async fn fault_before_has_no_effect_and_fault_after_has() {
    let (memory, flaky) = backend();
    flaky.fail_call(1, Fault::Before);
    flaky.fail_call(2, Fault::After);
    assert!(matches!(put(&flaky, "a").await, Err(Error::Away(_))));
    assert!(matches!(put(&flaky, "b").await, Err(Error::Unknown(_))));
    put(&flaky, "c").await.expect("no fault planned");
    assert_eq!(memory.keys(), ["b", "c"]);
    let log: Vec<_> = flaky.log().into_iter().map(|call| (call.number, call.operation, call.key)).collect();
    assert_eq!(log[1], (2, "put", "b".to_owned()));
}

#[tokio::test]
async fn cut_interrupts_request_and_response_bodies() {
    let (memory, flaky) = backend();
    flaky.fail_call(1, Fault::Cut(2));
    assert!(matches!(put(&flaky, "a").await, Err(Error::Away(_))));
    assert!(memory.keys().is_empty());
    put(&flaky, "b").await.expect("put");
    flaky.fail_call(3, Fault::Cut(2));
    let items: Vec<_> = flaky.get("b".into(), None).await.expect("begins").collect().await;
    assert_eq!(items[0].as_ref().expect("a chunk"), "ab");
    assert!(items.len() == 2 && items[1].is_err());
}

#[tokio::test]
async fn partial_batch_answers_for_every_key() {
    let (memory, flaky) = backend();
    for key in ["a", "b", "c"] {
        put(&flaky, key).await.expect("put");
    }
    flaky.fail_call(4, Fault::PartialBatch);
    let targets = ["a", "b", "c"].map(|key| DeleteKey { key: key.to_owned(), version_id: None });
    let answers = flaky.delete_batch(&targets).await;
    assert_eq!(answers.len(), 3);
    assert!(matches!(answers[1], DeleteAnswer::Away(_)));
    assert_eq!(memory.keys(), ["b"]);
}

#[tokio::test]
async fn wrong_404_is_unknown_and_short_page_is_truncated() {
    let (_, flaky) = backend();
    put(&flaky, "a").await.expect("put");
    flaky.fail_call(2, Fault::Wrong404);
    flaky.fail_call(3, Fault::Wrong404);
    flaky.fail_call(4, Fault::ShortPage);
    assert!(matches!(flaky.probe("a".into()).await, Probe::Unknown(_)));
    assert!(matches!(flaky.get("a".into(), None).await.err(), Some(Error::Away(_))));
    let page = flaky.list("", None, 10).await.expect("listed");
    assert!(page.truncated && page.items.len() == 1);
}

#[tokio::test]
async fn late_write_takes_effect_after_its_delay() {
    let memory = Arc::new(Memory::new("memory".parse().expect("valid")));
    let clock = Arc::new(ManualClock::starting_at(Timestamp::from_millis(0)));
    let flaky = Flaky::new(memory.clone()).with_clock(clock.clone());
    flaky.fail_call(1, Fault::Late(Duration::from_secs(10)));
    assert!(matches!(put(&flaky, "a").await, Err(Error::Unknown(_))));
    assert_eq!(flaky.probe("a".into()).await, Probe::Absent);
    clock.advance(Duration::from_secs(10));
    assert!(matches!(flaky.probe("a".into()).await, Probe::Present(_)));
    flaky.fail_call(4, Fault::Late(Duration::from_hours(1)));
    assert!(put(&flaky, "b").await.is_err());
    assert_eq!(flaky.store_late_writes().await, 1);
    assert_eq!(memory.keys(), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn refused_unknown_and_hanging_calls_have_no_effect() {
    let (memory, flaky) = backend();
    flaky.fail_call(1, Fault::Refused);
    flaky.fail_call(2, Fault::Unknown);
    flaky.fail_call(3, Fault::Hang(Duration::from_secs(5)));
    assert!(matches!(put(&flaky, "a").await, Err(Error::Refused(_))));
    assert!(matches!(put(&flaky, "a").await, Err(Error::Unknown(_))));
    let started = tokio::time::Instant::now();
    assert!(matches!(put(&flaky, "a").await, Err(Error::Away(_))));
    assert_eq!(started.elapsed(), Duration::from_secs(5));
    assert!(memory.keys().is_empty());
}

#[tokio::test]
async fn outage_lasts_until_come_back_and_seed_repeats_faults() {
    let (_, flaky) = backend();
    flaky.go_away();
    assert!(put(&flaky, "a").await.is_err());
    assert!(put(&flaky, "b").await.is_err());
    flaky.come_back();
    put(&flaky, "c").await.expect("back");
    let plan = |seed| {
        let (_, flaky) = backend();
        flaky.fail_some(100, 0.3, &SeededEntropy::new(seed));
        flaky.lock().faults.clone()
    };
    assert_eq!(plan(1), plan(1));
    assert_ne!(plan(1), plan(2));
}
