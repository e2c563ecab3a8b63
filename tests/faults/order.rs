//! The obligation is a row committed before the act: units and backend calls in the order in which they happen.

use std::sync::Arc;

use s3o_catalog::Mode;
use s3o_engine::DeleteObject;
use s3o_model::conditions::WriteCondition;
use s3o_tests::house::{House, bucket, key};

/// The calls that were made after the first `seen`.
fn since(house: &House, seen: usize) -> Vec<String> {
    house.points.journal().split_off(seen)
}

fn position(journal: &[String], call: &str) -> usize {
    let found = journal.iter().position(|made| made == call);
    found.unwrap_or_else(|| panic!("{call} is not in {journal:?}"))
}

#[tokio::test]
async fn an_intent_is_committed_before_the_first_byte_is_sent() {
    let house = House::new(u64::MAX, Mode::Inline).await;
    let (client, seen) = (Arc::new(()), house.points.journal().len());
    house.engine.put_object(house.put("a", b"a body", &client)).await.expect("stored");
    let journal = since(&house, seen);
    let (staged, sent) = (position(&journal, "unit stage"), position(&journal, "backend put"));
    assert!(staged < sent && sent < position(&journal, "unit commit_put"), "{journal:?}");
}

#[tokio::test]
async fn a_delete_is_committed_before_its_bytes_are_deleted() {
    let house = House::new(u64::MAX, Mode::Inline).await;
    let client = Arc::new(());
    house.engine.put_object(house.put("a", b"a body", &client)).await.expect("stored");
    let seen = house.points.journal().len();
    let delete = DeleteObject { bucket: bucket(), key: key("a"), condition: WriteCondition::None };
    house.engine.delete_object(delete).await.expect("deleted");
    house.settle().await;
    let journal = since(&house, seen);
    let deleted = position(&journal, "backend delete_batch");
    assert!(position(&journal, "unit delete_object") < deleted, "{journal:?}");
    assert!(deleted < position(&journal, "unit settle_cleanups"), "{journal:?}");
}
