//! Measures the transfer rate of each request over the last minute and ends slow transfers.
//!
//! Only time in which the server waits for the client counts: a transfer that waits for a backend is not slow.

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use slab::Slab;
use tokio::time::Instant;

use crate::listener::ConnectionHandle;

/// The time over which the rate of a transfer is averaged. A younger transfer is never ended for being slow.
pub(super) const WINDOW: Duration = Duration::from_mins(1);
/// A transfer that the client kept waiting for less than this within the window is not slow.
const WAITED_MIN: Duration = Duration::from_secs(30);
/// The window moves in steps of this length.
const STEP: Duration = Duration::from_secs(10);
/// The steps of a window, and the current one.
const STEPS: usize = 7;

/// What the server waits for from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AwaitedFromClient {
    RequestBytes,
    ResponseRead,
}

/// The transfer of one request, in both directions.
pub struct Transfer {
    state: Mutex<TransferState>,
    connection: Option<ConnectionHandle>,
}

struct TransferState {
    began: Instant,
    steps: [Step; STEPS],
    step_ends: Instant,
    /// Up to when waiting was credited.
    credited: Instant,
    awaited: Option<AwaitedFromClient>,
    ended: bool,
    reader: Option<Waker>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Step {
    bytes: u64,
    waited: Duration,
}

impl Transfer {
    /// `connection` is closed if the transfer is ended while the client reads the response.
    #[must_use]
    pub fn new(connection: Option<ConnectionHandle>) -> Arc<Self> {
        let now = Instant::now();
        let state = TransferState {
            began: now,
            steps: [Step::default(); STEPS],
            step_ends: now + STEP,
            credited: now,
            awaited: None,
            ended: false,
            reader: None,
        };
        Arc::new(Self { state: Mutex::new(state), connection })
    }

    /// The connection of the request.
    #[must_use]
    pub fn connection(&self) -> Option<&ConnectionHandle> {
        self.connection.as_ref()
    }

    /// Counts received bytes of the request body.
    pub(super) fn received(&self, bytes: usize) {
        self.lock().moved(bytes, None);
    }

    /// Counts response bytes that were passed to the connection, which polls for more when the client has read them.
    pub(super) fn sent(&self, bytes: usize) {
        self.lock().moved(bytes, Some(AwaitedFromClient::ResponseRead));
    }

    /// Records that the server waits for request bytes; false if the transfer was ended. [`Self::end`] wakes the task.
    pub(super) fn await_bytes(&self, cx: &Context<'_>) -> bool {
        let mut state = self.lock();
        state.advance(Instant::now());
        state.awaited = Some(AwaitedFromClient::RequestBytes);
        state.reader = Some(cx.waker().clone());
        !state.ended
    }

    /// Records that the server does not wait for the client.
    pub(super) fn await_nothing(&self) {
        let mut state = self.lock();
        if state.awaited.is_some() {
            state.advance(Instant::now());
            state.awaited = None;
        }
    }

    /// The rate in bytes per second, if the transfer may be ended for being slower than `rate_min`.
    fn slow_rate(&self, rate_min: u64) -> Option<u64> {
        let mut state = self.lock();
        let now = Instant::now();
        state.advance(now);
        let is_judged = !state.ended && state.awaited.is_some() && now.duration_since(state.began) >= WINDOW;
        let waited: Duration = state.steps.iter().map(|step| step.waited).sum();
        if !is_judged || waited < WAITED_MIN {
            return None;
        }
        let bytes: u64 = state.steps.iter().map(|step| step.bytes).sum();
        let rate = u128::from(bytes) * 1000 / waited.as_millis().max(1);
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        (rate < rate_min).then_some(rate)
    }

    /// Ends the transfer: an upload fails with `RequestTimeout`, a download loses its connection.
    fn end(&self) {
        let mut state = self.lock();
        // The transfer may have made progress since its rate was computed.
        let Some(awaited) = state.awaited else { return };
        state.ended = true;
        match awaited {
            AwaitedFromClient::ResponseRead => self.connection.iter().for_each(ConnectionHandle::end),
            AwaitedFromClient::RequestBytes => state.reader.take().into_iter().for_each(Waker::wake),
        }
    }

    fn lock(&self) -> MutexGuard<'_, TransferState> {
        self.state.lock()
    }
}

impl TransferState {
    fn moved(&mut self, bytes: usize, awaited: Option<AwaitedFromClient>) {
        self.advance(Instant::now());
        self.steps[0].bytes += bytes as u64;
        self.awaited = awaited;
    }

    /// Moves the window up to now and credits the time spent waiting.
    fn advance(&mut self, now: Instant) {
        while self.step_ends <= now {
            self.credit(self.step_ends);
            self.steps.rotate_right(1);
            self.steps[0] = Step::default();
            self.step_ends += STEP;
        }
        self.credit(now);
    }

