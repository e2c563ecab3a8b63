//! Connection options of a bucket. Secrets print as `***`.

use std::fmt;

/// Largest body of one S3 request.
pub const PUT_BYTES_MAX: u64 = 5 * 1024 * 1024 * 1024;

/// A text whose `Debug` output is `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for signing and for `Authorization` headers.
    #[must_use]
    pub fn reveal(&self) -> &str {
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

/// Connection options of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Options {
    /// Scheme, host and port, such as `https://s3.eu-central-1.amazonaws.com`.
    pub endpoint: String,
    /// The region that requests are signed for.
    pub region: String,
    /// Name of the bucket.
    pub bucket: String,
    /// Identifies the account in signatures.
    pub access_key_id: String,
    /// Signs requests; never logged.
    pub secret_access_key: Secret,
    /// True if the bucket is part of the path instead of the host name.
    pub path_style: bool,
    /// Largest body of one request; [`PUT_BYTES_MAX`] unless the service accepts less.
    pub put_bytes_max: u64,
    /// True to create a missing bucket. Only for a bucket that the catalog never knew: a known bucket that is
    /// missing was deleted with its objects.
    pub create_bucket: bool,
}

#[cfg(test)]
mod tests {
    use super::Secret;

    #[test]
    fn secret_does_not_print() {
        assert!(!format!("{:?}", Secret::new("hunter2")).contains("hunter2"));
    }
}
