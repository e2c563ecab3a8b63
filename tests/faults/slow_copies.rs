//! Reads of content with two copies, one of which is slow, unreadable or cut off.

use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use s3o_backend::layers::Fault;
use s3o_catalog::Mode;
use s3o_tests::environment::Environment;
use s3o_tests::harness::{Harness, get};
use tokio::time::Instant;

const BODY: &[u8] = b"a body with two copies";
/// Longer than the wait for the first byte, shorter than any other timeout.
const SLOW: Duration = Duration::from_secs(5);
/// Longer than any timeout.
const HUNG: Duration = Duration::from_secs(100);
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(2);

/// One object with a copy on each of two backends.
async fn two_copies() -> Harness {
    let harness = one_copy().await;
    add_copy(&harness).await;
    harness
}

/// One object with a copy on the first of two backends.
async fn one_copy() -> Harness {
    let environment = Environment::new(1 << 20).with_backend("second", 1 << 20, None);
    let harness = Harness::with_bucket(environment, Mode::Inline).await;
    harness.store("a", BODY).await.expect("stored");
    harness
}

async fn add_copy(harness: &Harness) {
    let [key] = &harness.texts("SELECT physical_key FROM object_locations").await[..] else { panic!("one copy") };
    harness.environment.backends[1].memory.plant(key, Bytes::from_static(BODY));
    let copy = "INSERT INTO object_locations (content_id, backend_name, physical_key, size_bytes, stripe) \
                SELECT content_id, 'second', physical_key, size_bytes, stripe FROM object_locations";
    harness.change(copy).await;
}

/// The copy on the second backend has other bytes than the object, and is suspect.
async fn damage_second_copy(harness: &Harness) {
    let [key] = &harness.texts("SELECT DISTINCT physical_key FROM object_locations").await[..] else {
        panic!("one key")
    };
    harness.environment.backends[1].memory.plant(key, Bytes::from_static(b"another body of 22 b.."));
    harness.change("UPDATE object_locations SET state = 'suspect' WHERE backend_name = 'second'").await;
}

fn fail_next(harness: &Harness, backend: usize, fault: Fault) {
    let flaky = &harness.environment.backends[backend].flaky;
    flaky.fail_call(flaky.calls() + 1, fault);
}

