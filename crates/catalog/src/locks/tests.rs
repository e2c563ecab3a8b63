//! Tests of locks in one process and between instances on PostgreSQL.

use std::time::Duration;

use tokio_postgres::NoTls;

use super::postgres::PostgresLocks;
use super::{Lock, Locked, Locks, ProcessLocks};
use crate::PostgresOptions;

#[track_caller]
fn held(locked: Locked) -> Lock {
    match locked {
        Locked::Held(lock) => lock,
        Locked::By(holder) => panic!("held by {holder}"),
    }
}

#[track_caller]
fn holder(locked: Locked) -> String {
    match locked {
        Locked::Held(_) => panic!("the lock was free"),
        Locked::By(holder) => holder,
    }
}

async fn lock(locks: &dyn Locks, worker: &str) -> Locked {
    locks.try_lock(worker).await.expect("an answer")
}

#[tokio::test]
async fn a_lock_of_a_process_is_held_until_it_is_dropped() {
    let locks = ProcessLocks::new("me");
    let first = held(lock(&locks, "sweep").await);
    assert_eq!(holder(lock(&locks, "sweep").await), "me");
    held(lock(&locks, "scrubber").await);
    assert!(!first.is_lost());
    drop(first);
    held(lock(&locks, "sweep").await);
}

fn options() -> PostgresOptions {
    let url =
        std::env::var("S3O_TEST_POSTGRES_URL").expect("S3O_TEST_POSTGRES_URL names no server: run through make test");
    PostgresOptions { url, connections: 1, wait_max: Duration::from_secs(5), schema: None, clock: None }
}

fn instance(name: &str) -> PostgresLocks {
    PostgresLocks::new(&options(), name, Duration::from_secs(20)).expect("options that can be read")
}

/// A name that no other test uses on this server.
fn worker() -> String {
    uuid::Uuid::now_v7().as_simple().to_string()
}

/// Takes a lock as soon as it is free.
async fn eventually(locks: &dyn Locks, worker: &str) -> Lock {
    for _ in 0..200 {
        if let Locked::Held(lock) = lock(locks, worker).await {
            return lock;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("the lock was never free");
}

#[tokio::test]
async fn one_instance_holds_a_lock_and_the_others_see_which() {
    let (one, two, worker) = (instance("one"), instance("two"), worker());
    let first = held(lock(&one, &worker).await);
    assert_eq!(holder(lock(&two, &worker).await), "one");
    assert_eq!(holder(lock(&one, &worker).await), "one", "the same instance cannot hold it twice");
    drop(first);
    let second = eventually(&two, &worker).await;
    assert_eq!(holder(lock(&one, &worker).await), "two");
    drop(second);
}

#[tokio::test]
async fn dropping_an_instance_releases_its_locks() {
    let (one, two, worker) = (instance("one"), instance("two"), worker());
    let first = held(lock(&one, &worker).await);
    drop(one);
    let second = eventually(&two, &worker).await;
    assert!(!second.is_lost());
    assert!(first.is_lost());
}

/// An instance that loses its locks after half a second of silence.
fn quick(name: &str) -> PostgresLocks {
    PostgresLocks::new(&options(), name, Duration::from_millis(500)).expect("options that can be read")
}

#[tokio::test]
async fn live_session_keeps_lock_beyond_lock_timeout() {
    let (one, two, worker) = (quick("one"), instance("two"), worker());
    let first = held(lock(&one, &worker).await);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(holder(lock(&two, &worker).await), "one");
    assert!(!first.is_lost());
}

#[tokio::test]
async fn a_frozen_instance_loses_its_locks() {
    let (two, worker) = (instance("two"), worker());
    let frozen = worker.clone();
    let (sender, taken) = tokio::sync::oneshot::channel();
    let freeze = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let one = quick("one");
            let first = held(lock(&one, &frozen).await);
            sender.send(()).expect("a receiver");
            // This blocks the whole runtime, including the task that keeps the lock.
            std::thread::sleep(Duration::from_secs(2));
            tokio::time::sleep(Duration::from_millis(300)).await;
            first.is_lost()
        })
    });
    taken.await.expect("taken");
    assert_eq!(holder(lock(&two, &worker).await), "one");
    tokio::time::sleep(Duration::from_secs(1)).await;
    held(lock(&two, &worker).await);
    assert!(freeze.join().expect("no panic"), "the frozen instance notices the loss");
}

#[tokio::test]
async fn a_session_that_ends_loses_its_locks_and_the_next_one_works() {
    let name = worker();
    let (one, two, worker) = (instance(&name), instance("two"), worker());
    let first = held(lock(&one, &worker).await);
    let (client, connection) = tokio_postgres::connect(&options().url, NoTls).await.expect("a server");
    tokio::task::spawn(connection);
    let ended = client
        .execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1",
            &[&format!("s3o lock {name}")],
        )
        .await;
    assert_eq!(ended.expect("ended"), 1);
    let second = eventually(&two, &worker).await;
    for _ in 0..200 {
        if first.is_lost() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    assert!(first.is_lost());
    drop(second);
    let third = eventually(&one, &worker).await;
    drop(first);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!third.is_lost());
    assert_eq!(holder(lock(&two, &worker).await), name, "dropping a lost lock does not release that of its successor");
}
