//! The cache: which backend reads it saves, and which bodies it must never serve.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use s3o_backend::layers::Fault;
use s3o_cache::CacheSettings;
use s3o_catalog::Mode;
use s3o_engine::multipart::{CompleteUpload, CreateUpload, UploadPartCopy, UploadRef};
use s3o_engine::{CopySource, Error, GetObject, PutObject, RequestedRange};
use s3o_model::conditions::{ReadConditions, WriteCondition};
use s3o_model::expiry::Expiry;
use s3o_model::multipart::ListedPart;
use s3o_model::object::Attributes;
use s3o_model::range::RangeSpec;
use s3o_tests::environment::Environment;
use s3o_tests::harness::{Harness, bucket, copy, get, key};

const SETTINGS: CacheSettings =
    CacheSettings { max_bytes: 64 << 20, object_bytes_max: 8 << 20, ttl: Duration::from_mins(5) };

const MINUTE: Duration = Duration::from_mins(1);

async fn harness() -> Harness {
    Harness::with_bucket(Environment::new(u64::MAX).with_cache(Some(SETTINGS)), Mode::Inline).await
}

async fn put(harness: &Harness, name: &str, body: &[u8]) {
    harness.store(name, body).await.expect("stored");
}

async fn read(harness: &Harness, wanted: GetObject) -> Result<Vec<u8>, Error> {
    let mut opened = harness.engine.get_object(wanted).await?;
    let mut bytes = Vec::new();
    while let Some(chunk) = opened.body.next().await {
        bytes.extend_from_slice(&chunk?);
    }
    Ok(bytes)
}

fn range(name: &str, first: u64, last: u64) -> GetObject {
    GetObject { wanted: RequestedRange::Range(RangeSpec::From { first, last: Some(last) }), ..get(name) }
}

fn gets(harness: &Harness) -> u64 {
    harness.memory.calls("get")
}

/// The key of an object's bytes on the backend.
fn physical_key(harness: &Harness, name: &str) -> String {
    let prefix = format!("bucket/{name}~");
    harness.memory.keys().into_iter().find(|key| key.starts_with(&prefix)).expect("stored")
}

#[tokio::test]
async fn body_is_fetched_once_and_ranges_are_served_from_it() {
    let harness = harness().await;
    put(&harness, "a", b"0123456789").await;
    let before = gets(&harness);
    assert_eq!(read(&harness, range("a", 2, 4)).await.expect("read"), b"234");
    assert_eq!(read(&harness, range("a", 9, 99)).await.expect("read"), b"9");
    assert_eq!(
        read(&harness, GetObject { wanted: RequestedRange::Part(1), ..get("a") }).await.expect("read"),
        b"0123456789"
    );
    assert_eq!(harness.read("a").await.expect("there"), b"0123456789");
    assert_eq!(gets(&harness) - before, 1);
    let beyond = read(&harness, range("a", 10, 11)).await;
    assert!(matches!(beyond, Err(Error::RangeNotSatisfiable { size_bytes: 10 })));
}

#[tokio::test]
async fn too_large_and_empty_bodies_bypass_cache() {
    let harness = harness().await;
    let large = vec![1; (8 << 20) + 1];
    put(&harness, "large", &large).await;
    put(&harness, "empty", b"").await;
    for _ in 0..2 {
        assert_eq!(harness.read("large").await.expect("there").len(), large.len());
        assert_eq!(harness.read("empty").await.expect("there"), b"");
    }
    assert_eq!(harness.process.cache.as_ref().expect("a cache").stats().entries, 0);
}

#[tokio::test]
async fn overwrite_and_delete_remove_cache_entry() {
    let harness = harness().await;
    let entries = || harness.process.cache.as_ref().expect("a cache").stats().entries;
    put(&harness, "a", b"old").await;
    assert_eq!(harness.read("a").await.expect("there"), b"old");
    assert_eq!(entries(), 1);
    put(&harness, "a", b"new").await;
    assert_eq!(entries(), 0, "the old body is evicted");
    assert_eq!(harness.read("a").await.expect("there"), b"new");
    harness.delete("a").await;
    assert_eq!((harness.read("a").await, entries()), (None, 0));
}

#[tokio::test]
async fn expired_object_is_not_served_from_cache() {
    let harness = harness().await;
    let client = Arc::new(());
    let expiring = PutObject { expiry: Some(Expiry::After(MINUTE)), ..harness.put("a", b"body", &client) };
    harness.engine.put_object(expiring).await.expect("stored");
    assert_eq!(harness.read("a").await.expect("there"), b"body");
    harness.clock.advance(MINUTE);
    assert_eq!(harness.read("a").await, None);
}

#[tokio::test]
async fn copy_shares_cache_entry() {
    let harness = harness().await;
    put(&harness, "a", b"shared").await;
    assert_eq!(harness.read("a").await.expect("there"), b"shared");
    harness.engine.copy_object(copy("a", "b")).await.expect("copied");
    let before = gets(&harness);
    harness.delete("a").await;
    assert_eq!(harness.read("b").await.expect("there"), b"shared");
    assert_eq!(gets(&harness), before, "an object still has this content, so it stays cached");
}

