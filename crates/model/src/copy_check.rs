//! Result of checking the copies of a content, before a deduplicated write relies on them.

use crate::verify::Seen;

/// Result of checking one copy, or all copies of a content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyState {
    /// The bytes exist with the recorded size.
    Good,
    /// The bytes are missing or have another size.
    Bad,
    /// The backend gave no clear answer.
    Unclear,
}

impl CopyState {
    /// Judges one copy with this recorded size by a probe.
    #[must_use]
    pub fn of_copy(size_bytes: u64, seen: &Seen) -> Self {
        match seen {
            Seen::Present(found) if *found == size_bytes => Self::Good,
            Seen::Present(_) | Seen::Absent => Self::Bad,
            Seen::Unknown(_) => Self::Unclear,
        }
    }

    /// Combines the copies of one content: `needed` good copies are enough; without them, an unclear copy may still
    /// be good.
    #[must_use]
    pub fn of_content(copies: &[Self], needed: usize) -> Self {
        if copies.iter().filter(|state| **state == Self::Good).count() >= needed.max(1) {
            Self::Good
        } else if copies.contains(&Self::Unclear) {
            Self::Unclear
        } else {
            Self::Bad
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CopyState::{self, Bad, Good, Unclear};
    use crate::verify::Seen;

    #[test]
    fn copy_is_judged_by_presence_and_size() {
        assert_eq!(CopyState::of_copy(5, &Seen::Present(5)), Good);
        assert_eq!(CopyState::of_copy(5, &Seen::Present(4)), Bad);
        assert_eq!(CopyState::of_copy(0, &Seen::Absent), Bad);
        assert_eq!(CopyState::of_copy(5, &Seen::Unknown("timed out".to_owned())), Unclear);
    }

    #[test]
    fn one_good_copy_is_enough_and_an_unclear_copy_may_be_good() {
        assert_eq!(CopyState::of_content(&[Bad, Good, Unclear], 1), Good);
        assert_eq!(CopyState::of_content(&[Bad, Unclear], 1), Unclear);
        assert_eq!(CopyState::of_content(&[Bad, Bad], 1), Bad);
        assert_eq!(CopyState::of_content(&[], 1), Bad);
    }

    #[test]
    fn as_many_good_copies_are_needed_as_a_write_relies_on() {
        assert_eq!(CopyState::of_content(&[Good, Good], 2), Good);
        assert_eq!(CopyState::of_content(&[Good, Unclear], 2), Unclear);
        assert_eq!(CopyState::of_content(&[Good], 2), Bad);
    }
}
