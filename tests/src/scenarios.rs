//! The operations that are put to the test: what is there before, what is done, and what may be
//! there afterwards, whether it was acknowledged or not.

mod apart;
mod expiry;
mod rules;
mod shared;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use s3o_engine::multipart::{CompleteUpload, CreateUpload, UploadPart, UploadPartCopy, UploadRef};
use s3o_engine::{CopySource, Declared, DeleteObject, DeleteTarget, Error, PutObject};
use s3o_model::conditions::{ReadConditions, WriteCondition};
use s3o_model::multipart::{ListedPart, PART_BYTES_MIN};
use s3o_model::object::Attributes;
use s3o_model::range::RangeSpec;

use crate::house::{Expected, House, bucket, get, key};

/// Names of operations that may do without a backend.
pub const WITHOUT_BACKEND: [&str; 1] = ["copy"];

/// An operation under way.
pub type Work<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>>;

/// One operation under test.
pub struct Scenario {
    /// What it is called.
    pub name: &'static str,
    /// What the backend takes in one go.
    pub put_bytes_max: u64,
    /// Whether it moves megabytes.
    pub heavy: bool,
    /// Whether the bucket keeps equal content once.
    pub dedup: bool,
    /// What is there before.
    pub prepare: for<'a> fn(&'a House) -> Work<'a>,
    /// What is done.
    pub act: for<'a> fn(&'a House) -> Work<'a>,
    /// What must hold when the operation was acknowledged.
    pub after: fn() -> Expected,
    /// What may hold besides when it was not.
    pub before: fn() -> Expected,
}

/// As small as a part before the last may be.
fn first_part() -> Vec<u8> {
    let bytes = b"0123456789abcdef".repeat(5 * 1024 * 1024 / 16);
    assert_eq!(bytes.len() as u64, PART_BYTES_MIN);
    bytes
}

fn both_parts() -> Vec<u8> {
    [first_part(), b"tail".to_vec()].concat()
}

fn nothing(_: &House) -> Work<'_> {
    Box::pin(async { Ok(()) })
}

fn put_old(house: &House) -> Work<'_> {
    Box::pin(async {
        let client = Arc::new(());
        house.engine.put_object(house.put("a", b"old body", &client)).await.map(drop)
    })
}

fn put_two(house: &House) -> Work<'_> {
    Box::pin(async {
        let client = Arc::new(());
        for (name, body) in [("a", b"first body".as_slice()), ("b", b"second body")] {
            house.engine.put_object(house.put(name, body, &client)).await?;
        }
        Ok(())
    })
}

fn put_new(house: &House) -> Work<'_> {
    Box::pin(async {
        let client = Arc::new(());
        house.engine.put_object(house.put("a", b"the new body", &client)).await.map(drop)
    })
}

fn put_if_match(house: &House) -> Work<'_> {
    Box::pin(async {
        let client = Arc::new(());
        let there = house.engine.head_object(&get("a")).await?.object.etag;
        let condition = WriteCondition::IfMatch(Some(there));
        let put = PutObject { condition, ..house.put("a", b"the new body", &client) };
        house.engine.put_object(put).await.map(drop)
    })
}

fn delete(house: &House) -> Work<'_> {
    Box::pin(async {
        let delete = DeleteObject { bucket: bucket(), key: key("a"), condition: WriteCondition::None };
        house.engine.delete_object(delete).await
    })
}

fn delete_many(house: &House) -> Work<'_> {
    Box::pin(async {
        let target = |name| DeleteTarget { key: key(name), if_match: None };
        let results = house.engine.delete_objects(&bucket(), vec![target("a"), target("b")]).await?;
        if results.iter().all(Result::is_ok) { Ok(()) } else { Err(Error::Conflict) }
    })
}

fn copy(house: &House) -> Work<'_> {
    Box::pin(expiry::copy_to_b(house, None))
}

fn source(name: &str) -> CopySource {
    CopySource { bucket: bucket(), key: key(name), conditions: ReadConditions::default() }
}

async fn create(house: &House) -> Result<UploadRef, Error> {
    let create = CreateUpload {
        bucket: bucket(),
        key: key("a"),
        attributes: Attributes::default(),
        checksum: None,
        expiry: None,
    };
    let upload = house.engine.create_upload(create).await?.upload;
    Ok(UploadRef { bucket: bucket(), key: key("a"), upload: upload.id })
}

async fn part(house: &House, target: &UploadRef, number: u32, bytes: &[u8]) -> Result<ListedPart, Error> {
    let client = Arc::new(());
    let part = UploadPart {
        target: target.clone(),
        number,
        size_bytes: bytes.len() as u64,
        body: house.body(bytes, &client),
        declared: Declared::default(),
    };
    let etag = house.engine.upload_part(part).await?.etag;
    Ok(ListedPart { number, etag, checksum: None })
}

