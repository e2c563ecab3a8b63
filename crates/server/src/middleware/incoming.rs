//! A request's body on its way in: no longer waited for than is fair, and accounted for to its end.
//!
//! A connection carries its next request only behind the whole body of this one. Where an answer
//! does not need all of a body, what little is left is read away; more than that, and the client is
//! told that the connection ends here.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::EXPECT;
use http::request::Parts;
use http_body::{Body, Frame, SizeHint};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Instant, Sleep};

use super::{RequestNotes, Transfer};
use crate::BoxError;

/// The S3 code for a body that nobody goes on sending.
pub const STALLED: &str = "RequestTimeout";
/// How long a client may go without sending a byte of its body, as long as there are request slots for others.
const IDLE_MAX: Duration = Duration::from_mins(5);
/// How much of an unread body is read away before the answer, and for how long, so that the
/// connection can be used again.
const REST: Bound = Bound { bytes: 256 * 1024, time: Duration::from_secs(1) };
/// How much is read away beside an answer that ends the connection: closing it upon bytes that
/// were not read would make the client's system forget the answer.
const LINGER: Bound = Bound { bytes: 64 * 1024 * 1024, time: Duration::from_secs(5) };

#[derive(Debug, Clone, Copy)]
struct Bound {
    bytes: u64,
    time: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Unasked,
    Asked,
    Ended,
    Broken,
}

struct Shared<B> {
    body: B,
    progress: Progress,
    idle: Option<Pin<Box<Sleep>>>,
    waiting: bool,
    transfer: Arc<Transfer>,
}

/// The body, for whoever answers the request.
pub struct Watched<B> {
    shared: Arc<Mutex<Shared<B>>>,
    notes: RequestNotes,
}

/// What the answer left unread.
pub struct Rest<B> {
    shared: Arc<Mutex<Shared<B>>>,
    notes: RequestNotes,
    waits_to_be_asked: bool,
}

/// Whether a connection can carry another request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connection {
    /// It can.
    Stays,
    /// It ends with this answer.
    Ends,
}

/// Watches the body of a request and counts its bytes in the transfer.
pub fn watch<B>(request: &Parts, body: B, notes: &RequestNotes, transfer: &Arc<Transfer>) -> (Watched<B>, Rest<B>) {
    let waits_to_be_asked =
        request.headers.get(EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    let shared =
        Shared { body, progress: Progress::Unasked, idle: None, waiting: false, transfer: Arc::clone(transfer) };
    let shared = Arc::new(Mutex::new(shared));
    let watched = Watched { shared: Arc::clone(&shared), notes: notes.clone() };
    (watched, Rest { shared, notes: notes.clone(), waits_to_be_asked })
}

fn lock<B>(shared: &Mutex<Shared<B>>) -> MutexGuard<'_, Shared<B>> {
    shared.lock()
}

type Item = Option<Result<Frame<Bytes>, BoxError>>;

impl<B> Shared<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    fn poll(&mut self, cx: &mut Context<'_>, notes: &RequestNotes) -> Poll<Item> {
        self.progress = Progress::Asked;
        let Poll::Ready(item) = Pin::new(&mut self.body).poll_frame(cx) else { return self.poll_idle(cx, notes) };
        self.waiting = false;
        let received = |frame: &Frame<Bytes>| frame.data_ref().map_or(0, Bytes::len);
        self.transfer.received(item.as_ref().and_then(|item| item.as_ref().ok()).map_or(0, received));
        match item {
            Some(Ok(_)) => {}
            Some(Err(_)) => self.progress = Progress::Broken,
            None => self.progress = Progress::Ended,
        }
        Poll::Ready(item.map(|frame| frame.map_err(Into::into)))
    }

    /// Time counts only while someone waits for the client, not while nobody wants its bytes.
    fn poll_idle(&mut self, cx: &mut Context<'_>, notes: &RequestNotes) -> Poll<Item> {
        let idle = self.idle.get_or_insert_with(|| Box::pin(tokio::time::sleep(IDLE_MAX)));
        if !self.waiting {
            self.waiting = true;
            idle.as_mut().reset(Instant::now() + IDLE_MAX);
        }
        if self.transfer.await_bytes(cx) {
            std::task::ready!(idle.as_mut().poll(cx));
        }
        self.progress = Progress::Broken;
        notes.set_body_fault(STALLED);
        Poll::Ready(Some(Err("the client stopped sending its body".into())))
    }
}

