//! Operations that several suites run: the state before, the operation, and the states that are allowed afterwards,
//! depending on whether the client received an answer.

mod backends;
mod copies;
mod dedup_bucket;
mod expiry;
mod plain_bucket;
mod reconcile;
mod rules;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use s3o_engine::multipart::{CompleteUpload, CreateUpload, UploadPart, UploadPartCopy, UploadRef};
use s3o_engine::{CopySource, Declared, DeleteObject, DeleteTarget, Error, PutObject};
use s3o_model::conditions::{ReadConditions, WriteCondition};
use s3o_model::multipart::{ListedPart, PART_BYTES_MIN};
use s3o_model::object::Attributes;
use s3o_model::range::RangeSpec;

use crate::environment::Environment;
use crate::harness::{Expected, Harness, bucket, get, key};

/// Names of operations that may make no backend call.
pub const WITHOUT_BACKEND: [&str; 2] = ["copy", "write-off"];

/// A running operation.
pub type Work<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>>;

/// One operation under test.
pub struct Scenario {
    /// Shown when the scenario fails.
    pub name: &'static str,
    /// The largest body that the backend takes in one call.
    pub put_bytes_max: u64,
    /// True if it transfers megabytes; suites with thousands of runs skip it.
    pub heavy: bool,
    /// Dedup setting of the bucket.
    pub dedup: bool,
    /// Number of copies of each object; with more than one, there are three backends.
    pub copies: usize,
    /// Creates the state before; runs without faults.
    pub prepare: for<'a> fn(&'a Harness) -> Work<'a>,
    /// The operation, which faults may end.
    pub act: for<'a> fn(&'a Harness) -> Work<'a>,
    /// Allowed bodies if the operation was acknowledged.
    pub after: fn() -> Expected,
    /// Bodies that are allowed as well if it was not.
    pub before: fn() -> Expected,
}

/// The smallest part that S3 allows before the last.
fn first_part() -> Vec<u8> {
    let bytes = b"0123456789abcdef".repeat(5 * 1024 * 1024 / 16);
    assert_eq!(bytes.len() as u64, PART_BYTES_MIN);
    bytes
}

fn both_parts() -> Vec<u8> {
    [first_part(), b"tail".to_vec()].concat()
}

fn nothing(_: &Harness) -> Work<'_> {
    Box::pin(async { Ok(()) })
}

fn put_old(harness: &Harness) -> Work<'_> {
    Box::pin(async {
        let client = Arc::new(());
        harness.engine.put_object(harness.put("a", b"old body", &client)).await.map(drop)
    })
}

fn put_two(harness: &Harness) -> Work<'_> {
    Box::pin(async {
        let client = Arc::new(());
        for (name, body) in [("a", b"first body".as_slice()), ("b", b"second body")] {
            harness.engine.put_object(harness.put(name, body, &client)).await?;
        }
        Ok(())
    })
}

fn put_new(harness: &Harness) -> Work<'_> {
    Box::pin(async {
        let client = Arc::new(());
        harness.engine.put_object(harness.put("a", b"the new body", &client)).await.map(drop)
    })
}

fn put_if_match(harness: &Harness) -> Work<'_> {
    Box::pin(async {
        let client = Arc::new(());
        let there = harness.engine.head_object(&get("a")).await?.object.etag;
        let condition = WriteCondition::IfMatch(Some(there));
        let put = PutObject { condition, ..harness.put("a", b"the new body", &client) };
        harness.engine.put_object(put).await.map(drop)
    })
}

fn delete(harness: &Harness) -> Work<'_> {
    Box::pin(async {
        let delete = DeleteObject { bucket: bucket(), key: key("a"), condition: WriteCondition::None };
        harness.engine.delete_object(delete).await
    })
}

fn delete_many(harness: &Harness) -> Work<'_> {
    Box::pin(async {
        let target = |name| DeleteTarget { key: key(name), if_match: None };
        let results = harness.engine.delete_objects(&bucket(), vec![target("a"), target("b")]).await?;
        if results.iter().all(Result::is_ok) { Ok(()) } else { Err(Error::Conflict) }
    })
}

fn copy(harness: &Harness) -> Work<'_> {
    Box::pin(expiry::copy_to_b(harness, None))
}

fn source(name: &str) -> CopySource {
    CopySource { bucket: bucket(), key: key(name), conditions: ReadConditions::default() }
}

async fn create(harness: &Harness) -> Result<UploadRef, Error> {
    let create = CreateUpload {
        bucket: bucket(),
        key: key("a"),
        attributes: Attributes::default(),
        checksum: None,
        expiry: None,
    };
    let upload = harness.engine.create_upload(create).await?.upload;
    Ok(UploadRef { bucket: bucket(), key: key("a"), upload: upload.id })
}

async fn part(harness: &Harness, target: &UploadRef, number: u32, bytes: &[u8]) -> Result<ListedPart, Error> {
    let client = Arc::new(());
    let part = UploadPart {
        target: target.clone(),
        number,
        size_bytes: bytes.len() as u64,
        body: harness.body(bytes, &client),
        declared: Declared::default(),
    };
    let etag = harness.engine.upload_part(part).await?.etag;
    Ok(ListedPart { number, etag, checksum: None })
}

async fn complete(harness: &Harness, target: UploadRef, parts: Vec<ListedPart>) -> Result<(), Error> {
    let condition = WriteCondition::None;
    let complete = CompleteUpload { target, parts, condition, checksum: None, coverage: None, size_bytes: None };
    harness.engine.complete_upload(complete).await.map(drop)
}

