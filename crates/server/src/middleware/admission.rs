//! Request slots: how many requests are answered at a time.
//!
//! A request takes a slot once its signature was verified and access is granted, before its body is read. Requests
//! without a valid signature never take one; they have a small budget of their own and are answered from their head alone.

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

/// How many requests without a valid signature are answered at a time.
const UNAUTHENTICATED_MAX: usize = 64;
/// How long a request waits for the slot of a transfer that was ended to make way for it.
const ENDED_SLOT_WAIT_MAX: Duration = Duration::from_secs(2);

/// The slots; clones share them. Requests also count in the budget that background work yields to.
#[derive(Clone)]
pub struct Admission {
    slots: Arc<Semaphore>,
    unauthenticated: Arc<Semaphore>,
    budget: Arc<Budget>,
    transfers: Arc<Transfers>,
    min_transfer_rate: u64,
}

/// A slot that a request holds until it is dropped.
pub struct Admitted {
    transfer: Arc<Transfer>,
    _registered: Registered,
    _slot: OwnedSemaphorePermit,
    _counted: RequestGuard,
}

/// Lets one request take its slot; it travels in the extensions of the request.
#[derive(Clone)]
pub struct SlotTicket {
    admission: Admission,
    transfer: Arc<Transfer>,
    slot: Arc<Mutex<Option<Admitted>>>,
}

impl Admission {
    /// Slots for this many requests. When all are taken, transfers below this rate, in bytes per second, are ended.
    #[must_use]
    pub fn new(requests_max: usize, min_transfer_rate: u64, budget: Arc<Budget>) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(requests_max.min(Semaphore::MAX_PERMITS))),
            unauthenticated: Arc::new(Semaphore::new(UNAUTHENTICATED_MAX)),
            budget,
            transfers: Arc::default(),
            min_transfer_rate,
        }
    }

    /// The ticket of a request with this transfer.
    #[must_use]
    pub fn ticket(&self, transfer: &Arc<Transfer>) -> SlotTicket {
        SlotTicket { admission: self.clone(), transfer: Arc::clone(transfer), slot: Arc::default() }
    }

    /// A place in the budget of requests without a valid signature; `None` if it is used up.
    #[must_use]
    pub fn admit_unauthenticated(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.unauthenticated).try_acquire_owned().ok()
    }

    /// A slot, if one is free or can be freed by ending a slow transfer. Other requests do not queue: a queue only makes
    /// overload last.
    async fn admit(&self, transfer: &Arc<Transfer>) -> Option<Admitted> {
        let slot = match Arc::clone(&self.slots).try_acquire_owned() {
            Ok(slot) => slot,
            Err(_) => self.take_over_slot().await?,
        };
        let registered = self.transfers.register(transfer);
        let transfer = Arc::clone(transfer);
        Some(Admitted { transfer, _registered: registered, _slot: slot, _counted: self.budget.request() })
    }

    async fn take_over_slot(&self) -> Option<OwnedSemaphorePermit> {
        if !self.transfers.end_slowest(self.min_transfer_rate) {
            return None;
        }
        let freed = Arc::clone(&self.slots).acquire_owned();
        tokio::time::timeout(ENDED_SLOT_WAIT_MAX, freed).await.ok()?.ok()
    }
}

impl SlotTicket {
    /// Takes the slot; false if there is none.
    pub async fn redeem(&self) -> bool {
        if let Some(connection) = self.transfer.connection() {
            connection.mark_authenticated();
        }
        let Some(admitted) = self.admission.admit(&self.transfer).await else { return false };
        *self.slot.lock() = Some(admitted);
        true
    }

    /// The slot, if it was taken.
    #[must_use]
    pub fn into_slot(self) -> Option<Admitted> {
        self.slot.lock().take()
    }
}

/// A response body that keeps a guard until all of it was sent, or its client is gone.
pub struct Held<B, G> {
    body: B,
    _guard: G,
}

impl<B, G> Held<B, G> {
    /// The body with its guard.
    pub fn new(body: B, guard: G) -> Self {
        Self { body, _guard: guard }
    }
}

impl<B: Body + Unpin, G: Unpin> Body for Held<B, G> {
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

/// A response body whose request holds its slot until all of it was sent, and which counts the bytes that the client takes.
pub struct Metered<B> {
    body: B,
    slot: Option<Admitted>,
}

impl<B> Metered<B> {
    /// The body of a request in this slot.
    pub fn new(body: B, slot: Option<Admitted>) -> Self {
        Self { body, slot }
    }
}

impl<B: Body + Unpin> Body for Metered<B> {
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
    use super::{Admission, Metered, Transfer};
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
        let response = Metered::new(Full::new(Bytes::from_static(b"answer")), ticket.into_slot());
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
    async fn any_number_is_a_limit() {
        assert!(admission(usize::MAX).ticket(&Transfer::new(None)).redeem().await);
        assert!(!admission(0).ticket(&Transfer::new(None)).redeem().await);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_transfer_makes_way_when_all_slots_are_taken() {
        let admission = admission(1);
        let slow = Transfer::new(None);
        let ticket = admission.ticket(&slow);
        assert!(ticket.redeem().await);
        slow.await_bytes(&Context::from_waker(Waker::noop()));
        assert!(!admission.ticket(&Transfer::new(None)).redeem().await, "it may still become faster");
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
        let mut response = Metered::new(Full::new(Bytes::from(vec![0; 120_000])), ticket.into_slot());
        response.frame().await.unwrap().unwrap();
        tokio::time::advance(WINDOW).await;
        assert!(!admission.ticket(&Transfer::new(None)).redeem().await, "2 kB a second is fast enough");
        tokio::time::advance(WINDOW * 2).await;
        assert!(admission.transfers.end_slowest(1024), "nothing was read for two minutes");
    }

    #[tokio::test]
    async fn unauthenticated_requests_have_a_budget_of_their_own() {
        let admission = admission(1);
        let held: Vec<_> = std::iter::from_fn(|| admission.admit_unauthenticated()).collect();
        assert_eq!(held.len(), super::UNAUTHENTICATED_MAX);
        assert!(admission.ticket(&Transfer::new(None)).redeem().await);
    }
}
