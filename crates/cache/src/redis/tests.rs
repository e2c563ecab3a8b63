//! Tests of the Redis tier against a real Redis and against faulty servers.

use super::{Redis, check_url, envelope};
use crate::conformance::{entry, fresh};
use crate::tier::{CacheEntry, Tier, TierError};
use bytes::Bytes;
use futures_util::FutureExt as _;
use redis::AsyncCommands as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

const MINUTE: Duration = Duration::from_mins(1);

/// Aborts its task when it is dropped.
pub(crate) struct TaskGuard(JoinHandle<()>);

impl TaskGuard {
    pub(crate) fn new(task: JoinHandle<()>) -> Self {
        Self(task)
    }
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(crate) fn url() -> String {
    std::env::var("S3O_TEST_REDIS_URL").expect("S3O_TEST_REDIS_URL names a Redis: scripts/redis.sh starts one")
}

fn tier_at(url: &str) -> (Arc<Redis>, TaskGuard) {
    let tier = Arc::new(Redis::new(url, "test").expect("a valid URL"));
    let polled = Arc::clone(&tier);
    (tier, TaskGuard(tokio::spawn(async move { polled.stay_reachable().await })))
}

/// A connected tier on the Redis of the tests.
pub(crate) async fn reachable() -> (Arc<Redis>, TaskGuard) {
    let (tier, maintenance) = tier_at(&url());
    wait_until("connected", || tier.is_reachable()).await;
    (tier, maintenance)
}

async fn wait_until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..1_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not {what} within ten seconds");
}

async fn raw() -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(url()).expect("a valid URL");
    client.get_multiplexed_async_connection().await.expect("connected")
}

#[tokio::test]
async fn entries_expire_and_their_keys_contain_the_cluster() {
    let (tier, _maintenance) = reachable().await;
    let content = fresh();
    tier.put(&[entry(content, b"abc", MINUTE)]).await.expect("stored");
    let left: i64 = raw().await.pttl(format!("s3o:test:body:{content}")).await.expect("an answer");
    assert!((1..=60_000).contains(&left), "{left} ms left");
}

#[tokio::test]
async fn changed_values_are_corrupt() {
    let (tier, _maintenance) = reachable().await;
    let content = fresh();
    let key = format!("s3o:test:body:{content}");
    let sealed = envelope::seal(content, b"abc");
    let flipped = [&sealed[..sealed.len() - 1], b"d"].concat();
    let (cut, grown) = (sealed[..sealed.len() - 1].to_vec(), [&sealed[..], b"d"].concat());
    for value in [b"garbage".to_vec(), cut, grown, flipped] {
        raw().await.set::<_, _, ()>(&key, value).await.expect("set");
        assert!(matches!(tier.get(content, 3).await, Err(TierError::Corrupt(_))));
    }
    raw().await.set::<_, _, ()>(&key, b"").await.expect("set");
    assert_eq!(tier.get(content, 3).await, Ok(None), "an empty value is no entry");
    raw().await.del::<_, ()>(&key).await.expect("deleted");
    raw().await.lpush::<_, _, ()>(&key, "a list").await.expect("pushed");
    assert!(matches!(tier.get(content, 3).await, Err(TierError::Away(_))));
    tier.remove(&[content]).await.expect("removed");
    assert_eq!(tier.get(content, 3).await, Ok(None), "one refusal does not close the connection");
}

#[tokio::test]
async fn one_extra_byte_is_read_of_a_value_that_is_too_long() {
    let (tier, _maintenance) = reachable().await;
    let content = fresh();
    let (key, sealed) = (format!("s3o:test:body:{content}"), envelope::seal(content, b"abc"));
    raw().await.set::<_, _, ()>(&key, vec![7_u8; 4 << 20]).await.expect("set");
    let connection = tier.link.connection().expect("connected");
    let read = super::read_value(&mut connection.reads.clone(), key, envelope::length(3)).await.expect("an answer");
    assert_eq!(read.len(), sealed.len() + 1);
    tier.remove(&[content]).await.expect("removed");
}

