//! A bucket of any S3-compatible service as a backend.
//!
//! A thin client: it streams a body of known length in one request, returns an answer for every key of
//! a batch delete, and reports a key as absent only if the service said so about that key.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use s3o_model::clock::Clock;
use s3o_model::clock_hold::StoreTime;
use s3o_model::entropy::Entropy;
use s3o_model::names::BackendName;
use s3o_model::target::{ExpectedBytes, KeyVersion};

use crate::usage::BackendUsage;
use crate::{
    Backend, ByteStream, DeleteAnswer, DeleteKey, Error, ExpectedDelete, Page, PartOf, Probe, Span, Traits,
    UnfinishedUpload, UploadedPart, UploadsPage, VersionPosition, VersionsPage, Written,
};

mod answer;
mod attributes;
mod bodies;
mod delete;
mod list;
mod objects;
mod options;
mod sign;
mod transport;
mod uploads;
mod versions;
mod walk;
mod xml;

pub use options::{PUT_BYTES_MAX, S3Options, Secret};

/// A bucket as a backend.
pub struct S3 {
    name: BackendName,
    put_bytes_max: u64,
    /// True to create a missing bucket when the identity is read.
    creates_bucket: AtomicBool,
    region: String,
    transport: transport::Transport,
    entropy: Arc<dyn Entropy>,
    /// Set after the first batch delete that the service does not implement.
    batch_unsupported: AtomicBool,
    /// Set by the trait probe, by a write that returns a version, or by a delete that leaves one.
    keeps_versions: AtomicBool,
    /// Set by the trait probe, or before the first listing.
    order: Mutex<Option<list::ListOrder>>,
}

impl fmt::Debug for S3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3").field("name", &self.name).field("bucket", &self.transport).finish_non_exhaustive()
    }
}

impl S3 {
    /// A backend in this bucket. It sends no request yet, so a service that is down is no error.
    pub fn connect(
        name: BackendName,
        options: &S3Options,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Self, Error> {
        Ok(Self {
            name,
            put_bytes_max: options.put_bytes_max,
            creates_bucket: AtomicBool::new(options.create_bucket),
            region: options.region.clone(),
            transport: transport::Transport::new(options, clock)?,
            entropy,
            batch_unsupported: AtomicBool::new(false),
            keeps_versions: AtomicBool::new(false),
            order: Mutex::new(None),
        })
    }

    /// Records the `Date` of every response in `store_time`.
    #[must_use]
    pub fn with_store_time(mut self, store_time: Arc<StoreTime>) -> Self {
        self.transport.record_dates(store_time);
        self
    }

    /// Counts every request and the bytes of its bodies in `usage`.
    #[must_use]
    pub fn with_usage(mut self, usage: Arc<BackendUsage>) -> Self {
        self.transport.count_in(usage);
        self
    }

    /// Creates the bucket; a bucket that this account already owns is no error.
    pub async fn create_bucket(&self) -> Result<(), Error> {
        let payload = transport::Payload::Known(bucket_configuration(&self.region));
        let request = transport::S3Request::new(http::Method::PUT, None, &[]).with_payload(payload);
        match self.transport.answer(request).await {
            Ok(_) => Ok(()),
            Err(transport::RequestError::Response(failure)) if failure.code == "BucketAlreadyOwnedByYou" => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn keeps_versions(&self) -> bool {
        self.keeps_versions.load(Ordering::Relaxed)
    }

    fn set_keeps_versions(&self) {
        self.keeps_versions.store(true, Ordering::Relaxed);
    }
}

/// The body of `CreateBucket`. AWS requires the region in it, except in `us-east-1`, where it must be empty.
fn bucket_configuration(region: &str) -> Bytes {
    const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";
    let is_plain = region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if region == "us-east-1" || !is_plain {
        return Bytes::new();
    }
    let constraint = format!("<LocationConstraint>{region}</LocationConstraint>");
    let name = "CreateBucketConfiguration";
    Bytes::from(format!("<{name} xmlns=\"{NAMESPACE}\">{constraint}</{name}>"))
}

#[async_trait]
impl Backend for S3 {
    fn name(&self) -> &BackendName {
        &self.name
    }

    fn put_bytes_max(&self) -> u64 {
        self.put_bytes_max
    }

    async fn probe_traits(&self) -> Result<Traits, Error> {
        self.probe_all_traits().await
    }

    async fn put(&self, key: &str, size_bytes: u64, body: ByteStream) -> Result<Written, Error> {
        self.put_object(key, size_bytes, body).await
    }

    async fn get(&self, at: KeyVersion<'_>, span: Option<Span>) -> Result<ByteStream, Error> {
        self.get_object(at, span).await
    }

    async fn probe(&self, at: KeyVersion<'_>) -> Probe {
        self.probe_object(at).await
    }

    async fn delete_batch(&self, targets: &[DeleteKey]) -> Vec<DeleteAnswer> {
        self.delete_objects(targets).await
    }

    async fn delete_expected(&self, target: &DeleteKey, expected: &ExpectedBytes) -> ExpectedDelete {
        self.delete_expected_object(target, expected).await
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, Error> {
        self.list_objects(prefix, after, limit).await
    }

    async fn list_versions(
        &self,
        prefix: &str,
        after: Option<&VersionPosition>,
        limit: usize,
    ) -> Result<VersionsPage, Error> {
        self.list_object_versions(prefix, after, limit).await
    }

    async fn start_upload(&self, key: &str) -> Result<String, Error> {
        self.create_upload(key).await
    }

    async fn put_part(&self, part: PartOf<'_>, size_bytes: u64, body: ByteStream) -> Result<UploadedPart, Error> {
        self.upload_part(part, size_bytes, body).await
    }

    async fn finish_upload(&self, key: &str, upload: &str, parts: &[UploadedPart]) -> Result<Written, Error> {
        self.complete_upload(key, upload, parts).await
    }

    async fn abort_upload(&self, key: &str, upload: &str) -> DeleteAnswer {
        self.abandon_upload(key, upload).await
    }

    async fn uploads_of(&self, key: &str) -> Result<Vec<String>, Error> {
        self.unfinished_uploads(key).await
    }

    async fn list_uploads(&self, from: Option<&UnfinishedUpload>) -> Result<UploadsPage, Error> {
        self.all_uploads(from).await
    }

    async fn read_own(&self, key: &str) -> Result<Option<Bytes>, Error> {
        self.read_own_object(key).await
    }

    async fn write_own(&self, key: &str, body: Bytes) -> Result<(), Error> {
        self.write_own_object(key, body).await
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod versions_tests;
