//! Virtual-hosted-style requests: the bucket is part of the host name.

use std::borrow::Cow;

use s3s::S3Result;
use s3s::host::{S3Host, VirtualHost};

/// The domain of virtual-hosted-style requests; requests to any other host are path-style.
#[derive(Debug, Clone)]
pub struct Domain(String);

impl Domain {
    pub fn new(domain: &str) -> Self {
        Self(domain.trim_end_matches('.').to_ascii_lowercase())
    }

    /// The bucket in a host name; `None` if the request is path-style.
    pub fn bucket_of(&self, host: &str) -> Option<String> {
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name).to_ascii_lowercase();
        let name = name.strip_suffix('.').unwrap_or(&name);
        let bucket = name.strip_suffix(&self.0)?.strip_suffix('.')?;
        Some(bucket.to_owned())
    }
}

impl S3Host for Domain {
    fn parse_host_header<'a>(&'a self, host: &'a str) -> S3Result<VirtualHost<'a>> {
        let virtual_host = VirtualHost::new(Cow::Borrowed(host));
        Ok(match self.bucket_of(host) {
            Some(bucket) => virtual_host.with_bucket(bucket),
            None => virtual_host,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Domain;

    #[test]
    fn bucket_is_the_host_name_before_the_domain() {
        let domain = Domain::new("S3.example.com");
        assert_eq!(domain.bucket_of("photos.s3.example.com:9000").as_deref(), Some("photos"));
        assert_eq!(domain.bucket_of("a.b.s3.example.com").as_deref(), Some("a.b"));
        assert_eq!(domain.bucket_of("photos.s3.example.com.").as_deref(), Some("photos"));
        for host in ["s3.example.com", "localhost:9000", "xs3.example.com", "127.0.0.1:9000"] {
            assert_eq!(domain.bucket_of(host), None, "{host}");
        }
    }
}
