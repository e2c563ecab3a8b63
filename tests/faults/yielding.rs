//! A catalog driver that lets others run before and after every unit, so that a request can be
//! given up between any two steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use s3o_catalog::unit::{Answer, Row, Statement, Unit};
use s3o_catalog::{Driver, Effort, Error};
use tokio::sync::Notify;
use tokio::task::yield_now;

/// Counts the steps of what is under way, and lets others run at each.
#[derive(Clone, Default)]
pub struct Steps(Arc<Counted>);

#[derive(Default)]
struct Counted {
    taken: AtomicUsize,
    changed: Notify,
}

impl Steps {
    /// Takes a step.
    pub async fn step(&self) {
        self.0.taken.fetch_add(1, Ordering::SeqCst);
        self.0.changed.notify_waiters();
        yield_now().await;
    }

    /// How many were taken.
    pub fn taken(&self) -> usize {
        self.0.taken.load(Ordering::SeqCst)
    }

    /// Waits until so many were taken.
    pub async fn reached(&self, steps: usize) {
        loop {
            let changed = self.0.changed.notified();
            if self.taken() >= steps {
                return;
            }
            changed.await;
        }
    }
}

/// A driver with pauses.
pub struct Yielding {
    /// What does the work.
    pub inner: Arc<dyn Driver>,
    /// Where the pauses are counted.
    pub steps: Steps,
}

#[async_trait]
impl Driver for Yielding {
    async fn write(&self, unit: Unit) -> Result<Vec<Answer>, Error> {
        self.steps.step().await;
        let answers = self.inner.write(unit).await;
        self.steps.step().await;
        answers
    }

    async fn read(&self, query: Statement) -> Result<Vec<Row>, Error> {
        self.steps.step().await;
        self.inner.read(query).await
    }

    fn stripes(&self) -> u32 {
        self.inner.stripes()
    }

    fn effort(&self) -> Effort {
        self.inner.effort()
    }
}
