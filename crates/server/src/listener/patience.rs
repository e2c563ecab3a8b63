//! Ends a connection whose peer takes no more bytes, and refuses header lines that end in a bare LF.
//!
//! A client that stops reading without closing would keep its answer, and all that feeds it, for
//! ever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::strict_lines::StrictLines;

/// How long a peer may go without taking a byte that waits for it.
const UNREAD_MAX: Duration = Duration::from_mins(5);

/// A connection with bounded patience for its reader.
pub struct Patient<T> {
    stream: T,
    unread: Option<Pin<Box<Sleep>>>,
    waiting: bool,
    lines: StrictLines,
}

impl<T> Patient<T> {
    /// Watches the writes on this stream.
    pub fn new(stream: T) -> Self {
        Self { stream, unread: None, waiting: false, lines: StrictLines::new() }
    }

    fn bounded<R>(&mut self, written: Poll<io::Result<R>>, cx: &mut Context<'_>) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.waiting = false;
            return written;
        }
        let unread = self.unread.get_or_insert_with(|| Box::pin(tokio::time::sleep(UNREAD_MAX)));
        if !self.waiting {
            self.waiting = true;
            unread.as_mut().reset(Instant::now() + UNREAD_MAX);
        }
        std::task::ready!(unread.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes no more bytes")))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Patient<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.lines.scan(&mut buffer.filled_mut()[before..]);
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Patient<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.bounded(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.bounded(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::{Patient, UNREAD_MAX};
    use std::io::ErrorKind;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::time::{Instant, sleep};

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_is_cut_off() {
        let (near, _far) = duplex(8);
        let began = Instant::now();
        let error = Patient::new(near).write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(began.elapsed(), UNREAD_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_peer_that_takes_something_is_not() {
        let (near, mut far) = duplex(8);
        let mut near = Patient::new(near);
        let reader = async {
            for _ in 0..64 {
                sleep(UNREAD_MAX / 2).await;
                far.read_u8().await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(near.write_all(&[0; 64]), reader);
        assert!(written.is_ok());
    }
}
