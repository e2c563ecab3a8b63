//! Request bodies: an idle timeout while they are read, and what happens to the unread rest.
//!
//! A connection can only be reused after the whole request body was read. If the operation does not read all of it, a
//! small rest is discarded; with a larger rest the response closes the connection.

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

use super::{RequestContext, Transfer};
use crate::BoxError;

/// The S3 error code for a body that the client stopped sending.
pub const STALLED: &str = "RequestTimeout";
/// Idle timeout while the server waits for body bytes, as long as other requests find free slots.
const IDLE_MAX: Duration = Duration::from_mins(5);
/// How much of an unread body is discarded before the response, so that the connection can be reused.
const REST: DiscardBound = DiscardBound { bytes: 256 * 1024, time: Duration::from_secs(1) };
/// How much is discarded while a response is sent that closes the connection. Closing it with unread bytes would send a
/// reset, upon which the client's kernel discards the response.
const LINGER: DiscardBound = DiscardBound { bytes: 64 * 1024 * 1024, time: Duration::from_secs(5) };

#[derive(Debug, Clone, Copy)]
struct DiscardBound {
    bytes: u64,
    time: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyProgress {
    Unread,
    Reading,
    Ended,
    Broken,
}

struct SharedBody<B> {
    body: B,
    progress: BodyProgress,
    idle: Option<Pin<Box<Sleep>>>,
    waiting: bool,
    transfer: Arc<Transfer>,
}

/// The body as the operation reads it.
pub struct WatchedBody<B> {
    shared: Arc<Mutex<SharedBody<B>>>,
    context: RequestContext,
}

/// The part of the body that the operation did not read.
pub struct UnreadBody<B> {
    shared: Arc<Mutex<SharedBody<B>>>,
    context: RequestContext,
    expects_continue: bool,
}

/// What happens to the connection after the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionFate {
    /// It stays open for the next request.
    Stays,
    /// It closes after the response.
    Closes,
}

/// Wraps the body of a request; its bytes count in the transfer. `None` for a request without a body.
pub fn watch<B: Body>(
    request: &Parts,
    body: B,
    context: &RequestContext,
    transfer: &Arc<Transfer>,
) -> Option<(WatchedBody<B>, UnreadBody<B>)> {
    if body.is_end_stream() {
        return None;
    }
    let expects_continue =
        request.headers.get(EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    let shared =
        SharedBody { body, progress: BodyProgress::Unread, idle: None, waiting: false, transfer: Arc::clone(transfer) };
    let shared = Arc::new(Mutex::new(shared));
    let watched = WatchedBody { shared: Arc::clone(&shared), context: context.clone() };
    Some((watched, UnreadBody { shared, context: context.clone(), expects_continue }))
}

fn lock<B>(shared: &Mutex<SharedBody<B>>) -> MutexGuard<'_, SharedBody<B>> {
    shared.lock()
}

type BodyItem = Option<Result<Frame<Bytes>, BoxError>>;

impl<B> SharedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    fn poll(&mut self, cx: &mut Context<'_>, context: &RequestContext) -> Poll<BodyItem> {
        self.progress = BodyProgress::Reading;
        let Poll::Ready(item) = Pin::new(&mut self.body).poll_frame(cx) else { return self.poll_idle(cx, context) };
        self.waiting = false;
        let received = |frame: &Frame<Bytes>| frame.data_ref().map_or(0, Bytes::len);
        self.transfer.received(item.as_ref().and_then(|item| item.as_ref().ok()).map_or(0, received));
        match item {
            Some(Ok(_)) => {}
            Some(Err(_)) => self.progress = BodyProgress::Broken,
            None => self.progress = BodyProgress::Ended,
        }
        Poll::Ready(item.map(|frame| frame.map_err(Into::into)))
    }

    /// The timeout runs only while the server polls the body.
    fn poll_idle(&mut self, cx: &mut Context<'_>, context: &RequestContext) -> Poll<BodyItem> {
        let idle = self.idle.get_or_insert_with(|| Box::pin(tokio::time::sleep(IDLE_MAX)));
        if !self.waiting {
            self.waiting = true;
            idle.as_mut().reset(Instant::now() + IDLE_MAX);
        }
        if self.transfer.await_bytes(cx) {
            std::task::ready!(idle.as_mut().poll(cx));
        }
        self.progress = BodyProgress::Broken;
        context.set_body_fault(STALLED);
        Poll::Ready(Some(Err("the client stopped sending its body".into())))
    }
}

impl<B> Body for WatchedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<BodyItem> {
        lock(&self.shared).poll(cx, &self.context)
    }

    fn is_end_stream(&self) -> bool {
        lock(&self.shared).body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        lock(&self.shared).body.size_hint()
    }
}

impl<B> UnreadBody<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    /// Discards a small rest; the connection closes if more is missing.
    pub async fn settle(self) -> ConnectionFate {
        match self.progress() {
            BodyProgress::Ended => return ConnectionFate::Stays,
            BodyProgress::Broken => return ConnectionFate::Closes,
            // Reading would send `100 Continue` to a client that has not sent its body yet.
            BodyProgress::Unread if self.expects_continue => return ConnectionFate::Closes,
            BodyProgress::Unread | BodyProgress::Reading => {}
        }
        let is_small = lock(&self.shared).body.size_hint().lower() <= REST.bytes;
        if is_small && self.discard(REST).await {
            return ConnectionFate::Stays;
        }
        tokio::spawn(async move { self.discard(LINGER).await });
        ConnectionFate::Closes
    }

    /// Reads nothing before the response: the connection closes after it unless the body ended already. A background
    /// task discards bytes that still arrive, so that the client can read the response.
    #[must_use]
    pub fn abandon(self) -> ConnectionFate {
        match self.progress() {
            BodyProgress::Ended => ConnectionFate::Stays,
            BodyProgress::Broken => ConnectionFate::Closes,
            BodyProgress::Unread if self.expects_continue => ConnectionFate::Closes,
            BodyProgress::Unread | BodyProgress::Reading => {
                tokio::spawn(async move { self.discard(LINGER).await });
                ConnectionFate::Closes
            }
        }
    }

    fn progress(&self) -> BodyProgress {
        let shared = lock(&self.shared);
        if shared.body.is_end_stream() { BodyProgress::Ended } else { shared.progress }
    }

    /// Reads the body and discards it; true if it ended within the bound.
    async fn discard(&self, bound: DiscardBound) -> bool {
        let reading = async {
            let mut bytes = 0;
            while bytes <= bound.bytes {
                match std::future::poll_fn(|cx| lock(&self.shared).poll(cx, &self.context)).await {
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
mod tests;
