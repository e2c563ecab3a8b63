//! The body of a trial write. A client that sends slowly must not keep the other writers waiting: once the trial has
//! waited for its client for a second in total, another write may become the trial. If this one succeeds later, it
//! still closes the circuit.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use s3o_model::circuit::{CallResult, Permit};
use tokio::time::{Instant, timeout};

use crate::ByteStream;
use crate::fleet::{CallKind, Circuits};

/// How long a trial waits for its client, in total.
const CLIENT_WAIT_MAX: Duration = Duration::from_secs(1);

/// Passes the body on, and ends the trial when the client is slow.
pub(super) fn yielding(body: ByteStream, circuits: Arc<Circuits>, trial: Permit) -> ByteStream {
    let start = (body, Some(CLIENT_WAIT_MAX));
    Box::pin(stream::unfold(start, move |(mut body, left)| {
        let circuits = Arc::clone(&circuits);
        async move {
            let asked = Instant::now();
            let in_time = match left {
                None => Some(body.next().await),
                Some(left) => timeout(left, body.next()).await.ok(),
            };
            let chunk = if let Some(chunk) = in_time {
                chunk
            } else {
                circuits.record(CallKind::Write, trial, CallResult::Neutral);
                body.next().await
            };
            let left = left.and_then(|left| left.checked_sub(asked.elapsed()));
            chunk.map(|chunk| (chunk, (body, left)))
        }
    }))
}