/// Aborts an upload that failed, as clients do.
async fn or_abort(harness: &Harness, target: &UploadRef, outcome: Result<(), Error>) -> Result<(), Error> {
    if outcome.is_err() {
        match harness.engine.abort_upload(target).await {
            Ok(()) | Err(Error::NoSuchUpload) => {}
            Err(error) => return Err(error),
        }
    }
    outcome
}

/// Two parts, the first sent twice, and a third that `CompleteMultipartUpload` does not list.
fn multipart(harness: &Harness) -> Work<'_> {
    Box::pin(async {
        let target = create(harness).await?;
        let outcome = async {
            part(harness, &target, 1, b"sent too early").await?;
            let first = part(harness, &target, 1, &first_part()).await?;
            let last = part(harness, &target, 2, b"tail").await?;
            part(harness, &target, 3, b"not listed").await?;
            complete(harness, target.clone(), vec![first, last]).await
        };
        let outcome = outcome.await;
        or_abort(harness, &target, outcome).await
    })
}

/// One part that is sent twice, and one that `CompleteMultipartUpload` does not list.
fn multipart_of_one(harness: &Harness) -> Work<'_> {
    Box::pin(async {
        let target = create(harness).await?;
        let outcome = async {
            part(harness, &target, 1, b"sent too early").await?;
            let only = part(harness, &target, 1, b"tail").await?;
            part(harness, &target, 2, b"not listed").await?;
            complete(harness, target.clone(), vec![only]).await
        };
        let outcome = outcome.await;
        or_abort(harness, &target, outcome).await
    })
}

/// Overwrites an object by an upload with a part copied from the object itself.
fn copied_range(harness: &Harness) -> Work<'_> {
    Box::pin(async {
        let target = create(harness).await?;
        let range = Some(RangeSpec::From { first: 0, last: Some(2) });
        let outcome = async {
            let copy = UploadPartCopy { target: target.clone(), number: 1, source: source("a"), range };
            let etag = harness.engine.upload_part_copy(copy).await?.etag;
            complete(harness, target.clone(), vec![ListedPart { number: 1, etag, checksum: None }]).await
        };
        let outcome = outcome.await;
        or_abort(harness, &target, outcome).await
    })
}

fn abort(harness: &Harness) -> Work<'_> {
    Box::pin(async {
        let target = create(harness).await?;
        let sent = part(harness, &target, 1, b"aborted").await.map(drop);
        harness.engine.abort_upload(&target).await?;
        sent
    })
}

/// Parts copied from a whole object, from a range of it, and from a range across the parts of a multipart object.
fn copied_parts(harness: &Harness) -> Work<'_> {
    Box::pin(async {
        let target = create(harness).await?;
        let range = |first, last| Some(RangeSpec::From { first, last: Some(last) });
        let outcome = async {
            let mut parts = Vec::new();
            let across = PART_BYTES_MIN - 1;
            for (number, wanted) in [(1, None), (2, range(0, PART_BYTES_MIN - 1)), (3, range(across, across + 2))] {
                let copy = UploadPartCopy { target: target.clone(), number, source: source("joined"), range: wanted };
                let etag = harness.engine.upload_part_copy(copy).await?.etag;
                parts.push(ListedPart { number, etag, checksum: None });
            }
            complete(harness, target.clone(), parts).await
        };
        let outcome = outcome.await;
        or_abort(harness, &target, outcome).await
    })
}

fn put_joined(harness: &Harness) -> Work<'_> {
    Box::pin(async {
        let create = CreateUpload {
            bucket: bucket(),
            key: key("joined"),
            attributes: Attributes::default(),
            checksum: None,
            expiry: None,
        };
        let upload = harness.engine.create_upload(create).await?.upload;
        let target = UploadRef { bucket: bucket(), key: key("joined"), upload: upload.id };
        let first = part(harness, &target, 1, &first_part()).await?;
        let last = part(harness, &target, 2, b"tail").await?;
        complete(harness, target, vec![first, last]).await
    })
}

fn holds(name: &'static str, body: Option<&[u8]>) -> Expected {
    Expected::from([(name, vec![body.map(<[u8]>::to_vec)])])
}

fn all_copied() -> Vec<u8> {
    [both_parts(), first_part(), both_parts()[5 * 1024 * 1024 - 1..][..3].to_vec()].concat()
}

const LARGE: u64 = u64::MAX;

/// Every scenario.
pub fn all() -> impl Iterator<Item = &'static Scenario> {
    let single = plain_bucket::ALL.iter().chain(&dedup_bucket::ALL).chain(&expiry::ALL);
    single.chain(&expiry::shared_content::ALL).chain(&copies::ALL).chain(&backends::ALL)
}

impl Scenario {
    /// The empty environment of the scenario.
    #[must_use]
    pub fn environment(&self) -> Environment {
        Environment::new(self.put_bytes_max).with_dedup(self.dedup).with_copies(self.copies, self.put_bytes_max)
    }
}

/// Allowed bodies if the operation was not acknowledged: it may have happened or not.
#[must_use]
pub fn either(scenario: &Scenario) -> Expected {
    let mut expected = (scenario.after)();
    for (name, bodies) in (scenario.before)() {
        expected.entry(name).or_default().extend(bodies);
    }
    expected
}
