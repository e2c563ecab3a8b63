//! Sends one body to several copies: every copy gets each chunk, at the pace of the slowest one, in bounded memory.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::unfold;
use s3o_backend::{BodyError, ByteStream};
use tokio::sync::mpsc::{self, Receiver, Sender};

/// Chunks that wait for one copy.
const WAITING_MAX: usize = 2;
/// A copy that takes no chunk for this long is left out if enough others do. Once enough are stored, the others have
/// this long to answer.
pub(super) const STALL_MAX: Duration = Duration::from_secs(10);

type Chunk = Result<Bytes, BodyError>;

/// Passes the chunks of a body to its copies.
pub(super) struct FanOut {
    body: ByteStream,
    /// `None` for a copy that failed or was left out.
    copies: Vec<Option<Sender<Chunk>>>,
    /// A stalled copy is left out only if this many remain.
    copies_min: usize,
}

/// Splits a body of `size_bytes` bytes into one stream for each copy. The streams end only while [`FanOut::run`] is
/// polled.
pub(super) fn split(body: ByteStream, size_bytes: u64, copies: usize, copies_min: usize) -> (FanOut, Vec<ByteStream>) {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..copies).map(|_| mpsc::channel(WAITING_MAX)).unzip();
    let copies = senders.into_iter().map(Some).collect();
    (FanOut { body, copies, copies_min }, receivers.into_iter().map(|chunks| stream_of(chunks, size_bytes)).collect())
}

/// The chunks of one copy. A copy that was left out gets an error, so that its backend never stores a short body.
fn stream_of(chunks: Receiver<Chunk>, size_bytes: u64) -> ByteStream {
    Box::pin(unfold(Some((chunks, size_bytes)), |state| async move {
        let (mut chunks, left) = state?;
        match chunks.recv().await {
            Some(Ok(chunk)) => {
                let left = left.saturating_sub(chunk.len() as u64);
                Some((Ok(chunk), Some((chunks, left))))
            }
            Some(Err(error)) => Some((Err(error), None)),
            None if left == 0 => None,
            None => Some((
                Err(BodyError::Cancelled("the backend was too slow, the write continues with the other copies")),
                None,
            )),
        }
    }))
}

impl FanOut {
    /// Passes on chunks until the body ends or no copy is left.
    pub(super) async fn run(mut self) {
        while let Some(chunk) = self.body.next().await {
            for position in 0..self.copies.len() {
                self.send(position, &chunk).await;
            }
            if chunk.is_err() || self.live() == 0 {
                return;
            }
        }
    }

    fn live(&self) -> usize {
        self.copies.iter().flatten().count()
    }

    async fn send(&mut self, position: usize, chunk: &Chunk) {
        let may_leave_out = self.live() > self.copies_min.max(1);
        let Some(copy) = &self.copies[position] else { return };
        let sent = copy.send(chunk.clone());
        let was_sent = if may_leave_out {
            matches!(tokio::time::timeout(STALL_MAX, sent).await, Ok(Ok(())))
        } else {
            sent.await.is_ok()
        };
        if !was_sent {
            self.copies[position] = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::StreamExt as _;
    use s3o_backend::{BodyError, ByteStream};

    use super::{STALL_MAX, split};

    fn body(chunks: usize) -> ByteStream {
        Box::pin(futures_util::stream::iter((0..chunks).map(|_| Ok(Bytes::from_static(b"ab")))))
    }

    async fn read(stream: ByteStream) -> Result<Vec<u8>, BodyError> {
        let chunks: Vec<_> = stream.collect().await;
        Ok(chunks.into_iter().collect::<Result<Vec<_>, _>>()?.concat())
    }

    #[tokio::test]
    async fn every_copy_gets_the_whole_body() {
        let (fan_out, mut streams) = split(body(10), 20, 2, 1);
        let (second, first) = (streams.remove(1), streams.remove(0));
        let ((), first, second) = tokio::join!(fan_out.run(), read(first), read(second));
        assert_eq!((first.expect("read").len(), second.expect("read").len()), (20, 20));
    }

    #[tokio::test]
    async fn failed_copy_does_not_stop_the_other() {
        let (fan_out, mut streams) = split(body(10), 20, 2, 2);
        drop(streams.remove(0));
        let ((), second) = tokio::join!(fan_out.run(), read(streams.remove(0)));
        assert_eq!(second.expect("read").len(), 20);
    }

    #[tokio::test(start_paused = true)]
    async fn stalled_copy_is_left_out_with_an_error_if_enough_others_remain() {
        let (fan_out, mut streams) = split(body(10), 20, 2, 1);
        let (stalled, quick) = (streams.remove(1), streams.remove(0));
        let began = tokio::time::Instant::now();
        let ((), quick) = tokio::join!(fan_out.run(), read(quick));
        assert_eq!(quick.expect("read").len(), 20);
        assert_eq!(began.elapsed(), STALL_MAX);
        assert!(matches!(read(stalled).await, Err(BodyError::Cancelled(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn slow_copy_is_waited_for_if_it_is_needed() {
        let (fan_out, mut streams) = split(body(10), 20, 2, 2);
        let (slow, quick) = (streams.remove(1), streams.remove(0));
        let slow = async {
            tokio::time::sleep(3 * STALL_MAX).await;
            read(slow).await
        };
        let ((), quick, slow) = tokio::join!(fan_out.run(), read(quick), slow);
        assert_eq!((quick.expect("read").len(), slow.expect("read").len()), (20, 20));
    }

    #[tokio::test]
    async fn broken_body_breaks_every_copy() {
        let chunks = [Ok(Bytes::from_static(b"ab")), Err(BodyError::Broken("disconnected".to_owned()))];
        let (fan_out, mut streams) = split(Box::pin(futures_util::stream::iter(chunks)), 20, 2, 1);
        let (second, first) = (streams.remove(1), streams.remove(0));
        let ((), first, second) = tokio::join!(fan_out.run(), read(first), read(second));
        assert!(matches!((first, second), (Err(BodyError::Broken(_)), Err(BodyError::Broken(_)))));
    }
}
