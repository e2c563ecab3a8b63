//! How a bucket is reached. Secrets print as stars.

use std::fmt;

/// The largest body that S3 takes in one request.
pub const PUT_BYTES_MAX: u64 = 5 * 1024 * 1024 * 1024;

/// A text that never shows in logs.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides a text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for signing.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// How a bucket is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Options {
    /// Scheme, host and port, such as `https://s3.eu-central-1.amazonaws.com`.
    pub endpoint: String,
    /// The region that requests are signed for.
    pub region: String,
    /// The bucket that bytes go to.
    pub bucket: String,
    /// Who we are.
    pub access_key_id: String,
    /// How we prove it.
    pub secret_access_key: Secret,
    /// Whether the bucket is part of the path instead of the host.
    pub path_style: bool,
    /// The largest body that one request takes; [`PUT_BYTES_MAX`] unless the service takes less.
    pub put_bytes_max: u64,
    /// Whether a bucket that does not exist is created. Only for a bucket that the catalog never knew: a known one that is
    /// missing was deleted, and its objects with it.
    pub create_bucket: bool,
}

#[cfg(test)]
mod tests {
    use super::Secret;

    #[test]
    fn secrets_do_not_print() {
        assert!(!format!("{:?}", Secret::new("hunter2")).contains("hunter2"));
    }
}
