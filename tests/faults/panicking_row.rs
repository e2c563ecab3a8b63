//! A row whose delete panics: each panic counts as an attempt, and the other rows are deleted.

use std::sync::Arc;
use std::time::Duration;

use s3o_backend::layers::{Fault, FaultPlan};
use s3o_catalog::Mode;
use s3o_model::cleanup::Selection;
use s3o_tests::harness::Harness;

/// Panics at the delete of one key.
struct PanicAtDelete;

impl FaultPlan for PanicAtDelete {
    fn next_fault(&self, operation: &'static str, key: &str) -> Option<Fault> {
        assert!(operation != "delete_batch" || !key.contains("panicking"), "scripted");
        None
    }
}

#[tokio::test]
async fn panicking_row_blocks_no_other_row_and_is_moved_to_dead_letters() {
    let harness = Harness::new(1 << 20, Mode::Inline).await;
    for name in ["panicking", "b", "c"] {
        harness.store(name, b"bytes").await.expect("stored");
        harness.delete(name).await;
    }
    harness.flaky.set_fault_plan(Some(Arc::new(PanicAtDelete)));
    let report = harness.clean_after(Duration::ZERO).await;
    assert_eq!(report.items.into_iter().collect::<Vec<_>>(), [("retry", 1), ("success", 2)]);
    for _ in 1..10 {
        harness.clean_after(Duration::from_hours(1)).await;
    }
    let letters = harness.catalog.dead_letters(&Selection::default(), 0, 9).await.expect("a page");
    assert_eq!((letters.len(), letters[0].attempts), (1, 10));
    assert!(letters[0].physical_key.contains("panicking"));
    assert_eq!(harness.catalog.depths().await.expect("depths").cleanups, 0);
}
