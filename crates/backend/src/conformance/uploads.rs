//! Tests of backend uploads. A backend without uploads returns `Unsupported` and lists none.

use super::{chunked, ending_in, fresh_folder, list_all, pattern, read};
use crate::{Backend, BodyError, DeleteAnswer, Error, PartOf, Probe, UploadedPart, UploadsPage};
use bytes::Bytes;

/// Minimum size of a part other than the last.
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

/// The key exists only after the upload is finished.
pub async fn parts_are_joined_in_order(backend: &dyn Backend) {
    let key = format!("{}/k", fresh_folder());
    let Some(upload) = start(backend, &key).await else { return };
    let bytes = pattern(PART_BYTES + 100);
    let of = |number| PartOf { key: &key, upload: &upload, number };
    let second = put_part(backend, of(2), &bytes.slice(PART_BYTES..)).await;
    let first = put_part(backend, of(1), &bytes.slice(..PART_BYTES)).await;
    assert_eq!(backend.probe((&key).into()).await, Probe::Absent);
    let written = backend.finish_upload(&key, &upload, &[first, second]).await.expect("finished");
    assert_eq!(written.size_bytes, bytes.len() as u64);
    assert!(read(backend, &key, None).await.expect("read") == bytes);
    assert!(backend.uploads_of(&key).await.expect("listed").is_empty());
}

/// The upload and its parts are deleted.
pub async fn aborted_upload_stores_nothing(backend: &dyn Backend) {
    let folder = fresh_folder();
    let key = format!("{folder}/k");
    let Some(upload) = start(backend, &key).await else { return };
    let part = put_part(backend, PartOf { key: &key, upload: &upload, number: 1 }, &pattern(10)).await;
    assert_eq!(backend.abort_upload(&key, &upload).await, DeleteAnswer::Deleted);
    assert!(backend.uploads_of(&key).await.expect("listed").is_empty());
    assert!(backend.finish_upload(&key, &upload, &[part]).await.is_err());
    assert_eq!(backend.probe((&key).into()).await, Probe::Absent);
    assert!(list_all(backend, &folder, 10).await.is_empty());
}

/// An upload of a longer key with this prefix is not listed.
pub async fn uploads_are_listed_by_exact_key(backend: &dyn Backend) {
    let folder = fresh_folder();
    let (key, longer) = (format!("{folder}/k"), format!("{folder}/k2"));
    let Some(upload) = start(backend, &key).await else { return };
    let other = start(backend, &longer).await.expect("an upload");
    assert_eq!(backend.uploads_of(&key).await.expect("listed"), [upload.as_str()]);
    assert_eq!(backend.uploads_of(&longer).await.expect("listed"), [other.as_str()]);
    assert_eq!(backend.abort_upload(&key, &upload).await, DeleteAnswer::Deleted);
    assert_eq!(backend.abort_upload(&longer, &other).await, DeleteAnswer::Deleted);
}

/// Some stores do not report that the upload was missing.
pub async fn repeated_abort_succeeds(backend: &dyn Backend) {
    let key = format!("{}/k", fresh_folder());
    let Some(upload) = start(backend, &key).await else { return };
    assert_eq!(backend.abort_upload(&key, &upload).await, DeleteAnswer::Deleted);
    let again = backend.abort_upload(&key, &upload).await;
    assert!(matches!(again, DeleteAnswer::Absent | DeleteAnswer::Deleted), "{again:?}");
}

/// The body of the part fails after its last byte.
pub async fn interrupted_part_is_an_error(backend: &dyn Backend) {
    let key = format!("{}/k", fresh_folder());
    let Some(upload) = start(backend, &key).await else { return };
    let body = ending_in(&pattern(100), 64, BodyError::Mismatch("MD5"));
    let answer = backend.put_part(PartOf { key: &key, upload: &upload, number: 1 }, 100, body).await;
    assert!(matches!(answer, Err(Error::Body(BodyError::Mismatch("MD5")))));
    assert_eq!(backend.abort_upload(&key, &upload).await, DeleteAnswer::Deleted);
}

/// An upload is listed until it is finished or aborted.
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
