//! Every announced write is counted as resolved exactly once, whichever answer of the catalog is lost.

use std::sync::Arc;
use std::time::Duration;

use s3o_catalog::Mode;
use s3o_model::etag::Sha256;
use s3o_tests::call_points::CallFault;
use s3o_tests::environment::Environment;
use s3o_tests::harness::Harness;
use sha2::Digest as _;

/// Settles and compares the counters: no intent is left, so that every announced write is resolved.
async fn assert_counted(harness: &Harness, announced: u64, what: &str) {
    harness.settle().await;
    assert!(harness.engine.retry_unanswered().await, "{what}: a commit is still unknown");
    let (enqueued, resolved) = harness.process.metrics.totals();
    assert_eq!(enqueued, resolved, "{what}");
    assert!(enqueued <= announced, "{what}: {enqueued}");
}

/// Stores one body under two keys; with dedup, the second is not stored again.
async fn store_twice(harness: &Harness) {
    let client = Arc::new(());
    for key in ["a", "b"] {
        let mut put = harness.put(key, b"equal", &client);
        put.declared.digests.sha256 = Some(Sha256(sha2::Sha256::digest(b"equal").into()));
        drop(harness.engine.put_object(put).await);
    }
}

#[tokio::test(start_paused = true)]
async fn each_write_is_counted_once_whichever_answer_is_lost() {
    for dedup in [false, true] {
        let mut injected = 0;
        for point in 1.. {
            let environment = Environment::new(u64::MAX).with_dedup(dedup);
            let harness = Harness::with_bucket(environment, Mode::Inline).await;
            harness.points.inject_at(point, CallFault::LoseAnswer);
            store_twice(&harness).await;
            assert_counted(&harness, 2, &format!("dedup {dedup}, point {point}")).await;
            if !harness.points.has_injected() {
                break;
            }
            injected = point;
        }
        assert!(injected > 10, "{injected} points");
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_commit_is_counted_once_catalog_is_reachable() {
    for point in 1..20 {
        let harness = Harness::new(u64::MAX, Mode::Inline).await;
        harness.points.inject_at(point, CallFault::LoseAnswer);
        harness.points.refuse_unit(Some("drop_write"));
        store_twice(&harness).await;
        harness.points.refuse_unit(None);
        harness.clock.advance(Duration::from_secs(1));
        assert_counted(&harness, 2, &format!("point {point}")).await;
    }
}
