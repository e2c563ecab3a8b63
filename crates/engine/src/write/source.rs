//! A body that may be offered to several backends, until one of them takes its first byte.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::StreamExt as _;
use futures_util::stream::unfold;
use s3o_backend::{BodyError, ByteStream};

/// A body; whoever polls it first has it.
pub(super) struct Source(Arc<Mutex<Option<ByteStream>>>);

impl Source {
    pub(super) fn new(body: ByteStream) -> Self {
        Self(Arc::new(Mutex::new(Some(body))))
    }

    /// Whether no byte was asked for yet.
    pub(super) fn is_untouched(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// The body, for one backend.
    pub(super) fn offer(&self) -> ByteStream {
        let slot = Arc::clone(&self.0);
        Box::pin(unfold((slot, None::<ByteStream>), |(slot, taken)| async move {
            let mut body = match taken {
                Some(body) => body,
                None => match slot.lock().unwrap_or_else(PoisonError::into_inner).take() {
                    Some(body) => body,
                    None => {
                        return Some((
                            Err(BodyError::GivenUp("another backend has it")),
                            (slot.clone(), Some(ended())),
                        ));
                    }
                },
            };
            let chunk = body.next().await?;
            Some((chunk, (slot, Some(body))))
        }))
    }
}

fn ended() -> ByteStream {
    Box::pin(futures_util::stream::empty())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::StreamExt as _;

    use super::Source;

    fn source() -> Source {
        let chunks = [Ok(Bytes::from_static(b"ab")), Ok(Bytes::from_static(b"c"))];
        Source::new(Box::pin(futures_util::stream::iter(chunks)))
    }

    #[tokio::test]
    async fn an_offer_that_nobody_polled_leaves_the_body_for_the_next() {
        let source = source();
        drop(source.offer());
        assert!(source.is_untouched());
        let read: Vec<_> = source.offer().map(|chunk| chunk.expect("a chunk")).collect().await;
        assert_eq!(read.concat(), b"abc");
        assert!(!source.is_untouched());
    }

    #[tokio::test]
    async fn a_body_that_was_begun_is_nobody_elses() {
        let source = source();
        let mut first = source.offer();
        first.next().await.expect("a chunk").expect("bytes");
        assert!(!source.is_untouched());
        let mut second = source.offer();
        assert!(second.next().await.expect("an answer").is_err());
        assert!(second.next().await.is_none());
    }
}
