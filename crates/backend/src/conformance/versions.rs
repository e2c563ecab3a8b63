//! Tests of backends that keep versions. On the others, only the refusal of version listings is checked.

use bytes::Bytes;

use super::{fresh_folder, pattern, read_at};
use crate::{Backend, DeleteAnswer, DeleteKey, Error, ListedVersion, Probe, VersionPosition, VersionsPage, body};
use s3o_model::target::KeyVersion;

/// Version of a key that another program wrote over afterwards; `None` on a backend without versions.
async fn overwritten(backend: &dyn Backend, key: &str) -> Option<String> {
    if !backend.probe_traits().await.expect("traits").keeps_versions {
        let refused = backend.list_versions("conform/", None, 10).await;
        assert!(matches!(refused, Err(Error::Unsupported(_))), "{refused:?}");
        return None;
    }
    let written = backend.put(key, 5, body::whole(pattern(5))).await.expect("put");
    backend.write_own(key, Bytes::from("their bytes")).await.expect("overwritten");
    Some(written.version_id.expect("a version"))
}

/// `None` on a store that does not list keys in byte order.
async fn versions(backend: &dyn Backend, prefix: &str, limit: usize) -> Option<Vec<ListedVersion>> {
    let (mut all, mut after): (Vec<ListedVersion>, Option<VersionPosition>) = (Vec::new(), None);
    for _ in 0..1000 {
        let VersionsPage { items, next } = match backend.list_versions(prefix, after.as_ref(), limit).await {
            Err(Error::Unsupported(_)) => return None,
            page => page.expect("a page"),
        };
        assert!(items.len() <= limit);
        all.extend(items);
        match next {
            None => return Some(all),
            next => after = next,
        }
    }
    panic!("the listing does not end");
}

/// Reads and probes of a version ignore what was written over it.
pub async fn version_is_read_and_probed_alone(backend: &dyn Backend) {
    let key = format!("{}/k", fresh_folder());
    let Some(ours) = overwritten(backend, &key).await else { return };
    let at = KeyVersion::new(&key, Some(&ours));
    assert_eq!(read_at(backend, at, None).await.expect("ours"), pattern(5));
    let Probe::Present(found) = backend.probe(at).await else { panic!("ours is there") };
    assert_eq!((found.size_bytes, found.version_id.as_deref()), (5, Some(ours.as_str())));
    let Probe::Present(current) = backend.probe((&key).into()).await else { panic!("theirs is there") };
    assert!(current.size_bytes == 11 && current.version_id.as_ref() != Some(&ours));
}

/// The version of the other program becomes, or stays, the current one.
pub async fn only_the_named_version_is_deleted(backend: &dyn Backend) {
    let key = format!("{}/k", fresh_folder());
    let Some(ours) = overwritten(backend, &key).await else { return };
    let target = DeleteKey { key: key.clone(), version_id: Some(ours.clone()) };
    assert_eq!(backend.delete_batch(std::slice::from_ref(&target)).await, [DeleteAnswer::Deleted]);
    assert_eq!(backend.probe(KeyVersion::new(&key, Some(&ours))).await, Probe::Absent);
    assert!(matches!(read_at(backend, KeyVersion::new(&key, Some(&ours)), None).await, Err(Error::NotFound)));
    assert_eq!(read_at(backend, (&key).into(), None).await.expect("theirs"), Bytes::from("their bytes"));
}

/// Which of them s3o wrote was never learnt. Nothing is deleted, and no delete marker is added.
pub async fn several_versions_are_not_deleted_without_a_version(backend: &dyn Backend) {
    let key = format!("{}/k", fresh_folder());
    if overwritten(backend, &key).await.is_none() {
        return;
    }
    let answers = backend.delete_batch(&[DeleteKey { key: key.clone(), version_id: None }]).await;
    assert!(matches!(answers[0], DeleteAnswer::Refused(_)), "{answers:?}");
    assert_eq!(versions(backend, &key, 10).await.map_or(2, |found| found.len()), 2);
}

/// A delete that names no version frees the bytes of the only one.
pub async fn only_version_is_deleted_without_a_version(backend: &dyn Backend) {
    let key = format!("{}/k", fresh_folder());
    let Some(ours) = overwritten(backend, &key).await else { return };
    let ours = DeleteKey { key: key.clone(), version_id: Some(ours) };
    assert_eq!(backend.delete_batch(&[ours]).await, [DeleteAnswer::Deleted]);
    let unnamed = [DeleteKey { key: key.clone(), version_id: None }];
    assert_eq!(backend.delete_batch(&unnamed).await, [DeleteAnswer::Deleted]);
    assert_eq!(versions(backend, &key, 10).await.unwrap_or_default(), []);
    assert_eq!(backend.delete_batch(&unnamed).await, [DeleteAnswer::Absent]);
}

/// Also if a page ends between two versions of a key.
pub async fn versions_are_listed_by_key_and_newest_first(backend: &dyn Backend) {
    versions_are_listed_in_pages_of(backend, &[1, 2, 5, 100]).await;
}

/// Lists six versions in pages of each of these sizes.
pub async fn versions_are_listed_in_pages_of(backend: &dyn Backend, limits: &[usize]) {
    let folder = fresh_folder();
    let keys = ["a-b", "a/b", "c"].map(|name| format!("{folder}/{name}"));
    let mut ours = Vec::new();
    for key in &keys {
        let Some(version) = overwritten(backend, key).await else { return };
        ours.push(version);
    }
    for limit in limits {
        let Some(found) = versions(backend, &folder, *limit).await else { return };
        let found: Vec<_> =
            found.iter().map(|item| (item.key.as_str(), item.is_latest, item.size_bytes, &item.version_id)).collect();
        assert_eq!(found.len(), 6, "{limit}: {found:?}");
        for (position, key) in keys.iter().enumerate() {
            let (newer, older) = (found[2 * position], found[2 * position + 1]);
            assert_eq!((newer.0, newer.1, newer.2), (key.as_str(), true, 11), "{limit}");
            assert_eq!(older, (key.as_str(), false, 5, &ours[position]), "{limit}");
        }
    }
}
