//! How many batches of one backend are under way at once. One at a time leaves a store waiting for the catalog; many at
//! once are too much for one that has just come back. So there is one to begin with, one more for each that went well, and
//! one again after the first that did not.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use s3o_model::names::BackendName;

/// The most that are under way at once.
pub(super) const HANDS_MAX: usize = 4;

/// What each backend has taken so far. Clones share it: a worker that replaces another one goes on with its pace.
#[derive(Debug, Clone, Default)]
pub struct Pace(Arc<Mutex<HashMap<BackendName, usize>>>);

impl Pace {
    /// How many batches it may have under way.
    pub(super) fn hands(&self, backend: &BackendName) -> usize {
        self.of(backend, |hands| *hands)
    }

    /// A batch went well; says whether one more may be under way from now on.
    pub(super) fn went_well(&self, backend: &BackendName, most: usize) -> bool {
        self.of(backend, |hands| {
            let more = *hands < most.min(HANDS_MAX);
            *hands += usize::from(more);
            more
        })
    }

    /// A batch got nothing done.
    pub(super) fn got_stuck(&self, backend: &BackendName) {
        self.of(backend, |hands| *hands = 1);
    }

    fn of<T>(&self, backend: &BackendName, change: impl FnOnce(&mut usize) -> T) -> T {
        change(self.0.lock().entry(backend.clone()).or_insert(1))
    }
}

#[cfg(test)]
mod tests {
    use super::{HANDS_MAX, Pace};

    #[test]
    fn a_backend_earns_its_hands_and_loses_them_at_once() {
        let (pace, disk) = (Pace::default(), "disk".parse().expect("a name"));
        assert_eq!(pace.hands(&disk), 1);
        let granted = (0..HANDS_MAX).filter(|_| pace.went_well(&disk, 99)).count();
        assert_eq!((granted, pace.hands(&disk)), (HANDS_MAX - 1, HANDS_MAX));
        pace.got_stuck(&disk);
        assert_eq!(pace.hands(&disk), 1);
        assert!(pace.went_well(&disk, 2) && !pace.went_well(&disk, 2), "no more than is configured");
    }

    #[test]
    fn clones_share_what_was_learnt() {
        let (pace, disk) = (Pace::default(), "disk".parse().expect("a name"));
        let replacement = pace.clone();
        assert!(pace.went_well(&disk, 4));
        assert_eq!(replacement.hands(&disk), 2);
    }
}
