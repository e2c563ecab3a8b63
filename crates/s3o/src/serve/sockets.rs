//! The sockets of the two listeners.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

use crate::cli::Failure;

/// Connections that wait to be accepted, at most.
const BACKLOG: u32 = 1024;

/// An address that is bound and not listened on yet: clients are refused, and an address in use is found before the start
/// creates anything.
pub(super) struct Bound {
    socket: TcpSocket,
    address: SocketAddr,
}

pub(super) fn bind(address: SocketAddr) -> Result<Bound, Failure> {
    let open = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // A restart does not wait for the connections of the process before.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(socket)
    };
    open().map(|socket| Bound { socket, address }).map_err(|error: std::io::Error| cannot_listen(address, &error))
}

impl Bound {
    pub fn listen(self) -> Result<TcpListener, Failure> {
        let Self { socket, address } = self;
        socket.listen(BACKLOG).map_err(|error| cannot_listen(address, &error))
    }
}

fn cannot_listen(address: SocketAddr, error: &std::io::Error) -> Failure {
    Failure::of(&format!("cannot listen on {address}"), error)
}
