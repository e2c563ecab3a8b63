//! A TCP stream with a write timeout, which refuses header lines that end in a bare LF.
//!
//! Without the timeout, a client that stops reading without closing would hold its response and the backend read that
//! feeds it forever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::strict_lines::StrictLines;

/// Write timeout: how long the client may read nothing while bytes are waiting.
const WRITE_TIMEOUT: Duration = Duration::from_mins(5);

/// The stream of one connection.
pub struct GuardedStream<T> {
    stream: T,
    write_timer: Option<Pin<Box<Sleep>>>,
    waiting: bool,
    lines: StrictLines,
}

impl<T> GuardedStream<T> {
    pub fn new(stream: T) -> Self {
        Self { stream, write_timer: None, waiting: false, lines: StrictLines::new() }
    }

    fn with_timeout<R>(&mut self, written: Poll<io::Result<R>>, cx: &mut Context<'_>) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.waiting = false;
            return written;
        }
        let timer = self.write_timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(WRITE_TIMEOUT)));
        if !self.waiting {
            self.waiting = true;
            timer.as_mut().reset(Instant::now() + WRITE_TIMEOUT);
        }
        std::task::ready!(timer.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "client reads no more bytes")))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for GuardedStream<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.lines.scan(&mut buffer.filled_mut()[before..]);
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for GuardedStream<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.with_timeout(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.with_timeout(written, cx)
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
    use super::{GuardedStream, WRITE_TIMEOUT};
    use std::io::ErrorKind;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::time::{Instant, sleep};

    #[tokio::test(start_paused = true)]
    async fn write_times_out_if_the_client_reads_nothing() {
        let (near, _far) = duplex(8);
        let began = Instant::now();
        let error = GuardedStream::new(near).write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(began.elapsed(), WRITE_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_reader_does_not_time_out() {
        let (near, mut far) = duplex(8);
        let mut near = GuardedStream::new(near);
        let reader = async {
            for _ in 0..64 {
                sleep(WRITE_TIMEOUT / 2).await;
                far.read_u8().await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(near.write_all(&[0; 64]), reader);
        assert!(written.is_ok());
    }
}
