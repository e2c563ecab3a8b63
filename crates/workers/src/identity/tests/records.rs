//! Tests of identity records and accepts.

use std::sync::Arc;

use bytes::Bytes;
use s3o_backend::Memory;
use s3o_backend::identity::{IDENTITY_KEY, Identity as Carried};
use s3o_catalog::conformance::fixture::Fixture;

use super::{Instance, MINUTE, carried, disk, memory};
use crate::testing::fixture;

/// Two instances; the second finds another store.
async fn disagreeing() -> (Fixture, Arc<Memory>, Arc<Memory>, Instance, Instance) {
    let (fixture, right, wrong) = (fixture(), memory(), memory());
    let one = Instance::attached(&fixture, "a", &right).await;
    let other = Instance::attached(&fixture, "b", &wrong).await;
    (fixture, right, wrong, one, other)
}

#[tokio::test]
async fn mismatch_of_one_instance_blocks_all_deletes_until_it_fits() {
    let (fixture, right, wrong, one, other) = disagreeing().await;
    assert!(other.frozen().is_some() && one.frozen().is_none());
    assert!(!one.deletes().await && !other.deletes().await);
    assert!(
        one.identity.permits(one.backend()).await.expect("compared"),
        "the fitting instance still reads and writes"
    );
    let records = fixture.catalog.live_records(&disk()).await.expect("records");
    assert_eq!(records.iter().map(|record| record.host.as_str()).collect::<Vec<_>>(), ["b"]);

    // The right store is back.
    for key in right.keys() {
        wrong.plant(&key, right.bytes(&key).expect("listed"));
    }
    assert!(other.identity.attach().await);
    assert_eq!(other.frozen(), None);
    assert_eq!(fixture.catalog.live_records(&disk()).await.expect("records"), []);
}

#[tokio::test]
async fn record_is_live_while_its_lease_is_renewed() {
    let (fixture, _, _, one, other) = disagreeing().await;
    fixture.clock.advance(MINUTE);
    assert!(other.identity.attach().await);
    fixture.clock.advance(MINUTE + MINUTE / 2);
    assert!(!one.deletes().await, "it was renewed");
    fixture.clock.advance(MINUTE);
    assert!(one.deletes().await, "the lease expired");
    assert!(other.identity.attach().await);
    assert!(!one.deletes().await);
}

#[tokio::test]
async fn dismissal_holds_until_something_else_is_found() {
    let (fixture, right, wrong, one, other) = disagreeing().await;
    assert!(!one.identity.dismiss("disk", "unknown").await.expect("answered"));
    assert!(one.identity.dismiss("disk", "b").await.expect("dismissed"));
    assert!(one.deletes().await);
    fixture.clock.advance(MINUTE);
    assert!(other.identity.attach().await);
    assert!(one.deletes().await, "it finds the same");
    let theirs = Carried { cluster: "theirs".to_owned(), ..carried(&right) };
    wrong.plant(IDENTITY_KEY, theirs.encode());
    assert!(other.identity.attach().await);
    assert!(!one.deletes().await, "it finds something else");
}

#[tokio::test]
async fn accept_is_refused_while_instances_find_different_stores() {
    let (fixture, _, wrong, one, other) = disagreeing().await;
    one.identity.follow_states().await.expect("answered");
    let shown = other.shown(None).await.expect("shown");
    assert_eq!((shown.found.is_none(), shown.instances.len()), (true, 2));
    assert_eq!(shown.instances[0].reason, None, "the first one fits");
    assert!(other.shown(Some(&shown.hash)).await.is_some(), "the first instance finds another store");
    assert!(other.shown(Some("another")).await.is_some());
    assert!(wrong.keys().is_empty(), "nothing was written");

    // The first instance stops: its record expires, and it finds the new mark when it starts again.
    fixture.clock.advance(3 * MINUTE);
    assert!(other.shown(Some(&shown.hash)).await.is_none(), "accepted");
    assert!(other.deletes().await && carried(&wrong).sequence > 1);
    assert!(!one.deletes().await);
    assert!(one.frozen().is_some());
}

#[tokio::test]
async fn accept_is_refused_if_the_backend_changed_since_it_was_shown() {
    let (fixture, store) = (fixture(), memory());
    let instance = Instance::attached(&fixture, "a", &store).await;
    store.corrupt(IDENTITY_KEY, None);
    assert!(!instance.deletes().await);
    let shown = instance.shown(None).await.expect("shown");
    store.plant(IDENTITY_KEY, Bytes::from_static(br#"{"cluster": "theirs", "backend": "disk", "mark": "m"}"#));
    let again = instance.shown(Some(&shown.hash)).await.expect("shown again");
    assert_ne!(again.hash, shown.hash);
    assert_eq!(carried(&store).cluster, "theirs");
    assert!(instance.shown(Some(&again.hash)).await.is_none(), "accepted");
    assert_eq!(carried(&store).cluster, "ours");
}
