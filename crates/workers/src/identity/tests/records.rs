//! Facts about what instances record, and about accepts.

use std::sync::Arc;

use bytes::Bytes;
use s3o_backend::Memory;
use s3o_backend::identity::{IDENTITY_KEY, Identity as Carried};
use s3o_catalog::IdentityRecords as _;
use s3o_catalog::conformance::scene::Scene;

use super::{Instance, MINUTE, carried, disk, memory};
use crate::testing::scene;

/// Two instances, of which the second finds another store.
async fn disagreeing() -> (Scene, Arc<Memory>, Arc<Memory>, Instance, Instance) {
    let (scene, right, wrong) = (scene(), memory(), memory());
    let one = Instance::attached(&scene, "a", &right).await;
    let other = Instance::attached(&scene, "b", &wrong).await;
    (scene, right, wrong, one, other)
}

#[tokio::test]
async fn what_one_instance_finds_stops_all_deletes_until_it_fits() {
    let (scene, right, wrong, one, other) = disagreeing().await;
    assert!(other.frozen().is_some() && one.frozen().is_none());
    assert!(!one.deletes().await && !other.deletes().await);
    assert!(one.identity.permits(one.backend()).await.expect("compared"), "it goes on reading and writing");
    let records = scene.catalog.live_records(&disk()).await.expect("records");
    assert_eq!(records.iter().map(|record| record.host.as_str()).collect::<Vec<_>>(), ["b"]);

    // The right store is back.
    for key in right.keys() {
        wrong.plant(&key, right.bytes(&key).expect("listed"));
    }
    assert!(other.identity.attach().await);
    assert_eq!(other.frozen(), None);
    assert_eq!(scene.catalog.live_records(&disk()).await.expect("records"), []);
}

#[tokio::test]
async fn a_record_counts_while_its_lease_is_renewed() {
    let (scene, _, _, one, other) = disagreeing().await;
    scene.clock.advance(MINUTE);
    assert!(other.identity.attach().await);
    scene.clock.advance(MINUTE + MINUTE / 2);
    assert!(!one.deletes().await, "it was renewed");
    scene.clock.advance(MINUTE);
    assert!(one.deletes().await, "that instance is dead");
    assert!(other.identity.attach().await);
    assert!(!one.deletes().await);
}

#[tokio::test]
async fn a_dismissal_holds_until_something_else_is_found() {
    let (scene, right, wrong, one, other) = disagreeing().await;
    assert!(!one.identity.dismiss("disk", "nobody").await.expect("asked"));
    assert!(one.identity.dismiss("disk", "b").await.expect("dismissed"));
    assert!(one.deletes().await);
    scene.clock.advance(MINUTE);
    assert!(other.identity.attach().await);
    assert!(one.deletes().await, "it finds the same");
    let theirs = Carried { cluster: "theirs".to_owned(), ..carried(&right) };
    wrong.plant(IDENTITY_KEY, theirs.encode());
    assert!(other.identity.attach().await);
    assert!(!one.deletes().await, "it finds something else");
}

#[tokio::test]
async fn nothing_is_accepted_while_instances_find_different_stores() {
    let (scene, _, wrong, one, other) = disagreeing().await;
    one.identity.answer_disputes().await.expect("answered");
    let shown = other.shown(None).await.expect("shown");
    assert_eq!((shown.found.is_none(), shown.instances.len()), (true, 2));
    assert_eq!(shown.instances[0].reason, None, "the first one fits");
    assert!(other.shown(Some(&shown.hash)).await.is_some(), "the first instance finds another store");
    assert!(other.shown(Some("another")).await.is_some());
    assert!(wrong.keys().is_empty(), "nothing was written");

    // The first instance is dead: its record ends, and it meets the new mark when it comes back.
    scene.clock.advance(3 * MINUTE);
    assert!(other.shown(Some(&shown.hash)).await.is_none(), "accepted");
    assert!(other.deletes().await && carried(&wrong).sequence > 1);
    assert!(!one.deletes().await);
    assert!(one.frozen().is_some());
}

#[tokio::test]
async fn what_changed_since_it_was_shown_is_not_accepted() {
    let (scene, store) = (scene(), memory());
    let instance = Instance::attached(&scene, "a", &store).await;
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
