//! What a start prints on standard output: where the server listens and how to connect.

use std::net::SocketAddr;

use tokio::net::TcpListener;

use super::source::Generated;
use crate::config::Config;

/// Addresses that the process listens on.
pub(super) struct Listening {
    pub s3: SocketAddr,
    pub admin: SocketAddr,
}

impl Listening {
    pub fn new(config: &Config, s3: &TcpListener, admin: &TcpListener) -> Self {
        Self {
            s3: s3.local_addr().unwrap_or(config.server.listen),
            admin: admin.local_addr().unwrap_or(config.admin.listen),
        }
    }
}

/// Prints the addresses. Generated secrets are printed by the start that generated them; later starts print where they
/// are kept.
pub(super) fn print(config: &Config, generated: Option<&Generated>, listening: &Listening) {
    println!("{}", text(&config.server.region, generated, listening));
}

fn text(region: &str, generated: Option<&Generated>, listening: &Listening) -> String {
    let Listening { s3, admin } = listening;
    let mut lines = vec![format!("s3o serves S3 on http://{s3} and its admin API on http://{admin}")];
    let Some(Generated { credentials, is_new, has_keys, has_token, kept_in }) = generated else {
        return lines.concat();
    };
    if !is_new {
        lines.push(format!("generated keys and admin token: {kept_in}"));
        return lines.join("\n");
    }
    if *has_keys {
        lines.push(format!("\n  export AWS_ACCESS_KEY_ID={}", credentials.access_key_id));
        lines.push(format!("  export AWS_SECRET_ACCESS_KEY={}", credentials.secret_access_key));
        lines.push(format!("  export AWS_ENDPOINT_URL=http://{s3}"));
        lines.push(format!("  export AWS_REGION={region}"));
        lines.push("  aws s3 mb s3://photos && aws s3 ls".to_owned());
    }
    if *has_token {
        lines.push(format!("\n  export S3O_ADMIN_URL=http://{admin}"));
        lines.push(format!("  export S3O_ADMIN_TOKEN={}", credentials.admin_token));
        lines.push("  s3o status".to_owned());
    }
    lines.push(format!("\nprinted only this time; kept in {kept_in}"));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::{Listening, text};
    use crate::credentials::Credentials;
    use crate::serve::source::Generated;

    fn shown(is_new: bool, has_keys: bool) -> String {
        let credentials = Credentials {
            access_key_id: "ID".to_owned(),
            secret_access_key: "SECRET".to_owned(),
            admin_token: "TOKEN".to_owned(),
        };
        let generated = Generated { credentials, is_new, has_keys, has_token: true, kept_in: "FILE".to_owned() };
        let address = |port| std::net::SocketAddr::from(([127, 0, 0, 1], port));
        text("moon", Some(&generated), &Listening { s3: address(1), admin: address(2) })
    }

    #[test]
    fn secrets_are_printed_by_the_first_start_only() {
        let first = shown(true, true);
        for line in ["export AWS_SECRET_ACCESS_KEY=SECRET", "export AWS_REGION=moon", "export S3O_ADMIN_TOKEN=TOKEN"] {
            assert!(first.lines().any(|found| found.trim() == line), "{line} not in:\n{first}");
        }
        let later = shown(false, true);
        assert!(later.contains("FILE") && !later.contains("SECRET") && !later.contains("TOKEN"), "{later}");
    }

    #[test]
    fn configured_keys_are_not_replaced_by_unused_ones() {
        let printed = shown(true, false);
        assert!(printed.contains("TOKEN") && !printed.contains("SECRET"), "{printed}");
    }
}
