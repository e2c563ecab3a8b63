//! The connection to Redis, and whether there is one. Being connected is the whole breaker: after
//! a few failures in a row the connection is cut, from then on nobody asks and nobody waits, and
//! only the upkeep tries whether Redis is back.

use std::fmt::Display;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisError};
use tokio::sync::Notify;

/// How long a connection may take to be made and to give a first answer.
const CONNECT_MAX: Duration = Duration::from_secs(1);
/// How often a Redis that is away is tried.
const CONNECT_INTERVAL: Duration = Duration::from_secs(1);
/// After how many failures in a row it is taken to be away.
const FAILURES_MAX: u32 = 3;

/// Two connections: a reader's question does not wait behind the bodies that are being shared.
#[derive(Clone)]
pub(super) struct Lines {
    /// For readers.
    pub(super) asking: MultiplexedConnection,
    /// For errands.
    pub(super) telling: MultiplexedConnection,
    /// Which connection this is: the failure of an old one says nothing about the next.
    number: u64,
}

/// The way to Redis.
pub(super) struct Link {
    client: redis::Client,
    lines: RwLock<Option<Lines>>,
    failures: AtomicU32,
    was_cut: Notify,
}

impl Link {
    pub(super) fn new(client: redis::Client) -> Self {
        Self { client, lines: RwLock::default(), failures: AtomicU32::default(), was_cut: Notify::new() }
    }

    /// The connections, while there are any.
    pub(super) fn lines(&self) -> Option<Lines> {
        self.lines.read().clone()
    }

    /// Redis answered a reader.
    pub(super) fn answered(&self) {
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// Redis did not answer a reader, or not with a value.
    pub(super) fn failed(&self, lines: &Lines, why: &dyn Display) {
        if self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= FAILURES_MAX {
            self.cut(lines, why);
        }
    }

    /// Gives these connections up.
    pub(super) fn cut(&self, lines: &Lines, why: &dyn Display) {
        let mut current = self.lines.write();
        if current.as_ref().is_some_and(|current| current.number == lines.number) {
            *current = None;
            tracing::warn!(%why, "redis is away: reading without it");
            self.was_cut.notify_one();
        }
    }

    /// Connects, and again whenever the connection was cut, for as long as it is polled.
    pub(super) async fn stay_connected(&self) {
        for number in 1.. {
            let mut is_first_try = true;
            loop {
                match self.connect(number).await {
                    Ok(lines) => break self.join(lines),
                    Err(why) if is_first_try => tracing::warn!(%why, "redis does not answer: trying again"),
                    Err(why) => tracing::debug!(%why, "redis does not answer: trying again"),
                }
                is_first_try = false;
                tokio::time::sleep(CONNECT_INTERVAL).await;
            }
            self.was_cut.notified().await;
        }
    }

    fn join(&self, lines: Lines) {
        self.failures.store(0, Ordering::Relaxed);
        *self.lines.write() = Some(lines);
        tracing::info!("connected to redis");
    }

    pub(super) async fn connect(&self, number: u64) -> Result<Lines, String> {
        let connecting = async {
            let (asking, telling) = tokio::try_join!(self.line(), self.line())?;
            Ok::<_, RedisError>(Lines { asking, telling, number })
        };
        match tokio::time::timeout(CONNECT_MAX, connecting).await {
            Ok(connected) => connected.map_err(|error| error.to_string()),
            Err(_) => Err("no answer in time".to_owned()),
        }
    }

    /// A connection that has answered once. Each answer is waited for by whoever asks.
    async fn line(&self) -> Result<MultiplexedConnection, RedisError> {
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        let mut line = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        redis::cmd("PING").query_async::<()>(&mut line).await?;
        Ok(line)
    }
}
