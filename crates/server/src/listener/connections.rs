//! Counts the open connections of a listener and bounds them, in total and per client address.
//!
//! When a limit is reached, a new connection replaces the one that has been idle longest: first one that never carried
//! an authenticated request. Only when every connection has a request in flight is the new one refused. So idle
//! connections, however many, never keep a client from being served.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Value of `idle_since` while a request is in flight.
const BUSY: u64 = u64::MAX;
/// Warnings about refused connections are logged at most this often.
const WARNING_INTERVAL: Duration = Duration::from_mins(1);

/// Limits for the connections of a listener.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// From all clients together.
    pub total: usize,
    /// From one IPv4 address or one IPv6 /64 network.
    pub per_address: usize,
}

/// The open connections of one listener.
pub(super) struct Connections {
    limits: ConnectionLimits,
    started: Instant,
    state: Mutex<ConnectionTable>,
}

#[derive(Default)]
struct ConnectionTable {
    next_id: u64,
    open: HashMap<u64, ConnectionHandle>,
    per_address: HashMap<IpAddr, usize>,
    refused: u64,
    warned_at: Option<Instant>,
}

/// One connection, as requests and the listener see it. The listener puts it into the extensions of each request.
#[derive(Clone)]
pub struct ConnectionHandle(Arc<ConnectionState>);

struct ConnectionState {
    address: IpAddr,
    started: Instant,
    /// When the last request ended, in milliseconds since the listener started; [`BUSY`] while one is in flight.
    idle_since: AtomicU64,
    authenticated: AtomicBool,
    ended: Notify,
}

/// A counted connection; dropping it removes it from the count.
pub(super) struct OpenConnection {
    id: u64,
    handle: ConnectionHandle,
    connections: Arc<Connections>,
}

/// A request in flight; dropping it makes its connection idle.
pub struct RequestInFlight(ConnectionHandle);

impl Connections {
    pub(super) fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self { limits, started: Instant::now(), state: Mutex::default() })
    }

    /// Counts a new connection; `None` if a limit is reached and no connection is idle.
    pub(super) fn open(self: &Arc<Self>, peer: IpAddr) -> Option<OpenConnection> {
        let address = group(peer);
        let mut state = self.lock();
        let from_address = state.per_address.get(&address).copied().unwrap_or(0);
        let fits = if from_address >= self.limits.per_address {
            state.end_longest_idle(Some(address))
        } else if state.open.len() >= self.limits.total {
            state.end_longest_idle(None)
        } else {
            true
        };
        if !fits {
            state.count_refusal(&self.limits);
            return None;
        }
        let id = state.next_id;
        state.next_id += 1;
        let handle = ConnectionHandle::new(address, self.started);
        state.open.insert(id, handle.clone());
        *state.per_address.entry(address).or_default() += 1;
        Some(OpenConnection { id, handle, connections: Arc::clone(self) })
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionTable> {
        self.state.lock()
    }
}

impl ConnectionTable {
    /// Ends the connection that has been idle longest, of this address or of all; false if none is idle.
    fn end_longest_idle(&mut self, address: Option<IpAddr>) -> bool {
        let candidates = self.open.iter().filter(|(_, handle)| address.is_none_or(|only| only == handle.0.address));
        let idle = candidates.filter_map(|(id, handle)| Some((handle.idle_rank()?, *id)));
        let Some((_, id)) = idle.min() else { return false };
        if let Some(handle) = self.remove(id) {
            handle.end();
        }
        true
    }

    fn remove(&mut self, id: u64) -> Option<ConnectionHandle> {
        let handle = self.open.remove(&id)?;
        if let Some(count) = self.per_address.get_mut(&handle.0.address) {
            *count -= 1;
            if *count == 0 {
                self.per_address.remove(&handle.0.address);
            }
        }
        Some(handle)
    }

    fn count_refusal(&mut self, limits: &ConnectionLimits) {
        self.refused += 1;
        if self.warned_at.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL) {
            self.warned_at = Some(Instant::now());
            let (open, refused) = (self.open.len(), self.refused);
            tracing::warn!(open, refused, ?limits, "connections refused, all open connections have requests in flight");
        }
    }
}

