//! What every backend must do, as facts that can be stamped on any implementation.
//!
//! A fact is an async function of a backend. It works under a prefix of its own, so facts may
//! share a bucket. [`conformance!`](crate::conformance!) makes one named test of each.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use s3o_model::entropy::{Entropy, SystemEntropy};

use crate::{Backend, BodyError, ByteStream, Doomed, Error, Page, Span};

pub mod awkward_keys;
pub mod delete;
pub mod list;
pub mod own_objects;
pub mod put_get;
pub mod ranges;
pub mod uploads;

#[cfg(test)]
pub(crate) mod stamped;

/// Makes one test per fact. Takes the absolute path of an async function without arguments that
/// gives a backend and a guard to keep while the backend is used.
#[macro_export]
macro_rules! conformance {
    ($subject:path) => {
        $crate::conformance! { $subject;
            put_get: what_was_put_reads_back, an_empty_body_reads_back, a_large_body_streams_through,
                a_short_body_leaves_nothing, a_long_body_leaves_nothing, a_broken_body_leaves_nothing,
                a_complaint_after_the_last_byte_leaves_nothing, a_missing_key_is_not_found,
                an_etag_that_is_said_to_be_md5_is;
            ranges: every_span_reads_exactly, a_span_across_chunks_reads_exactly, a_span_of_nothing_is_empty,
                a_span_beyond_the_end_is_refused, a_span_of_a_missing_key_is_not_found;
            delete: a_deleted_key_is_gone, every_key_of_a_batch_is_answered_in_order, a_thousand_keys_go_at_once,
                deleting_again_is_harmless, neighbours_stay, nothing_to_delete_is_no_answer;
            list: keys_come_in_byte_order, pages_join_without_gap_or_overlap, a_prefix_need_not_end_a_folder,
                a_start_need_not_exist, tangled_names_list_like_a_sorted_set, sizes_are_told,
                nothing_found_is_a_whole_listing, own_objects_are_left_out;
            uploads: parts_join_in_order, an_aborted_upload_leaves_nothing, uploads_are_found_by_their_exact_key,
                aborting_again_is_harmless, a_broken_part_is_no_part, every_unfinished_upload_is_listed;
            own_objects: own_objects_are_replaced, objects_of_marks_are_created_once, a_missing_own_object_is_none,
                traits_leave_nothing_behind;
            awkward_keys: every_physical_key_survives, keys_that_look_alike_stay_apart;
        }
    };
    ($subject:path; $($topic:ident: $($fact:ident),+;)+) => {
        $(mod $topic {
            $(#[tokio::test]
            async fn $fact() {
                let (backend, _guard) = $subject().await;
                $crate::conformance::$topic::$fact(backend.as_ref()).await;
            })+
        })+
    };
}

/// A folder that no other fact uses.
fn fresh_folder() -> String {
    format!("conform/{:016x}", SystemEntropy.next_u64())
}

/// Bytes that differ from place to place, so that a shifted read shows.
fn pattern(length: usize) -> Bytes {
    let byte = |position: usize| u8::try_from((position / 256 + position) % 251).expect("below 251");
    (0..length).map(byte).collect()
}

/// A body in chunks of this size.
fn chunked(bytes: &Bytes, chunk_bytes: usize) -> ByteStream {
    let chunks: Vec<_> = bytes.chunks(chunk_bytes).map(|chunk| Ok(bytes.slice_ref(chunk))).collect();
    Box::pin(stream::iter(chunks))
}

/// A body that says something else after these bytes.
fn ending_in(bytes: &Bytes, chunk_bytes: usize, end: BodyError) -> ByteStream {
    Box::pin(chunked(bytes, chunk_bytes).chain(stream::iter([Err(end)])))
}

async fn put(backend: &dyn Backend, key: &str, bytes: &Bytes) {
    let written = backend.put(key, bytes.len() as u64, chunked(bytes, 64 * 1024)).await.expect("put");
    assert_eq!(written.size_bytes, bytes.len() as u64);
}

async fn read(backend: &dyn Backend, key: &str, span: Option<Span>) -> Result<Bytes, Error> {
    let mut stream = backend.get(key, span).await?;
    let mut bytes = Vec::new();
    while let Some(chunk) = stream.next().await {
        bytes.extend_from_slice(&chunk.expect("an unbroken stream"));
    }
    Ok(Bytes::from(bytes))
}

fn doomed<'k>(keys: impl IntoIterator<Item = &'k str>) -> Vec<Doomed> {
    keys.into_iter().map(|key| Doomed { key: key.to_owned(), version_id: None }).collect()
}

/// All keys under a prefix, page by page.
async fn list_all(backend: &dyn Backend, prefix: &str, limit: usize) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    for _ in 0..10_000 {
        let Page { items, truncated } =
            backend.list(prefix, keys.last().map(String::as_str), limit).await.expect("list");
        assert!(items.len() <= limit && (!truncated || !items.is_empty()), "a page must lead on");
        keys.extend(items.into_iter().map(|item| item.key));
        if !truncated {
            assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len(), "a key came twice");
            return keys;
        }
    }
    panic!("the listing does not end");
}
