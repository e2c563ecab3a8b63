//! Tests of writing and reading whole bodies.

use bytes::Bytes;

use super::{chunked, ending_in, fresh_folder, pattern, put, read, targets};
use crate::{Backend, BodyError, ByteStream, DeleteAnswer, Error, Present, Probe, body};

/// Larger than any implementation buffers.
const LARGE_BYTES: usize = 3 * 1024 * 1024 + 17;

/// One size that is buffered and one that is streamed.
const SIZES: [usize; 2] = [100, LARGE_BYTES];

/// A probe returns its size.
pub async fn stored_body_is_read_back(backend: &dyn Backend) {
    let key = format!("{}/k", fresh_folder());
    let bytes = pattern(1000);
    assert_eq!(backend.probe((&key).into()).await, Probe::Absent);
    put(backend, &key, &bytes).await;
    assert_eq!(read(backend, &key, None).await.expect("read"), bytes);
    assert!(matches!(backend.probe((&key).into()).await, Probe::Present(Present { size_bytes: 1000, .. })));
}

/// A key without bytes exists.
pub async fn empty_body_is_read_back(backend: &dyn Backend) {
    let key = format!("{}/k", fresh_folder());
    put(backend, &key, &Bytes::new()).await;
    assert!(read(backend, &key, None).await.expect("read").is_empty());
    assert!(matches!(backend.probe((&key).into()).await, Probe::Present(Present { size_bytes: 0, .. })));
}

/// Chunks of an odd size are joined correctly.
pub async fn large_body_is_read_back(backend: &dyn Backend) {
    let key = format!("{}/k", fresh_folder());
    let bytes = pattern(LARGE_BYTES);
    backend.put(&key, bytes.len() as u64, chunked(&bytes, 100_003)).await.expect("put");
    assert!(read(backend, &key, None).await.expect("read") == bytes);
    assert_eq!(backend.delete_batch(&targets([key.as_str()])).await, [DeleteAnswer::Deleted]);
}

async fn failed_put(backend: &dyn Backend, size_bytes: usize, body: ByteStream) -> BodyError {
    let key = format!("{}/k", fresh_folder());
    let answer = backend.put(&key, size_bytes as u64, body).await;
    assert_eq!(backend.probe((&key).into()).await, Probe::Absent);
    match answer {
        Err(Error::Body(error)) => error,
        other => panic!("{other:?} instead of a body error"),
    }
}

/// The body ends before its announced length.
pub async fn short_body_stores_nothing(backend: &dyn Backend) {
    for size in SIZES {
        let error = failed_put(backend, size, chunked(&pattern(size - 1), 64 * 1024)).await;
        assert!(matches!(error, BodyError::Short { .. }), "{error:?}");
    }
}

/// The body exceeds its announced length, which may be zero.
pub async fn long_body_stores_nothing(backend: &dyn Backend) {
    for size in [0, SIZES[0], SIZES[1]] {
        let bytes = pattern(size + 1);
        let body = if size == 0 { body::whole(bytes) } else { chunked(&bytes, size) };
        let error = failed_put(backend, size, body).await;
        assert!(matches!(error, BodyError::Long { .. }), "{error:?}");
    }
}

/// The producer fails after half of the bytes.
pub async fn interrupted_body_stores_nothing(backend: &dyn Backend) {
    for size in SIZES {
        let broken = BodyError::Broken("disconnected".to_owned());
        let error = failed_put(backend, size, ending_in(&pattern(size / 2), 64 * 1024, broken)).await;
        assert!(matches!(error, BodyError::Broken(_)), "{error:?}");
    }
}

/// The producer reports a wrong digest after all bytes.
pub async fn error_after_the_last_byte_stores_nothing(backend: &dyn Backend) {
    for size in [0, SIZES[0], SIZES[1]] {
        let body = ending_in(&pattern(size), 64 * 1024, BodyError::Mismatch("MD5"));
        let error = failed_put(backend, size, body).await;
        assert!(matches!(error, BodyError::Mismatch("MD5")), "{error:?}");
    }
}

/// A key below an existing one and a folder are missing keys, too.
pub async fn missing_key_is_not_found(backend: &dyn Backend) {
    let folder = fresh_folder();
    put(backend, &format!("{folder}/there"), &pattern(1)).await;
    for key in [format!("{folder}/missing"), format!("{folder}/there/below"), folder] {
        assert!(matches!(backend.get((&key).into(), None).await.err(), Some(Error::NotFound)), "{key}");
        assert_eq!(backend.probe((&key).into()).await, Probe::Absent, "{key}");
    }
}

/// The engine compares ETags only with stores that have this trait.
pub async fn etag_is_md5_if_the_trait_says_so(backend: &dyn Backend) {
    let traits = backend.probe_traits().await.expect("traits");
    let key = format!("{}/k", fresh_folder());
    let written = backend.put(&key, 3, body::whole(Bytes::from("abc"))).await.expect("put");
    if traits.etag_is_md5 {
        assert_eq!(written.etag.as_deref(), Some("900150983cd24fb0d6963f7d28e17f72"));
    }
}
