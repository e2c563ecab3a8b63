//! Writes bodies that are too large for one PUT with a backend upload. The intent records its ID before the first part.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::unfold;
use s3o_backend::{BodyError, ByteStream, Error as BackendError, PartOf, Written};
use s3o_model::cleanup::BackendUpload;
use tokio::sync::Mutex;

use super::Staged;
use crate::Engine;

const PART_BYTES_MIN: u64 = 64 * 1024 * 1024;
const PARTS_MAX: u64 = 10_000;

/// Size of a part: at least 64 MiB, at most one PUT, and large enough for 10000 parts.
fn part_bytes(size_bytes: u64, put_bytes_max: u64) -> u64 {
    size_bytes.div_ceil(PARTS_MAX).max(PART_BYTES_MIN).min(put_bytes_max)
}

pub(super) async fn write(
    engine: &Engine,
    staged: &Staged,
    size_bytes: u64,
    stream: ByteStream,
) -> Result<Written, BackendError> {
    let (backend, key) = (&staged.backend, staged.place.physical_key.as_str());
    record(engine, staged, BackendUpload::Starting).await?;
    let upload = backend.start_upload(key).await?;
    record(engine, staged, BackendUpload::Started(upload.clone())).await?;
    let body = PartSplitter::new(stream);
    let step = part_bytes(size_bytes, backend.put_bytes_max());
    let mut parts = Vec::new();
    let mut left = size_bytes;
    for number in 1.. {
        let length = left.min(step);
        let part = PartOf { key, upload: &upload, number };
        parts.push(backend.put_part(part, length, body.part(length)).await?);
        left -= length;
        if left == 0 {
            break;
        }
    }
    if !staged.lease.watch().may_finish() {
        return Err(BodyError::Cancelled("the lease of the write has expired").into());
    }
    backend.finish_upload(key, &upload, &parts).await
}

async fn record(engine: &Engine, staged: &Staged, upload: BackendUpload) -> Result<(), BackendError> {
    if !staged.announced {
        return Ok(());
    }
    let recorded = engine.catalog.note_upload(staged.id, &upload).await;
    recorded.map_err(|error| BackendError::Away(error.to_string()))
}

/// Splits one body into parts.
#[derive(Clone)]
struct PartSplitter(Arc<Mutex<UnsplitBody>>);

struct UnsplitBody {
    stream: ByteStream,
    /// The rest of a chunk that reaches into the next part.
    chunk: Bytes,
}

impl PartSplitter {
    fn new(stream: ByteStream) -> Self {
        Self(Arc::new(Mutex::new(UnsplitBody { stream, chunk: Bytes::new() })))
    }

    /// The next `length` bytes.
    fn part(&self, length: u64) -> ByteStream {
        Box::pin(unfold((self.clone(), length), |(body, left)| async move {
            if left == 0 {
                return None;
            }
            let taken = body.0.lock().await.take(left).await;
            let left = taken.as_ref().map_or(0, |chunk| left - chunk.len() as u64);
            Some((taken, (body, left)))
        }))
    }
}

impl UnsplitBody {
    async fn take(&mut self, bytes_max: u64) -> Result<Bytes, BodyError> {
        while self.chunk.is_empty() {
            let ended = || Err(BodyError::Broken("the body ended within a part".to_owned()));
            self.chunk = self.stream.next().await.unwrap_or_else(ended)?;
        }
        let length = usize::try_from(bytes_max).unwrap_or(usize::MAX).min(self.chunk.len());
        Ok(self.chunk.split_to(length))
    }
}

#[cfg(test)]
mod tests {
    use super::{PartSplitter, part_bytes};
    use bytes::Bytes;
    use futures_util::StreamExt as _;

    const GIB: u64 = 1024 * 1024 * 1024;

    #[test]
    fn part_size_fits_number_of_parts_and_put_limit() {
        assert_eq!(part_bytes(6 * GIB, 5 * GIB), 64 * 1024 * 1024);
        assert_eq!(part_bytes(6 * GIB, 16), 16);
        assert!(part_bytes(5 * 1024 * GIB, 5 * GIB) * 10_000 >= 5 * 1024 * GIB);
    }

    #[tokio::test]
    async fn chunks_are_split_at_part_boundaries() {
        let chunks = [Ok(Bytes::from_static(b"abcde")), Ok(Bytes::from_static(b"fg"))];
        let body = PartSplitter::new(Box::pin(futures_util::stream::iter(chunks)));
        let mut parts = Vec::new();
        for length in [3, 3, 1] {
            let part: Vec<_> = body.part(length).map(|chunk| chunk.expect("a chunk")).collect().await;
            parts.push(part.concat());
        }
        assert_eq!(parts, [b"abc".to_vec(), b"def".to_vec(), b"g".to_vec()]);
    }
}
