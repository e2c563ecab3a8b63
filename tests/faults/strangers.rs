//! A backend that is not what the catalog takes it for: nothing is deleted there and nothing written, until somebody who
//! knows says that it is right.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use s3o_backend::identity::{IDENTITY_KEY, Identity};
use s3o_catalog::{IdentityRecords as _, Mode};
use s3o_engine::{DeleteObject, Error};
use s3o_model::conditions::WriteCondition;
use s3o_model::names::BackendName;

use s3o_workers::AcceptAnswer;

use s3o_tests::house::{Expected, House, bucket, key};

const HOUR: Duration = Duration::from_hours(1);

fn memory() -> BackendName {
    "memory".parse().expect("a name")
}

/// A house that holds `kept` and owes the deletion of `gone`.
async fn owing() -> House {
    let house = House::new(1 << 20, Mode::Inline).await;
    let client = Arc::new(());
    for name in ["kept", "gone"] {
        house.engine.put_object(house.put(name, b"12345", &client)).await.expect("stored");
    }
    let delete = DeleteObject { bucket: bucket(), key: key("gone"), condition: WriteCondition::None };
    house.engine.delete_object(delete).await.expect("deleted");
    house
}

async fn nothing_happens_to(house: &House, what: &str) {
    for _ in 0..3 {
        assert!(house.clean_after(HOUR).await.items.is_empty(), "{what}");
    }
    assert_eq!(house.memory.total_bytes(), 10, "{what}: bytes are gone");
}

#[tokio::test]
async fn nothing_is_deleted_or_written_where_a_stranger_is_found() {
    for what in ["another cluster", "another name", "a mark of the future", "a contested mark", "nothing at all"] {
        let house = owing().await;
        let found = house.memory.bytes(IDENTITY_KEY).expect("an identity");
        let ours = Identity::decode(&found).expect("ours");
        let carried = match what {
            "another cluster" => Some(Identity { cluster: "theirs".to_owned(), ..ours }),
            "another name" => Some(Identity { backend: "other".parse().expect("a name"), ..ours }),
            // The catalog was restored from before that mark.
            "a mark of the future" => Some(Identity { mark: "unheard".to_owned(), sequence: 99, ..ours }),
            "a contested mark" => Some(Identity { contested: true, ..ours }),
            _ => None,
        };
        house.memory.corrupt(IDENTITY_KEY, carried.map(|identity| identity.encode()));
        nothing_happens_to(&house, what).await;
        assert!(house.process.identity.attach().await, "{what}: it is compared again");
        let records = house.catalog.live_records(&memory()).await.expect("a look");
        assert!(records[0].reason.is_some(), "{what}: the other instances know");
        let client = Arc::new(());
        let refused = house.engine.put_object(house.put("new", b"x", &client)).await;
        assert!(matches!(refused, Err(Error::Unavailable { .. })), "{what}: {refused:?}");
        // The right one is back: the next check finds it, and the record is closed.
        house.memory.plant(IDENTITY_KEY, found);
        assert!(house.process.identity.attach().await);
        assert_eq!(house.catalog.live_records(&memory()).await.expect("a look"), [], "{what}");
        house.check(&Expected::from([("kept", vec![Some(b"12345".to_vec())]), ("gone", vec![None])])).await;
    }
}

/// The disk was exchanged, and the operator says that the new one is right: what the old one was to be rid of is not on
/// the new one, and nobody knows where the old one is.
#[tokio::test]
async fn deletes_from_before_an_accept_that_find_nothing_become_findings() {
    let house = owing().await;
    for key in house.memory.keys() {
        house.memory.corrupt(&key, None);
    }
    nothing_is_cleaned(&house).await;
    let identity = &house.process.identity;
    let AcceptAnswer::Refused { shown, .. } = identity.accept("memory", None).await.expect("a look") else {
        panic!("accepted without its hash");
    };
    assert_eq!((shown.found.is_none(), shown.queued_deletes, shown.newest_missing.len()), (true, 1, 1));
    nothing_is_cleaned(&house).await;
    let accepted = identity.accept("memory", Some(&shown.hash)).await.expect("a look");
    assert!(matches!(accepted, AcceptAnswer::Accepted), "{accepted:?}");
    assert_eq!(house.clean_after(HOUR).await.items, [("absent_after_accept", 1)].into());
    let found = house.rows("SELECT kind, detail FROM findings").await;
    assert_eq!(found[0].text(0).ok(), Some("absent_after_accept"));
    assert_eq!(found[0].text(1).ok(), Some("absent after accept"));

    // What is deleted after the accept is deleted as ever.
    let client = Arc::new(());
    house.engine.put_object(house.put("later", b"12345", &client)).await.expect("stored");
    let delete = DeleteObject { bucket: bucket(), key: key("later"), condition: WriteCondition::None };
    house.clock.advance(Duration::from_secs(1));
    house.engine.delete_object(delete).await.expect("deleted");
    assert_eq!(house.clean_after(HOUR).await.items, [("success", 1)].into());
}

async fn nothing_is_cleaned(house: &House) {
    assert!(house.clean_after(HOUR).await.items.is_empty());
}

#[tokio::test]
async fn an_identity_that_cannot_be_read_proves_nothing() {
    let house = owing().await;
    let found = house.memory.bytes(IDENTITY_KEY).expect("an identity");
    house.memory.plant(IDENTITY_KEY, Bytes::from_static(b"{"));
    nothing_happens_to(&house, "garbage").await;
    assert_eq!(house.catalog.live_records(&memory()).await.expect("a look"), [], "it may be a read that broke");
    house.memory.plant(IDENTITY_KEY, found);
    assert_eq!(house.clean_after(Duration::ZERO).await.items["success"], 1);
}
