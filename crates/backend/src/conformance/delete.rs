//! Facts about deletes.

use futures_util::{StreamExt, stream};

use super::{doomed, fresh_folder, list_all, pattern, put, read};
use crate::{Backend, DeleteAnswer, Error, Probe};

fn gone(answer: &DeleteAnswer) -> bool {
    matches!(answer, DeleteAnswer::Deleted | DeleteAnswer::Absent)
}

/// A deleted key is gone for every way of looking.
pub async fn a_deleted_key_is_gone(backend: &dyn Backend) {
    let folder = fresh_folder();
    let key = format!("{folder}/a/k");
    put(backend, &key, &pattern(5)).await;
    assert_eq!(backend.delete_batch(&doomed([key.as_str()])).await, [DeleteAnswer::Deleted]);
    assert_eq!(backend.probe(&key).await, Probe::Absent);
    assert!(matches!(read(backend, &key, None).await, Err(Error::NotFound)));
    assert!(list_all(backend, &folder, 10).await.is_empty());
}

/// One answer per key, in the order of the keys, whether they were there or not.
pub async fn every_key_of_a_batch_is_answered_in_order(backend: &dyn Backend) {
    let folder = fresh_folder();
    let keys: Vec<String> = (0..6).map(|number| format!("{folder}/{}/{number}", number % 3)).collect();
    for key in keys.iter().step_by(2) {
        put(backend, key, &pattern(5)).await;
    }
    let answers = backend.delete_batch(&doomed(keys.iter().map(String::as_str))).await;
    assert_eq!(answers.len(), keys.len());
    for (number, answer) in answers.iter().enumerate() {
        assert!(gone(answer), "{number}: {answer:?}");
        // Only what was never there may be called absent.
        assert!(*answer != DeleteAnswer::Absent || number % 2 == 1, "{number}: {answer:?}");
    }
}

/// A full batch goes in one call.
pub async fn a_thousand_keys_go_at_once(backend: &dyn Backend) {
    let folder = fresh_folder();
    let keys: Vec<String> = (0..1000).map(|number| format!("{folder}/{}/{number}", number % 7)).collect();
    let bytes = pattern(1);
    let puts: Vec<_> = keys.iter().map(|key| put(backend, key, &bytes)).collect();
    stream::iter(puts).buffer_unordered(16).collect::<Vec<()>>().await;
    let answers = backend.delete_batch(&doomed(keys.iter().map(String::as_str))).await;
    assert_eq!(answers, vec![DeleteAnswer::Deleted; 1000]);
    assert!(list_all(backend, &folder, 1000).await.is_empty());
}

/// A delete may be repeated.
pub async fn deleting_again_is_harmless(backend: &dyn Backend) {
    let key = format!("{}/k", fresh_folder());
    put(backend, &key, &pattern(5)).await;
    for _ in 0..3 {
        assert!(gone(&backend.delete_batch(&doomed([key.as_str()])).await[0]));
    }
}

/// Keys that share a beginning or a folder with a deleted key stay.
pub async fn neighbours_stay(backend: &dyn Backend) {
    let folder = fresh_folder();
    let neighbours = [format!("{folder}/k-1"), format!("{folder}/k2/x"), format!("{folder}/l")];
    let key = format!("{folder}/k");
    for neighbour in &neighbours {
        put(backend, neighbour, &pattern(5)).await;
    }
    put(backend, &key, &pattern(5)).await;
    backend.delete_batch(&doomed([key.as_str()])).await;
    assert_eq!(list_all(backend, &folder, 10).await, neighbours);
}

/// An empty batch has no answers.
pub async fn nothing_to_delete_is_no_answer(backend: &dyn Backend) {
    assert!(backend.delete_batch(&[]).await.is_empty());
}
