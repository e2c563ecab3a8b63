//! A backend with flaws: it stores under other names, claims absence without knowing, delays a write, or is another
//! disk than before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt as _, stream};
use parking_lot::Mutex;
use s3o_backend::layers::Flaky;
use s3o_backend::{
    Backend, ByteStream, DeleteAnswer, DeleteKey, Error, ExpectedDelete, Memory, Page, PartOf, Probe, Span, Traits,
    UnfinishedUpload, UploadedPart, UploadsPage, VersionPosition, VersionsPage, Written,
};
use s3o_model::names::BackendName;
use s3o_model::target::{ExpectedBytes, KeyVersion};
use s3o_tests::environment::TestBackend;
use tokio::sync::Semaphore;

/// Wrong behaviour for the whole run.
#[derive(Debug, Clone, Copy, Default)]
pub struct BackendFlaws {
    /// It stores under the logical key and replaces existing bytes, as most stores do.
    pub by_name: bool,
    /// It answers `Absent` where the answer is unknown.
    pub unknown_is_absent: bool,
    /// It answers `Refused` while it is unreachable.
    pub away_is_refused: bool,
}

#[derive(Debug)]
pub struct FaultyBackend {
    pub flaws: BackendFlaws,
    pub memory: Arc<Memory>,
    pub flaky: Arc<Flaky>,
    /// Serves every call while `swapped` is set.
    pub other_disk: Memory,
    pub swapped: AtomicBool,
    /// Writes that were accepted but neither answered nor stored yet.
    unstored: Mutex<Vec<(String, Bytes)>>,
    pub loses_writes: AtomicBool,
    /// A permit lets a held write continue; `arrived` gets a permit when a write waits.
    pub release: Semaphore,
    pub arrived: Semaphore,
    pub holds_writes: AtomicBool,
}

impl FaultyBackend {
    pub fn new(backend: &TestBackend, flaws: BackendFlaws) -> Self {
        Self {
            flaws,
            flaky: backend.flaky.clone(),
            memory: backend.memory.clone(),
            other_disk: Memory::new(backend.name()),
            swapped: AtomicBool::default(),
            unstored: Mutex::default(),
            loses_writes: AtomicBool::default(),
            release: Semaphore::new(0),
            arrived: Semaphore::new(0),
            holds_writes: AtomicBool::default(),
        }
    }

    /// The key that the bytes are stored under.
    pub fn location<'a>(&self, key: &'a str) -> &'a str {
        match key.rsplit_once('~') {
            Some((name, _)) if self.flaws.by_name => name,
            _ => key,
        }
    }

    /// Stores the writes that were accepted and not answered.
    pub fn store_late(&self) {
        for (key, bytes) in self.unstored.lock().drain(..) {
            self.memory.plant(&key, bytes);
        }
    }

    /// Waits for a permit while writes are held.
    async fn wait_if_held(&self) {
        if self.holds_writes.load(Ordering::Relaxed) {
            self.arrived.add_permits(1);
            self.release.acquire().await.expect("never closed").forget();
        }
    }

    fn disk(&self) -> &dyn Backend {
        if self.swapped.load(Ordering::Relaxed) { &self.other_disk } else { self.flaky.as_ref() }
    }

    fn answer(&self, answer: DeleteAnswer) -> DeleteAnswer {
        match answer {
            DeleteAnswer::Away(_) | DeleteAnswer::Unknown(_) if self.flaws.unknown_is_absent => DeleteAnswer::Absent,
            DeleteAnswer::Away(why) if self.flaws.away_is_refused => DeleteAnswer::Refused(why),
            answer => answer,
        }
    }
}

fn body_of(bytes: Bytes) -> ByteStream {
    Box::pin(stream::once(async move { Ok(bytes) }))
}

async fn collected(mut body: ByteStream) -> Result<Bytes, Error> {
    let mut bytes = BytesMut::new();
    while let Some(chunk) = body.next().await {
        bytes.extend_from_slice(&chunk?);
    }
    Ok(bytes.freeze())
}

#[async_trait]
impl Backend for FaultyBackend {
    fn name(&self) -> &BackendName {
        self.memory.name()
    }

    fn put_bytes_max(&self) -> u64 {
        self.memory.put_bytes_max()
    }

