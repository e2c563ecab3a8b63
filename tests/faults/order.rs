//! A row is committed before each backend call that it describes: the order of units and backend calls.

use s3o_catalog::Mode;
use s3o_tests::harness::Harness;

/// Calls after the first `seen`.
fn since(harness: &Harness, seen: usize) -> Vec<String> {
    harness.points.journal().split_off(seen)
}

fn position(journal: &[String], call: &str) -> usize {
    let found = journal.iter().position(|made| made == call);
    found.unwrap_or_else(|| panic!("{call} is not in {journal:?}"))
}

#[tokio::test]
async fn intent_is_committed_before_first_byte_is_sent() {
    let harness = Harness::new(u64::MAX, Mode::Inline).await;
    let seen = harness.points.journal().len();
    harness.store("a", b"a body").await.expect("stored");
    let journal = since(&harness, seen);
    let (staged, sent) = (position(&journal, "unit stage"), position(&journal, "backend put"));
    assert!(staged < sent && sent < position(&journal, "unit commit_put"), "{journal:?}");
}

#[tokio::test]
async fn delete_is_committed_before_its_bytes_are_deleted() {
    let harness = Harness::new(u64::MAX, Mode::Inline).await;
    harness.store("a", b"a body").await.expect("stored");
    let seen = harness.points.journal().len();
    harness.delete("a").await;
    harness.settle().await;
    let journal = since(&harness, seen);
    let deleted = position(&journal, "backend delete_batch");
    assert!(position(&journal, "unit delete_object") < deleted, "{journal:?}");
    assert!(deleted < position(&journal, "unit settle_cleanups"), "{journal:?}");
}
