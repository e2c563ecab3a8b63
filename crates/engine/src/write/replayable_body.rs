//! A request body that can be offered to several backends: a small one to each of them, a large one until a backend
//! has read its first byte.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{Fuse, poll_fn};
use parking_lot::{Mutex, MutexGuard};
use s3o_backend::{BodyError, ByteStream};

/// Bodies up to this size are buffered until they are written; larger ones are consumed by the first backend.
const BUFFERED_BYTES_MAX: u64 = 128 * 1024;

/// A body. A small one is offered to every backend; a large one belongs to the first offer that polls it.
pub(super) struct ReplayableBody(Arc<Mutex<BodyState>>);

struct BodyState {
    body: Fuse<ByteStream>,
    /// The chunks read so far; `None` for a body that is too large to buffer.
    buffered: Option<Vec<Bytes>>,
    /// The offer that consumes a body that is not buffered.
    consumer: Option<usize>,
    offers: usize,
}

impl ReplayableBody {
    pub(super) fn new(body: ByteStream, size_bytes: u64) -> Self {
        let buffered = (size_bytes <= BUFFERED_BYTES_MAX).then(Vec::new);
        Self(Arc::new(Mutex::new(BodyState { body: body.fuse(), buffered, consumer: None, offers: 0 })))
    }

    /// True if another backend can still read the whole body.
    pub(super) fn is_replayable(&self) -> bool {
        let state = lock(&self.0);
        state.buffered.is_some() || state.consumer.is_none()
    }

    /// The body from its start, for one backend.
    pub(super) fn offer(&self) -> ByteStream {
        let (shared, mut position) = (Arc::clone(&self.0), 0);
        let offer = {
            let mut state = lock(&shared);
            state.offers += 1;
            state.offers
        };
        Box::pin(poll_fn(move |context| {
            let chunk = ready!(lock(&shared).poll(offer, position, context));
            position += 1;
            Poll::Ready(chunk)
        }))
    }
}

impl BodyState {
    /// The chunk at a position, for one offer.
    fn poll(
        &mut self,
        offer: usize,
        position: usize,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BodyError>>> {
        if let Some(chunk) = self.buffered.as_ref().and_then(|buffered| buffered.get(position)) {
            return Poll::Ready(Some(Ok(chunk.clone())));
        }
        if self.buffered.is_none() && *self.consumer.get_or_insert(offer) != offer {
            let consumed = (position == 0).then_some(Err(BodyError::Cancelled("another backend has read the body")));
            return Poll::Ready(consumed);
        }
        let chunk = ready!(self.body.poll_next_unpin(context));
        if let (Some(buffered), Some(Ok(chunk))) = (&mut self.buffered, &chunk) {
            buffered.push(chunk.clone());
        }
        Poll::Ready(chunk)
    }
}

fn lock(state: &Mutex<BodyState>) -> MutexGuard<'_, BodyState> {
    state.lock()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::StreamExt as _;
    use s3o_backend::ByteStream;

    use super::{BUFFERED_BYTES_MAX, ReplayableBody};

    fn body(size_bytes: u64) -> ReplayableBody {
        let chunks = [Ok(Bytes::from_static(b"ab")), Ok(Bytes::from_static(b"c"))];
        ReplayableBody::new(Box::pin(futures_util::stream::iter(chunks)), size_bytes)
    }

    fn large() -> ReplayableBody {
        body(BUFFERED_BYTES_MAX + 1)
    }

    async fn read(body: ByteStream) -> Vec<u8> {
        body.map(|chunk| chunk.expect("a chunk")).collect::<Vec<_>>().await.concat()
    }

    #[tokio::test]
    async fn dropped_offer_that_was_not_polled_leaves_the_body_replayable() {
        let body = large();
        drop(body.offer());
        assert!(body.is_replayable());
        assert_eq!(read(body.offer()).await, b"abc");
        assert!(!body.is_replayable());
    }

    #[tokio::test]
    async fn large_body_is_read_by_one_offer_only() {
        let body = large();
        let mut first = body.offer();
        first.next().await.expect("a chunk").expect("bytes");
        assert!(!body.is_replayable());
        let mut second = body.offer();
        assert!(second.next().await.expect("an answer").is_err());
        assert!(second.next().await.is_none());
        assert_eq!(read(first).await, b"c");
    }

    #[tokio::test]
    async fn small_body_is_replayed_to_every_offer() {
        let body = body(BUFFERED_BYTES_MAX);
        body.offer().next().await.expect("a chunk").expect("bytes");
        for _ in 0..2 {
            assert!(body.is_replayable());
            assert_eq!(read(body.offer()).await, b"abc");
        }
    }
}
