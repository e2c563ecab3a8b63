//! Bytes that land when somebody has already looked for them.

use std::sync::Arc;
use std::time::Duration;

use s3o_backend::layers::Fault;
use s3o_catalog::Mode;
use s3o_engine::{Error, PutObject};
use s3o_model::conditions::WriteCondition;
use s3o_model::etag::ETag;
use s3o_tests::process::{LATE, LEASE};
use s3o_tests::rest::tick_all;

use s3o_tests::house::{Expected, House};

fn holds_nothing() -> Expected {
    Expected::from([("a", vec![None])])
}

/// The next backend call that the house makes waits for so long.
fn delay_next(house: &House, delay: Duration) {
    house.flaky.fail_call(house.flaky.calls() + 1, Fault::Delay(delay));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_lands_behind_a_slow_look_is_still_found() {
    let house = House::new(u64::MAX, Mode::Inline).await;
    let client = Arc::new(());
    house.flaky.fail_call(house.flaky.calls() + 1, Fault::Late(LATE / 2));
    house.engine.put_object(house.put("a", b"late", &client)).await.expect_err("no answer");
    // Identity and probe are quick; the delete behind an absent probe is not.
    house.flaky.fail_call(house.flaky.calls() + 3, Fault::Delay(Duration::from_mins(1)));
    let passes = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        house.clock.advance(LATE * 2);
    };
    tokio::join!(tick_all(&house.process.workers), passes);
    house.check(&holds_nothing()).await;
}

/// Stores slowly, while the reaper takes the intent and cleanup has long looked for its bytes.
async fn put_behind_everybody(house: &House, put: PutObject) -> Result<(), Error> {
    delay_next(house, Duration::from_mins(1));
    let everybody = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        house.clock.advance(LEASE);
        tick_all(&house.process.workers).await;
        house.clock.advance(LATE);
        tick_all(&house.process.workers).await;
    };
    tokio::join!(house.engine.put_object(put), everybody).0.map(drop)
}

#[tokio::test(start_paused = true)]
async fn a_fenced_write_whose_condition_fails_leaves_nothing() {
    let house = House::new(u64::MAX, Mode::Inline).await;
    let client = Arc::new(());
    house.engine.put_object(house.put("a", b"old body", &client)).await.expect("stored");
    let old: ETag = house.engine.head_object(&s3o_tests::house::get("a")).await.expect("there").object.etag;
    let put = PutObject { condition: WriteCondition::IfMatch(Some(old)), ..house.put("a", b"new body", &client) };
    let deleted = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let condition = WriteCondition::None;
        let (bucket, key) = (s3o_tests::house::bucket(), s3o_tests::house::key("a"));
        house.engine.delete_object(s3o_engine::DeleteObject { bucket, key, condition }).await
    };
    let (stored, deleted) = tokio::join!(put_behind_everybody(&house, put), deleted);
    deleted.expect("deleted");
    stored.expect_err("the condition failed, and the intent was gone");
    house.check(&holds_nothing()).await;
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_starts_behind_its_fence_is_aborted() {
    let house = House::new(5, Mode::Inline).await;
    let client = Arc::new(());
    let put = house.put("a", b"longer than five", &client);
    put_behind_everybody(&house, put).await.expect_err("the intent was gone");
    house.check(&holds_nothing()).await;
}
