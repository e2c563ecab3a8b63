//! Request bodies: computes digests during the I/O, enforces the length, and stops a write whose lease is lost.

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::unfold;
use s3o_backend::{BodyError, ByteStream};
use s3o_model::checksum::Algorithm;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::Error;
use crate::digest::{Digests, Hasher};
use crate::leases::LeaseWatch;

/// Up to this size, hashing is cheaper than moving the bytes to another thread.
const INLINE_BYTES_MAX: u64 = 128 * 1024;
/// Number of bytes of a larger body that another thread hashes at a time.
const BATCH_BYTES: usize = 256 * 1024;

/// A body whose digests are available after it was read to its end.
pub(crate) struct DigestedBody {
    pub(crate) stream: ByteStream,
    pub(crate) digests: PendingDigests,
}

/// The digests of a body that is being read.
pub(crate) struct PendingDigests(oneshot::Receiver<Digests>);

impl PendingDigests {
    /// The digests; an error if the body was not read to its end.
    pub(crate) async fn ready(self) -> Result<Digests, Error> {
        self.0.await.map_err(|_| Error::Body(BodyError::Broken("not read to its end".to_owned())))
    }
}

/// Hashes a body during its I/O. Large bodies are hashed in batches on blocking threads. No thread waits for the
/// sender: a few hundred slow uploads would occupy all of them.
enum Hashing {
    Inline(Box<Hasher>),
    Threaded(ThreadedHasher),
}

struct ThreadedHasher {
    /// Hashes the previous batch, or is idle.
    hasher: JoinHandle<Box<Hasher>>,
    batch: Vec<Bytes>,
    batch_bytes: usize,
}

impl ThreadedHasher {
    /// Starts to hash the batch after the previous one was hashed.
    async fn hash_batch(&mut self) -> Result<(), BodyError> {
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        let stopped = |_| BodyError::Cancelled("hashing stopped");
        let mut hasher = (&mut self.hasher).await.map_err(stopped)?;
        self.hasher = tokio::task::spawn_blocking(move || {
            for chunk in batch {
                hasher.update(&chunk);
            }
            hasher
        });
        Ok(())
    }
}

impl Hashing {
    fn start(size_bytes: u64, checksum: Option<Algorithm>) -> Self {
        let hasher = Box::new(Hasher::new(checksum));
        if size_bytes <= INLINE_BYTES_MAX {
            return Self::Inline(hasher);
        }
        let hasher = tokio::task::spawn_blocking(move || hasher);
        Self::Threaded(ThreadedHasher { hasher, batch: Vec::new(), batch_bytes: 0 })
    }

    async fn take(&mut self, chunk: &Bytes) -> Result<(), BodyError> {
        match self {
            Self::Inline(hasher) => hasher.update(chunk),
            Self::Threaded(threaded) => {
                threaded.batch_bytes += chunk.len();
                threaded.batch.push(chunk.clone());
                if threaded.batch_bytes >= BATCH_BYTES {
                    threaded.hash_batch().await?;
                }
            }
        }
        Ok(())
    }

    async fn finish(self) -> Result<Digests, BodyError> {
        match self {
            Self::Inline(hasher) => Ok(hasher.finish()),
            Self::Threaded(mut threaded) => {
                threaded.hash_batch().await?;
                let hasher = threaded.hasher.await.map_err(|_| BodyError::Cancelled("hashing stopped"))?;
                Ok(hasher.finish())
            }
        }
    }
}

/// Compares the computed digests with the declared ones.
pub(crate) type Verify = Box<dyn FnOnce(&Digests) -> Result<(), BodyError> + Send>;

struct BodyReader {
    inner: ByteStream,
    hashing: Hashing,
    verify: Verify,
    verified: oneshot::Sender<Digests>,
    expected: u64,
    received: u64,
    lease: LeaseWatch,
}

impl BodyReader {
    /// The next chunk. The last one is held back until length and digests are verified, so that a backend never
    /// receives all bytes of a wrong body.
    async fn next(mut self) -> (Result<Bytes, BodyError>, Option<Self>) {
        match self.receive().await {
            Err(error) => (Err(error), None),
            Ok(chunk) if self.received < self.expected => (Ok(chunk), Some(self)),
            Ok(chunk) => (self.end().await.map(|()| chunk), None),
        }
    }

    async fn receive(&mut self) -> Result<Bytes, BodyError> {
        if self.lease.is_lost() {
            return Err(BodyError::Cancelled("the lease of the write was lost"));
        }
        let (expected, received) = (self.expected, self.received);
        let chunk = self.inner.next().await.unwrap_or(Err(BodyError::Short { expected, received }))?;
        self.received += chunk.len() as u64;
        if self.received > expected {
            return Err(BodyError::Long { expected });
        }
        self.hashing.take(&chunk).await?;
        Ok(chunk)
    }

