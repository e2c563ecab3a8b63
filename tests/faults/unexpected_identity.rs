//! A backend whose identity differs from the catalog's record: s3o neither deletes nor writes there until an operator
//! accepts it.

use std::time::Duration;

use bytes::Bytes;
use s3o_backend::identity::{IDENTITY_KEY, Identity};
use s3o_catalog::Mode;
use s3o_engine::Error;
use s3o_model::names::BackendName;

use s3o_workers::AcceptAnswer;

use s3o_tests::harness::{Expected, Harness};

const HOUR: Duration = Duration::from_hours(1);

fn memory() -> BackendName {
    "memory".parse().expect("a name")
}

/// An object `kept`, and a queued delete of `gone`.
async fn with_queued_delete() -> Harness {
    let harness = Harness::new(1 << 20, Mode::Inline).await;
    for name in ["kept", "gone"] {
        harness.store(name, b"12345").await.expect("stored");
    }
    harness.delete("gone").await;
    harness
}

async fn assert_nothing_deleted(harness: &Harness, what: &str) {
    for _ in 0..3 {
        assert!(harness.clean_after(HOUR).await.items.is_empty(), "{what}");
    }
    assert_eq!(harness.memory.total_bytes(), 10, "{what}: bytes were deleted");
}

#[tokio::test]
async fn backend_with_unexpected_identity_takes_no_deletes_and_no_writes() {
    for what in ["another cluster", "another name", "a mark of the future", "a contested mark", "no identity"] {
        let harness = with_queued_delete().await;
        let found = harness.memory.bytes(IDENTITY_KEY).expect("an identity");
        let ours = Identity::decode(&found).expect("ours");
        let carried = match what {
            "another cluster" => Some(Identity { cluster: "theirs".to_owned(), ..ours }),
            "another name" => Some(Identity { backend: "other".parse().expect("a name"), ..ours }),
            // As after a restore of an older catalog.
            "a mark of the future" => Some(Identity { mark: "unheard".to_owned(), sequence: 99, ..ours }),
            "a contested mark" => Some(Identity { contested: true, ..ours }),
            _ => None,
        };
        harness.memory.corrupt(IDENTITY_KEY, carried.map(|identity| identity.encode()));
        assert_nothing_deleted(&harness, what).await;
        assert!(harness.process.identity.attach().await, "{what}: attach compares again");
        let records = harness.catalog.live_records(&memory()).await.expect("a query");
        assert!(records[0].reason.is_some(), "{what}: the record is visible to other instances");
        let refused = harness.store("new", b"x").await;
        assert!(matches!(refused, Err(Error::Unavailable { .. })), "{what}: {refused:?}");
        // The right identity is back: the next check closes the record.
        harness.memory.plant(IDENTITY_KEY, found);
        assert!(harness.process.identity.attach().await);
        assert_eq!(harness.catalog.live_records(&memory()).await.expect("a query"), [], "{what}");
        harness.check(&Expected::from([("kept", vec![Some(b"12345".to_vec())]), ("gone", vec![None])])).await;
    }
}

/// The disk was exchanged and the operator accepts the new one: bytes of queued deletes are not on the new disk, and
/// may still be on the old one.
#[tokio::test]
async fn deletes_queued_before_accept_that_find_nothing_are_recorded_as_findings() {
    let harness = with_queued_delete().await;
    for key in harness.memory.keys() {
        harness.memory.corrupt(&key, None);
    }
    assert_nothing_cleaned(&harness).await;
    let identity = &harness.process.identity;
    let AcceptAnswer::Refused { shown, .. } = identity.accept("memory", None).await.expect("a query") else {
        panic!("accepted without its hash");
    };
    assert_eq!((shown.found.is_none(), shown.queued_deletes, shown.newest_missing.len()), (true, 1, 1));
    assert_nothing_cleaned(&harness).await;
    let accepted = identity.accept("memory", Some(&shown.hash)).await.expect("a query");
    assert!(matches!(accepted, AcceptAnswer::Accepted), "{accepted:?}");
    assert_eq!(harness.clean_after(HOUR).await.items, [("absent_after_accept", 1)].into());
    let found = harness.rows("SELECT kind, detail FROM findings").await;
    assert_eq!(found[0].text("kind").ok(), Some("absent_after_accept"));
    assert_eq!(found[0].text("detail").ok(), Some("absent after accept"));

    // A delete after the accept is executed.
    harness.store("later", b"12345").await.expect("stored");
    harness.clock.advance(Duration::from_secs(1));
    harness.delete("later").await;
    assert_eq!(harness.clean_after(HOUR).await.items, [("success", 1)].into());
}

async fn assert_nothing_cleaned(harness: &Harness) {
    assert!(harness.clean_after(HOUR).await.items.is_empty());
}

#[tokio::test]
async fn unreadable_identity_freezes_deletes_without_a_record() {
    let harness = with_queued_delete().await;
    let found = harness.memory.bytes(IDENTITY_KEY).expect("an identity");
    harness.memory.plant(IDENTITY_KEY, Bytes::from_static(b"{"));
    assert_nothing_deleted(&harness, "garbage").await;
    assert_eq!(harness.catalog.live_records(&memory()).await.expect("a query"), [], "it may be an interrupted read");
    harness.memory.plant(IDENTITY_KEY, found);
    assert_eq!(harness.clean_after(Duration::ZERO).await.items["success"], 1);
}
