//! A backend that is not what the catalog takes it for: nothing is deleted there and nothing written, until somebody who
//! knows says that it is right.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use s3o_backend::identity::{IDENTITY_KEY, Identity};
use s3o_catalog::{Identities as _, Mode};
use s3o_engine::{DeleteObject, Error};
use s3o_model::conditions::WriteCondition;
use s3o_model::names::BackendName;

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
    for what in ["another cluster", "another name", "a mark of the future", "nothing at all"] {
        let house = owing().await;
        let found = house.memory.bytes(IDENTITY_KEY).expect("an identity");
        let ours = Identity::decode(&found).expect("ours");
        let carried = match what {
            "another cluster" => Some(Identity { cluster: "theirs".to_owned(), ..ours }),
            "another name" => Some(Identity { backend: "other".parse().expect("a name"), ..ours }),
            // The catalog was restored from before that mark.
            "a mark of the future" => Some(Identity { mark: "unheard".to_owned(), ..ours }),
            _ => None,
        };
        house.memory.corrupt(IDENTITY_KEY, carried.map(|identity| identity.encode()));
        nothing_happens_to(&house, what).await;
        let known = house.catalog.known_backend(&memory()).await.expect("a look");
        assert!(known.frozen_reason.is_some(), "{what}: the other instances know");
        let client = Arc::new(());
        let refused = house.engine.put_object(house.put("new", b"x", &client)).await;
        assert!(matches!(refused, Err(Error::Unavailable { .. })), "{what}: {refused:?}");
        // It stays frozen though the right one is back: somebody has to look.
        house.memory.plant(IDENTITY_KEY, found);
        nothing_happens_to(&house, what).await;
        house.process.identity.accept("memory").await.expect("accepted");
        house.check(&Expected::from([("kept", vec![Some(b"12345".to_vec())]), ("gone", vec![None])])).await;
    }
}

#[tokio::test]
async fn an_identity_that_cannot_be_read_proves_nothing() {
    let house = owing().await;
    let found = house.memory.bytes(IDENTITY_KEY).expect("an identity");
    house.memory.plant(IDENTITY_KEY, Bytes::from_static(b"{"));
    nothing_happens_to(&house, "garbage").await;
    let known = house.catalog.known_backend(&memory()).await.expect("a look");
    assert_eq!(known.frozen_reason, None, "it may be a read that broke");
    house.memory.plant(IDENTITY_KEY, found);
    assert_eq!(house.clean_after(Duration::ZERO).await.items["success"], 1);
}
