//! A full or read-only backend: writes use the next one, and the answer is 507 only when all are full.

use std::time::Duration;

use s3o_backend::fleet::FULL_FOR;
use s3o_backend::layers::Fault;
use s3o_catalog::Mode;
use s3o_engine::{BackendTrouble, Error};
use s3o_tests::environment::Environment;
use s3o_tests::harness::{Expected, Harness};

/// Bodies up to 128 KiB are buffered and can be sent again; this one cannot.
const LARGE: usize = 200_000;

async fn two_backends() -> Harness {
    let environment = Environment::new(1 << 20).with_backend("second", 1 << 20, None);
    Harness::with_bucket(environment, Mode::Inline).await
}

fn stored(harness: &Harness) -> (u64, u64) {
    let bytes = |position: usize| harness.environment.backends[position].memory.total_bytes();
    (bytes(0), bytes(1))
}

async fn put(harness: &Harness, name: &str, size_bytes: usize) -> Result<(), Error> {
    harness.store(name, &vec![7; size_bytes]).await
}

/// The next call to the first backend fails with `NoSpace` after it read this many bytes.
fn next_put_finds_no_space(harness: &Harness, after_bytes: u64) {
    harness.flaky.fail_call(harness.flaky.calls() + 1, Fault::NoSpace(after_bytes));
}

#[tokio::test]
async fn small_write_uses_next_backend_and_first_stays_full_for_that_size() {
    let harness = two_backends().await;
    next_put_finds_no_space(&harness, 500);
    put(&harness, "a", 1000).await.expect("stored on the second backend");
    assert_eq!(stored(&harness), (0, 1000));
    let calls = harness.flaky.calls();
    put(&harness, "b", 1000).await.expect("stored");
    put(&harness, "c", 2000).await.expect("stored");
    assert_eq!(harness.flaky.calls(), calls, "the full backend is not called");
    put(&harness, "d", 999).await.expect("stored");
    assert_eq!(stored(&harness), (999, 4000));
    harness.clock.advance(FULL_FOR);
    put(&harness, "e", 1000).await.expect("stored");
    assert_eq!(stored(&harness).0, 1999, "it is tried again after a minute");
}

#[tokio::test]
async fn large_write_uses_next_backend_before_its_first_byte() {
    let harness = two_backends().await;
    next_put_finds_no_space(&harness, 0);
    put(&harness, "a", LARGE).await.expect("stored on the second backend");
    assert_eq!(stored(&harness), (0, LARGE as u64));
}

#[tokio::test]
async fn large_write_fails_after_its_first_byte_and_the_repeat_uses_next_backend() {
    let harness = two_backends().await;
    next_put_finds_no_space(&harness, 1);
    let refused = put(&harness, "a", LARGE).await;
    assert!(matches!(refused, Err(Error::Unavailable { trouble: BackendTrouble::Full, .. })), "{refused:?}");
    put(&harness, "a", LARGE).await.expect("stored on the second backend");
    assert_eq!(stored(&harness), (0, LARGE as u64));
    harness.check(&Expected::from([("a", vec![Some(vec![7; LARGE])])])).await;
}

#[tokio::test]
async fn no_space_is_answered_only_when_every_backend_is_full() {
    let harness = Harness::new(1 << 20, Mode::Inline).await;
    for (name, after_bytes) in [("before", 0), ("after", 1)] {
        next_put_finds_no_space(&harness, after_bytes);
        let refused = put(&harness, name, LARGE).await;
        assert!(matches!(refused, Err(Error::NoSpace)), "{name} the first byte: {refused:?}");
        let calls = harness.flaky.calls();
        assert!(matches!(put(&harness, name, LARGE).await, Err(Error::NoSpace)), "still full");
        assert_eq!(harness.flaky.calls(), calls, "the full backend is not called");
        harness.clock.advance(FULL_FOR);
    }
}

#[tokio::test]
async fn delete_ends_full_but_cleanup_of_failed_write_does_not() {
    let harness = two_backends().await;
    put(&harness, "old", 10).await.expect("stored");
    next_put_finds_no_space(&harness, 500);
    put(&harness, "a", 1000).await.expect("stored on the second backend");
    harness.clean_after(Duration::from_secs(1)).await;
    put(&harness, "b", 1000).await.expect("stored");
    assert_eq!(stored(&harness).0, 10, "cleanup of the failed write freed no space");
    harness.delete("old").await;
    harness.clean_after(Duration::from_secs(1)).await;
    put(&harness, "c", 1000).await.expect("stored");
    assert_eq!(stored(&harness), (1000, 2000));
}

#[tokio::test]
async fn refused_write_uses_next_backend_and_fails_if_there_is_none() {
    let harness = two_backends().await;
    harness.flaky.fail_call(harness.flaky.calls() + 1, Fault::Refused);
    put(&harness, "a", 1000).await.expect("stored on the second backend");
    assert_eq!(stored(&harness), (0, 1000));
    let alone = Harness::new(1 << 20, Mode::Inline).await;
    alone.flaky.fail_call(alone.flaky.calls() + 1, Fault::Refused);
    let refused = put(&alone, "a", 1000).await;
    assert!(matches!(refused, Err(Error::Unavailable { trouble: BackendTrouble::Refused, .. })), "{refused:?}");
}
