//! TLS to PostgreSQL, by the URL parameters `sslmode` and `sslrootcert`, which have their libpq meanings. Without both
//! of them connections are not encrypted.

use std::path::Path;
use std::str::FromStr as _;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

/// Value of `sslrootcert` that selects the certificates of the operating system.
const SYSTEM: &str = "system";

/// Why a URL cannot be used; never holds the URL itself, which has a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPostgresUrl {
    /// It cannot be parsed.
    #[error("is not a URL such as postgres://user:password@host/database")]
    Malformed,
    /// `sslmode` has an unknown value.
    #[error("sslmode={0} is not one of disable, prefer, require, verify-ca, verify-full")]
    Mode(String),
    /// The certificates cannot be read.
    #[error("sslrootcert: {0}")]
    RootCertificates(String),
}

/// How much of the server's certificate is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CertificateCheck {
    Nothing,
    /// A trusted authority issued it, and it has not expired.
    Issuer,
    /// The certificate also names the host.
    IssuerAndName,
}

/// Checks a URL and reads its certificates, without connecting.
pub fn check_url(url: &str) -> Result<(), InvalidPostgresUrl> {
    read_url(url).map(drop)
}

/// The connection settings of a URL, and the TLS settings to connect with.
pub(crate) fn read_url(url: &str) -> Result<(Config, MakeRustlsConnect), InvalidPostgresUrl> {
    let (plain, mode, root_certificates) = without_tls_parameters(url);
    let mut config = Config::from_str(&plain).map_err(|_| InvalidPostgresUrl::Malformed)?;
    let (mode, check) = mode_of(mode.as_deref(), root_certificates.is_some())?;
    config.ssl_mode(mode);
    let roots = match check {
        CertificateCheck::Nothing => RootCertStore::empty(),
        CertificateCheck::Issuer | CertificateCheck::IssuerAndName => roots(root_certificates.as_deref())?,
    };
    Ok((config, MakeRustlsConnect::new(client_config(check, roots)?)))
}

/// The URL without the parameters that the client library does not know, and their values.
pub(super) fn without_tls_parameters(url: &str) -> (String, Option<String>, Option<String>) {
    let Some((base, query)) = url.split_once('?') else { return (url.to_owned(), None, None) };
    let (mut mode, mut root_certificates, mut kept) = (None, None, Vec::new());
    for pair in query.split('&') {
        match pair.split_once('=') {
            Some(("sslmode", value)) => mode = Some(decoded(value)),
            Some(("sslrootcert", value)) => root_certificates = Some(decoded(value)),
            _ => kept.push(pair),
        }
    }
    let query = if kept.is_empty() { String::new() } else { format!("?{}", kept.join("&")) };
    (format!("{base}{query}"), mode, root_certificates)
}

fn decoded(value: &str) -> String {
    percent_encoding::percent_decode_str(value).decode_utf8_lossy().into_owned()
}

fn mode_of(mode: Option<&str>, has_roots: bool) -> Result<(SslMode, CertificateCheck), InvalidPostgresUrl> {
    match mode {
        None if has_roots => Ok((SslMode::Require, CertificateCheck::IssuerAndName)),
        None | Some("disable") => Ok((SslMode::Disable, CertificateCheck::Nothing)),
        Some("prefer") => Ok((SslMode::Prefer, CertificateCheck::Nothing)),
        // With root certificates, libpq verifies the issuer also for `require`.
        Some("require") if !has_roots => Ok((SslMode::Require, CertificateCheck::Nothing)),
        Some("require" | "verify-ca") => Ok((SslMode::Require, CertificateCheck::Issuer)),
        Some("verify-full") => Ok((SslMode::Require, CertificateCheck::IssuerAndName)),
        Some(other) => Err(InvalidPostgresUrl::Mode(other.to_owned())),
    }
}

