//! Locks of workers. They only keep instances from doing the same work twice: a lock may be lost at any time, and
//! correctness comes from claims, tokens and guards.

pub(crate) mod postgres;
#[cfg(test)]
mod tests;

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
    /// A lock whose owner sets `lost`, and that calls `release` when it is dropped.
    pub fn new(lost: Arc<AtomicBool>, release: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self { lost, release: Some(Box::new(release)) }
    }

    /// True if another instance may hold the lock by now.
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

/// Result of an attempt to lock.
#[derive(Debug)]
pub enum Locked {
    /// The caller holds the lock until it drops this.
    Held(Lock),
    /// Another holder: the ID of its instance, or "another instance".
    By(String),
}

/// Locks by worker name.
#[async_trait]
pub trait Locks: Send + Sync {
    /// Takes the lock of a worker if it is free, without waiting.
    async fn try_lock(&self, worker: &str) -> Result<Locked, Error>;
}

/// Locks within one process, for a catalog that only one process can open.
#[derive(Debug)]
pub struct ProcessLocks {
    instance: String,
    held: Arc<Mutex<HashSet<String>>>,
}

impl ProcessLocks {
    /// `instance` is reported as the holder of locks.
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