impl ConnectionHandle {
    fn new(address: IpAddr, started: Instant) -> Self {
        let handle = Self(Arc::new(ConnectionState {
            address,
            started,
            idle_since: AtomicU64::new(0),
            authenticated: AtomicBool::new(false),
            ended: Notify::new(),
        }));
        handle.become_idle();
        handle
    }

    /// Closes the connection at once, even with a request in flight.
    pub fn end(&self) {
        self.0.ended.notify_one();
    }

    /// Records that a request on this connection had a valid signature.
    pub fn mark_authenticated(&self) {
        self.0.authenticated.store(true, Ordering::Relaxed);
    }

    /// Completes when [`Self::end`] was called.
    pub(super) async fn ended(&self) {
        self.0.ended.notified().await;
    }

    pub(super) fn begin_request(&self) -> RequestInFlight {
        self.0.idle_since.store(BUSY, Ordering::Relaxed);
        RequestInFlight(self.clone())
    }

    fn become_idle(&self) {
        let elapsed = u64::try_from(self.0.started.elapsed().as_millis()).unwrap_or(BUSY - 1);
        self.0.idle_since.store(elapsed, Ordering::Relaxed);
    }

    /// Orders idle connections by which is ended first; `None` while a request is in flight.
    fn idle_rank(&self) -> Option<(bool, u64)> {
        let idle_since = self.0.idle_since.load(Ordering::Relaxed);
        (idle_since != BUSY).then(|| (self.0.authenticated.load(Ordering::Relaxed), idle_since))
    }
}

impl OpenConnection {
    pub(super) fn handle(&self) -> &ConnectionHandle {
        &self.handle
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.connections.lock().remove(self.id);
    }
}

impl Drop for RequestInFlight {
    fn drop(&mut self) {
        self.0.become_idle();
    }
}

/// The address under which a client is counted: IPv6 hosts choose freely within a /64 network.
fn group(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::{ConnectionLimits, Connections, group};
    use std::net::IpAddr;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::time::advance;

    fn connections(total: usize, per_address: usize) -> Arc<Connections> {
        Connections::new(ConnectionLimits { total, per_address })
    }

    fn address(last: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, last])
    }

    #[tokio::test(start_paused = true)]
    async fn new_connection_replaces_longest_idle_one() {
        let all = connections(2, 2);
        let older = all.open(address(1)).unwrap();
        advance(Duration::from_secs(1)).await;
        let newer = all.open(address(1)).unwrap();
        let _third = all.open(address(2)).unwrap();
        older.handle().ended().await;
        assert!(tokio::time::timeout(Duration::from_secs(1), newer.handle().ended()).await.is_err());
        assert_eq!(all.lock().open.len(), 2);
        drop(older);
        assert_eq!(all.lock().open.len(), 2, "a connection that was ended is not counted twice");
    }

    #[tokio::test(start_paused = true)]
    async fn unauthenticated_connections_are_ended_first() {
        let all = connections(2, 2);
        let authenticated = all.open(address(1)).unwrap();
        authenticated.handle().mark_authenticated();
        advance(Duration::from_secs(1)).await;
        let unauthenticated = all.open(address(2)).unwrap();
        let _third = all.open(address(3)).unwrap();
        unauthenticated.handle().ended().await;
    }

    #[tokio::test]
    async fn connections_with_requests_in_flight_are_kept() {
        let all = connections(2, 1);
        let busy = all.open(address(1)).unwrap();
        let request = busy.handle().begin_request();
        assert!(all.open(address(1)).is_none(), "the limit of the address");
        let other = all.open(address(2)).unwrap();
        let _second = other.handle().begin_request();
        assert!(all.open(address(3)).is_none(), "the limit of all");
        drop(request);
        assert!(all.open(address(3)).is_some(), "an idle connection is replaced");
        drop((busy, other));
        assert!(all.lock().per_address.is_empty());
    }

    #[test]
    fn clients_are_counted_by_address_or_network() {
        let same = |a: &str, b: &str| group(a.parse().unwrap()) == group(b.parse().unwrap());
        assert!(same("2001:db8::1", "2001:db8::ffff:2"));
        assert!(same("::ffff:10.0.0.1", "10.0.0.1"));
        assert!(!same("2001:db8::1", "2001:db8:0:1::1"));
        assert!(!same("10.0.0.1", "10.0.0.2"));
    }
}
