//! Concurrency budget that requests and ticks share. Ticks yield while requests use it up, but one
//! tick of each kind may always run, so that a busy process still deletes and repairs.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::Kind;

/// Longest time a tick yields: background work must not stop because of requests.
const YIELD_MAX: Duration = Duration::from_secs(10);

/// Limit on the requests and ticks that this process runs concurrently.
#[derive(Debug)]
pub struct Budget {
    total: usize,
    in_use: AtomicUsize,
    requests: AtomicUsize,
    /// Number of requests since the start.
    begun: AtomicU64,
    waiting: AtomicUsize,
    freed: Notify,
    /// The one slot that each kind is guaranteed; waiters get it in FIFO order.
    minimum: [Arc<Semaphore>; 3],
}

/// A request in progress; dropping it releases its slot.
#[derive(Debug)]
pub struct RequestGuard(BudgetSlot);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A tick in progress; dropping it releases its slot.
#[derive(Debug)]
pub struct BackgroundGuard {
    // Fields drop in this order: the tick that the semaphore wakes then sees the slot as free.
    _slot: BudgetSlot,
    _minimum: Option<OwnedSemaphorePermit>,
}

/// One slot in use.
#[derive(Debug)]
struct BudgetSlot(Arc<Budget>);

impl Drop for BudgetSlot {
    fn drop(&mut self) {
        self.0.in_use.fetch_sub(1, Ordering::SeqCst);
        if self.0.waiting.load(Ordering::SeqCst) > 0 {
            self.0.freed.notify_one();
        }
    }
}

/// Counts a waiting tick, also if its wait is cancelled.
struct WaitingTick<'a>(&'a Budget);

impl Drop for WaitingTick<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Budget {
    /// A budget for `total` requests and ticks together.
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

    /// Registers a request. It never waits: the server limits the number of requests.
    #[must_use]
    pub fn request(self: &Arc<Self>) -> RequestGuard {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.begun.fetch_add(1, Ordering::Relaxed);
        RequestGuard(self.take())
    }

    /// True while requests are in progress: background work then does without its own concurrency.
    #[must_use]
    pub fn has_requests(&self) -> bool {
        self.requests.load(Ordering::Relaxed) > 0
    }

    /// Number of requests since the start.
    #[must_use]
    pub fn requests_begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Waits until a tick may run: a slot is free, the slot guaranteed to its kind is free, or the
    /// tick has yielded for `YIELD_MAX`.
    pub async fn background(self: &Arc<Self>, kind: Kind) -> BackgroundGuard {
        if let Some(slot) = self.try_take() {
            return BackgroundGuard { _slot: slot, _minimum: None };
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _waiting = WaitingTick(self);
        let mut minimum = pin!(Arc::clone(self.minimum_of(kind)).acquire_owned());
        let mut yielded = pin!(tokio::time::sleep(YIELD_MAX));
        loop {
            // Registered before the check, so that no release between the two is missed.
            let mut freed = pin!(self.freed.notified());
            freed.as_mut().enable();
            if let Some(slot) = self.try_take() {
                return BackgroundGuard { _slot: slot, _minimum: None };
            }
            tokio::select! {
                permit = &mut minimum => {
                    let permit = permit.expect("the semaphore is never closed");
                    return BackgroundGuard { _slot: self.take(), _minimum: Some(permit) };
                }
                () = &mut yielded => return BackgroundGuard { _slot: self.take(), _minimum: None },
                () = freed => {}
            }
        }
    }

    /// Waits until a slot is free for a copy. A copy may hold its slot for hours, so it never gets one that is
    /// guaranteed to ticks. If it is the only one of its worker, it waits for `YIELD_MAX` at most, so that a busy
    /// process writes copies, too.
    pub async fn copy(self: &Arc<Self>, is_only: bool) -> BackgroundGuard {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _waiting = WaitingTick(self);
        let mut yielded = pin!(tokio::time::sleep(YIELD_MAX));
        loop {
            let mut freed = pin!(self.freed.notified());
            freed.as_mut().enable();
            if let Some(slot) = self.try_take() {
                return BackgroundGuard { _slot: slot, _minimum: None };
            }
            tokio::select! {
                () = &mut yielded, if is_only => return BackgroundGuard { _slot: self.take(), _minimum: None },
                () = freed => {}
            }
        }
    }

    fn minimum_of(&self, kind: Kind) -> &Arc<Semaphore> {
        let index = match kind {
            Kind::PerInstance => 0,
            Kind::Shared => 1,
            Kind::Locked => 2,
        };
        &self.minimum[index]
    }

    fn take(self: &Arc<Self>) -> BudgetSlot {
        self.in_use.fetch_add(1, Ordering::SeqCst);
        BudgetSlot(Arc::clone(self))
    }

    fn try_take(self: &Arc<Self>) -> Option<BudgetSlot> {
        let increment = |in_use| (in_use < self.total).then_some(in_use + 1);
        self.in_use
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, increment)
            .is_ok()
            .then(|| BudgetSlot(Arc::clone(self)))
    }
}

impl RequestGuard {
    /// Slots in use, this request included.
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
    async fn ticks_run_concurrently_while_slots_are_free() {
        let budget = Budget::new(4);
        let _request = budget.request();
        let ticks = [(); 3].map(|()| budget.background(Kind::Shared));
        for tick in ticks {
            timeout(MOMENT, tick).await.expect("a slot is free");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn full_budget_still_runs_one_tick_of_each_kind() {
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
    async fn requests_and_ticks_are_counted_separately() {
        let budget = Budget::new(9);
        let _tick = budget.background(Kind::Shared).await;
        assert_eq!((budget.has_requests(), budget.requests_begun()), (false, 0));
        let requests = [budget.request(), budget.request()];
        assert_eq!((budget.has_requests(), budget.requests_begun()), (true, 2));
        drop(requests);
        assert_eq!((budget.has_requests(), budget.requests_begun()), (false, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn copies_leave_the_guaranteed_slots_to_ticks() {
        let budget = Budget::new(1);
        let request = budget.request();
        let only = timeout(YIELD_MAX + MOMENT, budget.copy(true)).await.expect("yielded for the longest time");
        assert!(timeout(YIELD_MAX * 9, budget.copy(false)).await.is_err(), "a further copy waits for a free slot");
        let _shared = timeout(MOMENT, budget.background(Kind::Shared)).await.expect("the minimum");
        let _locked = timeout(MOMENT, budget.background(Kind::Locked)).await.expect("the minimum");
        drop((request, only));
        assert!(timeout(MOMENT, budget.copy(false)).await.is_err(), "ticks use the slot");
    }

    #[tokio::test(start_paused = true)]
    async fn tick_yields_for_a_bounded_time() {
        let budget = Budget::new(1);
        let _request = budget.request();
        let _first = budget.background(Kind::Shared).await;
        timeout(YIELD_MAX + MOMENT, budget.background(Kind::Shared)).await.expect("yielded for the longest time");
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_tick_runs_once_a_slot_is_released() {
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
        assert!(!waiting.is_finished(), "the first tick uses the slot");
        drop(first);
        timeout(MOMENT, waiting).await.expect("a slot is free").expect("no panic");
    }
}
