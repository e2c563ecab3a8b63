//! How requests and workers share this process: workers yield while requests fill it, but one
//! worker of each kind always goes on, so that a busy store still deletes and repairs.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::Kind;

/// How long a tick yields at most: a busy store must not become one that never repairs.
const YIELD_MAX: Duration = Duration::from_secs(10);

/// What this process does at once, at most.
#[derive(Debug)]
pub struct Budget {
    total: usize,
    in_use: AtomicUsize,
    requests: AtomicUsize,
    /// How many requests there have been.
    begun: AtomicU64,
    waiting: AtomicUsize,
    freed: Notify,
    /// The guaranteed place of each kind; waiters get it in their order.
    minimum: [Arc<Semaphore>; 3],
}

/// A request under way.
#[derive(Debug)]
pub struct RequestGuard(Used);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A tick under way.
#[derive(Debug)]
pub struct BackgroundGuard {
    // Fields drop in this order: whoever the semaphore wakes finds the place counted as free.
    _used: Used,
    _minimum: Option<OwnedSemaphorePermit>,
}

/// One place that is taken.
#[derive(Debug)]
struct Used(Arc<Budget>);

impl Drop for Used {
    fn drop(&mut self) {
        self.0.in_use.fetch_sub(1, Ordering::SeqCst);
        if self.0.waiting.load(Ordering::SeqCst) > 0 {
            self.0.freed.notify_one();
        }
    }
}

/// Counts who waits, also when waiting is given up.
struct Waiting<'a>(&'a Budget);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Budget {
    /// A budget of so many requests and ticks together.
    #[must_use]
    pub fn new(total: usize) -> Arc<Self> {
        let minimum = [(); 3].map(|()| Arc::new(Semaphore::new(1)));
        Arc::new(Self {
            total,
            in_use: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            freed: Notify::new(),
            minimum,
        })
    }

    /// Registers a request. It never waits: how many requests are let in is not decided here.
    #[must_use]
    pub fn request(self: &Arc<Self>) -> RequestGuard {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.begun.fetch_add(1, Ordering::Relaxed);
        RequestGuard(self.take())
    }

    /// Whether requests are under way: then background work leaves out what only makes it faster.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.requests.load(Ordering::Relaxed) > 0
    }

    /// How many requests there have been.
    #[must_use]
    pub fn requests_begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Waits until a tick may go on: there is room, or no other tick of its kind has the place
    /// that is guaranteed to the kind, or it has yielded for long enough.
    pub async fn background(self: &Arc<Self>, kind: Kind) -> BackgroundGuard {
        if let Some(used) = self.take_room() {
            return BackgroundGuard { _used: used, _minimum: None };
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _waiting = Waiting(self);
        let mut minimum = pin!(Arc::clone(self.minimum_of(kind)).acquire_owned());
        let mut patience = pin!(tokio::time::sleep(YIELD_MAX));
        loop {
            // Registered before the look, so that no place is freed unnoticed in between.
            let mut freed = pin!(self.freed.notified());
            freed.as_mut().enable();
            if let Some(used) = self.take_room() {
                return BackgroundGuard { _used: used, _minimum: None };
            }
            tokio::select! {
                permit = &mut minimum => {
                    let permit = permit.expect("the semaphore is never closed");
                    return BackgroundGuard { _used: self.take(), _minimum: Some(permit) };
                }
                () = &mut patience => return BackgroundGuard { _used: self.take(), _minimum: None },
                () = freed => {}
            }
        }
    }

    fn minimum_of(&self, kind: Kind) -> &Arc<Semaphore> {
        let place = match kind {
            Kind::PerInstance => 0,
            Kind::Shared => 1,
            Kind::Locked => 2,
        };
        &self.minimum[place]
    }

    fn take(self: &Arc<Self>) -> Used {
        self.in_use.fetch_add(1, Ordering::SeqCst);
        Used(Arc::clone(self))
    }

    fn take_room(self: &Arc<Self>) -> Option<Used> {
        let room = |in_use| (in_use < self.total).then_some(in_use + 1);
        self.in_use.fetch_update(Ordering::SeqCst, Ordering::SeqCst, room).is_ok().then(|| Used(Arc::clone(self)))
    }
}

impl RequestGuard {
    /// How much of this process is in use, this request included.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.0.0.in_use.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::{Budget, YIELD_MAX};
    use crate::Kind;

    const MOMENT: Duration = Duration::from_millis(10);

    #[tokio::test(start_paused = true)]
    async fn ticks_go_side_by_side_while_there_is_room() {
        let budget = Budget::new(4);
        let _request = budget.request();
        let ticks = [(); 3].map(|()| budget.background(Kind::Shared));
        for tick in ticks {
            timeout(MOMENT, tick).await.expect("there is room");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_fill_the_budget_leave_one_tick_of_each_kind() {
        let budget = Budget::new(2);
        let requests = [budget.request(), budget.request()];
        let shared = timeout(MOMENT, budget.background(Kind::Shared)).await.expect("the minimum");
        let _locked = timeout(MOMENT, budget.background(Kind::Locked)).await.expect("the minimum");
        assert!(timeout(MOMENT, budget.background(Kind::Shared)).await.is_err(), "a second one yields");
        drop(shared);
        let _shared = timeout(MOMENT, budget.background(Kind::Shared)).await.expect("the minimum again");
        assert_eq!(requests[0].in_use(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_told_from_ticks() {
        let budget = Budget::new(9);
        let _tick = budget.background(Kind::Shared).await;
        assert_eq!((budget.is_asked(), budget.requests_begun()), (false, 0));
        let requests = [budget.request(), budget.request()];
        assert_eq!((budget.is_asked(), budget.requests_begun()), (true, 2));
        drop(requests);
        assert_eq!((budget.is_asked(), budget.requests_begun()), (false, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn no_tick_yields_for_ever() {
        let budget = Budget::new(1);
        let _request = budget.request();
        let _first = budget.background(Kind::Shared).await;
        timeout(YIELD_MAX + MOMENT, budget.background(Kind::Shared)).await.expect("it has waited for long enough");
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_tick_goes_on_when_requests_end() {
        let budget = Budget::new(1);
        let request = budget.request();
        let first = budget.background(Kind::Shared).await;
        let waiting = tokio::task::spawn({
            let budget = budget.clone();
            async move { budget.background(Kind::Shared).await }
        });
        tokio::time::sleep(MOMENT).await;
        assert!(!waiting.is_finished());
        drop(request);
        tokio::time::sleep(MOMENT).await;
        assert!(!waiting.is_finished(), "the first tick fills what is left");
        drop(first);
        timeout(MOMENT, waiting).await.expect("there is room").expect("no panic");
    }
}
