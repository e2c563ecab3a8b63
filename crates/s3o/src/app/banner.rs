//! What a start prints on standard output: where the server listens and how to connect.

use std::net::SocketAddr;

use super::os::Listeners;
use crate::config::Config;
use crate::credentials::Generated;

/// Prints the addresses. Generated secrets are printed by the start that generated them; later starts print where they
/// are stored.
pub(super) fn print(config: &Config, generated: Option<&Generated>, listeners: &Listeners) {
    let s3 = listeners.s3.local_addr().unwrap_or(config.server.listen);
    let admin = listeners.admin.local_addr().unwrap_or(config.admin.listen);
    println!("{}", text(&config.server.region, generated, s3, admin));
}

fn text(region: &str, generated: Option<&Generated>, s3: SocketAddr, admin: SocketAddr) -> String {
    let mut lines = vec![format!("s3o serves S3 on http://{s3} and its admin API on http://{admin}")];
    let Some(Generated { credentials, is_new, has_keys, has_token, stored_in }) = generated else {
        return lines.concat();
    };
    if !is_new {
        lines.push(format!("generated keys and admin token: {stored_in}"));
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
    lines.push(format!("\nthese secrets are printed only this time; they are stored in {stored_in}"));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::text;
    use crate::credentials::{Credentials, Generated};

    fn banner(is_new: bool, has_keys: bool) -> String {
        let credentials = Credentials {
            access_key_id: "ID".to_owned(),
            secret_access_key: "SECRET".to_owned(),
            admin_token: "TOKEN".to_owned(),
        };
        let generated = Generated { credentials, is_new, has_keys, has_token: true, stored_in: "FILE".to_owned() };
        let address = |port| std::net::SocketAddr::from(([127, 0, 0, 1], port));
        text("moon", Some(&generated), address(1), address(2))
    }

    #[test]
    fn secrets_are_printed_by_the_first_start_only() {
        let first = banner(true, true);
        for line in ["export AWS_SECRET_ACCESS_KEY=SECRET", "export AWS_REGION=moon", "export S3O_ADMIN_TOKEN=TOKEN"] {
            assert!(first.lines().any(|found| found.trim() == line), "{line} not in:\n{first}");
        }
        let later = banner(false, true);
        assert!(later.contains("FILE") && !later.contains("SECRET") && !later.contains("TOKEN"), "{later}");
    }

    #[test]
    fn unused_generated_keys_are_not_printed() {
        let printed = banner(true, false);
        assert!(printed.contains("TOKEN") && !printed.contains("SECRET"), "{printed}");
    }
}
