//! Counts the usage of a backend that sends no requests of its own, such as a folder: each call is a request, and the
//! bytes of its body are counted as they are transferred. An S3 backend counts its HTTP requests itself.
//!
//! Probes and objects of s3o's own are not counted: in a folder they cost nothing, and they are read every few seconds.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use s3o_model::names::BackendName;
use s3o_model::target::{ExpectedBytes, KeyVersion};

use crate::usage::BackendUsage;
use crate::{
    Backend, ByteStream, DeleteAnswer, DeleteKey, Error, ExpectedDelete, Page, PartOf, Probe, SharedBackend, Span,
    Traits, UnfinishedUpload, UploadedPart, UploadsPage, VersionPosition, VersionsPage, Written,
};

/// Counts the calls and bytes of a backend.
#[derive(Debug)]
pub struct CountedCalls {
    inner: SharedBackend,
    usage: Arc<BackendUsage>,
}

impl CountedCalls {
    /// Counts the calls to `inner` in `usage`.
    #[must_use]
    pub fn new(inner: SharedBackend, usage: Arc<BackendUsage>) -> Self {
        Self { inner, usage }
    }

    fn count_sent(&self, body: ByteStream) -> ByteStream {
        let counters = self.usage.count_request();
        Box::pin(body.inspect(move |chunk| {
            if let Ok(chunk) = chunk {
                counters.add_sent(chunk.len());
            }
        }))
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Backend for CountedCalls {
    fn name(&self) -> &BackendName {
        self.inner.name()
    }

    fn put_bytes_max(&self) -> u64 {
        self.inner.put_bytes_max()
    }

    async fn probe_traits(&self) -> Result<Traits, Error> {
        self.inner.probe_traits().await
    }

    async fn put(&self, key: &str, size_bytes: u64, body: ByteStream) -> Result<Written, Error> {
        self.inner.put(key, size_bytes, self.count_sent(body)).await
    }

    async fn get(&self, at: KeyVersion<'_>, span: Option<Span>) -> Result<ByteStream, Error> {
        let counters = self.usage.count_request();
        let body = self.inner.get(at, span).await?;
        Ok(Box::pin(body.inspect(move |chunk| {
            if let Ok(chunk) = chunk {
                counters.add_received(chunk.len());
            }
        })))
    }

    async fn probe(&self, at: KeyVersion<'_>) -> Probe {
        self.usage.count_request();
        self.inner.probe(at).await
    }

    async fn delete_batch(&self, targets: &[DeleteKey]) -> Vec<DeleteAnswer> {
        self.usage.count_request();
        self.inner.delete_batch(targets).await
    }

    async fn delete_expected(&self, target: &DeleteKey, expected: &ExpectedBytes) -> ExpectedDelete {
        self.usage.count_request();
        self.inner.delete_expected(target, expected).await
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, Error> {
        self.usage.count_request();
        self.inner.list(prefix, after, limit).await
    }

    async fn list_versions(
        &self,
        prefix: &str,
        after: Option<&VersionPosition>,
        limit: usize,
    ) -> Result<VersionsPage, Error> {
        self.usage.count_request();
        self.inner.list_versions(prefix, after, limit).await
    }

    async fn start_upload(&self, key: &str) -> Result<String, Error> {
        self.usage.count_request();
        self.inner.start_upload(key).await
    }

    async fn put_part(&self, part: PartOf<'_>, size_bytes: u64, body: ByteStream) -> Result<UploadedPart, Error> {
        self.inner.put_part(part, size_bytes, self.count_sent(body)).await
    }

    async fn finish_upload(&self, key: &str, upload: &str, parts: &[UploadedPart]) -> Result<Written, Error> {
        self.usage.count_request();
        self.inner.finish_upload(key, upload, parts).await
    }

    async fn abort_upload(&self, key: &str, upload: &str) -> DeleteAnswer {
        self.usage.count_request();
        self.inner.abort_upload(key, upload).await
    }

    async fn uploads_of(&self, key: &str) -> Result<Vec<String>, Error> {
        self.usage.count_request();
        self.inner.uploads_of(key).await
    }

    async fn list_uploads(&self, from: Option<&UnfinishedUpload>) -> Result<UploadsPage, Error> {
        self.usage.count_request();
        self.inner.list_uploads(from).await
    }

    async fn read_own(&self, key: &str) -> Result<Option<Bytes>, Error> {
        self.inner.read_own(key).await
    }

    async fn write_own(&self, key: &str, body: Bytes) -> Result<(), Error> {
        self.inner.write_own(key, body).await
    }

    async fn store_changed(&self) -> bool {
        self.inner.store_changed().await
    }

    async fn reopen_store(&self) -> Result<(), Error> {
        self.inner.reopen_store().await
    }

    async fn trust_store(&self) {
        self.inner.trust_store().await;
    }
}

#[cfg(test)]
mod tests {
    use super::CountedCalls;
    use crate::usage::{BackendUsage, CatalogTime, UsageContext};
    use crate::{Backend, DeleteKey, Memory, body};
    use bytes::Bytes;
    use futures_util::StreamExt;
    use s3o_model::clock::SystemClock;
    use s3o_model::usage::{UsagePolicy, UsageTotals};
    use std::sync::Arc;
    use std::time::Duration;

    #[tokio::test]
    async fn calls_and_transferred_bytes_are_counted() {
        let time = Arc::new(CatalogTime::new(Arc::new(SystemClock)));
        let context = UsageContext { time, demand: Arc::default(), resume_delay: Duration::ZERO };
        let name: s3o_model::names::BackendName = "m".parse().expect("valid");
        let usage = Arc::new(BackendUsage::new(name.clone(), UsagePolicy::default(), context));
        let counted = CountedCalls::new(Arc::new(Memory::new(name)), usage.clone());
        counted.put("k", 3, body::whole(Bytes::from("abc"))).await.expect("put");
        let mut body = counted.get("k".into(), None).await.expect("get");
        while body.next().await.is_some() {}
        assert!(counted.get("missing".into(), None).await.is_err());
        drop(counted.get("k".into(), None).await.expect("a body that is not read"));
        counted.read_own(".s3o/identity.json").await.expect("read");
        counted.delete_batch(&[DeleteKey { key: "k".to_owned(), version_id: None }]).await;
        let expected = UsageTotals { requests: 5, egress_bytes: 3, ingress_bytes: 3 };
        assert_eq!(usage.counters().totals(), expected);
    }
}