impl<B> Body for Watched<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Item> {
        lock(&self.shared).poll(cx, &self.notes)
    }

    fn is_end_stream(&self) -> bool {
        lock(&self.shared).body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        lock(&self.shared).body.size_hint()
    }
}

impl<B> Rest<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    /// Brings the body to its end if little is missing; otherwise the connection ends.
    pub async fn settle(self) -> Connection {
        match self.progress() {
            Progress::Ended => return Connection::Stays,
            Progress::Broken => return Connection::Ends,
            // Reading would ask a client that still waits for its body after all.
            Progress::Unasked if self.waits_to_be_asked => return Connection::Ends,
            Progress::Unasked | Progress::Asked => {}
        }
        let little = lock(&self.shared).body.size_hint().lower() <= REST.bytes;
        if little && self.read_away(REST).await {
            return Connection::Stays;
        }
        tokio::spawn(async move { self.read_away(LINGER).await });
        Connection::Ends
    }

    /// Reads nothing before the answer: the connection ends with it unless the body ended already. What still arrives
    /// is discarded beside the answer, so that the client gets to read it.
    #[must_use]
    pub fn abandon(self) -> Connection {
        match self.progress() {
            Progress::Ended => Connection::Stays,
            Progress::Broken => Connection::Ends,
            Progress::Unasked if self.waits_to_be_asked => Connection::Ends,
            Progress::Unasked | Progress::Asked => {
                tokio::spawn(async move { self.read_away(LINGER).await });
                Connection::Ends
            }
        }
    }

    fn progress(&self) -> Progress {
        let shared = lock(&self.shared);
        if shared.body.is_end_stream() { Progress::Ended } else { shared.progress }
    }

    /// Whether the body ended within the bound.
    async fn read_away(&self, bound: Bound) -> bool {
        let reading = async {
            let mut bytes = 0;
            while bytes <= bound.bytes {
                match std::future::poll_fn(|cx| lock(&self.shared).poll(cx, &self.notes)).await {
                    Some(Ok(frame)) => bytes += frame.data_ref().map_or(0, |data| data.len() as u64),
                    Some(Err(_)) => return false,
                    None => return true,
                }
            }
            false
        };
        tokio::time::timeout(bound.time, reading).await.unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::{Connection, IDLE_MAX, Rest, STALLED, Watched};
    use crate::middleware::{RequestNotes, Transfer};
    use bytes::Bytes;
    use futures_util::{StreamExt as _, stream};
    use http::Request;
    use http::request::Parts;
    use http_body::Frame;
    use http_body_util::{BodyExt as _, Full, StreamBody};
    use std::convert::Infallible;
    use std::time::Duration;
    use tokio::time::Instant;

    type Piece = Result<Frame<Bytes>, Infallible>;

    fn parts() -> Parts {
        Request::put("/b/k").body(()).unwrap().into_parts().0
    }

    fn notes() -> RequestNotes {
        RequestNotes::new("id".into())
    }

    fn watch<B>(parts: &Parts, body: B, notes: &RequestNotes) -> (Watched<B>, Rest<B>) {
        super::watch(parts, body, notes, &Transfer::new(None))
    }

    #[expect(clippy::unnecessary_wraps, reason = "streams of bodies take results")]
    fn piece(length: usize) -> Piece {
        Ok(Frame::data(Bytes::from(vec![0; length])))
    }

    /// Pieces that arrive one by one, then silence.
    fn then_silence(pieces: usize, pause: Duration) -> impl http_body::Body<Data = Bytes, Error = Infallible> + Unpin {
        let arriving = stream::iter(0..pieces).then(move |_| async move {
            tokio::time::sleep(pause).await;
            piece(1)
        });
        StreamBody::new(Box::pin(arriving.chain(stream::pending())))
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stalls_breaks_off() {
        let notes = notes();
        let began = Instant::now();
        let (body, rest) = watch(&parts(), then_silence(3, IDLE_MAX / 2), &notes);
        assert!(body.collect().await.is_err());
        assert_eq!(began.elapsed(), IDLE_MAX / 2 * 3 + IDLE_MAX);
        assert_eq!(notes.body_fault(), Some(STALLED));
        assert_eq!(rest.settle().await, Connection::Ends);
        assert_eq!(began.elapsed(), IDLE_MAX / 2 * 3 + IDLE_MAX, "nobody waits for it again");
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_nobody_reads_does_not_count() {
        let notes = notes();
        let (mut body, _rest) = watch(&parts(), then_silence(2, IDLE_MAX / 2), &notes);
        for _ in 0..2 {
            assert!(body.frame().await.unwrap().is_ok());
            tokio::time::sleep(IDLE_MAX * 2).await;
        }
        assert_eq!(notes.body_fault(), None);
    }

    #[tokio::test]
    async fn a_body_that_was_read_keeps_the_connection() {
        let (body, rest) = watch(&parts(), Full::new(Bytes::from_static(b"body")), &notes());
        assert_eq!(body.collect().await.unwrap().to_bytes(), "body");
        assert_eq!(rest.settle().await, Connection::Stays);
    }

    #[tokio::test]
    async fn a_small_rest_is_read_away() {
        let (body, rest) = watch(&parts(), StreamBody::new(stream::iter([piece(5), piece(100_000)])), &notes());
        drop(body);
        assert_eq!(rest.settle().await, Connection::Stays);
    }

    #[tokio::test]
    async fn a_large_rest_ends_the_connection() {
        let (body, rest) = watch(&parts(), Full::new(Bytes::from(vec![0; 300_000])), &notes());
        drop(body);
        assert_eq!(rest.settle().await, Connection::Ends);
        let pieces = stream::iter((0..10).map(|_| piece(100_000)));
        let (body, rest) = watch(&parts(), StreamBody::new(pieces), &notes());
        drop(body);
        assert_eq!(rest.settle().await, Connection::Ends);
    }

    #[tokio::test(start_paused = true)]
    async fn a_rest_that_does_not_come_ends_the_connection() {
        let (body, rest) = watch(&parts(), then_silence(1, Duration::ZERO), &notes());
        drop(body);
        let began = Instant::now();
        assert_eq!(rest.settle().await, Connection::Ends);
        assert_eq!(began.elapsed(), Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn abandoned_body_delays_no_answer() {
        let (body, rest) = watch(&parts(), then_silence(1, Duration::ZERO), &notes());
        drop(body);
        let began = Instant::now();
        assert_eq!(rest.abandon(), Connection::Ends);
        assert_eq!(began.elapsed(), Duration::ZERO);
        let (body, rest) = watch(&parts(), Full::new(Bytes::new()), &notes());
        drop(body);
        assert_eq!(rest.abandon(), Connection::Stays);
    }

    #[tokio::test]
    async fn a_client_that_waits_to_be_asked_is_not_asked_for_the_rest() {
        let expecting = Request::put("/b/k").header("expect", "100-continue").body(()).unwrap().into_parts().0;
        let never = StreamBody::new(stream::poll_fn(|_| -> std::task::Poll<Option<Piece>> { panic!("asked") }));
        let (body, rest) = watch(&expecting, never, &notes());
        drop(body);
        assert_eq!(rest.settle().await, Connection::Ends);
    }
}