fn roots(file: Option<&str>) -> Result<RootCertStore, InvalidPostgresUrl> {
    let mut roots = RootCertStore::empty();
    match file.filter(|file| *file != SYSTEM) {
        Some(file) => {
            let failed = |why: String| InvalidPostgresUrl::RootCertificates(format!("{file}: {why}"));
            let certificates =
                CertificateDer::pem_file_iter(Path::new(file)).map_err(|error| failed(error.to_string()))?;
            for certificate in certificates {
                let certificate = certificate.map_err(|error| failed(error.to_string()))?;
                roots.add(certificate).map_err(|error| failed(error.to_string()))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        let place = file.unwrap_or(SYSTEM);
        return Err(InvalidPostgresUrl::RootCertificates(format!("{place}: contains no certificate")));
    }
    Ok(roots)
}

fn client_config(check: CertificateCheck, roots: RootCertStore) -> Result<ClientConfig, InvalidPostgresUrl> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let failed = |why: String| InvalidPostgresUrl::RootCertificates(why);
    let inner = match check {
        CertificateCheck::Nothing => None,
        CertificateCheck::Issuer | CertificateCheck::IssuerAndName => {
            let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
            Some(builder.build().map_err(|error| failed(error.to_string()))?)
        }
    };
    let verifier = PostgresCertVerifier { check, inner, provider: Arc::clone(&provider) };
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| failed(error.to_string()))?;
    Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth())
}

/// Verifies what the mode requires. Signatures of the handshake are always verified.
#[derive(Debug)]
struct PostgresCertVerifier {
    check: CertificateCheck,
    inner: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PostgresCertVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(inner) = &self.inner else { return Ok(ServerCertVerified::assertion()) };
        let verified = inner.verify_server_cert(certificate, intermediates, name, ocsp, now);
        match verified {
            // The name is checked last: this error means that everything else is valid.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.check == CertificateCheck::Issuer => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::{CertificateCheck, InvalidPostgresUrl, check_url, mode_of, read_url, without_tls_parameters};
    use tokio_postgres::config::SslMode;

    #[test]
    fn modes_check_what_libpq_checks() {
        for (mode, has_roots, expected) in [
            (None, false, (SslMode::Disable, CertificateCheck::Nothing)),
            (None, true, (SslMode::Require, CertificateCheck::IssuerAndName)),
            (Some("disable"), true, (SslMode::Disable, CertificateCheck::Nothing)),
            (Some("prefer"), false, (SslMode::Prefer, CertificateCheck::Nothing)),
            (Some("require"), false, (SslMode::Require, CertificateCheck::Nothing)),
            (Some("require"), true, (SslMode::Require, CertificateCheck::Issuer)),
            (Some("verify-ca"), true, (SslMode::Require, CertificateCheck::Issuer)),
            (Some("verify-full"), false, (SslMode::Require, CertificateCheck::IssuerAndName)),
        ] {
            assert_eq!(mode_of(mode, has_roots), Ok(expected), "{mode:?} {has_roots}");
        }
        assert_eq!(mode_of(Some("always"), false), Err(InvalidPostgresUrl::Mode("always".into())));
    }

    #[test]
    fn other_parameters_stay_in_the_url() {
        let read =
            without_tls_parameters("postgres://u:p@h/d?sslmode=verify-full&connect_timeout=3&sslrootcert=%2Fa%20b");
        let expected = ("postgres://u:p@h/d?connect_timeout=3", Some("verify-full"), Some("/a b"));
        assert_eq!((read.0.as_str(), read.1.as_deref(), read.2.as_deref()), expected);
        assert_eq!(without_tls_parameters("postgres://h/d?sslmode=disable").0, "postgres://h/d");
    }

    #[test]
    fn urls_are_refused_without_being_quoted() {
        let missing = check_url("postgres://u:secret@h/d?sslmode=verify-full&sslrootcert=/nowhere/ca.pem").unwrap_err();
        assert!(missing.to_string().starts_with("sslrootcert: /nowhere/ca.pem: "), "{missing}");
        let empty = check_url("postgres://u:secret@h/d?sslrootcert=/dev/null").unwrap_err();
        assert!(empty.to_string().contains("contains no certificate"), "{empty}");
        let malformed = check_url("postgres://u:secret@h:port/d").unwrap_err();
        assert!(!malformed.to_string().contains("secret"), "{malformed}");
        assert_eq!(read_url("postgres://u:p@h/d").unwrap().0.get_ssl_mode(), SslMode::Disable);
    }
}
