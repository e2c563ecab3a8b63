//! Bodies of requests and responses, whose bytes are counted as they are transferred.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures_util::StreamExt;
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use parking_lot::Mutex;

use crate::usage::MonthCounters;
use crate::{BodyError, ByteStream, body};

/// The body of a request.
pub(super) type OutgoingBody = CountedBody<UnsyncBoxBody<Bytes, BodyError>>;
/// Counts the bytes that the store sends.
pub(super) type StoreResponseBody = CountedBody<Incoming>;
/// The error of the request body, if it failed.
pub(super) type BodyFault = Arc<Mutex<Option<BodyError>>>;

/// Counts the bytes that pass.
#[derive(Debug)]
pub(super) struct CountedBody<B> {
    inner: B,
    counters: Option<Arc<MonthCounters>>,
    /// Which of the counters grows.
    add: fn(&MonthCounters, usize),
}

impl<B: Body<Data = Bytes> + Unpin> Body for CountedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        if let (Some(Ok(frame)), Some(counters)) = (&frame, &self.counters) {
            (self.add)(counters, frame.data_ref().map_or(0, Buf::remaining));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl OutgoingBody {
    /// A body of bytes that are known in advance.
    pub(super) fn known(bytes: Bytes) -> Self {
        Self::uncounted(Full::new(bytes).map_err(|never| match never {}).boxed_unsync())
    }

    /// A stream of known length. Its error is stored in `fault`.
    pub(super) fn stream(size_bytes: u64, body: ByteStream, fault: &BodyFault) -> Self {
        let fault = Arc::clone(fault);
        let frames = body::exactly(body, size_bytes).map(move |chunk| match chunk {
            Ok(chunk) => Ok(Frame::data(chunk)),
            Err(error) => {
                *fault.lock() = Some(error.clone());
                Err(error)
            }
        });
        Self::uncounted(StreamBody::new(frames).boxed_unsync())
    }

    fn uncounted(inner: UnsyncBoxBody<Bytes, BodyError>) -> Self {
        Self { inner, counters: None, add: MonthCounters::add_sent }
    }

    /// Counts the bytes as they are sent.
    pub(super) fn counted(self, counters: Option<Arc<MonthCounters>>) -> Self {
        Self { counters, ..self }
    }
}

impl StoreResponseBody {
    /// Counts the bytes as they arrive.
    pub(super) fn received(inner: Incoming, counters: Option<Arc<MonthCounters>>) -> Self {
        Self { inner, counters, add: MonthCounters::add_received }
    }
}
