//! Passes of reconcile over a store that keeps versions.

use std::sync::Arc;

use bytes::Bytes;
use s3o_tests::environment::Environment;
use s3o_tests::harness::Harness;

use crate::reconcile::{HOUR, STRAY, hourly, kinds, pass};

/// A store that keeps versions, with one object; and the key of the object.
async fn versioned() -> (Harness, String) {
    let environment = Environment::new(u64::MAX).with_settings(hourly());
    environment.backends[0].memory.keep_versions();
    let harness = Harness::builder(&Arc::new(environment)).start_with_bucket().await;
    harness.store("a", b"five!").await.expect("stored");
    let key = harness.texts("SELECT physical_key FROM object_locations").await.remove(0);
    (harness, key)
}

/// The bytes of each version of a key, oldest first; `None` for a delete marker.
fn versions(harness: &Harness, key: &str) -> Vec<Option<Bytes>> {
    harness.memory.versions(key).into_iter().map(|(_, bytes)| bytes).collect()
}

fn found(kinds: &[(&str, &str)]) -> Vec<(String, String)> {
    kinds.iter().map(|(kind, key)| ((*kind).to_owned(), (*key).to_owned())).collect()
}

#[tokio::test]
async fn versions_and_markers_over_a_living_key_are_removed_and_its_own_version_stays() {
    let (harness, key) = versioned().await;
    harness.memory.plant(&key, Bytes::from_static(b"theirs"));
    harness.memory.plant_delete_marker(&key);
    harness.memory.plant(STRAY, Bytes::from_static(b"ours"));
    pass(&harness).await;
    let expected = [("old_version", key.as_str()), ("old_version", &key), ("stray", STRAY)];
    assert_eq!(kinds(&harness).await, found(&expected));
    assert_eq!(versions(&harness, &key).len(), 3, "one pass deletes nothing");
    pass(&harness).await;
    harness.clean_after(HOUR).await;
    assert_eq!(versions(&harness, &key), [Some(Bytes::from_static(b"five!"))]);
    assert_eq!(versions(&harness, STRAY), []);
    assert_eq!(harness.read("a").await.as_deref(), Some(b"five!".as_slice()));
    harness.check_settled().await;
}

#[tokio::test]
async fn older_versions_of_a_copy_whose_version_is_unknown_are_only_reported() {
    let (harness, key) = versioned().await;
    harness.memory.plant(&key, Bytes::from_static(b"five!"));
    harness.change("UPDATE object_locations SET backend_version = NULL").await;
    for _ in 0..3 {
        pass(&harness).await;
    }
    harness.clean_after(HOUR).await;
    assert_eq!(kinds(&harness).await, found(&[("old_version", &key)]));
    assert_eq!(versions(&harness, &key).len(), 2);
    assert_eq!(harness.read("a").await.as_deref(), Some(b"five!".as_slice()));
}
