//! Messages about a PostgreSQL server that cannot be reached: host, database and the reason.

use std::error::Error as StdError;
use std::str::FromStr as _;

use deadpool_postgres::PoolError;
use tokio_postgres::Config;
use tokio_postgres::config::Host;

use super::tls::without_tls_parameters;
use crate::error::Error;

const DEFAULT_PORT: u16 = 5432;

/// Host, port and database of a URL; never the user or the password.
pub(super) fn place(url: &str) -> String {
    let (url, ..) = without_tls_parameters(url);
    let Ok(config) = Config::from_str(&url) else { return "PostgreSQL".to_owned() };
    let ports = config.get_ports();
    let host = |(position, host): (usize, &Host)| {
        let port = ports.get(position).or(ports.first()).copied().unwrap_or(DEFAULT_PORT);
        match host {
            Host::Tcp(name) => format!("{name}:{port}"),
            #[cfg(unix)]
            Host::Unix(folder) => format!("{}:{port}", folder.display()),
        }
    };
    let hosts: Vec<String> = config.get_hosts().iter().enumerate().map(host).collect();
    let database = config.get_dbname().or(config.get_user()).unwrap_or("of the user's name");
    format!("PostgreSQL at {}, database {database}", hosts.join(","))
}

/// The error of a pool that returned no connection.
pub(super) fn no_connection(place: &str, error: &PoolError) -> Error {
    let why = match error {
        PoolError::Backend(error) => chain(error),
        other => other.to_string(),
    };
    Error::Away(format!("{place}: {why}"))
}

/// An error with all of its causes, which `Display` of the library leaves out.
pub(super) fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{chain, place};

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn place_names_host_and_database_and_no_password() {
        let shown = place("postgres://app:secret@db.example:6432,other/s3o?connect_timeout=1");
        assert_eq!(shown, "PostgreSQL at db.example:6432,other:5432, database s3o");
        assert_eq!(place("postgres://app@db"), "PostgreSQL at db:5432, database app");
        assert_eq!(place("nonsense with secret"), "PostgreSQL");
    }

    #[test]
    fn chain_names_every_cause() {
        assert_eq!(chain(&Outer(std::io::Error::other("inner"))), "outer: inner");
    }
}
