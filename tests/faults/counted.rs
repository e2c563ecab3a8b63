//! Every announced write is counted as resolved exactly once, whatever answer of the catalog is lost.

use std::sync::Arc;
use std::time::Duration;

use s3o_catalog::Mode;
use s3o_model::etag::Sha256;
use s3o_tests::house::{Ground, House};
use s3o_tests::points::{Blow, Points};
use sha2::Digest as _;

/// Waits until nothing is owed, and compares the counters: no row is left, so all that was announced has ended.
async fn assert_counted(house: &House, announced: u64, what: &str) {
    house.settle().await;
    assert!(house.engine.finish_leftovers().await, "{what}: nothing is in doubt any more");
    let (enqueued, resolved) = house.process.metrics.totals();
    assert_eq!(enqueued, resolved, "{what}");
    assert!(enqueued <= announced, "{what}: {enqueued}");
}

/// Stores one body twice, of which the second is only compared where equal content is kept once.
async fn store_twice(house: &House) {
    let client = Arc::new(());
    for key in ["a", "b"] {
        let mut put = house.put(key, b"equal", &client);
        put.declared.digests.sha256 = Some(Sha256(sha2::Sha256::digest(b"equal").into()));
        drop(house.engine.put_object(put).await);
    }
}

#[tokio::test(start_paused = true)]
async fn each_write_is_counted_once_whichever_answer_is_lost() {
    for dedup in [false, true] {
        let mut struck = 0;
        for point in 1.. {
            let ground = Ground::new(u64::MAX).with_dedup(dedup);
            let house = House::on(&ground, Mode::Inline, Points::default()).await;
            house.engine.create_bucket(&s3o_tests::house::bucket()).await.expect("a bucket");
            house.points.strike_at(point, Blow::LoseAnswer);
            store_twice(&house).await;
            assert_counted(&house, 2, &format!("dedup {dedup}, point {point}")).await;
            if !house.points.has_struck() {
                break;
            }
            struck = point;
        }
        assert!(struck > 10, "{struck} points");
    }
}

#[tokio::test(start_paused = true)]
async fn a_commit_in_doubt_is_counted_once_the_catalog_can_be_asked() {
    for point in 1..20 {
        let house = House::new(u64::MAX, Mode::Inline).await;
        house.points.strike_at(point, Blow::LoseAnswer);
        house.points.refuse_unit(Some("drop_write"));
        store_twice(&house).await;
        house.points.refuse_unit(None);
        house.clock.advance(Duration::from_secs(1));
        assert_counted(&house, 2, &format!("point {point}")).await;
    }
}
