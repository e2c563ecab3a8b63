//! What many read and few replace.

use std::sync::{Arc, PoisonError, RwLock};

/// A value in force, shared by everybody who asks and swapped as a whole. Clones are the same.
#[derive(Debug, Default)]
pub struct Shared<T>(Arc<RwLock<Arc<T>>>);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Shared<T> {
    /// Puts this value in force.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(value))))
    }

    /// The value in force now.
    #[must_use]
    pub fn current(&self) -> Arc<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts another value in force.
    pub fn replace(&self, value: T) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
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
