//! The operating system's side: signals, sockets, the limit on open files, the kernel's clock state.

use std::io;
use std::net::SocketAddr;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use s3o_server::listener::ConnectionLimits;
use s3o_workers::KernelClock;
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::CommandFailure;
use crate::config::{Config, Server};

/// Connections to the admin listener. They have a limit of their own, so that health checks are always answered.
pub const ADMIN_LIMITS: ConnectionLimits = ConnectionLimits { total: 128, per_address: 128 };
/// Files and sockets of the process itself: catalog, audit file, runtime, workers, admin and refused connections.
const RESERVED_FILES: u64 = 384;
/// Files or backend connections that one request may have open.
const FILES_PER_REQUEST: u64 = 2;
/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// The SIGHUP stream of a process that was started as `s3o serve`; None for other commands, which SIGHUP ends. `main`
/// calls it first, so that no SIGHUP ends a server.
pub fn early_sighup() -> Option<io::Result<Signal>> {
    let is_serve = std::env::args_os().nth(1).is_some_and(|command| command == "serve");
    is_serve.then(install_sighup)
}

/// Installs a handler for SIGHUP. The handler and its stream outlive the temporary runtime that tokio requires here; a
/// signal that arrives before the server reads the stream is delivered then.
pub(super) fn install_sighup() -> io::Result<Signal> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _entered = runtime.enter();
    signal(SignalKind::hangup())
}

/// The signals that the server handles. Once installed, none of them ends the process by default action.
pub(super) struct Signals {
    sighup: Signal,
    sigterm: Signal,
    sigint: Signal,
}

impl Signals {
    /// Installs the handlers for SIGTERM and SIGINT.
    pub fn install(sighup: Signal) -> io::Result<Self> {
        Ok(Self { sighup, sigterm: signal(SignalKind::terminate())?, sigint: signal(SignalKind::interrupt())? })
    }

    /// The SIGHUP stream, and a future that completes at the first SIGTERM or SIGINT.
    pub fn split(self) -> (Signal, impl Future<Output = ()>) {
        let Self { sighup, mut sigterm, mut sigint } = self;
        let stop = async move {
            tokio::select! {
                _ = sigterm.recv() => {}
                _ = sigint.recv() => {}
            }
        };
        (sighup, stop)
    }
}

/// Both addresses, bound but not listening: clients are refused, and an address in use is found before the start
/// creates any file.
pub(super) struct Sockets {
    s3: (TcpSocket, SocketAddr),
    admin: (TcpSocket, SocketAddr),
}

/// The listening sockets.
pub(super) struct Listeners {
    pub s3: TcpListener,
    pub admin: TcpListener,
}

impl Sockets {
    pub fn bind(config: &Config) -> Result<Self, CommandFailure> {
        Ok(Self { s3: bind(config.server.listen)?, admin: bind(config.admin.listen)? })
    }

    pub fn listen(self) -> Result<Listeners, CommandFailure> {
        let listen = |(socket, address): (TcpSocket, SocketAddr)| {
            socket.listen(BACKLOG).map_err(|error| cannot_listen(address, &error))
        };
        Ok(Listeners { s3: listen(self.s3)?, admin: listen(self.admin)? })
    }
}

fn bind(address: SocketAddr) -> Result<(TcpSocket, SocketAddr), CommandFailure> {
    let open = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // A restart does not wait for the connections of the previous process to time out.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(socket)
    };
    open().map(|socket| (socket, address)).map_err(|error: io::Error| cannot_listen(address, &error))
}

fn cannot_listen(address: SocketAddr, error: &io::Error) -> CommandFailure {
    CommandFailure::of(&format!("cannot listen on {address}"), error)
}

/// Raises the limit on open files as far as needed and allowed; returns the S3 connections that it permits.
pub(super) fn raise_open_files(server: &Server) -> ConnectionLimits {
    let requests = FILES_PER_REQUEST * to_u64(server.max_concurrent_requests);
    let needed = RESERVED_FILES + to_u64(server.max_connections) + requests;
    let limit = raise(needed);
    let total = connections_within(limit, server);
    if total < server.max_connections {
        let configured = server.max_connections;
        let fix = "raise the hard limit: ulimit -Hn, or LimitNOFILE of systemd";
        tracing::warn!(limit, needed, configured, total, fix, "limit on open files too low, max_connections lowered");
    }
    ConnectionLimits { total, per_address: server.max_connections_per_address }
}

/// Raises the soft limit, never above the hard one; returns the limit in force.
fn raise(needed: u64) -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let (soft, hard) = (current.unwrap_or(u64::MAX), maximum.unwrap_or(u64::MAX));
    let raised = needed.min(hard);
    if raised <= soft {
        return soft;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum }) {
        Ok(()) => raised,
        Err(error) => {
            tracing::warn!(%error, soft, raised, "cannot raise limit on open files");
            soft
        }
    }
}

/// The connections that leave enough files for requests: for all request slots, or where that is too few connections,
/// for one request per connection.
fn connections_within(limit: u64, server: &Server) -> usize {
    let free = limit.saturating_sub(RESERVED_FILES);
    let beside_all_slots = free.saturating_sub(FILES_PER_REQUEST * to_u64(server.max_concurrent_requests));
    let fit = beside_all_slots.max(free / (1 + FILES_PER_REQUEST)).max(1);
    usize::try_from(fit).unwrap_or(usize::MAX).min(server.max_connections)
}

fn to_u64(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX / 4)
}

/// `STA_UNSYNC` of `adjtimex(2)`: nothing disciplines the clock.
const UNSYNCHRONISED: i32 = 0x40;
/// `TIME_ERROR` of `adjtimex(2)`: the clock is not synchronised.
const TIME_ERROR: i32 = 5;

/// Asks the kernel of this machine whether its clock is synchronised.
pub(super) struct SystemKernelClock;

impl KernelClock for SystemKernelClock {
    #[cfg(target_os = "linux")]
    fn is_synchronised(&self) -> bool {
        // A `timex` without modes only reads.
        let mut answer = rtime_clock::adjtime::Timex::new();
        rtime_clock::adjtime::adjtimex(&mut answer)
            .is_ok_and(|state| state != TIME_ERROR && answer.0.status & UNSYNCHRONISED == 0)
    }

    #[cfg(not(target_os = "linux"))]
    fn is_synchronised(&self) -> bool {
        false
    }
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
