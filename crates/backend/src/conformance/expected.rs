//! Tests of deletes of keys that other programs may rewrite.

use bytes::Bytes;
use s3o_model::target::ExpectedBytes;

use super::{fresh_folder, pattern, put, read};
use crate::{Backend, DeleteAnswer, DeleteKey, ExpectedDelete, Present, Probe};

async fn present(backend: &dyn Backend, key: &str) -> Present {
    match backend.probe(key.into()).await {
        Probe::Present(present) => present,
        other => panic!("{key}: {other:?}"),
    }
}

fn target(key: &str) -> DeleteKey {
    DeleteKey { key: key.to_owned(), version_id: None }
}

/// A probe returns what the comparison needs.
pub async fn expected_bytes_are_deleted(backend: &dyn Backend) {
    let key = format!("{}/k", fresh_folder());
    put(backend, &key, &pattern(5)).await;
    let expected = present(backend, &key).await.expected();
    let deleted = backend.delete_expected(&target(&key), &expected).await;
    assert_eq!(deleted, ExpectedDelete::Answered(DeleteAnswer::Deleted));
    assert_eq!(backend.probe((&key).into()).await, Probe::Absent);
}

/// The new bytes have the same length.
pub async fn rewritten_bytes_are_not_deleted(backend: &dyn Backend) {
    let key = format!("{}/k", fresh_folder());
    put(backend, &key, &Bytes::from("their old bytes")).await;
    let expected = present(backend, &key).await.expected();
    backend.write_own(&key, Bytes::from("their new bytes")).await.expect("rewritten");
    let answer = backend.delete_expected(&target(&key), &expected).await;
    assert!(matches!(answer, ExpectedDelete::Changed(_)), "{answer:?}");
    assert_eq!(read(backend, &key, None).await.expect("kept"), Bytes::from("their new bytes"));
}

/// The row of a cleanup is then settled.
pub async fn missing_expected_bytes_are_absent(backend: &dyn Backend) {
    let key = format!("{}/k", fresh_folder());
    let expected = ExpectedBytes { size_bytes: 5, etag: Some("a".to_owned()), file: None };
    let answer = backend.delete_expected(&target(&key), &expected).await;
    assert_eq!(answer, ExpectedDelete::Answered(DeleteAnswer::Absent));
}

/// A listing returns it, too.
pub async fn listed_bytes_have_what_is_compared(backend: &dyn Backend) {
    let key = format!("{}/k", fresh_folder());
    put(backend, &key, &pattern(5)).await;
    let page = backend.list(&key, None, 10).await.expect("a page");
    let found = present(backend, &key).await;
    assert!(found.etag.is_some() || found.file.is_some());
    assert_eq!((&page.items[0].etag, page.items[0].file), (&found.etag, found.file));
}
