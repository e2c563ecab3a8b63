//! Tasks of requests that run to their end even if the client disconnects.

use std::future::Future;

use tokio_util::task::TaskTracker;

use crate::Error;

/// The running tasks. Clones share them.
#[derive(Debug, Clone)]
pub struct Tasks(TaskTracker);

impl Default for Tasks {
    fn default() -> Self {
        let tracker = TaskTracker::new();
        // Only a closed tracker can be waited for; it still accepts tasks.
        tracker.close();
        Self(tracker)
    }
}

impl Tasks {
    /// Runs a future to its end in its own task, even if the caller is dropped.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let task = self.0.spawn(work);
        task.await.unwrap_or_else(|error| Err(Error::Internal(format!("the task of a request ended early: {error}"))))
    }

    /// Starts a future that runs to its end in its own task.
    pub fn start(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(work);
    }

    /// Number of running tasks.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Waits until no task is running.
    pub async fn drained(&self) {
        self.0.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use super::Tasks;

    #[tokio::test]
    async fn task_runs_to_its_end_after_its_caller_is_dropped() {
        let tasks = Tasks::default();
        let (sent, received) = tokio::sync::oneshot::channel();
        let (resume, resumed) = tokio::sync::oneshot::channel::<()>();
        let work = tasks.run(async move {
            resumed.await.map_err(|_| crate::Error::NoSuchKey)?;
            sent.send(7).map_err(|_| crate::Error::NoSuchKey)
        });
        let timed_out = tokio::time::timeout(std::time::Duration::from_millis(1), work).await;
        assert!(timed_out.is_err());
        resume.send(()).expect("the task waits");
        assert_eq!(received.await, Ok(7));
        tasks.drained().await;
        assert_eq!(tasks.count(), 0);
    }
}
