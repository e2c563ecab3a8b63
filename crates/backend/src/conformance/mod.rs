//! Conformance tests that every backend must pass.
//!
//! Each test is an async function of a backend and uses its own prefix, so that tests can share a bucket.
//! [`conformance!`](crate::conformance!) generates a `#[tokio::test]` for each.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use s3o_model::entropy::{Entropy, SystemEntropy};
use s3o_model::target::KeyVersion;

use crate::{Backend, BodyError, ByteStream, DeleteKey, Error, Page, Span};

pub mod awkward_keys;
pub mod delete;
pub mod expected;
pub mod list;
pub mod own_objects;
pub mod put_get;
pub mod ranges;
pub mod uploads;
pub mod versions;

#[cfg(test)]
pub(crate) mod implementations;

/// Generates all conformance tests for one implementation. Takes the absolute path of an async function without
/// arguments that returns a backend and a guard for its lifetime.
#[macro_export]
macro_rules! conformance {
    ($subject:path) => {
        $crate::conformance! { $subject;
            put_get: stored_body_is_read_back, empty_body_is_read_back, large_body_is_read_back,
                short_body_stores_nothing, long_body_stores_nothing, interrupted_body_stores_nothing,
                error_after_the_last_byte_stores_nothing, missing_key_is_not_found,
                etag_is_md5_if_the_trait_says_so;
            ranges: spans_return_exactly_their_bytes, span_across_chunks_returns_exactly_its_bytes,
                span_of_length_zero_is_empty, span_beyond_the_end_is_refused, span_of_missing_key_is_not_found;
            delete: deleted_key_is_absent, batch_is_answered_per_key_in_order, thousand_keys_are_deleted_in_one_call,
                repeated_delete_succeeds, delete_keeps_keys_with_the_same_prefix, empty_batch_has_no_answers;
            expected: expected_bytes_are_deleted, rewritten_bytes_are_not_deleted, missing_expected_bytes_are_absent,
                listed_bytes_have_what_is_compared;
            versions: version_is_read_and_probed_alone, only_the_named_version_is_deleted,
                several_versions_are_not_deleted_without_a_version, only_version_is_deleted_without_a_version,
                versions_are_listed_by_key_and_newest_first;
            list: keys_are_listed_in_byte_order, pages_have_no_gaps_or_duplicates, prefix_may_end_within_a_name,
                listing_may_start_after_missing_key, random_names_are_listed_as_a_sorted_set, sizes_are_listed,
                empty_listing_is_not_truncated, own_objects_are_not_listed;
            uploads: parts_are_joined_in_order, aborted_upload_stores_nothing, uploads_are_listed_by_exact_key,
                repeated_abort_succeeds, interrupted_part_is_an_error, every_unfinished_upload_is_listed;
            own_objects: own_objects_are_replaced, mark_objects_are_created_once, missing_own_object_is_none,
                trait_probe_deletes_its_objects;
            awkward_keys: awkward_keys_are_stored_under_their_names, similar_keys_are_different_keys;
        }
    };
    ($subject:path; $($topic:ident: $($test:ident),+;)+) => {
        $(mod $topic {
            $(#[tokio::test]
            async fn $test() {
                let (backend, _guard) = $subject().await;
                $crate::conformance::$topic::$test(backend.as_ref()).await;
            })+
        })+
    };
}

/// A folder that no other test uses.
fn fresh_folder() -> String {
    format!("conform/{:016x}", SystemEntropy.next_u64())
}

/// Bytes in which a read at a wrong position is detected.
fn pattern(length: usize) -> Bytes {
    let byte = |position: usize| u8::try_from((position / 256 + position) % 251).expect("below 251");
    (0..length).map(byte).collect()
}

/// A body in chunks of this size.
fn chunked(bytes: &Bytes, chunk_bytes: usize) -> ByteStream {
    let chunks: Vec<_> = bytes.chunks(chunk_bytes).map(|chunk| Ok(bytes.slice_ref(chunk))).collect();
    Box::pin(stream::iter(chunks))
}

/// A body that fails after these bytes.
fn ending_in(bytes: &Bytes, chunk_bytes: usize, end: BodyError) -> ByteStream {
    Box::pin(chunked(bytes, chunk_bytes).chain(stream::iter([Err(end)])))
}

async fn put(backend: &dyn Backend, key: &str, bytes: &Bytes) {
    let written = backend.put(key, bytes.len() as u64, chunked(bytes, 64 * 1024)).await.expect("put");
    assert_eq!(written.size_bytes, bytes.len() as u64);
}

async fn read(backend: &dyn Backend, key: &str, span: Option<Span>) -> Result<Bytes, Error> {
    read_at(backend, key.into(), span).await
}

async fn read_at(backend: &dyn Backend, at: KeyVersion<'_>, span: Option<Span>) -> Result<Bytes, Error> {
    let mut stream = backend.get(at, span).await?;
    let mut bytes = Vec::new();
    while let Some(chunk) = stream.next().await {
        bytes.extend_from_slice(&chunk.expect("an uninterrupted stream"));
    }
    Ok(Bytes::from(bytes))
}

fn targets<'k>(keys: impl IntoIterator<Item = &'k str>) -> Vec<DeleteKey> {
    keys.into_iter().map(|key| DeleteKey { key: key.to_owned(), version_id: None }).collect()
}

/// All keys under a prefix, page by page.
async fn list_all(backend: &dyn Backend, prefix: &str, limit: usize) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    for _ in 0..10_000 {
        let Page { items, truncated } =
            backend.list(prefix, keys.last().map(String::as_str), limit).await.expect("list");
        assert!(
            items.len() <= limit && (!truncated || !items.is_empty()),
            "a truncated page has keys, at most as many as requested"
        );
        keys.extend(items.into_iter().map(|item| item.key));
        if !truncated {
            assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len(), "a key is listed twice");
            return keys;
        }
    }
    panic!("the listing does not end");
}
