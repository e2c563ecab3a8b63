//! Access keys and their grants.
//!
//! A reload replaces the whole set of keys. Each request looks its key up again, so a rotated secret is valid at once.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use s3o_model::shared::Shared;

/// Access level of a key in its buckets; each level includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// GET, HEAD and LIST.
    ReadOnly,
    /// Also writes, deletes and tags objects.
    ReadWrite,
    /// Also creates, deletes, tags and configures buckets.
    Admin,
}

impl Access {
    /// The name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "read_only",
            Self::ReadWrite => "read_write",
            Self::Admin => "admin",
        }
    }

    /// Description of the level for `s3o init` and the documentation.
    #[must_use]
    pub fn may(self) -> &'static str {
        match self {
            Self::ReadOnly => "read and list objects, read settings of buckets",
            Self::ReadWrite => "read and list; write, copy, tag and delete objects",
            Self::Admin => {
                "read and list; write, copy, tag and delete objects; create, delete, tag and configure buckets"
            }
        }
    }
}

/// The pattern that matches every bucket.
pub const ALL_BUCKETS: &str = "*";

/// An access key with its secret and its grants.
#[derive(Clone)]
pub struct AccessKey {
    /// The public part of the key pair; requests name it.
    pub access_key_id: String,
    /// Verifies signatures; `Debug` does not print it.
    pub secret: String,
    /// Patterns of the buckets it may use; `*` matches any text. An empty list grants no bucket.
    pub buckets: Vec<String>,
    /// Access level in these buckets.
    pub access: Access,
}

impl fmt::Debug for AccessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessKey")
            .field("access_key_id", &self.access_key_id)
            .field("buckets", &self.buckets)
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

impl AccessKey {
    /// True if the key has this access level or a higher one on the bucket.
    #[must_use]
    pub fn allows(&self, needed: Access, bucket: &str) -> bool {
        self.access >= needed && self.sees(bucket)
    }

    /// True if the key has any grant on the bucket.
    #[must_use]
    pub fn sees(&self, bucket: &str) -> bool {
        self.buckets.iter().any(|pattern| matches(pattern, bucket))
    }
}

/// True if the name matches the pattern, in which `*` matches any text.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(name) = name.strip_prefix(start) else { return false };
    let mut pieces: Vec<&str> = rest.split('*').collect();
    let end = pieces.pop().unwrap_or_default();
    let Some(mut middle) = name.strip_suffix(end) else { return false };
    for piece in pieces {
        match middle.find(piece) {
            Some(at) => middle = &middle[at + piece.len()..],
            None => return false,
        }
    }
    true
}

/// A set of access keys, by their IDs.
#[derive(Debug, Default)]
pub struct Keys(HashMap<String, Arc<AccessKey>>);

impl Keys {
    /// The key with this ID.
    #[must_use]
    pub fn find(&self, access_key_id: &str) -> Option<Arc<AccessKey>> {
        self.0.get(access_key_id).cloned()
    }
}

impl FromIterator<AccessKey> for Keys {
    fn from_iter<I: IntoIterator<Item = AccessKey>>(keys: I) -> Self {
        Self(keys.into_iter().map(|key| (key.access_key_id.clone(), Arc::new(key))).collect())
    }
}

/// The current keys, shared by all requests; a reload replaces the set.
pub type SharedKeys = Shared<Keys>;

#[cfg(test)]
mod tests {
    use super::{Access, AccessKey, matches};

    fn key(buckets: &[&str], access: Access) -> AccessKey {
        let buckets = buckets.iter().map(|&b| b.to_owned()).collect();
        AccessKey { access_key_id: "app".into(), secret: "s3cret".into(), buckets, access }
    }

    #[test]
    fn star_matches_any_text() {
        for (pattern, name) in
            [("photos", "photos"), ("logs-*", "logs-"), ("*", "x"), ("a*b*c", "a-b-b-c"), ("*x", "ax")]
        {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("photos", "photo"), ("logs-*", "log"), ("a*b*c", "ac"), ("ab*ba", "aba"), ("", "x")] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn each_access_level_includes_lower_ones() {
        let writer = key(&["photos"], Access::ReadWrite);
        assert!(writer.allows(Access::ReadOnly, "photos"));
        assert!(writer.allows(Access::ReadWrite, "photos"));
        assert!(!writer.allows(Access::Admin, "photos"));
        assert!(!writer.allows(Access::ReadOnly, "logs"));
    }

    #[test]
    fn empty_bucket_list_grants_nothing() {
        assert!(!key(&[], Access::Admin).allows(Access::ReadOnly, "anything"));
        assert!(key(&[super::ALL_BUCKETS], Access::ReadOnly).allows(Access::ReadOnly, "anything"));
    }

    #[test]
    fn secrets_are_not_printed() {
        assert!(!format!("{:?}", key(&[], Access::Admin)).contains("s3cret"));
    }
}
