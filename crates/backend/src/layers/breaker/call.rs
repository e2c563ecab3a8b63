//! A call through the circuit breaker, and the body that a read returned. Both record their result once.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use s3o_model::circuit::{CallResult, Permit};

use crate::fleet::{CallKind, Circuits};
use crate::{BodyError, ByteStream};

/// A call in progress. If it is dropped without a result, its caller disconnected.
pub(super) struct Call {
    pub(super) circuits: Arc<Circuits>,
    pub(super) kind: CallKind,
    pub(super) permit: Option<Permit>,
    /// Fingerprint of the key whose body is read.
    pub(super) read_key: Option<u64>,
}

impl Call {
    pub(super) fn record(&mut self, result: CallResult) {
        let Some(permit) = self.permit.take() else { return };
        match (result, self.read_key) {
            (CallResult::Failure, Some(key)) => self.circuits.record_failed_read(permit, key),
            (result, _) => self.circuits.record(self.kind, permit, result),
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.record(CallResult::Neutral);
    }
}

/// A body whose end is recorded: success once all bytes arrived, failure if the store cuts it off.
pub(super) struct RecordedBody {
    pub(super) body: ByteStream,
    pub(super) call: Call,
    /// Bytes that are still to come; `None` if only the end of the body tells.
    pub(super) left_bytes: Option<u64>,
}

impl Stream for RecordedBody {
    type Item = Result<Bytes, BodyError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let item = ready!(self.body.poll_next_unpin(context));
        match &item {
            Some(Ok(chunk)) => {
                self.left_bytes = self.left_bytes.map(|left| left.saturating_sub(chunk.len() as u64));
                if self.left_bytes == Some(0) {
                    self.call.record(CallResult::Success);
                }
            }
            Some(Err(_)) => self.call.record(CallResult::Failure),
            None => self.call.record(CallResult::Success),
        }
        Poll::Ready(item)
    }
}
