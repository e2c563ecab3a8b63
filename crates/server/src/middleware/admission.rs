//! Request slots: limit how many requests are processed at a time.
//!
//! A request takes a slot after its signature was verified and access is granted, before its body is read. Requests
//! without a valid signature never take one; they have a small budget of their own and their bodies are not read.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use s3o_workers::{Budget, RequestGuard};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::transfer::{Registered, Transfer, Transfers};

/// How many requests without a valid signature are processed at a time.
const UNAUTHENTICATED_MAX: usize = 64;
/// How long a request waits for the slot of a transfer that was ended to free one.
const ENDED_SLOT_WAIT_MAX: Duration = Duration::from_secs(2);

/// The slots; clones share them. Requests also count in the budget that limits background work.
#[derive(Clone)]
pub struct Admission(Arc<AdmissionState>);

struct AdmissionState {
    slots: Arc<Semaphore>,
    unauthenticated: Arc<Semaphore>,
    budget: Arc<Budget>,
    transfers: Arc<Transfers>,
    min_transfer_rate: u64,
}

/// A taken slot; dropping it frees it.
pub struct Admitted {
    transfer: Arc<Transfer>,
    _registered: Registered,
    _slot: OwnedSemaphorePermit,
    _counted: RequestGuard,
}

/// Allows one request to take a slot. The S3 service puts it into the extensions of the request.
#[derive(Clone)]
pub struct SlotTicket(Arc<TicketState>);

struct TicketState {
    admission: Admission,
    transfer: Arc<Transfer>,
    slot: Mutex<Option<Admitted>>,
}

impl Admission {
    /// When all `requests_max` slots are taken, transfers below `min_transfer_rate` bytes per second are ended.
    #[must_use]
    pub fn new(requests_max: usize, min_transfer_rate: u64, budget: Arc<Budget>) -> Self {
        Self(Arc::new(AdmissionState {
            slots: Arc::new(Semaphore::new(requests_max.min(Semaphore::MAX_PERMITS))),
            unauthenticated: Arc::new(Semaphore::new(UNAUTHENTICATED_MAX)),
            budget,
            transfers: Arc::default(),
            min_transfer_rate,
        }))
    }

    /// A ticket for one request, not yet redeemed.
    #[must_use]
    pub fn ticket(&self, transfer: &Arc<Transfer>) -> SlotTicket {
        let transfer = Arc::clone(transfer);
        SlotTicket(Arc::new(TicketState { admission: self.clone(), transfer, slot: Mutex::default() }))
    }

    /// A permit from the budget of requests without a valid signature; `None` if the budget is used up.
    #[must_use]
    pub fn admit_unauthenticated(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0.unauthenticated).try_acquire_owned().ok()
    }

    /// Takes a slot if one is free or can be freed by ending a slow transfer. Requests do not queue otherwise: a queue
    /// would only prolong overload.
    async fn admit(&self, transfer: &Arc<Transfer>) -> Option<Admitted> {
        let slot = match Arc::clone(&self.0.slots).try_acquire_owned() {
            Ok(slot) => slot,
            Err(_) => self.take_over_slot().await?,
        };
        let registered = self.0.transfers.register(transfer);
        let transfer = Arc::clone(transfer);
        Some(Admitted { transfer, _registered: registered, _slot: slot, _counted: self.0.budget.request() })
    }

    async fn take_over_slot(&self) -> Option<OwnedSemaphorePermit> {
        if !self.0.transfers.end_slowest(self.0.min_transfer_rate) {
            return None;
        }
        let freed = Arc::clone(&self.0.slots).acquire_owned();
        tokio::time::timeout(ENDED_SLOT_WAIT_MAX, freed).await.ok()?.ok()
    }
}

impl SlotTicket {
    /// Takes the slot; false if there is none.
    pub async fn redeem(&self) -> bool {
        if let Some(connection) = self.0.transfer.connection() {
            connection.mark_authenticated();
        }
        let Some(admitted) = self.0.admission.admit(&self.0.transfer).await else { return false };
        *self.0.slot.lock() = Some(admitted);
        true
    }

    /// The slot, if it was taken.
    #[must_use]
    pub fn into_slot(self) -> Option<Admitted> {
        self.0.slot.lock().take()
    }
}

/// A response body that holds a guard until all of it was sent or the connection is closed.
pub struct GuardedBody<B, G> {
    body: B,
    _guard: G,
}

