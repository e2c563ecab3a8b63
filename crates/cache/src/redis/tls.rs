//! `rediss://`: TLS to Redis, with the root certificates of the operating system or of the file in the URL parameter
//! `sslrootcert`. Issuer, validity and name of the server's certificate are always checked.

use redis::{Client, TlsCertificates};
use rustls::crypto::aws_lc_rs;

/// Why a URL is invalid; never contains the URL itself, which may have a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRedisUrl {
    /// The URL cannot be parsed.
    #[error("is not a URL such as redis://:password@host:6379/0 or rediss://host:6379/0?sslrootcert=FILE")]
    Malformed,
    /// `sslrootcert` was given for a connection without TLS.
    #[error("sslrootcert needs a rediss:// URL")]
    NotTls,
    /// The certificates cannot be read.
    #[error("sslrootcert: {0}")]
    RootCertificates(String),
}

/// A client for a URL, not connected yet.
pub(super) fn client(url: &str) -> Result<Client, InvalidRedisUrl> {
    let parsed = redis::parse_redis_url(url).ok_or(InvalidRedisUrl::Malformed)?;
    let is_tls = matches!(parsed.scheme(), "rediss" | "valkeys");
    let file = parsed.query_pairs().find(|(name, _)| name == "sslrootcert").map(|(_, value)| value.into_owned());
    match file {
        Some(_) if !is_tls => Err(InvalidRedisUrl::NotTls),
        None if !is_tls => Client::open(url).map_err(|_| InvalidRedisUrl::Malformed),
        file => tls_client(url, file.as_deref()),
    }
}

fn tls_client(url: &str, file: Option<&str>) -> Result<Client, InvalidRedisUrl> {
    // The library uses the provider of the process; an error means that one is set already.
    let _ = aws_lc_rs::default_provider().install_default();
    let Some(file) = file else { return Client::open(url).map_err(|_| InvalidRedisUrl::Malformed) };
    let failed = |why: String| InvalidRedisUrl::RootCertificates(format!("{file}: {why}"));
    let pem = std::fs::read(file).map_err(|error| failed(error.to_string()))?;
    if !pem.windows(PEM_START.len()).any(|window| window == PEM_START) {
        return Err(failed("the file contains no certificate".to_owned()));
    }
    let certificates = TlsCertificates { client_tls: None, root_cert: Some(pem) };
    Client::build_with_tls(url, certificates).map_err(|error| failed(error.to_string()))
}

const PEM_START: &[u8] = b"-----BEGIN CERTIFICATE-----";

#[cfg(test)]
mod tests {
    use super::{InvalidRedisUrl, client};

    #[test]
    fn urls_are_validated_and_errors_do_not_quote_them() {
        for url in ["redis://:secret@h:6379/1", "rediss://h", "rediss://:secret@h:6380/0?protocol=3"] {
            assert!(client(url).is_ok(), "{url}");
        }
        assert_eq!(client("http://secret@h").err(), Some(InvalidRedisUrl::Malformed));
        assert_eq!(client("redis://h?sslrootcert=/a").err(), Some(InvalidRedisUrl::NotTls));
        for file in ["/nowhere/ca.pem", "/dev/null"] {
            let refused =
                client(&format!("rediss://:secret@h?sslrootcert={file}")).err().map(|error| error.to_string());
            assert!(
                refused.as_ref().is_some_and(|text| text.starts_with(&format!("sslrootcert: {file}: "))),
                "{refused:?}"
            );
        }
    }
}
