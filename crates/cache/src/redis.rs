//! Bodies shared between instances in Redis.
//!
//! Every key carries the cluster's identifier and every entry a time after which Redis drops it. A
//! value is believed only if its envelope says that it is that body, whole and unchanged. A Redis
//! that is away, slow or wrong makes reads slower, never wrong, and once it is known to be away
//! nobody waits for it.

mod envelope;
mod link;
mod tls;

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, Pipeline, RedisError, RedisFuture};
use s3o_model::ids::ContentId;

use crate::tier::{Entry, Tier, TierError};
use link::{Lines, Link};
pub use tls::InvalidUrl;

/// How long a reader waits for an answer.
const ASK_MAX: Duration = Duration::from_millis(100);
/// How long an errand may take.
const TELL_MAX: Duration = Duration::from_secs(2);

/// Checks a URL and reads its certificates, without connecting.
pub fn check_url(url: &str) -> Result<(), InvalidUrl> {
    tls::client(url).map(drop)
}

/// Connects, asks for an answer and changes nothing.
pub async fn ping(url: &str) -> Result<(), String> {
    let client = tls::client(url).map_err(|error| error.to_string())?;
    Link::new(client).connect(0).await.map(drop)
}

/// Bodies in Redis.
pub struct Redis {
    link: Link,
    prefix: String,
}

impl Redis {
    /// The bodies of a cluster. Nothing is connected before [`Tier::stay_reachable`] is polled.
    pub fn new(url: &str, cluster: &str) -> Result<Self, InvalidUrl> {
        Ok(Self { link: Link::new(tls::client(url)?), prefix: format!("s3o:{cluster}:body:") })
    }

    fn key(&self, content: ContentId) -> String {
        format!("{}{content}", self.prefix)
    }

    /// Runs a pipeline whose answers say nothing but whether it went well.
    async fn tell(&self, pipeline: &Pipeline) -> Result<(), TierError> {
        let mut lines = self.link.lines().ok_or(TierError::NotAsked)?;
        let told = pipeline.exec_async(&mut lines.telling);
        match tokio::time::timeout(TELL_MAX, told).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                // A full Redis refuses to keep, and still answers those who ask.
                if !refused(&error) {
                    self.link.cut(&lines, &error);
                }
                Err(TierError::Away(error.to_string()))
            }
            Err(_) => Err(self.too_slow(&lines)),
        }
    }

    fn too_slow(&self, lines: &Lines) -> TierError {
        self.link.cut(lines, &"no answer in time");
        TierError::Away("no answer in time".to_owned())
    }
}

/// Whether Redis itself said no.
fn refused(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension)
}

/// A value that should have this length; nothing, if there is none. Of one that somebody made longer there is a byte too
/// many and no more, so that it is seen and costs no memory.
fn value_of(connection: &mut MultiplexedConnection, key: String, length: u64) -> RedisFuture<'_, Vec<u8>> {
    Box::pin(async move { redis::cmd("GETRANGE").arg(key).arg(0).arg(length).query_async(connection).await })
}

#[async_trait]
impl Tier for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    async fn get(&self, content: ContentId, size_bytes: u64) -> Result<Option<Bytes>, TierError> {
        let mut lines = self.link.lines().ok_or(TierError::NotAsked)?;
        let asked = value_of(&mut lines.asking, self.key(content), envelope::length(size_bytes));
        match tokio::time::timeout(ASK_MAX, asked).await {
            Ok(Ok(value)) => {
                self.link.answered();
                let value = (!value.is_empty()).then_some(value);
                value.map(|value| envelope::open(value, content, size_bytes)).transpose().map_err(TierError::Wrong)
            }
            Ok(Err(error)) => {
                self.link.failed(&lines, &error);
                Err(TierError::Away(error.to_string()))
            }
            Err(_) => {
                self.link.failed(&lines, &"no answer in time");
                Err(TierError::Away("no answer in time".to_owned()))
            }
        }
    }

    async fn keep(&self, entries: &[Entry]) -> Result<(), TierError> {
        let mut pipeline = Pipeline::with_capacity(entries.len());
        for entry in entries {
            let value = envelope::seal(entry.content, &entry.body);
            let time_ms = u64::try_from(entry.time.as_millis()).unwrap_or(u64::MAX).max(1);
            pipeline.cmd("SET").arg(self.key(entry.content)).arg(value).arg("PX").arg(time_ms).ignore();
        }
        self.tell(&pipeline).await
    }

    async fn forget(&self, contents: &[ContentId]) -> Result<(), TierError> {
        let mut pipeline = Pipeline::new();
        for some in contents.chunks(crate::tier::FORGET_MAX) {
            let keys: Vec<String> = some.iter().map(|content| self.key(*content)).collect();
            pipeline.cmd("UNLINK").arg(keys).ignore();
        }
        self.tell(&pipeline).await
    }

    async fn stay_reachable(&self) {
        self.link.stay_connected().await;
    }

    fn is_reachable(&self) -> bool {
        self.link.lines().is_some()
    }
}

#[cfg(test)]
pub(crate) mod tests;
