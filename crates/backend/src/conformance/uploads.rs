//! Facts about backend uploads. A backend without them says so, and has none to clean up.

use super::{chunked, ending_in, fresh_folder, list_all, pattern, read};
use crate::{Backend, BodyError, DeleteAnswer, Error, PartOf, Probe, UploadedPart, UploadsPage};
use bytes::Bytes;

/// The smallest part that every service takes, other than the last.
const PART_BYTES: usize = 5 * 1024 * 1024;

async fn start(backend: &dyn Backend, key: &str) -> Option<String> {
    match backend.start_upload(key).await {
        Ok(upload) => Some(upload),
        Err(Error::Unsupported(_)) => {
            assert_eq!(backend.abort_upload(key, "any").await, DeleteAnswer::Absent);
            assert!(backend.uploads_of(key).await.expect("listed").is_empty());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

async fn put_part(backend: &dyn Backend, part: PartOf<'_>, bytes: &Bytes) -> UploadedPart {
    backend.put_part(part, bytes.len() as u64, chunked(bytes, 64 * 1024)).await.expect("put part")
}

/// The key appears when the upload is finished, with its parts in order.
pub async fn parts_join_in_order(backend: &dyn Backend) {
    let key = format!("{}/k", fresh_folder());
    let Some(upload) = start(backend, &key).await else { return };
    let bytes = pattern(PART_BYTES + 100);
    let of = |number| PartOf { key: &key, upload: &upload, number };
    let second = put_part(backend, of(2), &bytes.slice(PART_BYTES..)).await;
    let first = put_part(backend, of(1), &bytes.slice(..PART_BYTES)).await;
    assert_eq!(backend.probe(&key).await, Probe::Absent);
    let written = backend.finish_upload(&key, &upload, &[first, second]).await.expect("finished");
    assert_eq!(written.size_bytes, bytes.len() as u64);
    assert!(read(backend, &key, None).await.expect("read") == bytes);
    assert!(backend.uploads_of(&key).await.expect("listed").is_empty());
}

/// An upload that is aborted is forgotten with its parts.
pub async fn an_aborted_upload_leaves_nothing(backend: &dyn Backend) {
    let folder = fresh_folder();
    let key = format!("{folder}/k");
    let Some(upload) = start(backend, &key).await else { return };
    let part = put_part(backend, PartOf { key: &key, upload: &upload, number: 1 }, &pattern(10)).await;
    assert_eq!(backend.abort_upload(&key, &upload).await, DeleteAnswer::Deleted);
    assert!(backend.uploads_of(&key).await.expect("listed").is_empty());
    assert!(backend.finish_upload(&key, &upload, &[part]).await.is_err());
    assert_eq!(backend.probe(&key).await, Probe::Absent);
    assert!(list_all(backend, &folder, 10).await.is_empty());
}

/// Uploads of keys that share a beginning are kept apart.
pub async fn uploads_are_found_by_their_exact_key(backend: &dyn Backend) {
    let folder = fresh_folder();
    let (key, longer) = (format!("{folder}/k"), format!("{folder}/k2"));
    let Some(upload) = start(backend, &key).await else { return };
    let other = start(backend, &longer).await.expect("an upload");
    assert_eq!(backend.uploads_of(&key).await.expect("listed"), [upload.as_str()]);
    assert_eq!(backend.uploads_of(&longer).await.expect("listed"), [other.as_str()]);
    assert_eq!(backend.abort_upload(&key, &upload).await, DeleteAnswer::Deleted);
    assert_eq!(backend.abort_upload(&longer, &other).await, DeleteAnswer::Deleted);
}

/// Aborting what is not there is no failure; not every store tells that it was not.
pub async fn aborting_again_is_harmless(backend: &dyn Backend) {
    let key = format!("{}/k", fresh_folder());
    let Some(upload) = start(backend, &key).await else { return };
    assert_eq!(backend.abort_upload(&key, &upload).await, DeleteAnswer::Deleted);
    let again = backend.abort_upload(&key, &upload).await;
    assert!(matches!(again, DeleteAnswer::Absent | DeleteAnswer::Deleted), "{again:?}");
}

/// A part whose body breaks is no part.
pub async fn a_broken_part_is_no_part(backend: &dyn Backend) {
    let key = format!("{}/k", fresh_folder());
    let Some(upload) = start(backend, &key).await else { return };
    let body = ending_in(&pattern(100), 64, BodyError::Mismatch("MD5"));
    let answer = backend.put_part(PartOf { key: &key, upload: &upload, number: 1 }, 100, body).await;
    assert!(matches!(answer, Err(Error::Body(BodyError::Mismatch("MD5")))));
    assert_eq!(backend.abort_upload(&key, &upload).await, DeleteAnswer::Deleted);
}

/// The uploads of all keys are listed until they end, page by page.
pub async fn every_unfinished_upload_is_listed(backend: &dyn Backend) {
    let folder = fresh_folder();
    let (key, other) = (format!("{folder}/a~k"), format!("{folder}/b~k"));
    let Some(upload) = start(backend, &key).await else {
        assert_eq!(backend.list_uploads(None).await.expect("listed"), UploadsPage::default());
        return;
    };
    let second = start(backend, &other).await.expect("an upload");
    assert_eq!(listed(backend, &folder).await, [(key.clone(), upload.clone()), (other.clone(), second.clone())]);
    assert_eq!(backend.abort_upload(&key, &upload).await, DeleteAnswer::Deleted);
    assert_eq!(listed(backend, &folder).await, [(other.clone(), second.clone())]);
    assert_eq!(backend.abort_upload(&other, &second).await, DeleteAnswer::Deleted);
}

async fn listed(backend: &dyn Backend, folder: &str) -> Vec<(String, String)> {
    let (mut found, mut from) = (Vec::new(), None);
    for _ in 0..1000 {
        let page = backend.list_uploads(from.as_ref()).await.expect("listed");
        found.extend(page.items.into_iter().map(|item| (item.key, item.upload)));
        from = page.next;
        if from.is_none() {
            found.retain(|(key, _)| key.starts_with(folder));
            found.sort();
            return found;
        }
    }
    panic!("the listing does not end");
}