impl<B, G> GuardedBody<B, G> {
    /// Drops `guard` together with the body.
    pub fn new(body: B, guard: G) -> Self {
        Self { body, _guard: guard }
    }
}

impl<B: Body + Unpin, G: Unpin> Body for GuardedBody<B, G> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A response body that holds the slot of its request until all of it was sent, and counts the sent bytes.
pub struct MeteredBody<B> {
    body: B,
    slot: Option<Admitted>,
}

impl<B> MeteredBody<B> {
    /// `slot` is `None` if the request was refused before it took one; such a body is not counted.
    pub fn new(body: B, slot: Option<Admitted>) -> Self {
        Self { body, slot }
    }
}

impl<B: Body + Unpin> Body for MeteredBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Some(slot) = &self.slot {
            match &polled {
                Poll::Ready(Some(Ok(frame))) => slot.transfer.sent(frame.data_ref().map_or(0, Buf::remaining)),
                Poll::Ready(_) | Poll::Pending => slot.transfer.await_nothing(),
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::super::transfer::WINDOW;
    use super::{Admission, MeteredBody, Transfer};
    use bytes::Bytes;
    use http_body_util::{BodyExt as _, Full};
    use s3o_workers::Budget;
    use std::task::{Context, Waker};
    use std::time::Duration;

    fn admission(requests_max: usize) -> Admission {
        Admission::new(requests_max, 1024, Budget::new(1))
    }

    #[tokio::test]
    async fn slot_is_held_until_the_response_is_sent() {
        let admission = admission(1);
        let ticket = admission.ticket(&Transfer::new(None));
        assert!(ticket.redeem().await);
        let response = MeteredBody::new(Full::new(Bytes::from_static(b"answer")), ticket.into_slot());
        assert!(!admission.ticket(&Transfer::new(None)).redeem().await);
        drop(response);
        assert!(admission.ticket(&Transfer::new(None)).redeem().await);
    }

    #[tokio::test]
    async fn ticket_that_is_not_redeemed_takes_no_slot() {
        let admission = admission(1);
        assert!(admission.ticket(&Transfer::new(None)).into_slot().is_none());
        assert!(admission.ticket(&Transfer::new(None)).redeem().await);
    }

    #[tokio::test]
    async fn extreme_slot_limits_work() {
        assert!(admission(usize::MAX).ticket(&Transfer::new(None)).redeem().await);
        assert!(!admission(0).ticket(&Transfer::new(None)).redeem().await);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_transfer_is_ended_when_all_slots_are_taken() {
        let admission = admission(1);
        let slow = Transfer::new(None);
        let ticket = admission.ticket(&slow);
        assert!(ticket.redeem().await);
        slow.await_bytes(&Context::from_waker(Waker::noop()));
        assert!(!admission.ticket(&Transfer::new(None)).redeem().await, "too young to be slow");
        tokio::time::advance(WINDOW).await;
        let other = admission.ticket(&Transfer::new(None));
        let fails = async {
            while slow.await_bytes(&Context::from_waker(Waker::noop())) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            drop(ticket.into_slot());
        };
        let (admitted, ()) = tokio::join!(other.redeem(), fails);
        assert!(admitted);
    }

    #[tokio::test(start_paused = true)]
    async fn reading_a_response_counts_its_bytes() {
        let admission = admission(1);
        let transfer = Transfer::new(None);
        let ticket = admission.ticket(&transfer);
        assert!(ticket.redeem().await);
        let mut response = MeteredBody::new(Full::new(Bytes::from(vec![0; 120_000])), ticket.into_slot());
        response.frame().await.unwrap().unwrap();
        tokio::time::advance(WINDOW).await;
        assert!(!admission.ticket(&Transfer::new(None)).redeem().await, "2 kB a second is fast enough");
        tokio::time::advance(WINDOW * 2).await;
        assert!(admission.0.transfers.end_slowest(1024), "nothing was read for two minutes");
    }

    #[tokio::test]
    async fn unauthenticated_requests_take_no_slots() {
        let admission = admission(1);
        let held: Vec<_> = std::iter::from_fn(|| admission.admit_unauthenticated()).collect();
        assert_eq!(held.len(), super::UNAUTHENTICATED_MAX);
        assert!(admission.ticket(&Transfer::new(None)).redeem().await);
    }
}
