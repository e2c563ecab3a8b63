//! Copies that a worker has started. A copy of a large content may outlast a tick and a run: it goes on, keeps its slot
//! in the concurrency of the worker and in the budget, and a later tick takes its result.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use s3o_engine::Engine;
use s3o_model::ids::ContentId;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::budget::{BackgroundGuard, Budget};
use crate::{CopyPace, Error, Report};

/// A tick starts no more copies after this time, and waits no longer for those that are running.
pub(crate) const TICK_FOR: Duration = Duration::from_secs(20);

/// The copies of one worker, and its pace. Clones share them; they survive a reload.
#[derive(Clone)]
pub struct CopyTasks {
    budget: Arc<Budget>,
    pace: CopyPace,
    shared: Arc<SharedCopies>,
}

#[derive(Default)]
struct SharedCopies {
    state: Mutex<CopiesState>,
    /// Notified when a copy ends.
    ended: Notify,
}

#[derive(Default)]
struct CopiesState {
    running: HashSet<ContentId>,
    /// Number of copies in `running` and of those that wait for a slot of the budget.
    taken: usize,
    finished: Vec<Result<Report, Error>>,
}

/// How many copies run at a time, and when the tick ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CopyBounds {
    pub concurrency: usize,
    pub until: Instant,
}

impl CopyBounds {
    /// For a tick that begins now.
    pub(crate) fn of_tick(concurrency: usize) -> Self {
        Self { concurrency: concurrency.max(1), until: Instant::now() + TICK_FOR }
    }
}

/// A copy in progress. Dropping it, also after a panic, releases its slots.
struct RunningCopy {
    shared: Arc<SharedCopies>,
    content: Option<ContentId>,
    slot: Option<BackgroundGuard>,
}

impl Drop for RunningCopy {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.taken -= 1;
        if let Some(content) = self.content {
            state.running.remove(&content);
        }
        drop((state, self.slot.take()));
        self.shared.ended.notify_waiters();
    }
}

impl CopyTasks {
    /// No copies yet; each one takes a slot of this budget.
    #[must_use]
    pub fn new(budget: Arc<Budget>) -> Self {
        Self { pace: CopyPace::new(Arc::clone(&budget)), budget, shared: Arc::default() }
    }

    /// True while a copy of any content is running.
    pub(crate) fn is_busy(&self) -> bool {
        self.shared.state.lock().taken > 0
    }

    /// True while a copy of this content is running.
    pub(crate) fn is_running(&self, content: ContentId) -> bool {
        self.shared.state.lock().running.contains(&content)
    }

    /// Starts a copy within the bounds, in its own task; false if the time of the tick is over. Its result is reported
    /// by the tick in which it ends.
    pub(crate) async fn start(
        &self,
        engine: &Engine,
        content: ContentId,
        bounds: CopyBounds,
        work: impl Future<Output = Result<Report, Error>> + Send + 'static,
    ) -> bool {
        let Ok(mut copy) = timeout_at(bounds.until, self.slot(bounds.concurrency)).await else { return false };
        copy.content = Some(content);
        self.shared.state.lock().running.insert(content);
        let (pace, shared) = (self.pace.clone(), Arc::clone(&self.shared));
        engine.start_task(async move {
            let result = pace.write(work).await;
            shared.state.lock().finished.push(result);
            drop(copy);
        });
        true
    }

    /// Waits for the copies, at most until the end of the tick, and adds the results of those that have ended.
    pub(crate) async fn report(&self, bounds: CopyBounds, report: &mut Report) -> Result<(), Error> {
        // A timeout is no error: the others are reported by a later tick.
        timeout_at(bounds.until, self.wait_for(|state| state.taken == 0)).await.unwrap_or_default();
        let finished = std::mem::take(&mut self.shared.state.lock().finished);
        let (mut failure, more) = (None, report.more);
        for result in finished {
            match result {
                Ok(work) => report.absorb(Report { more, ..work }),
                Err(error) => failure = Some(error),
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Waits until fewer than `concurrency` copies are running, and for a slot of the budget.
    async fn slot(&self, concurrency: usize) -> RunningCopy {
        self.wait_for(|state| state.taken < concurrency).await;
        let is_only = {
            let mut state = self.shared.state.lock();
            state.taken += 1;
            state.taken == 1
        };
        // Releases its place if the time ends during the wait for the budget.
        let mut copy = RunningCopy { shared: Arc::clone(&self.shared), content: None, slot: None };
        copy.slot = Some(self.budget.copy(is_only).await);
        copy
    }

    async fn wait_for(&self, is_met: impl Fn(&CopiesState) -> bool) {
        loop {
            let ended = self.shared.ended.notified();
            if is_met(&self.shared.state.lock()) {
                return;
            }
            ended.await;
        }
    }
}