#[tokio::test]
async fn multipart_object_is_cached_whole() {
    let harness = harness().await;
    let five_mebibytes: Vec<u8> = (0..5_u32 << 20).map(|number| (number % 251) as u8).collect();
    put(&harness, "small", &five_mebibytes).await;
    let create = CreateUpload {
        bucket: bucket(),
        key: key("a"),
        attributes: Attributes::default(),
        checksum: None,
        expiry: None,
    };
    let target = UploadRef {
        bucket: bucket(),
        key: key("a"),
        upload: harness.engine.create_upload(create).await.expect("opened").upload.id,
    };
    let mut parts = Vec::new();
    for (number, range) in [(1, None), (2, Some(RangeSpec::From { first: 7, last: Some(106) }))] {
        let source = CopySource { bucket: bucket(), key: key("small"), conditions: ReadConditions::default() };
        let part = UploadPartCopy { target: target.clone(), number, source, range };
        let etag = harness.engine.upload_part_copy(part).await.expect("copied").etag;
        parts.push(ListedPart { number, etag, checksum: None });
    }
    let condition = WriteCondition::None;
    let complete = CompleteUpload { target, parts, condition, checksum: None, coverage: None, size_bytes: None };
    harness.engine.complete_upload(complete).await.expect("completed");
    let before = gets(&harness);
    let expected = [&five_mebibytes[..], &five_mebibytes[7..107]].concat();
    for _ in 0..3 {
        assert!(harness.read("a").await.expect("there") == expected);
    }
    let second = read(&harness, GetObject { wanted: RequestedRange::Part(2), ..get("a") }).await.expect("read");
    assert_eq!(second, five_mebibytes[7..107]);
    assert_eq!(gets(&harness) - before, 2, "one read per part");
}

#[tokio::test]
async fn corrupt_bytes_are_neither_cached_nor_served() {
    let harness = harness().await;
    put(&harness, "a", b"right").await;
    let physical = physical_key(&harness, "a");
    harness.memory.corrupt(&physical, Some(Bytes::from_static(b"wrong")));
    assert!(matches!(read(&harness, get("a")).await, Err(Error::Damaged(_))));
    harness.memory.corrupt(&physical, Some(Bytes::from_static(b"righ")));
    assert!(read(&harness, get("a")).await.is_err());
    harness.memory.corrupt(&physical, Some(Bytes::from_static(b"right")));
    assert_eq!(harness.read("a").await.expect("there"), b"right");
    harness.memory.corrupt(&physical, Some(Bytes::from_static(b"wrong")));
    assert_eq!(harness.read("a").await.expect("there"), b"right", "verified bytes are cached");
}

#[tokio::test]
async fn interrupted_body_is_not_cached() {
    let harness = harness().await;
    put(&harness, "a", b"0123456789").await;
    harness.flaky.fail_call(harness.flaky.calls() + 1, Fault::Cut(4));
    let broken = read(&harness, get("a")).await;
    assert!(matches!(broken, Err(Error::Unavailable { .. })), "an interrupted read is not damage: {broken:?}");
    assert_eq!(harness.read("a").await.expect("there"), b"0123456789");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn hundred_readers_of_one_object_cause_one_backend_read() {
    let harness = Arc::new(harness().await);
    put(&harness, "a", &vec![7; 100_000]).await;
    harness.flaky.fail_call(harness.flaky.calls() + 1, Fault::Delay(Duration::from_millis(300)));
    let before = gets(&harness);
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let harness = Arc::clone(&harness);
        readers.spawn(async move { harness.read("a").await.expect("there").len() });
    }
    while let Some(length) = readers.join_next().await {
        assert_eq!(length.expect("a reader"), 100_000);
    }
    assert_eq!(gets(&harness) - before, 1);
}

/// An entry keyed by object key would serve the deleted body again. Entries are keyed by content, which no later read
/// asks for.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fetch_that_ends_after_delete_serves_no_later_read() {
    for change in ["delete", "overwrite"] {
        let harness = Arc::new(harness().await);
        put(&harness, "a", b"old").await;
        let before = harness.flaky.calls();
        harness.flaky.fail_call(before + 1, Fault::Delay(Duration::from_millis(300)));
        let reader = tokio::spawn({
            let harness = Arc::clone(&harness);
            async move { harness.read("a").await }
        });
        while harness.flaky.calls() == before {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        match change {
            "delete" => harness.delete("a").await,
            _ => put(&harness, "a", b"new").await,
        }
        assert_eq!(reader.await.expect("a reader").expect("existed at the start of the read"), b"old");
        let entries = harness.process.cache.as_ref().expect("a cache").stats().entries;
        assert_eq!(entries, 1, "the entry was filled after its content was deleted");
        assert_eq!(harness.read("a").await, (change == "overwrite").then(|| b"new".to_vec()), "{change}");
    }
}
