//! A backend that can be bent: it stores under other names, lies about what it does not know, holds a write up, or is
//! another disk than it was.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt as _, stream};
use parking_lot::Mutex;
use s3o_backend::layers::Flaky;
use s3o_backend::{
    Backend, ByteStream, DeleteAnswer, Doomed, Error, Memory, Page, PartOf, Probe, Span, Traits, UnfinishedUpload,
    UploadedPart, UploadsPage, Written,
};
use s3o_model::names::BackendName;
use tokio::sync::Semaphore;

/// How it is bent.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bend {
    /// It stores under the logical key, and replaces what is there, as most stores do.
    pub by_name: bool,
    /// What it does not know it takes for absent.
    pub unknown_is_absent: bool,
    /// When it is away it says that it refuses.
    pub away_is_refused: bool,
}

#[derive(Debug)]
pub struct Bent {
    pub bend: Bend,
    pub memory: Arc<Memory>,
    pub flaky: Arc<Flaky>,
    /// Another disk, for as long as it is mounted in the place of the right one.
    pub other_disk: Memory,
    pub swapped: AtomicBool,
    /// Writes that were accepted, not answered, and have not landed.
    under_way: Mutex<Vec<(String, Bytes)>>,
    pub loses_writes: AtomicBool,
    /// A write waits here; `arrived` tells that one does.
    pub gate: Semaphore,
    pub arrived: Semaphore,
    pub holds_writes: AtomicBool,
}

impl Bent {
    pub fn new(name: &BackendName, bend: Bend, put_bytes_max: u64) -> Self {
        let memory = Arc::new(Memory::new(name.clone()).with_put_bytes_max(put_bytes_max));
        Self {
            bend,
            flaky: Arc::new(Flaky::new(memory.clone())),
            memory,
            other_disk: Memory::new(name.clone()),
            swapped: AtomicBool::default(),
            under_way: Mutex::default(),
            loses_writes: AtomicBool::default(),
            gate: Semaphore::new(0),
            arrived: Semaphore::new(0),
            holds_writes: AtomicBool::default(),
        }
    }

    /// The name under which bytes really lie.
    pub fn place<'a>(&self, key: &'a str) -> &'a str {
        match key.rsplit_once('~') {
            Some((name, _)) if self.bend.by_name => name,
            _ => key,
        }
    }

    /// Lets the writes that are under way land.
    pub fn land(&self) {
        for (key, bytes) in self.under_way.lock().drain(..) {
            self.memory.plant(&key, bytes);
        }
    }

    /// Waits at the gate, where writes do.
    async fn held_up(&self) {
        if self.holds_writes.load(Ordering::Relaxed) {
            self.arrived.add_permits(1);
            self.gate.acquire().await.expect("never closed").forget();
        }
    }

    fn disk(&self) -> &dyn Backend {
        if self.swapped.load(Ordering::Relaxed) { &self.other_disk } else { self.flaky.as_ref() }
    }

    fn answer(&self, answer: DeleteAnswer) -> DeleteAnswer {
        match answer {
            DeleteAnswer::Away(_) | DeleteAnswer::Unknown(_) if self.bend.unknown_is_absent => DeleteAnswer::Absent,
            DeleteAnswer::Away(why) if self.bend.away_is_refused => DeleteAnswer::Refused(why),
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
impl Backend for Bent {
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
            self.under_way.lock().push((key.to_owned(), bytes));
            return Err(Error::Unknown("no answer".to_owned()));
        }
        if self.bend.by_name {
            self.memory.plant(self.place(key), collected(body).await?);
            return Ok(Written { size_bytes, etag: None, version_id: None });
        }
        if !self.holds_writes.load(Ordering::Relaxed) {
            return self.disk().put(key, size_bytes, body).await;
        }
        // The store has the whole body when it falls silent: a writer past its lease hands over no last chunk.
        let bytes = collected(body).await?;
        self.held_up().await;
        self.disk().put(key, size_bytes, body_of(bytes)).await
    }

    async fn get(&self, key: &str, span: Option<Span>) -> Result<ByteStream, Error> {
        self.disk().get(self.place(key), span).await
    }

    async fn probe(&self, key: &str) -> Probe {
        match self.disk().probe(self.place(key)).await {
            Probe::Unknown(_) if self.bend.unknown_is_absent => Probe::Absent,
            probe => probe,
        }
    }

    async fn delete_batch(&self, doomed: &[Doomed]) -> Vec<DeleteAnswer> {
        let doomed: Vec<Doomed> =
            doomed.iter().map(|doomed| Doomed { key: self.place(&doomed.key).to_owned(), ..doomed.clone() }).collect();
        self.disk().delete_batch(&doomed).await.into_iter().map(|answer| self.answer(answer)).collect()
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, Error> {
        self.disk().list(prefix, after, limit).await
    }

    async fn start_upload(&self, key: &str) -> Result<String, Error> {
        self.held_up().await;
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

    async fn place_changed(&self) -> bool {
        self.disk().place_changed().await
    }

    async fn reopen_place(&self) -> Result<(), Error> {
        self.disk().reopen_place().await
    }
}
