//! Redis as it should be, and as it should not.

use super::{Redis, check_url, envelope};
use crate::conformance::{entry, fresh};
use crate::tier::{Entry, Tier, TierError};
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

/// Ends the upkeep of a tier.
pub(crate) struct Upkeep(JoinHandle<()>);

impl Drop for Upkeep {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn url() -> String {
    std::env::var("S3O_TEST_REDIS_URL").expect("S3O_TEST_REDIS_URL names a Redis: scripts/redis.sh starts one")
}

fn tier_at(url: &str) -> (Arc<Redis>, Upkeep) {
    let tier = Arc::new(Redis::new(url, "test").expect("a valid URL"));
    let kept = Arc::clone(&tier);
    (tier, Upkeep(tokio::spawn(async move { kept.stay_reachable().await })))
}

/// A tier of the Redis of the tests, connected.
pub(crate) async fn reachable() -> (Arc<Redis>, Upkeep) {
    let (tier, upkeep) = tier_at(&url());
    until("connected", || tier.is_reachable()).await;
    (tier, upkeep)
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..1_000 {
        if is_so() {
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
async fn every_entry_has_an_end_and_a_name_of_its_cluster() {
    let (tier, _upkeep) = reachable().await;
    let content = fresh();
    tier.keep(&[entry(content, b"abc", MINUTE)]).await.expect("kept");
    let left: i64 = raw().await.pttl(format!("s3o:test:body:{content}")).await.expect("an answer");
    assert!((1..=60_000).contains(&left), "{left} ms left");
}

#[tokio::test]
async fn values_that_somebody_changed_are_not_believed() {
    let (tier, _upkeep) = reachable().await;
    let content = fresh();
    let key = format!("s3o:test:body:{content}");
    let sealed = envelope::seal(content, b"abc");
    let flipped = [&sealed[..sealed.len() - 1], b"d"].concat();
    let (cut, grown) = (sealed[..sealed.len() - 1].to_vec(), [&sealed[..], b"d"].concat());
    for value in [b"garbage".to_vec(), cut, grown, flipped] {
        raw().await.set::<_, _, ()>(&key, value).await.expect("set");
        assert!(matches!(tier.get(content, 3).await, Err(TierError::Wrong(_))));
    }
    raw().await.set::<_, _, ()>(&key, b"").await.expect("set");
    assert_eq!(tier.get(content, 3).await, Ok(None), "nothing is no entry");
    raw().await.del::<_, ()>(&key).await.expect("deleted");
    raw().await.lpush::<_, _, ()>(&key, "a list").await.expect("pushed");
    assert!(matches!(tier.get(content, 3).await, Err(TierError::Away(_))));
    tier.forget(&[content]).await.expect("forgotten");
    assert_eq!(tier.get(content, 3).await, Ok(None), "one refusal does not cut the connection");
}

#[tokio::test]
async fn of_a_value_that_is_too_long_one_byte_too_many_is_read() {
    let (tier, _upkeep) = reachable().await;
    let content = fresh();
    let (key, sealed) = (format!("s3o:test:body:{content}"), envelope::seal(content, b"abc"));
    raw().await.set::<_, _, ()>(&key, vec![7_u8; 4 << 20]).await.expect("set");
    let lines = tier.link.lines().expect("connected");
    let read = super::value_of(&mut lines.asking.clone(), key, envelope::length(3)).await.expect("an answer");
    assert_eq!(read.len(), sealed.len() + 1);
    tier.forget(&[content]).await.expect("forgotten");
}

#[tokio::test]
async fn a_redis_that_is_not_there_is_not_asked() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    let (tier, _upkeep) = tier_at(&format!("redis://127.0.0.1:{port}"));
    tokio::time::sleep(Duration::from_millis(50)).await;
    for _ in 0..10_000 {
        assert_eq!(tier.get(fresh(), 3).now_or_never(), Some(Err(TierError::NotAsked)), "a reader waited");
    }
    assert_eq!(tier.forget(&[fresh()]).await, Err(TierError::NotAsked));
}

/// Speaks just enough to be taken for a Redis: so many answers, then silence.
async fn falls_silent_after(answers: usize) -> (String, Upkeep) {
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
    (url, Upkeep(silence))
}

#[tokio::test]
async fn a_redis_that_falls_silent_costs_a_few_short_waits_and_then_nothing() {
    let (url, _silence) = falls_silent_after(3).await;
    let (tier, _upkeep) = tier_at(&url);
    until("connected", || tier.is_reachable()).await;
    let mut waited = 0;
    while tier.is_reachable() {
        assert!(matches!(tier.get(fresh(), 3).await, Err(TierError::Away(_))));
        waited += 1;
    }
    assert_eq!(waited, 3);
    assert_eq!(tier.get(fresh(), 3).await, Err(TierError::NotAsked));
}

/// Passes bytes on to the Redis of the tests until it is told to cut all that go through it.
async fn relay() -> (String, Arc<Notify>, Upkeep) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let relayed = format!("redis://{}", listener.local_addr().expect("an address"));
    let (cut, target) = (Arc::new(Notify::new()), url().replace("redis://", ""));
    let told = Arc::clone(&cut);
    let passing = tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.expect("a connection");
            let (told, target) = (Arc::clone(&told), target.clone());
            tokio::spawn(async move {
                let mut redis = tokio::net::TcpStream::connect(target).await.expect("connected");
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut socket, &mut redis) => {}
                    () = told.notified() => {}
                }
            });
        }
    });
    (relayed, cut, Upkeep(passing))
}

#[tokio::test]
async fn a_lost_connection_is_made_again() {
    let (url, cut, _passing) = relay().await;
    let (tier, _upkeep) = tier_at(&url);
    until("connected", || tier.is_reachable()).await;
    cut.notify_waiters();
    let content = fresh();
    let mut failures = 0;
    while tier.keep(&[entry(content, b"abc", MINUTE)]).await.is_err() {
        failures += 1;
        assert!(failures < 1_000, "not connected again within ten seconds");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(failures > 0, "the connection was cut");
    assert_eq!(tier.get(content, 3).await.expect("an answer").expect("kept"), "abc");
}

#[tokio::test]
async fn large_bodies_fit_into_one_pipeline() {
    let (tier, _upkeep) = reachable().await;
    let entries: Vec<Entry> =
        (0..8).map(|_| Entry { content: fresh(), body: Bytes::from(vec![1; 1 << 20]), time: MINUTE }).collect();
    tier.keep(&entries).await.expect("kept");
    for entry in &entries {
        assert_eq!(tier.get(entry.content, 1 << 20).await.expect("an answer").as_ref(), Some(&entry.body));
    }
    let contents: Vec<_> = entries.iter().map(|entry| entry.content).collect();
    tier.forget(&contents).await.expect("forgotten");
}

#[test]
fn a_url_is_checked_before_it_is_used() {
    assert!(check_url("redis://:secret@127.0.0.1:6379/2").is_ok());
    for url in ["", "127.0.0.1:6379", "http://127.0.0.1", "redis://", "redis://host:port"] {
        assert!(check_url(url).is_err(), "{url}");
    }
}
