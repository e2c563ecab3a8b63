//! Tracked tasks: work that must not be cut in half when a client hangs up.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

use crate::Error;

/// The work that is under way.
#[derive(Debug, Clone, Default)]
pub struct Tasks(Arc<State>);

#[derive(Debug, Default)]
struct State {
    running: AtomicUsize,
    ended: Notify,
}

/// Counts its task down, however the task ends.
struct Running(Arc<State>);

impl Drop for Running {
    fn drop(&mut self) {
        if self.0.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.ended.notify_waiters();
        }
    }
}

impl Tasks {
    /// Runs work to its end, even if nobody waits for it any more.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        self.0.running.fetch_add(1, Ordering::AcqRel);
        let running = Running(Arc::clone(&self.0));
        let task = tokio::spawn(async move {
            let _running = running;
            work.await
        });
        task.await.unwrap_or_else(|error| Err(Error::Internal(format!("a request's task ended: {error}"))))
    }

    /// How many tasks are under way.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.running.load(Ordering::Acquire)
    }

    /// Waits until no task is under way.
    pub async fn drained(&self) {
        loop {
            let ended = self.0.ended.notified();
            if self.count() == 0 {
                return;
            }
            ended.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Tasks;

    #[tokio::test]
    async fn work_goes_on_when_its_caller_gives_up() {
        let tasks = Tasks::default();
        let (sent, received) = tokio::sync::oneshot::channel();
        let (open, gate) = tokio::sync::oneshot::channel::<()>();
        let work = tasks.run(async move {
            gate.await.map_err(|_| crate::Error::NoSuchKey)?;
            sent.send(7).map_err(|_| crate::Error::NoSuchKey)
        });
        let given_up = tokio::time::timeout(std::time::Duration::from_millis(1), work).await;
        assert!(given_up.is_err());
        open.send(()).expect("the task waits");
        assert_eq!(received.await, Ok(7));
        tasks.drained().await;
        assert_eq!(tasks.count(), 0);
    }
}
