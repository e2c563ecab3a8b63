//! Bodies at hand: what the cache may spare, and what it may never do.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use s3o_backend::layers::Fault;
use s3o_cache::CacheSettings;
use s3o_catalog::Mode;
use s3o_engine::multipart::{CompleteUpload, CreateUpload, UploadPartCopy, UploadRef};
use s3o_engine::{CopySource, DeleteObject, Error, GetObject, PutObject, Wanted};
use s3o_model::conditions::{ReadConditions, WriteCondition};
use s3o_model::expiry::Expiry;
use s3o_model::multipart::ListedPart;
use s3o_model::object::Attributes;
use s3o_model::range::RangeSpec;
use s3o_tests::house::{Ground, House, bucket, copy, get, key};

const SETTINGS: CacheSettings =
    CacheSettings { max_bytes: 64 << 20, object_bytes_max: 8 << 20, ttl: Duration::from_mins(5) };

const MINUTE: Duration = Duration::from_mins(1);

async fn house() -> House {
    House::with_bucket(&Ground::new(u64::MAX).with_cache(SETTINGS), Mode::Inline).await
}

async fn put(house: &House, name: &str, body: &[u8]) {
    house.engine.put_object(house.put(name, body, &Arc::new(()))).await.expect("stored");
}

async fn delete(house: &House, name: &str) {
    let delete = DeleteObject { bucket: bucket(), key: key(name), condition: WriteCondition::None };
    house.engine.delete_object(delete).await.expect("deleted");
}

async fn read(house: &House, wanted: GetObject) -> Result<Vec<u8>, Error> {
    let mut opened = house.engine.get_object(wanted).await?;
    let mut bytes = Vec::new();
    while let Some(chunk) = opened.body.next().await {
        bytes.extend_from_slice(&chunk?);
    }
    Ok(bytes)
}

fn range(name: &str, first: u64, last: u64) -> GetObject {
    GetObject { wanted: Wanted::Range(RangeSpec::From { first, last: Some(last) }), ..get(name) }
}

fn gets(house: &House) -> u64 {
    house.memory.calls("get")
}

/// The key under which a backend holds the bytes of an object.
fn physical_key(house: &House, name: &str) -> String {
    let prefix = format!("bucket/{name}~");
    house.memory.keys().into_iter().find(|key| key.starts_with(&prefix)).expect("stored")
}

#[tokio::test]
async fn a_body_is_read_once_and_ranges_come_out_of_it() {
    let house = house().await;
    put(&house, "a", b"0123456789").await;
    let before = gets(&house);
    assert_eq!(read(&house, range("a", 2, 4)).await.expect("read"), b"234");
    assert_eq!(read(&house, range("a", 9, 99)).await.expect("read"), b"9");
    assert_eq!(read(&house, GetObject { wanted: Wanted::Part(1), ..get("a") }).await.expect("read"), b"0123456789");
    assert_eq!(house.read("a").await.expect("there"), b"0123456789");
    assert_eq!(gets(&house) - before, 1);
    let beyond = read(&house, range("a", 10, 11)).await;
    assert!(matches!(beyond, Err(Error::RangeNotSatisfiable { size_bytes: 10 })));
}

#[tokio::test]
async fn what_is_too_large_or_empty_is_read_past_it() {
    let house = house().await;
    let large = vec![1; (8 << 20) + 1];
    put(&house, "large", &large).await;
    put(&house, "empty", b"").await;
    for _ in 0..2 {
        assert_eq!(house.read("large").await.expect("there").len(), large.len());
        assert_eq!(house.read("empty").await.expect("there"), b"");
    }
    assert_eq!(house.process.cache.as_ref().expect("a cache").standing().entries, 0);
}

#[tokio::test]
async fn an_overwrite_and_a_delete_are_seen_at_once_and_leave_nothing_at_hand() {
    let house = house().await;
    let entries = || house.process.cache.as_ref().expect("a cache").standing().entries;
    put(&house, "a", b"old").await;
    assert_eq!(house.read("a").await.expect("there"), b"old");
    assert_eq!(entries(), 1);
    put(&house, "a", b"new").await;
    assert_eq!(entries(), 0, "the old body is forgotten");
    assert_eq!(house.read("a").await.expect("there"), b"new");
    delete(&house, "a").await;
    assert_eq!((house.read("a").await, entries()), (None, 0));
}

#[tokio::test]
async fn an_object_past_its_time_is_gone_though_its_body_is_at_hand() {
    let house = house().await;
    let client = Arc::new(());
    let mortal = PutObject { expiry: Some(Expiry::After(MINUTE)), ..house.put("a", b"body", &client) };
    house.engine.put_object(mortal).await.expect("stored");
    assert_eq!(house.read("a").await.expect("there"), b"body");
    house.clock.advance(MINUTE);
    assert_eq!(house.read("a").await, None);
}