#[tokio::test]
async fn missing_redis_is_not_queried() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    let (tier, _maintenance) = tier_at(&format!("redis://127.0.0.1:{port}"));
    tokio::time::sleep(Duration::from_millis(50)).await;
    for _ in 0..10_000 {
        assert_eq!(tier.get(fresh(), 3).now_or_never(), Some(Err(TierError::Skipped)), "a reader timeouts");
    }
    assert_eq!(tier.remove(&[fresh()]).await, Err(TierError::Skipped));
}

/// A server that sends this many answers per connection and then none.
async fn silent_after(answers: usize) -> (String, TaskGuard) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("redis://{}", listener.local_addr().expect("an address"));
    let silence = tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.expect("a connection");
            tokio::spawn(async move {
                let (mut buffer, mut left) = (vec![0; 65_536], answers);
                while let Ok(length @ 1..) = socket.read(&mut buffer).await {
                    let commands = String::from_utf8_lossy(&buffer[..length]).matches('*').count();
                    let answered = commands.min(left);
                    left -= answered;
                    tokio::io::AsyncWriteExt::write_all(&mut socket, "+OK\r\n".repeat(answered).as_bytes())
                        .await
                        .expect("sent");
                }
            });
        }
    });
    (url, TaskGuard(silence))
}

#[tokio::test]
async fn silent_redis_costs_three_timeouts_and_is_then_not_queried() {
    let (url, _silence) = silent_after(3).await;
    let (tier, _maintenance) = tier_at(&url);
    wait_until("connected", || tier.is_reachable()).await;
    let mut timeouts = 0;
    while tier.is_reachable() {
        assert!(matches!(tier.get(fresh(), 3).await, Err(TierError::Away(_))));
        timeouts += 1;
    }
    assert_eq!(timeouts, 3);
    assert_eq!(tier.get(fresh(), 3).await, Err(TierError::Skipped));
}

/// A proxy to the Redis of the tests; the notification closes all its connections.
async fn relay() -> (String, Arc<Notify>, TaskGuard) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let relayed = format!("redis://{}", listener.local_addr().expect("an address"));
    let (cut, target) = (Arc::new(Notify::new()), url().replace("redis://", ""));
    let closed = Arc::clone(&cut);
    let passing = tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.expect("a connection");
            let (closed, target) = (Arc::clone(&closed), target.clone());
            tokio::spawn(async move {
                let mut redis = tokio::net::TcpStream::connect(target).await.expect("connected");
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut socket, &mut redis) => {}
                    () = closed.notified() => {}
                }
            });
        }
    });
    (relayed, cut, TaskGuard(passing))
}

#[tokio::test]
async fn lost_connection_is_reopened() {
    let (url, cut, _passing) = relay().await;
    let (tier, _maintenance) = tier_at(&url);
    wait_until("connected", || tier.is_reachable()).await;
    cut.notify_waiters();
    let content = fresh();
    let mut failures = 0;
    while tier.put(&[entry(content, b"abc", MINUTE)]).await.is_err() {
        failures += 1;
        assert!(failures < 1_000, "not connected again within ten seconds");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(failures > 0, "the connection was cut");
    assert_eq!(tier.get(content, 3).await.expect("an answer").expect("stored"), "abc");
}

#[tokio::test]
async fn large_bodies_fit_into_one_pipeline() {
    let (tier, _maintenance) = reachable().await;
    let entries: Vec<CacheEntry> =
        (0..8).map(|_| CacheEntry { content: fresh(), body: Bytes::from(vec![1; 1 << 20]), ttl: MINUTE }).collect();
    tier.put(&entries).await.expect("stored");
    for entry in &entries {
        assert_eq!(tier.get(entry.content, 1 << 20).await.expect("an answer").as_ref(), Some(&entry.body));
    }
    let contents: Vec<_> = entries.iter().map(|entry| entry.content).collect();
    tier.remove(&contents).await.expect("removed");
}

#[test]
fn invalid_urls_are_rejected() {
    assert!(check_url("redis://:secret@127.0.0.1:6379/2").is_ok());
    for url in ["", "127.0.0.1:6379", "http://127.0.0.1", "redis://", "redis://host:port"] {
        assert!(check_url(url).is_err(), "{url}");
    }
}
