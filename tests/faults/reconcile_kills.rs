//! Passes of reconcile whose process is killed.

use std::sync::Arc;

use bytes::Bytes;
use s3o_tests::call_points::{CallFault, CallPoints};
use s3o_tests::environment::Environment;
use s3o_tests::harness::Harness;
use s3o_workers::Report;

use crate::reconcile::{HOUR, STRAY, assert_deleted, hourly, kinds, objects, pass, store_objects};

/// The process dies at each call of two passes; the next one continues. The stray object is deleted in the end, and
/// nothing else ever.
#[tokio::test]
async fn kill_at_every_call_of_a_pass_deletes_only_the_stray_object() {
    for fault in [CallFault::DieBefore, CallFault::DieAfter, CallFault::LoseAnswer] {
        let mut runs = 0;
        while kill_at(runs + 1, fault).await {
            runs += 1;
        }
        assert!(runs > 20, "{fault:?}: {runs}");
    }
}

/// True if the call existed.
async fn kill_at(call: usize, fault: CallFault) -> bool {
    let environment = Arc::new(Environment::new(u64::MAX).with_settings(hourly()));
    let points = CallPoints::default();
    let harness = Harness::builder(&environment).points(points.clone()).start_with_bucket().await;
    store_objects(&harness, 3).await;
    harness.memory.plant(STRAY, Bytes::from_static(b"ours"));
    let before = objects(&harness);
    points.inject_at(call, fault);
    let work = async {
        for _ in 0..2 {
            harness.clock.advance(HOUR);
            let mut report = Report { more: true, ..Report::default() };
            while report.more {
                report = Report::default();
                harness.process.worker("reconciler").tick(&mut report).await.unwrap_or_default();
            }
        }
    };
    tokio::select! {
        () = work => {}
        () = points.death() => {}
    }
    if !points.has_injected() {
        return false;
    }
    drop(harness);
    let harness = Harness::restart(&environment, CallPoints::default()).await;
    for _ in 0..3 {
        pass(&harness).await;
    }
    assert_deleted(&harness, &before, &[STRAY]).await;
    assert_eq!(kinds(&harness).await, []);
    harness.check_settled().await;
    true
}
