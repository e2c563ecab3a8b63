//! Bodies too large for one PUT: a backend upload whose id is in the intent before its first part.

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

/// How large the parts are: as large as they must be, no larger than one PUT may be.
fn part_bytes(size_bytes: u64, put_bytes_max: u64) -> u64 {
    size_bytes.div_ceil(PARTS_MAX).max(PART_BYTES_MIN).min(put_bytes_max)
}

pub(super) async fn write(
    engine: &Engine,
    staged: &Staged,
    size_bytes: u64,
    stream: ByteStream,
) -> Result<Written, BackendError> {
    let (backend, key) = (&staged.backend, staged.intent.physical_key.as_str());
    note(engine, staged, BackendUpload::Starting).await?;
    let upload = backend.start_upload(key).await?;
    note(engine, staged, BackendUpload::Started(upload.clone())).await?;
    let source = Source::new(stream);
    let step = part_bytes(size_bytes, backend.put_bytes_max());
    let mut parts = Vec::new();
    let mut left = size_bytes;
    for number in 1.. {
        let length = left.min(step);
        let part = PartOf { key, upload: &upload, number };
        parts.push(backend.put_part(part, length, source.part(length)).await?);
        left -= length;
        if left == 0 {
            break;
        }
    }
    if !staged.lease.watch().may_finish() {
        return Err(BodyError::GivenUp("its lease has ended").into());
    }
    backend.finish_upload(key, &upload, &parts).await
}

async fn note(engine: &Engine, staged: &Staged, upload: BackendUpload) -> Result<(), BackendError> {
    if !staged.announced {
        return Ok(());
    }
    let noted = engine.intents.note_upload(staged.intent.id, &upload).await;
    noted.map_err(|error| BackendError::Away(error.to_string()))
}

/// One body, handed out in parts.
#[derive(Clone)]
struct Source(Arc<Mutex<Rest>>);

struct Rest {
    stream: ByteStream,
    /// What is left of a chunk that reached into the next part.
    chunk: Bytes,
}

impl Source {
    fn new(stream: ByteStream) -> Self {
        Self(Arc::new(Mutex::new(Rest { stream, chunk: Bytes::new() })))
    }

    /// The next `length` bytes.
    fn part(&self, length: u64) -> ByteStream {
        Box::pin(unfold((self.clone(), length), |(source, left)| async move {
            if left == 0 {
                return None;
            }
            let taken = source.0.lock().await.take(left).await;
            let left = taken.as_ref().map_or(0, |chunk| left - chunk.len() as u64);
            Some((taken, (source, left)))
        }))
    }
}

impl Rest {
    async fn take(&mut self, bytes_max: u64) -> Result<Bytes, BodyError> {
        while self.chunk.is_empty() {
            let ended = || Err(BodyError::Broken("it ended within a part".to_owned()));
            self.chunk = self.stream.next().await.unwrap_or_else(ended)?;
        }
        let length = usize::try_from(bytes_max).unwrap_or(usize::MAX).min(self.chunk.len());
        Ok(self.chunk.split_to(length))
    }
}

#[cfg(test)]
mod tests {
    use super::{Source, part_bytes};
    use bytes::Bytes;
    use futures_util::StreamExt as _;

    const GIB: u64 = 1024 * 1024 * 1024;

    #[test]
    fn parts_are_few_enough_and_small_enough() {
        assert_eq!(part_bytes(6 * GIB, 5 * GIB), 64 * 1024 * 1024);
        assert_eq!(part_bytes(6 * GIB, 16), 16);
        assert!(part_bytes(5 * 1024 * GIB, 5 * GIB) * 10_000 >= 5 * 1024 * GIB);
    }

    #[tokio::test]
    async fn parts_cut_chunks_where_they_must() {
        let chunks = [Ok(Bytes::from_static(b"abcde")), Ok(Bytes::from_static(b"fg"))];
        let source = Source::new(Box::pin(futures_util::stream::iter(chunks)));
        let mut parts = Vec::new();
        for length in [3, 3, 1] {
            let part: Vec<_> = source.part(length).map(|chunk| chunk.expect("a chunk")).collect().await;
            parts.push(part.concat());
        }
        assert_eq!(parts, [b"abc".to_vec(), b"def".to_vec(), b"g".to_vec()]);
    }
}
