//! A value that many read and few replace.

use std::sync::Arc;

use arc_swap::ArcSwap;

/// The current value, which is replaced as a whole. Clones share it.
#[derive(Debug, Default)]
pub struct Shared<T>(Arc<ArcSwap<T>>);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Shared<T> {
    /// Starts with this value.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(value)))
    }

    /// The current value. It stays the same for the caller when it is replaced meanwhile.
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
    fn a_swapped_value_counts_at_once_and_old_views_stay_whole() {
        let shared = Shared::new("first");
        let (before, other) = (shared.current(), shared.clone());
        shared.replace("second");
        assert_eq!((*before, *other.current()), ("first", "second"));
    }
}