/// Reads the object and returns how long that took.
async fn read_time(harness: &Harness) -> Duration {
    let start = Instant::now();
    assert_eq!(harness.read("a").await.as_deref(), Some(BODY));
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn hung_copy_delays_a_read_by_the_first_byte_timeout_only() {
    let harness = two_copies().await;
    fail_next(&harness, 0, Fault::Hang(HUNG));
    assert_eq!(read_time(&harness).await.as_secs(), FIRST_BYTE_TIMEOUT.as_secs());
}

#[tokio::test(start_paused = true)]
async fn read_succeeds_although_every_copy_is_slow() {
    let harness = two_copies().await;
    fail_next(&harness, 0, Fault::Delay(SLOW));
    fail_next(&harness, 1, Fault::Delay(SLOW));
    assert_eq!(read_time(&harness).await.as_secs(), (FIRST_BYTE_TIMEOUT + SLOW).as_secs());
}

#[tokio::test(start_paused = true)]
async fn slow_copy_is_read_again_if_the_other_copy_is_unreadable() {
    let harness = two_copies().await;
    fail_next(&harness, 0, Fault::Delay(SLOW));
    fail_next(&harness, 1, Fault::Before);
    read_time(&harness).await;
}

#[tokio::test(start_paused = true)]
async fn slow_copy_continues_the_body_if_the_other_copy_is_cut_off() {
    let harness = two_copies().await;
    fail_next(&harness, 0, Fault::Delay(SLOW));
    fail_next(&harness, 1, Fault::Cut(7));
    read_time(&harness).await;
}

#[tokio::test(start_paused = true)]
async fn stalled_body_continues_with_the_other_copy_after_the_timeout() {
    let harness = two_copies().await;
    fail_next(&harness, 0, Fault::Pause(7, HUNG));
    assert_eq!(read_time(&harness).await.as_secs(), FIRST_BYTE_TIMEOUT.as_secs());
}

#[tokio::test(start_paused = true)]
async fn stalled_copy_is_read_again_if_the_other_copy_is_unreadable() {
    let harness = two_copies().await;
    fail_next(&harness, 0, Fault::Pause(7, HUNG));
    fail_next(&harness, 1, Fault::Before);
    assert_eq!(read_time(&harness).await.as_secs(), FIRST_BYTE_TIMEOUT.as_secs());
}

#[tokio::test(start_paused = true)]
async fn read_does_not_alternate_between_stalled_copies() {
    let harness = two_copies().await;
    fail_next(&harness, 0, Fault::Pause(7, HUNG));
    fail_next(&harness, 1, Fault::Pause(3, SLOW));
    assert_eq!(read_time(&harness).await.as_secs(), (FIRST_BYTE_TIMEOUT + SLOW).as_secs());
    assert_eq!(harness.environment.backends[1].flaky.log().iter().filter(|call| call.operation == "get").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn stalled_copy_is_not_given_up_for_a_suspect_one() {
    let harness = two_copies().await;
    damage_second_copy(&harness).await;
    fail_next(&harness, 0, Fault::Pause(7, SLOW));
    let (start, suspect) = (Instant::now(), &harness.environment.backends[1].flaky);
    let calls = suspect.calls();
    let mut body = harness.engine.get_object(get("a")).await.expect("opened").body;
    assert_eq!(body.try_next().await.expect("a chunk").map(|chunk| chunk.len()), Some(7));
    tokio::time::timeout(SLOW / 2, body.try_next()).await.expect_err("it waits for the only good copy");
    assert_eq!((suspect.calls(), start.elapsed()), (calls, SLOW / 2));
}

#[tokio::test(start_paused = true)]
async fn slow_copy_is_read_before_a_suspect_one() {
    let harness = two_copies().await;
    damage_second_copy(&harness).await;
    fail_next(&harness, 0, Fault::Delay(SLOW));
    assert_eq!(read_time(&harness).await.as_secs(), SLOW.as_secs(), "it waits for the only good copy");
}

#[tokio::test(start_paused = true)]
async fn copy_from_before_an_accept_is_read_last() {
    let harness = two_copies().await;
    harness.change("UPDATE object_locations SET verified_at = 5 WHERE backend_name = 'second'").await;
    harness.change("UPDATE backends SET trust_from = 9 WHERE name = 'memory'").await;
    harness.change("UPDATE object_locations SET verified_at = 5 WHERE backend_name = 'memory'").await;
    let first = &harness.environment.backends[0].flaky;
    let calls = first.calls();
    read_time(&harness).await;
    assert_eq!(first.calls(), calls, "the first backend was accepted, and its copy was not found there since");
    fail_next(&harness, 1, Fault::Before);
    read_time(&harness).await;
}

#[tokio::test(start_paused = true)]
async fn body_continues_with_a_copy_that_was_written_after_the_read_began() {
    let harness = one_copy().await;
    fail_next(&harness, 0, Fault::Cut(7));
    let opened = harness.engine.get_object(get("a")).await.expect("opened");
    add_copy(&harness).await;
    let chunks: Vec<Bytes> = opened.body.try_collect().await.expect("a complete body");
    assert_eq!(chunks.concat(), BODY);
}

#[tokio::test]
async fn equally_fast_backends_share_concurrent_reads() {
    let harness = two_copies().await;
    let first = &harness.environment.backends[0];
    let read = harness.process.fleet().begin_read(&first.name());
    let calls = first.flaky.calls();
    read_time(&harness).await;
    assert_eq!(first.flaky.calls(), calls, "it has a read in progress");
    drop(read);
    read_time(&harness).await;
    assert_eq!(first.flaky.calls(), calls + 1);
}