    fn credit(&mut self, until: Instant) {
        if self.awaited.is_some() {
            self.steps[0].waited += until.saturating_duration_since(self.credited);
        }
        self.credited = until;
    }
}

/// The transfers of all requests that hold a slot, by registration number.
#[derive(Default)]
pub(super) struct Transfers(Mutex<Slab<Arc<Transfer>>>);

/// A registered transfer; dropping it removes it from the list.
pub(super) struct Registered {
    position: usize,
    transfers: Arc<Transfers>,
}

impl Transfers {
    pub(super) fn register(self: &Arc<Self>, transfer: &Arc<Transfer>) -> Registered {
        let position = self.0.lock().insert(Arc::clone(transfer));
        Registered { position, transfers: Arc::clone(self) }
    }

    /// Ends the slowest transfer below the minimum rate; false if none is.
    pub(super) fn end_slowest(&self, rate_min: u64) -> bool {
        let slowest = {
            let listed = self.0.lock();
            let slow = listed.iter().filter_map(|(_, transfer)| Some((transfer.slow_rate(rate_min)?, transfer)));
            slow.min_by_key(|(rate, _)| *rate).map(|(rate, transfer)| (rate, Arc::clone(transfer)))
        };
        let Some((rate, transfer)) = slowest else { return false };
        tracing::info!(
            bytes_per_second = rate,
            min_transfer_rate = rate_min,
            "slow transfer ended, all request slots are in use"
        );
        transfer.end();
        true
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.transfers.0.lock().remove(self.position);
    }
}

#[cfg(test)]
mod tests {
    use super::{Transfer, Transfers, WINDOW};
    use std::sync::Arc;
    use std::task::{Context, Waker};
    use std::time::Duration;
    use tokio::time::advance;

    const KIB: u64 = 1024;

    fn context() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }

    /// Receives `bytes` each second for `seconds`.
    async fn trickle(transfer: &Transfer, bytes: usize, seconds: u64) {
        for _ in 0..seconds {
            transfer.await_bytes(&context());
            advance(Duration::from_secs(1)).await;
            transfer.received(bytes);
        }
        transfer.await_bytes(&context());
    }

    #[tokio::test(start_paused = true)]
    async fn rate_is_checked_after_a_minute() {
        let transfer = Transfer::new(None);
        trickle(&transfer, 100, 59).await;
        assert_eq!(transfer.slow_rate(KIB), None, "too young");
        trickle(&transfer, 100, 1).await;
        assert_eq!(transfer.slow_rate(KIB), Some(100));
        assert_eq!(transfer.slow_rate(100), None, "at the minimum it is fast enough");
        trickle(&transfer, 10_000, 60).await;
        assert_eq!(transfer.slow_rate(KIB), None, "the last minute counts");
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_for_a_backend_does_not_make_a_transfer_slow() {
        let transfer = Transfer::new(None);
        transfer.received(1);
        advance(WINDOW * 3).await;
        assert_eq!(transfer.slow_rate(KIB), None, "nothing was awaited");
        transfer.await_bytes(&context());
        advance(Duration::from_secs(20)).await;
        assert_eq!(transfer.slow_rate(KIB), None, "a wait of 20 s in the last minute");
        advance(Duration::from_secs(20)).await;
        assert_eq!(transfer.slow_rate(KIB), Some(0));
        transfer.await_nothing();
        assert_eq!(transfer.slow_rate(KIB), None, "not waiting now");
    }

    #[tokio::test(start_paused = true)]
    async fn unread_response_is_slow() {
        let transfer = Transfer::new(None);
        transfer.sent(6000);
        advance(WINDOW).await;
        assert_eq!(transfer.slow_rate(KIB), Some(100));
    }

    #[tokio::test(start_paused = true)]
    async fn slowest_transfer_is_ended_first_and_once() {
        let transfers = Arc::new(Transfers::default());
        let (slow, slower) = (Transfer::new(None), Transfer::new(None));
        let _listed = [transfers.register(&slow), transfers.register(&slower)];
        slow.await_bytes(&context());
        slower.await_bytes(&context());
        advance(WINDOW).await;
        slow.received(6000);
        slow.await_bytes(&context());
        assert!(transfers.end_slowest(KIB));
        assert!(!slower.await_bytes(&context()), "it was ended");
        assert!(slow.await_bytes(&context()), "it was not");
        assert!(transfers.end_slowest(KIB));
        assert!(!slow.await_bytes(&context()));
        assert!(!transfers.end_slowest(KIB), "nothing is left to end");
    }
}
