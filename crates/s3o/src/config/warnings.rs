//! Warnings about settings that are valid but risky.

use std::net::{IpAddr, SocketAddr};

use super::{Config, replication};

const TOKEN_CHARACTERS_MIN: usize = 16;

impl Config {
    /// One warning per risky setting, with its path and what to use instead.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let characters = self.admin.token.as_ref().map(|token| token.chars().count());
        if let Some(characters) = characters.filter(|characters| *characters < TOKEN_CHARACTERS_MIN) {
            warnings.push(format!(
                "admin.token: it has {characters} characters and can be guessed, use {TOKEN_CHARACTERS_MIN} or more"
            ));
        }
        for (path, address, shown) in [
            ("server.listen", self.server.listen, "objects and presigned URLs"),
            ("admin.listen", self.admin.listen, "the admin token"),
        ] {
            if is_public(address) {
                warnings.push(format!(
                    "{path}: {address} is a public address without TLS, so others can read {shown}; listen on a \
                     private address behind a proxy with TLS"
                ));
            }
        }
        warnings.extend(replication::warnings(self));
        warnings
    }
}

/// True unless the address is loopback, private or link-local. The unspecified address includes public ones.
fn is_public(address: SocketAddr) -> bool {
    match address.ip().to_canonical() {
        ip if ip.is_unspecified() => true,
        ip if ip.is_loopback() => false,
        IpAddr::V4(ip) => !ip.is_private() && !ip.is_link_local(),
        IpAddr::V6(ip) => !ip.is_unique_local() && !ip.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::is_public;

    fn warnings(settings: &str) -> Vec<String> {
        let text = format!("backends: [{{name: disk, kind: fs}}]\n{settings}");
        Config::parse(&text, |_| None).expect("valid").warnings()
    }

    #[test]
    fn short_admin_tokens_are_warned_about() {
        assert_eq!(warnings(""), Vec::<String>::new());
        assert_eq!(warnings("admin: {token: 0123456789abcdef}"), Vec::<String>::new());
        let found = warnings("admin: {token: hunter2}");
        assert!(
            found.len() == 1 && found[0].starts_with("admin.token: ") && !found[0].contains("hunter2"),
            "{found:?}"
        );
    }

    /// Backends may have been removed since the factor was configured.
    #[test]
    fn factor_above_the_number_of_backends_is_a_warning() {
        let buckets = "buckets: [{name: photos, replication_factor: 3}, {name: logs}]";
        let found = warnings(&format!("replication: {{factor: 2}}\n{buckets}"));
        assert!(found.len() == 2 && found[0].starts_with("replication.factor: 2 copies need 2 backends"), "{found:?}");
        assert!(found[1].starts_with("buckets photos: replication_factor: 3 copies"), "{found:?}");
    }

    #[test]
    fn public_addresses_without_tls_are_warned_about() {
        for private in ["127.0.0.1:1", "10.1.2.3:1", "192.168.0.1:1", "[::1]:1", "[fd00::1]:1", "[::ffff:10.0.0.1]:1"] {
            assert!(!is_public(private.parse().expect("an address")), "{private}");
        }
        for public in ["0.0.0.0:1", "[::]:1", "8.8.8.8:1", "[2001:db8::1]:1", "[::ffff:8.8.8.8]:1"] {
            assert!(is_public(public.parse().expect("an address")), "{public}");
        }
        let found = warnings("server: {listen: '0.0.0.0:9000'}\nadmin: {listen: '8.8.8.8:9001'}");
        assert!(found.len() == 2 && found[0].starts_with("server.listen: 0.0.0.0:9000"), "{found:?}");
    }
}