    async fn probe_traits(&self) -> Result<Traits, Error> {
        self.disk().probe_traits().await
    }

    async fn put(&self, key: &str, size_bytes: u64, body: ByteStream) -> Result<Written, Error> {
        if self.loses_writes.load(Ordering::Relaxed) {
            let bytes = collected(body).await?;
            self.unstored.lock().push((key.to_owned(), bytes));
            return Err(Error::Unknown("no answer".to_owned()));
        }
        if self.flaws.by_name {
            self.memory.plant(self.location(key), collected(body).await?);
            return Ok(Written { size_bytes, etag: None, version_id: None });
        }
        if !self.holds_writes.load(Ordering::Relaxed) {
            return self.disk().put(key, size_bytes, body).await;
        }
        // The store has the whole body before it waits: a writer past its lease sends no last chunk.
        let bytes = collected(body).await?;
        self.wait_if_held().await;
        self.disk().put(key, size_bytes, body_of(bytes)).await
    }

    async fn get(&self, at: KeyVersion<'_>, span: Option<Span>) -> Result<ByteStream, Error> {
        self.disk().get(KeyVersion { key: self.location(at.key), ..at }, span).await
    }

    async fn probe(&self, at: KeyVersion<'_>) -> Probe {
        match self.disk().probe(KeyVersion { key: self.location(at.key), ..at }).await {
            Probe::Unknown(_) if self.flaws.unknown_is_absent => Probe::Absent,
            probe => probe,
        }
    }

    async fn delete_batch(&self, doomed: &[DeleteKey]) -> Vec<DeleteAnswer> {
        let doomed: Vec<DeleteKey> = doomed
            .iter()
            .map(|doomed| DeleteKey { key: self.location(&doomed.key).to_owned(), ..doomed.clone() })
            .collect();
        self.disk().delete_batch(&doomed).await.into_iter().map(|answer| self.answer(answer)).collect()
    }

    async fn delete_expected(&self, doomed: &DeleteKey, expected: &ExpectedBytes) -> ExpectedDelete {
        let doomed = DeleteKey { key: self.location(&doomed.key).to_owned(), ..doomed.clone() };
        match self.disk().delete_expected(&doomed, expected).await {
            ExpectedDelete::Answered(answer) => ExpectedDelete::Answered(self.answer(answer)),
            ExpectedDelete::Changed(why) => ExpectedDelete::Changed(why),
        }
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, Error> {
        self.disk().list(prefix, after, limit).await
    }

    async fn list_versions(
        &self,
        prefix: &str,
        after: Option<&VersionPosition>,
        limit: usize,
    ) -> Result<VersionsPage, Error> {
        self.disk().list_versions(prefix, after, limit).await
    }

    async fn start_upload(&self, key: &str) -> Result<String, Error> {
        self.wait_if_held().await;
        self.disk().start_upload(key).await
    }

    async fn put_part(&self, part: PartOf<'_>, size_bytes: u64, body: ByteStream) -> Result<UploadedPart, Error> {
        self.disk().put_part(part, size_bytes, body).await
    }

    async fn finish_upload(&self, key: &str, upload: &str, parts: &[UploadedPart]) -> Result<Written, Error> {
        self.disk().finish_upload(key, upload, parts).await
    }

    async fn abort_upload(&self, key: &str, upload: &str) -> DeleteAnswer {
        self.disk().abort_upload(key, upload).await
    }

    async fn uploads_of(&self, key: &str) -> Result<Vec<String>, Error> {
        self.disk().uploads_of(key).await
    }

    async fn list_uploads(&self, from: Option<&UnfinishedUpload>) -> Result<UploadsPage, Error> {
        self.disk().list_uploads(from).await
    }

    async fn read_own(&self, key: &str) -> Result<Option<Bytes>, Error> {
        self.disk().read_own(key).await
    }

    async fn write_own(&self, key: &str, body: Bytes) -> Result<(), Error> {
        self.disk().write_own(key, body).await
    }

    async fn store_changed(&self) -> bool {
        self.disk().store_changed().await
    }

    async fn reopen_store(&self) -> Result<(), Error> {
        self.disk().reopen_store().await
    }

    async fn trust_store(&self) {
        self.disk().trust_store().await;
    }
}