#[tokio::test]
async fn a_copy_shares_the_body_that_is_at_hand() {
    let house = house().await;
    put(&house, "a", b"shared").await;
    assert_eq!(house.read("a").await.expect("there"), b"shared");
    house.engine.copy_object(copy("a", "b")).await.expect("copied");
    let before = gets(&house);
    delete(&house, "a").await;
    assert_eq!(house.read("b").await.expect("there"), b"shared");
    assert_eq!(gets(&house), before, "something still refers to it, so it is still at hand");
}

#[tokio::test]
async fn an_object_made_of_parts_is_kept_whole() {
    let house = house().await;
    let five_mebibytes: Vec<u8> = (0..5_u32 << 20).map(|number| (number % 251) as u8).collect();
    put(&house, "small", &five_mebibytes).await;
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
        upload: house.engine.create_upload(create).await.expect("opened").upload.id,
    };
    let mut parts = Vec::new();
    for (number, range) in [(1, None), (2, Some(RangeSpec::From { first: 7, last: Some(106) }))] {
        let source = CopySource { bucket: bucket(), key: key("small"), conditions: ReadConditions::default() };
        let part = UploadPartCopy { target: target.clone(), number, source, range };
        let etag = house.engine.upload_part_copy(part).await.expect("copied").etag;
        parts.push(ListedPart { number, etag, checksum: None });
    }
    let condition = WriteCondition::None;
    let complete = CompleteUpload { target, parts, condition, checksum: None, coverage: None, size_bytes: None };
    house.engine.complete_upload(complete).await.expect("completed");
    let before = gets(&house);
    let expected = [&five_mebibytes[..], &five_mebibytes[7..107]].concat();
    for _ in 0..3 {
        assert!(house.read("a").await.expect("there") == expected);
    }
    let second = read(&house, GetObject { wanted: Wanted::Part(2), ..get("a") }).await.expect("read");
    assert_eq!(second, five_mebibytes[7..107]);
    assert_eq!(gets(&house) - before, 2, "each piece once");
}

#[tokio::test]
async fn bytes_that_are_not_what_was_written_are_neither_kept_nor_served() {
    let house = house().await;
    put(&house, "a", b"right").await;
    let physical = physical_key(&house, "a");
    house.memory.corrupt(&physical, Some(Bytes::from_static(b"wrong")));
    assert!(matches!(read(&house, get("a")).await, Err(Error::Damaged(_))));
    house.memory.corrupt(&physical, Some(Bytes::from_static(b"righ")));
    assert!(read(&house, get("a")).await.is_err());
    house.memory.corrupt(&physical, Some(Bytes::from_static(b"right")));
    assert_eq!(house.read("a").await.expect("there"), b"right");
    house.memory.corrupt(&physical, Some(Bytes::from_static(b"wrong")));
    assert_eq!(house.read("a").await.expect("there"), b"right", "verified bytes are at hand");
}

#[tokio::test]
async fn a_body_that_breaks_off_is_not_kept() {
    let house = house().await;
    put(&house, "a", b"0123456789").await;
    house.flaky.fail_call(house.flaky.calls() + 1, Fault::Cut(4));
    let broken = read(&house, get("a")).await;
    assert!(matches!(broken, Err(Error::Unavailable { .. })), "nothing is wrong with the bytes: {broken:?}");
    assert_eq!(house.read("a").await.expect("there"), b"0123456789");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hundred_readers_of_one_object_cause_one_read() {
    let house = Arc::new(house().await);
    put(&house, "a", &vec![7; 100_000]).await;
    house.flaky.fail_call(house.flaky.calls() + 1, Fault::Delay(Duration::from_millis(300)));
    let before = gets(&house);
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let house = Arc::clone(&house);
        readers.spawn(async move { house.read("a").await.expect("there").len() });
    }
    while let Some(length) = readers.join_next().await {
        assert_eq!(length.expect("a reader"), 100_000);
    }
    assert_eq!(gets(&house) - before, 1);
}

/// Named by its key, the entry that is filled last would bring the deleted body back; named by its
/// content, nobody asks for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_fetch_that_ends_after_its_content_died_brings_nothing_back() {
    for change in ["delete", "overwrite"] {
        let house = Arc::new(house().await);
        put(&house, "a", b"old").await;
        let before = house.flaky.calls();
        house.flaky.fail_call(before + 1, Fault::Delay(Duration::from_millis(300)));
        let reader = tokio::spawn({
            let house = Arc::clone(&house);
            async move { house.read("a").await }
        });
        while house.flaky.calls() == before {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        match change {
            "delete" => delete(&house, "a").await,
            _ => put(&house, "a", b"new").await,
        }
        assert_eq!(reader.await.expect("a reader").expect("there when it asked"), b"old");
        let entries = house.process.cache.as_ref().expect("a cache").standing().entries;
        assert_eq!(entries, 1, "the entry was filled after its content had died");
        assert_eq!(house.read("a").await, (change == "overwrite").then(|| b"new".to_vec()), "{change}");
    }
}
