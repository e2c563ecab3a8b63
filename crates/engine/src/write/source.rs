//! A body that may be offered to several backends: a small one to each of them, a large one until its first byte was taken.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{Fuse, poll_fn};
use parking_lot::{Mutex, MutexGuard};
use s3o_backend::{BodyError, ByteStream};

/// Bodies up to this size are kept in memory until they are written; what was taken of a larger one is gone.
const KEPT_BYTES_MAX: u64 = 128 * 1024;

/// A body. Whoever polls it first has it, unless it is kept.
pub(super) struct Source(Arc<Mutex<State>>);

struct State {
    body: Fuse<ByteStream>,
    /// What came so far, of a body that is kept.
    kept: Option<Vec<Bytes>>,
    /// Which offer took what is not kept.
    taker: Option<usize>,
    offers: usize,
}

impl Source {
    pub(super) fn new(body: ByteStream, size_bytes: u64) -> Self {
        let kept = (size_bytes <= KEPT_BYTES_MAX).then(Vec::new);
        Self(Arc::new(Mutex::new(State { body: body.fuse(), kept, taker: None, offers: 0 })))
    }

    /// Whether another backend can still have all of it.
    pub(super) fn is_whole(&self) -> bool {
        let state = lock(&self.0);
        state.kept.is_some() || state.taker.is_none()
    }

    /// The body, for one backend.
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

impl State {
    /// The chunk at a position, for one offer.
    fn poll(
        &mut self,
        offer: usize,
        position: usize,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BodyError>>> {
        if let Some(chunk) = self.kept.as_ref().and_then(|kept| kept.get(position)) {
            return Poll::Ready(Some(Ok(chunk.clone())));
        }
        if self.kept.is_none() && *self.taker.get_or_insert(offer) != offer {
            let taken = (position == 0).then_some(Err(BodyError::GivenUp("another backend has it")));
            return Poll::Ready(taken);
        }
        let chunk = ready!(self.body.poll_next_unpin(context));
        if let (Some(kept), Some(Ok(chunk))) = (&mut self.kept, &chunk) {
            kept.push(chunk.clone());
        }
        Poll::Ready(chunk)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::StreamExt as _;
    use s3o_backend::ByteStream;

    use super::{KEPT_BYTES_MAX, Source};

    fn source(size_bytes: u64) -> Source {
        let chunks = [Ok(Bytes::from_static(b"ab")), Ok(Bytes::from_static(b"c"))];
        Source::new(Box::pin(futures_util::stream::iter(chunks)), size_bytes)
    }

    fn large() -> Source {
        source(KEPT_BYTES_MAX + 1)
    }

    async fn read(body: ByteStream) -> Vec<u8> {
        body.map(|chunk| chunk.expect("a chunk")).collect::<Vec<_>>().await.concat()
    }

    #[tokio::test]
    async fn an_offer_that_nobody_polled_leaves_the_body_for_the_next() {
        let source = large();
        drop(source.offer());
        assert!(source.is_whole());
        assert_eq!(read(source.offer()).await, b"abc");
        assert!(!source.is_whole());
    }

    #[tokio::test]
    async fn a_large_body_that_was_begun_is_nobody_elses() {
        let source = large();
        let mut first = source.offer();
        first.next().await.expect("a chunk").expect("bytes");
        assert!(!source.is_whole());
        let mut second = source.offer();
        assert!(second.next().await.expect("an answer").is_err());
        assert!(second.next().await.is_none());
        assert_eq!(read(first).await, b"c");
    }

    #[tokio::test]
    async fn a_small_body_is_there_for_everybody_however_far_the_last_one_came() {
        let source = source(KEPT_BYTES_MAX);
        source.offer().next().await.expect("a chunk").expect("bytes");
        for _ in 0..2 {
            assert!(source.is_whole());
            assert_eq!(read(source.offer()).await, b"abc");
        }
    }
}
