//! Tests of reading spans.

use super::{fresh_folder, pattern, put, read};
use crate::{Backend, Error, Span};

/// First byte, last byte, middle, and all bytes.
pub async fn spans_return_exactly_their_bytes(backend: &dyn Backend) {
    let key = format!("{}/k", fresh_folder());
    let bytes = pattern(10);
    put(backend, &key, &bytes).await;
    for (offset, length) in [(0, 1), (9, 1), (3, 4), (0, 10), (1, 9)] {
        let span = Span { offset, length };
        let read = read(backend, &key, Some(span)).await.expect("read");
        let start = usize::try_from(offset).expect("small");
        assert_eq!(read, bytes[start..start + usize::try_from(length).expect("small")], "{span:?}");
    }
}

/// The span is longer than any chunk and starts within one.
pub async fn span_across_chunks_returns_exactly_its_bytes(backend: &dyn Backend) {
    let key = format!("{}/k", fresh_folder());
    let bytes = pattern(1_500_000);
    put(backend, &key, &bytes).await;
    let read = read(backend, &key, Some(Span { offset: 300_001, length: 900_007 })).await.expect("read");
    assert!(read == bytes[300_001..1_200_008]);
}

/// Such a span may begin anywhere up to the end.
pub async fn span_of_length_zero_is_empty(backend: &dyn Backend) {
    let key = format!("{}/k", fresh_folder());
    put(backend, &key, &pattern(10)).await;
    for offset in [0, 5, 10] {
        assert!(read(backend, &key, Some(Span { offset, length: 0 })).await.expect("read").is_empty());
    }
}

/// Spans are never shortened.
pub async fn span_beyond_the_end_is_refused(backend: &dyn Backend) {
    let key = format!("{}/k", fresh_folder());
    put(backend, &key, &pattern(10)).await;
    for (offset, length) in [(5, 6), (10, 1), (0, 11), (100, 1), (11, 0), (u64::MAX, 2)] {
        let answer = read(backend, &key, Some(Span { offset, length })).await;
        assert!(matches!(answer, Err(Error::Refused(_))), "{offset}+{length}: {answer:?}");
    }
}

/// That includes a span of length zero.
pub async fn span_of_missing_key_is_not_found(backend: &dyn Backend) {
    let key = format!("{}/k", fresh_folder());
    for length in [0, 1] {
        let answer = backend.get((&key).into(), Some(Span { offset: 0, length })).await;
        assert!(matches!(answer.err(), Some(Error::NotFound)));
    }
}
