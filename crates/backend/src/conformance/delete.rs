//! Tests of deletes.

use futures_util::{StreamExt, stream};

use super::{fresh_folder, list_all, pattern, put, read, targets};
use crate::{Backend, DeleteAnswer, Error, Probe};

fn is_deleted(answer: &DeleteAnswer) -> bool {
    matches!(answer, DeleteAnswer::Deleted | DeleteAnswer::Absent)
}

/// Probe, read and listing agree.
pub async fn deleted_key_is_absent(backend: &dyn Backend) {
    let folder = fresh_folder();
    let key = format!("{folder}/a/k");
    put(backend, &key, &pattern(5)).await;
    assert_eq!(backend.delete_batch(&targets([key.as_str()])).await, [DeleteAnswer::Deleted]);
    assert_eq!(backend.probe((&key).into()).await, Probe::Absent);
    assert!(matches!(read(backend, &key, None).await, Err(Error::NotFound)));
    assert!(list_all(backend, &folder, 10).await.is_empty());
}

/// The batch has existing and missing keys.
pub async fn batch_is_answered_per_key_in_order(backend: &dyn Backend) {
    let folder = fresh_folder();
    let keys: Vec<String> = (0..6).map(|number| format!("{folder}/{}/{number}", number % 3)).collect();
    for key in keys.iter().step_by(2) {
        put(backend, key, &pattern(5)).await;
    }
    let answers = backend.delete_batch(&targets(keys.iter().map(String::as_str))).await;
    assert_eq!(answers.len(), keys.len());
    for (number, answer) in answers.iter().enumerate() {
        assert!(is_deleted(answer), "{number}: {answer:?}");
        // Only a key that never existed may be absent.
        assert!(*answer != DeleteAnswer::Absent || number % 2 == 1, "{number}: {answer:?}");
    }
}

/// The largest batch of the contract.
pub async fn thousand_keys_are_deleted_in_one_call(backend: &dyn Backend) {
    let folder = fresh_folder();
    let keys: Vec<String> = (0..1000).map(|number| format!("{folder}/{}/{number}", number % 7)).collect();
    let bytes = pattern(1);
    let puts: Vec<_> = keys.iter().map(|key| put(backend, key, &bytes)).collect();
    stream::iter(puts).buffer_unordered(16).collect::<Vec<()>>().await;
    let answers = backend.delete_batch(&targets(keys.iter().map(String::as_str))).await;
    assert_eq!(answers, vec![DeleteAnswer::Deleted; 1000]);
    assert!(list_all(backend, &folder, 1000).await.is_empty());
}

/// Cleanups may repeat a delete whose answer was lost.
pub async fn repeated_delete_succeeds(backend: &dyn Backend) {
    let key = format!("{}/k", fresh_folder());
    put(backend, &key, &pattern(5)).await;
    for _ in 0..3 {
        assert!(is_deleted(&backend.delete_batch(&targets([key.as_str()])).await[0]));
    }
}

/// Keys with a common prefix or folder are not deleted.
pub async fn delete_keeps_keys_with_the_same_prefix(backend: &dyn Backend) {
    let folder = fresh_folder();
    let neighbours = [format!("{folder}/k-1"), format!("{folder}/k2/x"), format!("{folder}/l")];
    let key = format!("{folder}/k");
    for neighbour in &neighbours {
        put(backend, neighbour, &pattern(5)).await;
    }
    put(backend, &key, &pattern(5)).await;
    backend.delete_batch(&targets([key.as_str()])).await;
    assert_eq!(list_all(backend, &folder, 10).await, neighbours);
}

/// The caller need not check for an empty batch.
pub async fn empty_batch_has_no_answers(backend: &dyn Backend) {
    assert!(backend.delete_batch(&[]).await.is_empty());
}
