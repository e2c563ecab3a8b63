//! Tests of s3o's own objects.

use bytes::Bytes;
use s3o_model::physical_key::RESERVED_PREFIX;

use super::{fresh_folder, list_all};
use crate::Backend;
use crate::identity::{Identity, create_mark, mark_key, remove_marks};

/// Other keys are written at most once.
pub async fn own_objects_are_replaced(backend: &dyn Backend) {
    let key = format!("{RESERVED_PREFIX}{}/own.json", fresh_folder());
    for text in ["first", "second, which is longer", "third"] {
        backend.write_own(&key, Bytes::from(text)).await.expect("written");
        assert_eq!(backend.read_own(&key).await.expect("read"), Some(Bytes::from(text)));
    }
}

/// Only the objects of past marks are removed.
pub async fn mark_objects_are_created_once(backend: &dyn Backend) {
    let mark = fresh_folder().replace('/', "-");
    let identity = |sequence| Identity {
        cluster: "ours".to_owned(),
        backend: backend.name().clone(),
        mark: mark.clone(),
        sequence,
        contested: false,
    };
    for sequence in [1, 2] {
        create_mark(backend, &identity(sequence)).await.expect("created");
    }
    let key = mark_key(&mark);
    assert_eq!(backend.read_own(&key).await.expect("read"), Some(identity(1).encode()), "the object was replaced");
    remove_marks(backend, &["another".to_owned()]).await.expect("nothing to remove");
    assert!(backend.read_own(&key).await.expect("read").is_some());
    remove_marks(backend, &[mark]).await.expect("removed");
    assert_eq!(backend.read_own(&key).await.expect("read"), None);
}

/// Absence is proven, not assumed after an error.
pub async fn missing_own_object_is_none(backend: &dyn Backend) {
    let key = format!("{RESERVED_PREFIX}{}/own.json", fresh_folder());
    assert_eq!(backend.read_own(&key).await.expect("read"), None);
}

/// Objects under `.s3o/probe/` are temporary.
pub async fn trait_probe_deletes_its_objects(backend: &dyn Backend) {
    let traits = backend.probe_traits().await.expect("traits");
    assert_eq!(backend.list_versions("conform/", None, 1).await.is_ok(), traits.keeps_versions);
    let skew = traits.clock_skew_ms.unwrap_or(0);
    assert!(skew.abs() < 5_000, "{skew}");
    // Another test may be probing at this moment; it deletes its objects, too.
    let mut left = Vec::new();
    for _ in 0..100 {
        left = list_all(backend, &format!("{RESERVED_PREFIX}probe/"), 10).await;
        if left.is_empty() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("the probe did not delete {left:?}");
}
