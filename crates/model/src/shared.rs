//! A shared value that is read often and replaced rarely.

use std::sync::Arc;

use arc_swap::ArcSwap;

/// A value that is replaced as a whole. Clones share it.
#[derive(Debug, Default)]
pub struct Shared<T>(Arc<ArcSwap<T>>);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Shared<T> {
    /// Creates the shared value.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(value)))
    }

    /// A snapshot of the current value; a later `replace` does not change it.
    #[must_use]
    pub fn current(&self) -> Arc<T> {
        self.0.load_full()
    }

    /// Replaces the value for all clones.
    pub fn replace(&self, value: T) {
        self.0.store(Arc::new(value));
    }
}

#[cfg(test)]
mod tests {
    use super::Shared;

    #[test]
    fn replace_is_visible_to_clones_and_old_snapshots_stay() {
        let shared = Shared::new("first");
        let (before, other) = (shared.current(), shared.clone());
        shared.replace("second");
        assert_eq!((*before, *other.current()), ("first", "second"));
    }
}
