//! A backend without space: writes move to the next one, and 507 is answered only when all are full.

use std::sync::Arc;
use std::time::Duration;

use s3o_backend::fleet::FULL_FOR;
use s3o_backend::layers::Fault;
use s3o_catalog::Mode;
use s3o_engine::{BackendTrouble, DeleteObject, Error};
use s3o_model::conditions::WriteCondition;

use s3o_tests::house::{Expected, Ground, House, bucket, key};

/// Bodies up to 128 KiB are kept in memory and can be offered again; this one cannot.
const LARGE: usize = 200_000;

async fn two_backends() -> (Ground, House) {
    let ground = Ground::new(1 << 20).with_second_backend();
    let house = House::with_bucket(&ground, Mode::Inline).await;
    (ground, house)
}

async fn put(house: &House, name: &str, size_bytes: usize) -> Result<(), Error> {
    let client = Arc::new(());
    house.engine.put_object(house.put(name, &vec![7; size_bytes], &client)).await.map(drop)
}

/// Makes the next call of the first backend fail for want of space after it read this many bytes.
fn next_put_finds_no_space(house: &House, after_bytes: u64) {
    house.flaky.fail_call(house.flaky.calls() + 1, Fault::NoSpace(after_bytes));
}

#[tokio::test]
async fn small_write_moves_on_and_backend_stays_full_for_that_size() {
    let (ground, house) = two_backends().await;
    next_put_finds_no_space(&house, 500);
    put(&house, "a", 1000).await.expect("stored on the second backend");
    assert_eq!((ground.memory(0).total_bytes(), ground.memory(1).total_bytes()), (0, 1000));
    let calls = house.flaky.calls();
    put(&house, "b", 1000).await.expect("stored");
    put(&house, "c", 2000).await.expect("stored");
    assert_eq!(house.flaky.calls(), calls, "the full backend is not asked");
    put(&house, "d", 999).await.expect("stored");
    assert_eq!((ground.memory(0).total_bytes(), ground.memory(1).total_bytes()), (999, 4000));
    house.clock.advance(FULL_FOR);
    put(&house, "e", 1000).await.expect("stored");
    assert_eq!(ground.memory(0).total_bytes(), 1999, "a minute later it is tried again");
}

#[tokio::test]
async fn large_write_moves_on_before_its_first_byte() {
    let (ground, house) = two_backends().await;
    next_put_finds_no_space(&house, 0);
    put(&house, "a", LARGE).await.expect("stored on the second backend");
    assert_eq!((ground.memory(0).total_bytes(), ground.memory(1).total_bytes()), (0, LARGE as u64));
}

#[tokio::test]
async fn large_write_fails_after_its_first_byte_and_the_repeat_lands_elsewhere() {
    let (ground, house) = two_backends().await;
    next_put_finds_no_space(&house, 1);
    let refused = put(&house, "a", LARGE).await;
    assert!(matches!(refused, Err(Error::Unavailable { trouble: BackendTrouble::Full, .. })), "{refused:?}");
    put(&house, "a", LARGE).await.expect("stored on the second backend");
    assert_eq!((ground.memory(0).total_bytes(), ground.memory(1).total_bytes()), (0, LARGE as u64));
    house.check(&Expected::from([("a", vec![Some(vec![7; LARGE])])])).await;
}

#[tokio::test]
async fn no_space_is_answered_only_when_every_backend_is_full() {
    let house = House::new(1 << 20, Mode::Inline).await;
    for (name, after_bytes) in [("before", 0), ("after", 1)] {
        next_put_finds_no_space(&house, after_bytes);
        let refused = put(&house, name, LARGE).await;
        assert!(matches!(refused, Err(Error::NoRoom)), "{name} the first byte: {refused:?}");
        let calls = house.flaky.calls();
        assert!(matches!(put(&house, name, LARGE).await, Err(Error::NoRoom)), "still full");
        assert_eq!(house.flaky.calls(), calls, "the full backend is not asked");
        house.clock.advance(FULL_FOR);
    }
}

#[tokio::test]
async fn delete_ends_full_and_remains_of_the_failed_write_do_not() {
    let (ground, house) = two_backends().await;
    put(&house, "old", 10).await.expect("stored");
    next_put_finds_no_space(&house, 500);
    put(&house, "a", 1000).await.expect("stored on the second backend");
    house.clean_after(Duration::from_secs(1)).await;
    put(&house, "b", 1000).await.expect("stored");
    assert_eq!(ground.memory(0).total_bytes(), 10, "cleaning up after the failed write made no space");
    let delete = DeleteObject { bucket: bucket(), key: key("old"), condition: WriteCondition::None };
    house.engine.delete_object(delete).await.expect("deleted");
    house.clean_after(Duration::from_secs(1)).await;
    put(&house, "c", 1000).await.expect("stored");
    assert_eq!((ground.memory(0).total_bytes(), ground.memory(1).total_bytes()), (1000, 2000));
}
