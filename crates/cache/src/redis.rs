//! The Redis tier, shared between instances.
//!
//! Every key contains the cluster's identifier, and every entry has an expiration in Redis. A value is
//! used only if its envelope proves that it is that body, complete and unchanged. An unavailable, slow or
//! faulty Redis makes reads slower, never wrong, and once it is known to be unavailable no read waits
//! for it.

mod connection;
mod envelope;
mod tls;
mod usage;

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, Pipeline, RedisError, RedisFuture};
use s3o_model::ids::ContentId;

use crate::tier::{CacheEntry, Tier, TierError};
use connection::RedisLink;
pub use tls::InvalidRedisUrl;
pub use usage::RedisUsage;

/// Timeout of a read.
const READ_MAX: Duration = Duration::from_millis(100);
/// Timeout of a write-behind batch.
const WRITE_MAX: Duration = Duration::from_secs(2);
const TIMED_OUT: &str = "no answer in time";

/// Validates a URL and reads its certificates, without connecting.
pub fn check_url(url: &str) -> Result<(), InvalidRedisUrl> {
    tls::client(url).map(drop)
}

/// Connects and sends a PING; it changes nothing.
pub async fn ping(url: &str) -> Result<(), String> {
    let client = tls::client(url).map_err(|error| error.to_string())?;
    RedisLink::new(client).connect(0).await.map(drop)
}

/// Bodies in Redis. An instance without a connection works as if every read missed.
pub struct Redis {
    link: RedisLink,
    prefix: String,
}

impl Redis {
    /// A tier for the bodies of a cluster. [`Tier::stay_reachable`] connects it.
    pub fn new(url: &str, cluster: &str) -> Result<Self, InvalidRedisUrl> {
        Ok(Self { link: RedisLink::new(tls::client(url)?), prefix: format!("s3o:{cluster}:body:") })
    }

    fn key(&self, content: ContentId) -> String {
        format!("{}{content}", self.prefix)
    }

    /// Runs a pipeline and ignores its results.
    async fn write(&self, pipeline: &Pipeline) -> Result<(), TierError> {
        let mut connection = self.link.connection().ok_or(TierError::Skipped)?;
        let execution = pipeline.exec_async(&mut connection.writes);
        match tokio::time::timeout(WRITE_MAX, execution).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                // A full Redis refuses writes but still answers reads.
                if !is_refusal(&error) {
                    self.link.disconnect(&connection, &error);
                }
                Err(TierError::Away(error.to_string()))
            }
            Err(_) => {
                self.link.disconnect(&connection, &TIMED_OUT);
                Err(TierError::Away(TIMED_OUT.to_owned()))
            }
        }
    }
}

/// True if Redis answered and rejected the command.
fn is_refusal(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension)
}

/// Reads a value of this length; empty if there is none. Of a longer value it reads one extra byte, which reveals the
/// wrong length without reading all of it.
fn read_value(connection: &mut MultiplexedConnection, key: String, length: u64) -> RedisFuture<'_, Vec<u8>> {
    Box::pin(async move { redis::cmd("GETRANGE").arg(key).arg(0).arg(length).query_async(connection).await })
}

#[async_trait]
impl Tier for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    async fn get(&self, content: ContentId, size_bytes: u64) -> Result<Option<Bytes>, TierError> {
        let mut connection = self.link.connection().ok_or(TierError::Skipped)?;
        let read = read_value(&mut connection.reads, self.key(content), envelope::length(size_bytes));
        match tokio::time::timeout(READ_MAX, read).await {
            Ok(Ok(value)) => {
                self.link.record_success();
                let value = (!value.is_empty()).then_some(value);
                value.map(|value| envelope::open(value, content, size_bytes)).transpose().map_err(TierError::Corrupt)
            }
            Ok(Err(error)) => {
                self.link.record_failure(&connection, &error);
                Err(TierError::Away(error.to_string()))
            }
            Err(_) => {
                self.link.record_failure(&connection, &TIMED_OUT);
                Err(TierError::Away(TIMED_OUT.to_owned()))
            }
        }
    }

    async fn put(&self, entries: &[CacheEntry]) -> Result<(), TierError> {
        let mut pipeline = Pipeline::with_capacity(entries.len());
        for entry in entries {
            let value = envelope::seal(entry.content, &entry.body);
            let ttl_ms = u64::try_from(entry.ttl.as_millis()).unwrap_or(u64::MAX).max(1);
            pipeline.cmd("SET").arg(self.key(entry.content)).arg(value).arg("PX").arg(ttl_ms).ignore();
        }
        self.write(&pipeline).await
    }

    async fn remove(&self, contents: &[ContentId]) -> Result<(), TierError> {
        let mut pipeline = Pipeline::new();
        for chunk in contents.chunks(crate::tier::REMOVE_MAX) {
            let keys: Vec<String> = chunk.iter().map(|content| self.key(*content)).collect();
            pipeline.cmd("UNLINK").arg(keys).ignore();
        }
        self.write(&pipeline).await
    }

    async fn stay_reachable(&self) {
        self.link.stay_connected().await;
    }

    fn is_reachable(&self) -> bool {
        self.link.connection().is_some()
    }
}

#[cfg(test)]
pub(crate) mod tests;
