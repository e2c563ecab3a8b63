//! Names chosen by users: buckets, keys, backends. A value of these types is always valid.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Longest key in S3, in bytes of UTF-8.
pub const KEY_BYTES_MAX: usize = 1024;

/// Why a name is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    /// The bucket name violates the rules of S3.
    #[error(
        "a bucket name must have 3 to 63 lowercase letters, digits, dots and hyphens, and must start and end with a \
         letter or digit"
    )]
    Bucket,
    /// S3 keys have at least one byte.
    #[error("a key must not be empty")]
    KeyEmpty,
    /// The key is longer than S3 allows.
    #[error("a key must not be longer than 1024 bytes")]
    KeyTooLong,
    /// The key contains a NUL, which PostgreSQL cannot store.
    #[error("a key must not contain the NUL character")]
    KeyNul,
    /// The backend name is not safe in a metric label or a path.
    #[error("a backend name must have 1 to 63 lowercase letters, digits, hyphens and underscores")]
    Backend,
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidName;
            fn from_str(text: &str) -> Result<Self, InvalidName> {
                Self::check(text)?;
                Ok(Self(Arc::from(text)))
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;
            fn try_from(text: String) -> Result<Self, InvalidName> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.as_ref().to_owned()
            }
        }
    };
}

name_type!(
    /// A bucket's name, by S3's rules.
    BucketName
);
name_type!(
    /// An object's key: any UTF-8 text of 1 to 1024 bytes without NUL, compared as bytes.
    ObjectKey
);
name_type!(
    /// The configured name of a backend.
    BackendName
);

impl BucketName {
    fn check(text: &str) -> Result<(), InvalidName> {
        let edge = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = text.as_bytes();
        let shaped = (3..=63).contains(&bytes.len())
            && bytes.iter().all(|b| edge(b) || matches!(b, b'-' | b'.'))
            && bytes.first().is_some_and(edge)
            && bytes.last().is_some_and(edge)
            && !text.contains("..");
        if shaped && text.parse::<Ipv4Addr>().is_err() { Ok(()) } else { Err(InvalidName::Bucket) }
    }
}

impl ObjectKey {
    fn check(text: &str) -> Result<(), InvalidName> {
        if text.is_empty() {
            Err(InvalidName::KeyEmpty)
        } else if text.len() > KEY_BYTES_MAX {
            Err(InvalidName::KeyTooLong)
        } else if text.contains('\0') {
            Err(InvalidName::KeyNul)
        } else {
            Ok(())
        }
    }
}

impl BackendName {
    fn check(text: &str) -> Result<(), InvalidName> {
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
        if (1..=63).contains(&text.len()) && text.bytes().all(allowed) { Ok(()) } else { Err(InvalidName::Backend) }
    }
}

#[cfg(test)]
mod tests {
    use super::{BackendName, BucketName, InvalidName, ObjectKey};

    #[test]
    fn bucket_names_follow_the_rules_of_s3() {
        for good in ["abc", "a.b-c", "0ab", "logs-2026", &"a".repeat(63)] {
            assert!(good.parse::<BucketName>().is_ok(), "{good}");
        }
        for bad in ["ab", "Abc", "-ab", "ab-", "a..b", "a_b", "192.168.0.1", "", ".ab", &"a".repeat(64)] {
            assert_eq!(bad.parse::<BucketName>(), Err(InvalidName::Bucket), "{bad}");
        }
    }

    #[test]
    fn keys_are_bounded_in_bytes_not_characters() {
        assert!("ä".repeat(512).parse::<ObjectKey>().is_ok());
        assert_eq!("ä".repeat(513).parse::<ObjectKey>(), Err(InvalidName::KeyTooLong));
        assert_eq!("".parse::<ObjectKey>(), Err(InvalidName::KeyEmpty));
        assert_eq!("a\0b".parse::<ObjectKey>(), Err(InvalidName::KeyNul));
    }

    #[test]
    fn backend_names_are_safe_in_paths() {
        assert!("disk_1".parse::<BackendName>().is_ok());
        assert!("../etc".parse::<BackendName>().is_err());
    }
}
