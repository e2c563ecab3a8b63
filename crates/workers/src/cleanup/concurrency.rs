//! Number of concurrent batches per backend. A single batch leaves the store idle while the catalog settles; many
//! overload a store that has just recovered. So each backend starts with one, gets one more after each batch that
//! settled rows, and falls back to one after a batch that settled none.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use s3o_model::names::BackendName;

/// Upper bound for every backend.
pub(super) const CONCURRENCY_MAX: usize = 4;

/// Current number of concurrent batches per backend. Clones share it, so that a replacing worker continues with it.
#[derive(Debug, Clone, Default)]
pub struct BatchConcurrency(Arc<Mutex<HashMap<BackendName, usize>>>);

impl BatchConcurrency {
    pub(super) fn of(&self, backend: &BackendName) -> usize {
        self.with(backend, |current| *current)
    }

    /// Allows one more concurrent batch; false if `max` or [`CONCURRENCY_MAX`] is reached.
    pub(super) fn increase(&self, backend: &BackendName, max: usize) -> bool {
        self.with(backend, |current| {
            let more = *current < max.min(CONCURRENCY_MAX);
            *current += usize::from(more);
            more
        })
    }

    pub(super) fn reset(&self, backend: &BackendName) {
        self.with(backend, |current| *current = 1);
    }

    fn with<T>(&self, backend: &BackendName, change: impl FnOnce(&mut usize) -> T) -> T {
        change(self.0.lock().entry(backend.clone()).or_insert(1))
    }
}

#[cfg(test)]
mod tests {
    use super::{BatchConcurrency, CONCURRENCY_MAX};

    #[test]
    fn concurrency_grows_by_one_and_resets_to_one() {
        let (running, disk) = (BatchConcurrency::default(), "disk".parse().expect("a name"));
        assert_eq!(running.of(&disk), 1);
        let granted = (0..CONCURRENCY_MAX).filter(|_| running.increase(&disk, 99)).count();
        assert_eq!((granted, running.of(&disk)), (CONCURRENCY_MAX - 1, CONCURRENCY_MAX));
        running.reset(&disk);
        assert_eq!(running.of(&disk), 1);
        assert!(running.increase(&disk, 2) && !running.increase(&disk, 2), "not above the configured concurrency");
    }

    #[test]
    fn clones_share_the_concurrency() {
        let (running, disk) = (BatchConcurrency::default(), "disk".parse().expect("a name"));
        let replacement = running.clone();
        assert!(running.increase(&disk, 4));
        assert_eq!(replacement.of(&disk), 2);
    }
}
