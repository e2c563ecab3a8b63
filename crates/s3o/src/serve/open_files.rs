//! Raises the limit on open files at start and derives from it how many connections fit.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use s3o_server::listener::ConnectionLimits;

use crate::config::Server;

/// Connections to the admin listener. They have places of their own, so that health checks are always answered.
pub const ADMIN_LIMITS: ConnectionLimits = ConnectionLimits { total: 128, per_address: 128 };
/// Files and sockets of the process itself: catalog, audit file, runtime, workers, admin connections, refused connections.
const RESERVED: u64 = 384;
/// Files or backend connections that one request may have open.
const PER_REQUEST: u64 = 2;

/// Raises the limit on open files as far as needed and allowed; returns the connections that fit.
pub fn prepare(server: &Server) -> ConnectionLimits {
    let wanted = RESERVED + to_u64(server.max_connections) + PER_REQUEST * to_u64(server.max_concurrent_requests);
    let limit = raise(wanted);
    let total = connections_within(limit, server);
    if total < server.max_connections {
        let configured = server.max_connections;
        tracing::warn!(limit, wanted, configured, total, "limit on open files is too low, max_connections lowered");
    }
    ConnectionLimits { total, per_address: server.max_connections_per_address }
}

/// Raises the soft limit, never above the hard one; returns the limit in force.
fn raise(wanted: u64) -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let (soft, hard) = (current.unwrap_or(u64::MAX), maximum.unwrap_or(u64::MAX));
    let raised = wanted.min(hard);
    if raised <= soft {
        return soft;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum }) {
        Ok(()) => raised,
        Err(error) => {
            tracing::warn!(%error, soft, raised, "cannot raise the limit on open files");
            soft
        }
    }
}

/// How many connections leave enough files for requests: all slots, or one file for each connection where that is less.
fn connections_within(limit: u64, server: &Server) -> usize {
    let free = limit.saturating_sub(RESERVED);
    let beside_all_slots = free.saturating_sub(PER_REQUEST * to_u64(server.max_concurrent_requests));
    let fit = beside_all_slots.max(free / (1 + PER_REQUEST)).max(1);
    usize::try_from(fit).unwrap_or(usize::MAX).min(server.max_connections)
}

fn to_u64(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::connections_within;
    use crate::config::Config;

    #[test]
    fn connections_fit_below_the_limit_on_open_files() {
        let server = Config::embedded(std::path::Path::new("/x")).server;
        assert_eq!(connections_within(1_000_000, &server), 10_000);
        assert_eq!(connections_within(10_000, &server), 10_000 - 384 - 2000);
        assert_eq!(connections_within(1024, &server), 213, "each with a request that has two files open");
        assert_eq!(connections_within(10, &server), 1);
    }
}
