//! Facts about whole bodies.

use bytes::Bytes;

use super::{chunked, doomed, ending_in, fresh_folder, pattern, put, read};
use crate::{Backend, BodyError, ByteStream, DeleteAnswer, Error, Present, Probe, body};

/// More than any implementation collects before it streams.
const LARGE_BYTES: usize = 3 * 1024 * 1024 + 17;

/// Small enough for one chunk, and large enough to be streamed.
const SIZES: [usize; 2] = [100, LARGE_BYTES];

/// What was put is read back, and a probe tells its length.
pub async fn what_was_put_reads_back(backend: &dyn Backend) {
    let key = format!("{}/k", fresh_folder());
    let bytes = pattern(1000);
    assert_eq!(backend.probe(&key).await, Probe::Absent);
    put(backend, &key, &bytes).await;
    assert_eq!(read(backend, &key, None).await.expect("read"), bytes);
    assert!(matches!(backend.probe(&key).await, Probe::Present(Present { size_bytes: 1000, .. })));
}

/// A body of no bytes is a body.
pub async fn an_empty_body_reads_back(backend: &dyn Backend) {
    let key = format!("{}/k", fresh_folder());
    put(backend, &key, &Bytes::new()).await;
    assert!(read(backend, &key, None).await.expect("read").is_empty());
    assert!(matches!(backend.probe(&key).await, Probe::Present(Present { size_bytes: 0, .. })));
}

/// A large body arrives whole, in pieces of any size.
pub async fn a_large_body_streams_through(backend: &dyn Backend) {
    let key = format!("{}/k", fresh_folder());
    let bytes = pattern(LARGE_BYTES);
    backend.put(&key, bytes.len() as u64, chunked(&bytes, 100_003)).await.expect("put");
    assert!(read(backend, &key, None).await.expect("read") == bytes);
    assert_eq!(backend.delete_batch(&doomed([key.as_str()])).await, [DeleteAnswer::Deleted]);
}

async fn leaves_nothing(backend: &dyn Backend, size_bytes: usize, body: ByteStream) -> BodyError {
    let key = format!("{}/k", fresh_folder());
    let answer = backend.put(&key, size_bytes as u64, body).await;
    assert_eq!(backend.probe(&key).await, Probe::Absent);
    match answer {
        Err(Error::Body(error)) => error,
        other => panic!("{other:?} instead of a body error"),
    }
}

/// A body that ends early leaves nothing.
pub async fn a_short_body_leaves_nothing(backend: &dyn Backend) {
    for size in SIZES {
        let error = leaves_nothing(backend, size, chunked(&pattern(size - 1), 64 * 1024)).await;
        assert!(matches!(error, BodyError::Short { .. }), "{error:?}");
    }
}

/// A body that runs over leaves nothing, even where nothing was announced.
pub async fn a_long_body_leaves_nothing(backend: &dyn Backend) {
    for size in [0, SIZES[0], SIZES[1]] {
        let bytes = pattern(size + 1);
        let body = if size == 0 { body::whole(bytes) } else { chunked(&bytes, size) };
        let error = leaves_nothing(backend, size, body).await;
        assert!(matches!(error, BodyError::Long { .. }), "{error:?}");
    }
}

/// A body that breaks off leaves nothing.
pub async fn a_broken_body_leaves_nothing(backend: &dyn Backend) {
    for size in SIZES {
        let broken = BodyError::Broken("hung up".to_owned());
        let error = leaves_nothing(backend, size, ending_in(&pattern(size / 2), 64 * 1024, broken)).await;
        assert!(matches!(error, BodyError::Broken(_)), "{error:?}");
    }
}

/// All bytes came, and then the producer says that they are wrong: nothing is left.
pub async fn a_complaint_after_the_last_byte_leaves_nothing(backend: &dyn Backend) {
    for size in [0, SIZES[0], SIZES[1]] {
        let body = ending_in(&pattern(size), 64 * 1024, BodyError::Mismatch("MD5"));
        let error = leaves_nothing(backend, size, body).await;
        assert!(matches!(error, BodyError::Mismatch("MD5")), "{error:?}");
    }
}

/// A key that was never written is not found.
pub async fn a_missing_key_is_not_found(backend: &dyn Backend) {
    let folder = fresh_folder();
    put(backend, &format!("{folder}/there"), &pattern(1)).await;
    for key in [format!("{folder}/missing"), format!("{folder}/there/below"), folder] {
        assert!(matches!(backend.get(&key, None).await.err(), Some(Error::NotFound)), "{key}");
        assert_eq!(backend.probe(&key).await, Probe::Absent, "{key}");
    }
}

/// An ETag is compared with an MD5 only where the probe found that it is one.
pub async fn an_etag_that_is_said_to_be_md5_is(backend: &dyn Backend) {
    let traits = backend.probe_traits().await.expect("traits");
    let key = format!("{}/k", fresh_folder());
    let written = backend.put(&key, 3, body::whole(Bytes::from("abc"))).await.expect("put");
    if traits.etag_is_md5 {
        assert_eq!(written.etag.as_deref(), Some("900150983cd24fb0d6963f7d28e17f72"));
    }
}
