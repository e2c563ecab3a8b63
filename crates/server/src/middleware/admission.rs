//! How many requests are answered at a time: one more than that is told to come back later.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};
use s3o_workers::{Budget, RequestGuard};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The places there are; clones share them. Requests also count in the budget that background work
/// yields to.
#[derive(Debug, Clone)]
pub struct Admission {
    places: Arc<Semaphore>,
    budget: Arc<Budget>,
}

/// A place that a request holds until it is dropped.
#[derive(Debug)]
pub struct Admitted {
    _place: OwnedSemaphorePermit,
    _counted: RequestGuard,
}

impl Admission {
    /// Room for this many requests.
    #[must_use]
    pub fn new(requests_max: usize, budget: Arc<Budget>) -> Self {
        Self { places: Arc::new(Semaphore::new(requests_max.min(Semaphore::MAX_PERMITS))), budget }
    }

    /// A place, if one is free; nobody queues for it, for a queue only makes overload last.
    #[must_use]
    pub fn admit(&self) -> Option<Admitted> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        Some(Admitted { _place: place, _counted: self.budget.request() })
    }
}

/// A response body whose request holds its place until all of it was sent, or nobody wants it.
pub struct Held<B> {
    body: B,
    _place: Option<Admitted>,
}

impl<B> Held<B> {
    /// The body of a request in this place.
    pub fn new(body: B, place: Option<Admitted>) -> Self {
        Self { body, _place: place }
    }
}

impl<B: Body + Unpin> Body for Held<B> {
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

#[cfg(test)]
mod tests {
    use super::{Admission, Held};
    use bytes::Bytes;
    use http_body_util::Full;
    use s3o_workers::Budget;

    #[test]
    fn a_place_is_held_until_the_answer_is_gone() {
        let admission = Admission::new(1, Budget::new(1));
        let answer = Held::new(Full::new(Bytes::from_static(b"answer")), admission.admit());
        assert!(admission.clone().admit().is_none());
        drop(answer);
        assert!(admission.admit().is_some());
    }

    #[test]
    fn any_number_is_a_limit() {
        assert!(Admission::new(usize::MAX, Budget::new(1)).admit().is_some());
        assert!(Admission::new(0, Budget::new(1)).admit().is_none());
    }
}
