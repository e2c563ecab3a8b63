//! A backend that lists wrongly, as a broken proxy or store does.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use s3o_backend::{
    Backend, ByteStream, DeleteAnswer, DeleteKey, Error, ExpectedDelete, Page, PartOf, Probe, SharedBackend, Span,
    Traits, UnfinishedUpload, UploadedPart, UploadsPage, VersionPosition, VersionsPage, Written,
};
use s3o_model::names::BackendName;
use s3o_model::target::{ExpectedBytes, KeyVersion};

/// Number of keys in one page, so that a test needs few objects for several pages.
const PAGE_KEYS: usize = 40;

/// What is wrong with the listing of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListingFault {
    /// The second page does not arrive.
    CutOff,
    /// No key is listed, and the answer is complete.
    Empty,
    /// Every page is the first one.
    Repeated,
    /// Keys are sorted without regard to case.
    LocaleSorted,
    /// The first page says that it is the last one.
    EndsEarly,
    /// An empty page says that more keys follow.
    EmptyPage,
}

impl ListingFault {
    pub const ALL: [Self; 6] =
        [Self::CutOff, Self::Empty, Self::Repeated, Self::LocaleSorted, Self::EndsEarly, Self::EmptyPage];
}

/// Shared by the test and the layer.
pub type ListingFaultSlot = Arc<Mutex<Option<ListingFault>>>;

#[derive(Debug)]
pub struct FaultyListing {
    pub inner: SharedBackend,
    pub fault: ListingFaultSlot,
}

impl FaultyListing {
    async fn list_objects(&self, after: Option<&str>, fault: Option<ListingFault>) -> Result<Page, Error> {
        let after = if fault == Some(ListingFault::Repeated) { None } else { after };
        let mut page = self.inner.list("", after, PAGE_KEYS).await?;
        match fault {
            Some(ListingFault::CutOff) if after.is_some() => return Err(Error::Unknown("cut off".to_owned())),
            Some(ListingFault::Empty) => page = Page::default(),
            Some(ListingFault::EmptyPage) => page.items.clear(),
            Some(ListingFault::LocaleSorted) => page.items.sort_by_key(|item| item.key.to_lowercase()),
            Some(ListingFault::EndsEarly) => page.truncated = false,
            Some(ListingFault::CutOff | ListingFault::Repeated) | None => {}
        }
        Ok(page)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Backend for FaultyListing {
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
        self.inner.put(key, size_bytes, body).await
    }

    async fn get(&self, at: KeyVersion<'_>, span: Option<Span>) -> Result<ByteStream, Error> {
        self.inner.get(at, span).await
    }

    async fn probe(&self, at: KeyVersion<'_>) -> Probe {
        self.inner.probe(at).await
    }

    async fn delete_batch(&self, doomed: &[DeleteKey]) -> Vec<DeleteAnswer> {
        self.inner.delete_batch(doomed).await
    }

    async fn delete_expected(&self, doomed: &DeleteKey, expected: &ExpectedBytes) -> ExpectedDelete {
        self.inner.delete_expected(doomed, expected).await
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, Error> {
        let fault = *self.fault.lock();
        if prefix.is_empty() {
            return self.list_objects(after, fault).await;
        }
        self.inner.list(prefix, after, limit).await
    }

    async fn list_versions(
        &self,
        prefix: &str,
        after: Option<&VersionPosition>,
        limit: usize,
    ) -> Result<VersionsPage, Error> {
        self.inner.list_versions(prefix, after, limit).await
    }

    async fn start_upload(&self, key: &str) -> Result<String, Error> {
        self.inner.start_upload(key).await
    }

    async fn put_part(&self, part: PartOf<'_>, size_bytes: u64, body: ByteStream) -> Result<UploadedPart, Error> {
        self.inner.put_part(part, size_bytes, body).await
    }

    async fn finish_upload(&self, key: &str, upload: &str, parts: &[UploadedPart]) -> Result<Written, Error> {
        self.inner.finish_upload(key, upload, parts).await
    }

    async fn abort_upload(&self, key: &str, upload: &str) -> DeleteAnswer {
        self.inner.abort_upload(key, upload).await
    }

    async fn uploads_of(&self, key: &str) -> Result<Vec<String>, Error> {
        self.inner.uploads_of(key).await
    }

    async fn list_uploads(&self, from: Option<&UnfinishedUpload>) -> Result<UploadsPage, Error> {
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
