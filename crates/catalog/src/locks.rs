//! Locks of workers: they save instances from doing the same work twice, and nothing else.
//! Correctness comes from claims, tokens and guards; a lock may be lost at any moment.

#[cfg(test)]
mod facts;
pub(crate) mod postgres;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;

use crate::error::Error;

/// A lock on one worker, held until it is dropped or lost.
pub struct Lock {
    lost: Arc<AtomicBool>,
    release: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Lock {
    /// A lock that says so when it is lost, and does this when it is dropped.
    pub fn new(lost: Arc<AtomicBool>, release: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self { lost, release: Some(Box::new(release)) }
    }

    /// Whether somebody else may hold it by now.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            release();
        }
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("lost", &self.is_lost()).finish_non_exhaustive()
    }
}

/// What became of an attempt.
#[derive(Debug)]
pub enum Locked {
    /// It is ours.
    Held(Lock),
    /// Somebody else holds it: the instance, where it is known.
    By(String),
}

/// Locks by the name of a worker.
#[async_trait]
pub trait Locks: Send + Sync {
    /// Takes the lock of a worker if nobody holds it; does not wait.
    async fn try_lock(&self, worker: &str) -> Result<Locked, Error>;
}

/// Locks within one process, for a catalog that only one process can open.
#[derive(Debug)]
pub struct ProcessLocks {
    instance: String,
    held: Arc<Mutex<HashSet<String>>>,
}

impl ProcessLocks {
    /// Locks of this instance.
    #[must_use]
    pub fn new(instance: impl fmt::Display) -> Self {
        Self { instance: instance.to_string(), held: Arc::default() }
    }
}

#[async_trait]
impl Locks for ProcessLocks {
    async fn try_lock(&self, worker: &str) -> Result<Locked, Error> {
        if !self.held.lock().insert(worker.to_owned()) {
            return Ok(Locked::By(self.instance.clone()));
        }
        let (held, worker) = (Arc::clone(&self.held), worker.to_owned());
        Ok(Locked::Held(Lock::new(Arc::default(), move || {
            held.lock().remove(&worker);
        })))
    }
}