    /// Reads to the end of the stream, after which the trailer is available, and verifies the digests.
    async fn end(mut self) -> Result<(), BodyError> {
        while let Some(rest) = self.inner.next().await {
            if !rest?.is_empty() {
                return Err(BodyError::Long { expected: self.expected });
            }
        }
        let digests = self.hashing.finish().await?;
        (self.verify)(&digests)?;
        // The sender may have been slow, or this process may have been suspended.
        if !self.lease.may_finish() {
            return Err(BodyError::Cancelled("the lease of the write has expired"));
        }
        self.verified.send(digests).unwrap_or_default();
        Ok(())
    }
}

/// Wraps a body of exactly `size_bytes` bytes; `verify` is called before its last chunk is passed on.
pub(crate) async fn digested(
    inner: ByteStream,
    size_bytes: u64,
    checksum: Option<Algorithm>,
    verify: Verify,
    lease: LeaseWatch,
) -> Result<DigestedBody, BodyError> {
    let hashing = Hashing::start(size_bytes, checksum);
    let (verified, pending) = oneshot::channel();
    let reader = BodyReader { inner, hashing, verify, verified, expected: size_bytes, received: 0, lease };
    let stream: ByteStream = if size_bytes == 0 {
        // A backend that expects no bytes may never poll the stream.
        reader.end().await?;
        Box::pin(futures_util::stream::empty())
    } else {
        Box::pin(unfold(Some(reader), |reader| async move { Some(reader?.next().await) }))
    };
    Ok(DigestedBody { stream, digests: PendingDigests(pending) })
}

/// Reads a body to its end and discards its bytes.
pub(crate) async fn digest_of(
    body: ByteStream,
    size_bytes: u64,
    checksum: Option<Algorithm>,
) -> Result<Digests, Error> {
    let mut body = digested(body, size_bytes, checksum, Box::new(|_| Ok(())), LeaseWatch::default()).await?;
    while let Some(chunk) = body.stream.next().await {
        chunk?;
    }
    body.digests.ready().await
}

#[cfg(test)]
mod tests {
    use super::{digest_of, digested};
    use bytes::Bytes;
    use futures_util::StreamExt as _;
    use s3o_backend::{BodyError, ByteStream};

    fn body(chunks: &[&'static [u8]]) -> ByteStream {
        let chunks: Vec<_> = chunks.iter().map(|chunk| Ok(Bytes::from_static(chunk))).collect();
        Box::pin(futures_util::stream::iter(chunks))
    }

    async fn delivered(chunks: &[&'static [u8]], size_bytes: u64, fits: bool) -> (usize, Option<BodyError>) {
        let verify = move |_: &_| if fits { Ok(()) } else { Err(BodyError::Mismatch("MD5")) };
        let mut body = digested(body(chunks), size_bytes, None, Box::new(verify), super::LeaseWatch::default())
            .await
            .expect("starts");
        let mut delivered = 0;
        while let Some(chunk) = body.stream.next().await {
            match chunk {
                Ok(chunk) => delivered += chunk.len(),
                Err(error) => return (delivered, Some(error)),
            }
        }
        (delivered, None)
    }

    #[tokio::test]
    async fn body_of_the_right_length_passes() {
        assert!(matches!(delivered(&[b"ab", b"c"], 3, true).await, (3, None)));
    }

    #[tokio::test]
    async fn body_of_a_wrong_length_is_an_error() {
        assert!(matches!(delivered(&[b"ab"], 3, true).await, (2, Some(BodyError::Short { .. }))));
        assert!(matches!(delivered(&[b"ab", b"cd"], 3, true).await, (2, Some(BodyError::Long { .. }))));
        assert!(matches!(delivered(&[b"abc", b"d"], 3, true).await, (0, Some(BodyError::Long { .. }))));
    }

    #[tokio::test]
    async fn wrong_digest_holds_back_the_last_chunk() {
        assert!(matches!(delivered(&[b"ab", b"c"], 3, false).await, (2, Some(BodyError::Mismatch("MD5")))));
    }

    #[tokio::test]
    async fn threaded_hashing_gives_the_same_digests() {
        let chunk: &'static [u8] = vec![7; 100_000].leak();
        let threaded = digest_of(body(&[chunk, chunk]), 200_000, None).await.expect("digests");
        let mut inline = super::Hasher::new(None);
        inline.update(chunk);
        inline.update(chunk);
        assert_eq!(threaded, inline.finish());
    }
}
