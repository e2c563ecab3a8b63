//! The connection to Redis. It also serves as the circuit breaker: after a few consecutive failures it is
//! closed, from then on no read waits for Redis, and only the maintenance tries to reconnect.

use std::fmt::Display;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisError};
use tokio::sync::Notify;

/// Timeout of connecting and of the first PING.
const CONNECT_MAX: Duration = Duration::from_secs(1);
/// Interval between attempts to reconnect.
const CONNECT_INTERVAL: Duration = Duration::from_secs(1);
/// Number of consecutive failed reads after which the connection is closed.
const FAILURES_MAX: u32 = 3;

/// Two connections, so that reads do not wait for the bodies of the write-behind queue.
#[derive(Clone)]
pub(super) struct RedisConnection {
    pub(super) reads: MultiplexedConnection,
    /// For the write-behind queue.
    pub(super) writes: MultiplexedConnection,
    /// Distinguishes connections: a failure of an old one must not close its successor.
    number: u64,
}

pub(super) struct RedisLink {
    client: redis::Client,
    current: RwLock<Option<RedisConnection>>,
    failures: AtomicU32,
    disconnected: Notify,
}

impl RedisLink {
    pub(super) fn new(client: redis::Client) -> Self {
        Self { client, current: RwLock::default(), failures: AtomicU32::default(), disconnected: Notify::new() }
    }

    /// The current connection; `None` while Redis is unavailable.
    pub(super) fn connection(&self) -> Option<RedisConnection> {
        self.current.read().clone()
    }

    /// Resets the count of failed reads.
    pub(super) fn record_success(&self) {
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// Counts a failed read; disconnects after `FAILURES_MAX` of them.
    pub(super) fn record_failure(&self, failed: &RedisConnection, why: &dyn Display) {
        if self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= FAILURES_MAX {
            self.disconnect(failed, why);
        }
    }

    /// Closes this connection, if it is the current one.
    pub(super) fn disconnect(&self, failed: &RedisConnection, why: &dyn Display) {
        let mut current = self.current.write();
        if current.as_ref().is_some_and(|current| current.number == failed.number) {
            *current = None;
            tracing::warn!(%why, "redis unavailable, reading without it");
            self.disconnected.notify_one();
        }
    }

    /// Connects, and reconnects after every disconnect; it does not return.
    pub(super) async fn stay_connected(&self) {
        for number in 1.. {
            let mut is_first_try = true;
            loop {
                match self.connect(number).await {
                    Ok(connection) => break self.set_connected(connection),
                    Err(why) if is_first_try => tracing::warn!(%why, "redis does not answer, retrying"),
                    Err(why) => tracing::debug!(%why, "redis does not answer, retrying"),
                }
                is_first_try = false;
                tokio::time::sleep(CONNECT_INTERVAL).await;
            }
            self.disconnected.notified().await;
        }
    }

    fn set_connected(&self, connection: RedisConnection) {
        self.failures.store(0, Ordering::Relaxed);
        *self.current.write() = Some(connection);
        tracing::info!("connected to redis");
    }

    pub(super) async fn connect(&self, number: u64) -> Result<RedisConnection, String> {
        let connecting = async {
            let (reads, writes) = tokio::try_join!(self.open(), self.open())?;
            Ok::<_, RedisError>(RedisConnection { reads, writes, number })
        };
        match tokio::time::timeout(CONNECT_MAX, connecting).await {
            Ok(connected) => connected.map_err(|error| error.to_string()),
            Err(_) => Err(super::TIMED_OUT.to_owned()),
        }
    }

    /// Opens a connection and sends a PING. It has no response timeout of its own; each caller sets one.
    async fn open(&self) -> Result<MultiplexedConnection, RedisError> {
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        let mut connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        redis::cmd("PING").query_async::<()>(&mut connection).await?;
        Ok(connection)
    }
}
