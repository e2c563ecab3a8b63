//! Bodies on their way in: digested beside the I/O, bounded in length, stopped when their lease is
//! lost.

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::unfold;
use s3o_backend::{BodyError, ByteStream};
use s3o_model::checksum::Algorithm;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::Error;
use crate::digest::{Digests, Hasher};
use crate::leases::Watch;

/// Up to this size hashing is cheaper than handing the bytes to another thread.
const INLINE_BYTES_MAX: u64 = 128 * 1024;
/// How much of a larger body is gathered before another thread digests it.
const BATCH_BYTES: usize = 256 * 1024;

/// A body whose digests are known once it was read to its end.
pub(crate) struct DigestedBody {
    pub(crate) stream: ByteStream,
    pub(crate) digests: DigestsToCome,
}

/// The digests of a body that is being read.
pub(crate) struct DigestsToCome(oneshot::Receiver<Digests>);

impl DigestsToCome {
    /// The digests; an error if the body was not read to its end.
    pub(crate) async fn ready(self) -> Result<Digests, Error> {
        self.0.await.map_err(|_| Error::Body(BodyError::Broken("it was not read to its end".to_owned())))
    }
}

/// Digests a body beside the I/O. Batches go to another thread; no thread waits for the sender, or
/// a few hundred slow uploads would take all of them.
enum Hashing {
    Inline(Box<Hasher>),
    Beside(Beside),
}

struct Beside {
    /// The hasher, at work on the last full batch or idle.
    hasher: JoinHandle<Box<Hasher>>,
    batch: Vec<Bytes>,
    batch_bytes: usize,
}

impl Beside {
    /// Hands the batch over, once the one before it was digested.
    async fn hand_over(&mut self) -> Result<(), BodyError> {
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        let stopped = |_| BodyError::GivenUp("hashing stopped");
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
        Self::Beside(Beside { hasher, batch: Vec::new(), batch_bytes: 0 })
    }

    async fn take(&mut self, chunk: &Bytes) -> Result<(), BodyError> {
        match self {
            Self::Inline(hasher) => hasher.update(chunk),
            Self::Beside(beside) => {
                beside.batch_bytes += chunk.len();
                beside.batch.push(chunk.clone());
                if beside.batch_bytes >= BATCH_BYTES {
                    beside.hand_over().await?;
                }
            }
        }
        Ok(())
    }

    async fn finish(self) -> Result<Digests, BodyError> {
        match self {
            Self::Inline(hasher) => Ok(hasher.finish()),
            Self::Beside(mut beside) => {
                beside.hand_over().await?;
                let hasher = beside.hasher.await.map_err(|_| BodyError::GivenUp("hashing stopped"))?;
                Ok(hasher.finish())
            }
        }
    }
}

/// Says whether the digests are what the sender declared.
pub(crate) type Verify = Box<dyn FnOnce(&Digests) -> Result<(), BodyError> + Send>;

struct Flow {
    inner: ByteStream,
    hashing: Hashing,
    verify: Verify,
    verified: oneshot::Sender<Digests>,
    expected: u64,
    received: u64,
    lease: Watch,
}

impl Flow {
    /// The next chunk. The last one is held back until the body has ended where it should and its
    /// digests were verified, so that bytes which are not what was declared never become whole.
    async fn next(mut self) -> (Result<Bytes, BodyError>, Option<Self>) {
        match self.receive().await {
            Err(error) => (Err(error), None),
            Ok(chunk) if self.received < self.expected => (Ok(chunk), Some(self)),
            Ok(chunk) => (self.end().await.map(|()| chunk), None),
        }
    }

    async fn receive(&mut self) -> Result<Bytes, BodyError> {
        if self.lease.is_lost() {
            return Err(BodyError::GivenUp("its lease was lost"));
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

    /// Reads to the very end, which is also where a trailer becomes known.
    async fn end(mut self) -> Result<(), BodyError> {
        while let Some(rest) = self.inner.next().await {
            if !rest?.is_empty() {
                return Err(BodyError::Long { expected: self.expected });
            }
        }
        let digests = self.hashing.finish().await?;
        (self.verify)(&digests)?;
        // The sender may have taken its time, or this process may have stood still.
        if !self.lease.may_finish() {
            return Err(BodyError::GivenUp("its lease has ended"));
        }
        self.verified.send(digests).unwrap_or_default();
        Ok(())
    }
}

/// Wraps a body of exactly `size_bytes` bytes.
pub(crate) async fn digested(
    inner: ByteStream,
    size_bytes: u64,
    checksum: Option<Algorithm>,
    verify: Verify,
    lease: Watch,
) -> Result<DigestedBody, BodyError> {
    let hashing = Hashing::start(size_bytes, checksum);
    let (verified, to_come) = oneshot::channel();
    let flow = Flow { inner, hashing, verify, verified, expected: size_bytes, received: 0, lease };
    let stream: ByteStream = if size_bytes == 0 {
        // A store that is told of no bytes may never ask for any.
        flow.end().await?;
        Box::pin(futures_util::stream::empty())
    } else {
        Box::pin(unfold(Some(flow), |flow| async move { Some(flow?.next().await) }))
    };
    Ok(DigestedBody { stream, digests: DigestsToCome(to_come) })
}

/// Reads a body for its digests only.
pub(crate) async fn digest_of(
    body: ByteStream,
    size_bytes: u64,
    checksum: Option<Algorithm>,
) -> Result<Digests, Error> {
    let mut body = digested(body, size_bytes, checksum, Box::new(|_| Ok(())), Watch::default()).await?;
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
        let mut body =
            digested(body(chunks), size_bytes, None, Box::new(verify), super::Watch::default()).await.expect("starts");
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
    async fn a_body_of_the_right_length_passes() {
        assert!(matches!(delivered(&[b"ab", b"c"], 3, true).await, (3, None)));
    }

    #[tokio::test]
    async fn a_wrong_length_never_becomes_whole() {
        assert!(matches!(delivered(&[b"ab"], 3, true).await, (2, Some(BodyError::Short { .. }))));
        assert!(matches!(delivered(&[b"ab", b"cd"], 3, true).await, (2, Some(BodyError::Long { .. }))));
        assert!(matches!(delivered(&[b"abc", b"d"], 3, true).await, (0, Some(BodyError::Long { .. }))));
    }

    #[tokio::test]
    async fn a_wrong_digest_holds_the_last_chunk_back() {
        assert!(matches!(delivered(&[b"ab", b"c"], 3, false).await, (2, Some(BodyError::Mismatch("MD5")))));
    }

    #[tokio::test]
    async fn hashing_beside_gives_the_same_digests() {
        let chunk: &'static [u8] = vec![7; 100_000].leak();
        let beside = digest_of(body(&[chunk, chunk]), 200_000, None).await.expect("digests");
        let mut inline = super::Hasher::new(None);
        inline.update(chunk);
        inline.update(chunk);
        assert_eq!(beside, inline.finish());
    }
}
