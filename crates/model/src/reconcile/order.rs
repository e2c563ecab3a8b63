//! What makes a pass invalid: its listing cannot be relied on.

/// Largest number of locations that a valid listing may omit although a probe finds them.
pub const UNLISTED_MAX: u64 = 100;

/// Why the listing of a backend cannot be relied on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PassFault {
    /// A listing repeats keys or is not in byte order.
    #[error("the listing is not in ascending order: {key:?} follows {after:?}")]
    NotAscending {
        /// The key before.
        after: String,
        /// The key that should have come before it.
        key: String,
    },
    /// A listing without an end.
    #[error("the listing returned an empty page and says that more keys follow")]
    EmptyPage,
    /// A listing without keys that exist, such as one that ended early.
    #[error("the listing omits more than {UNLISTED_MAX} keys that exist")]
    Incomplete,
    /// The store is not the expected one.
    #[error("the identity of the backend does not match")]
    Identity,
    /// An instance finds another store under the same name.
    #[error("instance {0} finds another store")]
    Disputed(String),
    /// The backend did not answer for too long.
    #[error("the backend did not answer {0} times in a row: {1}")]
    Away(u64, String),
}

/// Checks the keys of one page, all of which must follow `after` in byte order.
pub fn check_order<'a>(after: Option<&'a str>, keys: impl IntoIterator<Item = &'a str>) -> Result<(), PassFault> {
    let mut last = after;
    for key in keys {
        if let Some(after) = last.filter(|after| *after >= key) {
            return Err(PassFault::NotAscending { after: after.to_owned(), key: key.to_owned() });
        }
        last = Some(key);
    }
    Ok(())
}

/// Checks the number of locations that the listing omitted although a probe found them.
pub const fn check_unlisted(unlisted_present: u64) -> Result<(), PassFault> {
    if unlisted_present > UNLISTED_MAX { Err(PassFault::Incomplete) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::{PassFault, UNLISTED_MAX, check_order, check_unlisted};

    #[test]
    fn keys_in_byte_order_after_the_last_page_are_accepted() {
        assert_eq!(check_order(None, ["A", "a", "a-b", "a/b", "b", "ä"]), Ok(()));
        assert_eq!(check_order(Some("a"), ["a-b"]), Ok(()));
        assert_eq!(check_order(Some("a"), []), Ok(()));
    }

    #[test]
    fn repeated_keys_and_keys_in_the_order_of_a_locale_are_refused() {
        for (after, keys) in [(Some("b"), vec!["a"]), (Some("a"), vec!["a"]), (None, vec!["a", "A"])] {
            let refused = check_order(after, keys.clone());
            assert!(matches!(refused, Err(PassFault::NotAscending { .. })), "{keys:?}");
        }
        assert!(check_order(None, ["a", "ä", "b"]).is_err(), "German order");
    }

    #[test]
    fn listing_that_omits_101_existing_keys_is_incomplete() {
        assert_eq!(check_unlisted(UNLISTED_MAX), Ok(()));
        assert_eq!(check_unlisted(UNLISTED_MAX + 1), Err(PassFault::Incomplete));
    }
}
