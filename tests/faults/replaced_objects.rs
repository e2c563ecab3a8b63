//! Reads of objects that are replaced, and whose bytes are deleted, between the lookup and the read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use s3o_backend::layers::{Fault, FaultPlan};
use s3o_catalog::Mode;
use s3o_engine::Error;
use s3o_tests::harness::{Harness, get};
use s3o_tests::invariants::tick_all;

const SECOND: Duration = Duration::from_secs(1);

/// Delays this many reads.
struct DelayedReads(AtomicUsize);

impl FaultPlan for DelayedReads {
    fn next_fault(&self, operation: &'static str, _key: &str) -> Option<Fault> {
        let is_slow = operation == "get"
            && self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        is_slow.then_some(Fault::Delay(SECOND))
    }
}

/// Reads an object that is replaced during each of its first reads, and returns what the read returned.
async fn read_while_replaced(times: usize) -> Result<(), Error> {
    let harness = Harness::new(u64::MAX, Mode::Inline).await;
    harness.store("a", b"body 0").await.expect("stored");
    harness.flaky.set_fault_plan(Some(Arc::new(DelayedReads(AtomicUsize::new(times)))));
    let replacements = async {
        tokio::time::sleep(SECOND / 2).await;
        for number in 1..=times {
            harness.store("a", format!("body {number}").as_bytes()).await.expect("stored");
            tick_all(&harness.process.workers).await;
            tokio::time::sleep(SECOND).await;
        }
    };
    tokio::join!(harness.engine.get_object(get("a")), replacements).0.map(drop)
}

#[tokio::test(start_paused = true)]
async fn object_that_is_replaced_during_several_reads_is_returned() {
    read_while_replaced(5).await.expect("the last body");
}

#[tokio::test(start_paused = true)]
async fn object_that_is_replaced_during_every_read_is_not_read_forever() {
    let endless = read_while_replaced(30).await;
    assert!(matches!(endless, Err(Error::Away(_))), "{endless:?}");
}
