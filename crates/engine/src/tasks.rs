//! Tracked tasks: work that must not be cut in half when a client closes its connection.

use std::future::Future;

use tokio_util::task::TaskTracker;

use crate::Error;

/// The tasks that are running.
#[derive(Debug, Clone)]
pub struct Tasks(TaskTracker);

impl Default for Tasks {
    fn default() -> Self {
        let tracker = TaskTracker::new();
        // Only a closed tracker can be waited for; it takes tasks all the same.
        tracker.close();
        Self(tracker)
    }
}

impl Tasks {
    /// Runs work to its end, even if the caller is dropped.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let task = self.0.spawn(work);
        task.await.unwrap_or_else(|error| Err(Error::Internal(format!("a request's task ended: {error}"))))
    }

    /// How many tasks are running.
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