async fn complete(house: &House, target: UploadRef, parts: Vec<ListedPart>) -> Result<(), Error> {
    let condition = WriteCondition::None;
    let complete = CompleteUpload { target, parts, condition, checksum: None, coverage: None, size_bytes: None };
    house.engine.complete_upload(complete).await.map(drop)
}

/// An upload that fails is given up, as clients do.
async fn or_abort(house: &House, target: &UploadRef, outcome: Result<(), Error>) -> Result<(), Error> {
    if outcome.is_err() {
        match house.engine.abort_upload(target).await {
            Ok(()) | Err(Error::NoSuchUpload) => {}
            Err(error) => return Err(error),
        }
    }
    outcome
}

/// Two parts, one of them sent twice, one that is not listed.
fn multipart(house: &House) -> Work<'_> {
    Box::pin(async {
        let target = create(house).await?;
        let outcome = async {
            part(house, &target, 1, b"sent too early").await?;
            let first = part(house, &target, 1, &first_part()).await?;
            let last = part(house, &target, 2, b"tail").await?;
            part(house, &target, 3, b"not listed").await?;
            complete(house, target.clone(), vec![first, last]).await
        };
        let outcome = outcome.await;
        or_abort(house, &target, outcome).await
    })
}

/// One part that is sent twice, and one that is not listed.
fn multipart_of_one(house: &House) -> Work<'_> {
    Box::pin(async {
        let target = create(house).await?;
        let outcome = async {
            part(house, &target, 1, b"sent too early").await?;
            let only = part(house, &target, 1, b"tail").await?;
            part(house, &target, 2, b"not listed").await?;
            complete(house, target.clone(), vec![only]).await
        };
        let outcome = outcome.await;
        or_abort(house, &target, outcome).await
    })
}

/// The object becomes a part of itself.
fn copied_range(house: &House) -> Work<'_> {
    Box::pin(async {
        let target = create(house).await?;
        let range = Some(RangeSpec::From { first: 0, last: Some(2) });
        let outcome = async {
            let copy = UploadPartCopy { target: target.clone(), number: 1, source: source("a"), range };
            let etag = house.engine.upload_part_copy(copy).await?.etag;
            complete(house, target.clone(), vec![ListedPart { number: 1, etag, checksum: None }]).await
        };
        let outcome = outcome.await;
        or_abort(house, &target, outcome).await
    })
}

fn abort(house: &House) -> Work<'_> {
    Box::pin(async {
        let target = create(house).await?;
        let sent = part(house, &target, 1, b"given up").await.map(drop);
        house.engine.abort_upload(&target).await?;
        sent
    })
}

/// A part from a whole object, one from a range of it, one across the pieces of a joined object.
fn copied_parts(house: &House) -> Work<'_> {
    Box::pin(async {
        let target = create(house).await?;
        let range = |first, last| Some(RangeSpec::From { first, last: Some(last) });
        let outcome = async {
            let mut parts = Vec::new();
            let across = PART_BYTES_MIN - 1;
            for (number, wanted) in [(1, None), (2, range(0, PART_BYTES_MIN - 1)), (3, range(across, across + 2))] {
                let copy = UploadPartCopy { target: target.clone(), number, source: source("joined"), range: wanted };
                let etag = house.engine.upload_part_copy(copy).await?.etag;
                parts.push(ListedPart { number, etag, checksum: None });
            }
            complete(house, target.clone(), parts).await
        };
        let outcome = outcome.await;
        or_abort(house, &target, outcome).await
    })
}

fn put_joined(house: &House) -> Work<'_> {
    Box::pin(async {
        let create = CreateUpload {
            bucket: bucket(),
            key: key("joined"),
            attributes: Attributes::default(),
            checksum: None,
            expiry: None,
        };
        let upload = house.engine.create_upload(create).await?.upload;
        let target = UploadRef { bucket: bucket(), key: key("joined"), upload: upload.id };
        let first = part(house, &target, 1, &first_part()).await?;
        let last = part(house, &target, 2, b"tail").await?;
        complete(house, target, vec![first, last]).await
    })
}

fn holds(name: &'static str, body: Option<&[u8]>) -> Expected {
    Expected::from([(name, vec![body.map(<[u8]>::to_vec)])])
}

fn all_copied() -> Vec<u8> {
    [both_parts(), first_part(), both_parts()[5 * 1024 * 1024 - 1..][..3].to_vec()].concat()
}

const LARGE: u64 = u64::MAX;

/// All of them.
pub fn all() -> impl Iterator<Item = &'static Scenario> {
    apart::ALL.iter().chain(&shared::ONCE).chain(&expiry::ALL).chain(&expiry::once::ALL)
}

/// What may hold when nobody knows whether the operation happened.
#[must_use]
pub fn either(scenario: &Scenario) -> Expected {
    let mut expected = (scenario.after)();
    for (name, bodies) in (scenario.before)() {
        expected.entry(name).or_default().extend(bodies);
    }
    expected
}
