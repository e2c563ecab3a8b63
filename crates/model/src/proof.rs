//! Whether content is where its rows say, before a write that was not stored relies on it.

use crate::verify::Seen;

/// What looks at copies prove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// The bytes are there, as many as there should be.
    Good,
    /// They are not.
    Bad,
    /// Nobody can tell.
    Unclear,
}

impl Proof {
    /// What a look at one copy of so many bytes proves.
    #[must_use]
    pub fn of_copy(size_bytes: u64, seen: &Seen) -> Self {
        match seen {
            Seen::Present(found) if *found == size_bytes => Self::Good,
            Seen::Present(_) | Seen::Absent => Self::Bad,
            Seen::Unknown(_) => Self::Unclear,
        }
    }

    /// What the copies of one content prove together: one that is good will do, and where nobody can tell of one, it may
    /// still be.
    #[must_use]
    pub fn of_content(copies: &[Self]) -> Self {
        let any = |proof| copies.contains(&proof);
        if any(Self::Good) {
            Self::Good
        } else if any(Self::Unclear) {
            Self::Unclear
        } else {
            Self::Bad
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Proof::{self, Bad, Good, Unclear};
    use crate::verify::Seen;

    #[test]
    fn only_what_was_seen_proves_something_of_a_copy() {
        assert_eq!(Proof::of_copy(5, &Seen::Present(5)), Good);
        assert_eq!(Proof::of_copy(5, &Seen::Present(4)), Bad);
        assert_eq!(Proof::of_copy(0, &Seen::Absent), Bad);
        assert_eq!(Proof::of_copy(5, &Seen::Unknown("timed out".to_owned())), Unclear);
    }

    #[test]
    fn one_good_copy_is_enough_and_one_unclear_copy_may_be_good() {
        assert_eq!(Proof::of_content(&[Bad, Good, Unclear]), Good);
        assert_eq!(Proof::of_content(&[Bad, Unclear]), Unclear);
        assert_eq!(Proof::of_content(&[Bad, Bad]), Bad);
        assert_eq!(Proof::of_content(&[]), Bad);
    }
}
