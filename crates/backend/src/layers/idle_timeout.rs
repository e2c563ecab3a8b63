//! Cancels calls to a backend that makes no progress, never those to a slow one.
//!
//! The timeout starts at the last progress: the backend took a chunk of a request body or returned a chunk of a
//! response body. It does not run while the backend waits for the producer of a body: the server limits how long a
//! client may pause.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use parking_lot::{Mutex, MutexGuard};
use s3o_model::names::BackendName;
use s3o_model::target::{ExpectedBytes, KeyVersion};
use tokio::time::{Instant, sleep_until, timeout};

use crate::{
    Backend, BodyError, ByteStream, DeleteAnswer, DeleteKey, Error, ExpectedDelete, Page, PartOf, Probe, SharedBackend,
    Span, Traits, UnfinishedUpload, UploadedPart, UploadsPage, VersionPosition, VersionsPage, Written,
};

/// Limits the time without progress of every call.
#[derive(Debug)]
pub struct IdleTimeout {
    inner: SharedBackend,
    idle: Duration,
}

impl IdleTimeout {
    /// Wraps `inner`; `idle` is the longest time without progress.
    #[must_use]
    pub fn new(inner: SharedBackend, idle: Duration) -> Self {
        Self { inner, idle }
    }

    fn reason(&self) -> String {
        format!("no progress for {} ms", self.idle.as_millis())
    }

    fn away(&self) -> Error {
        Error::Away(self.reason())
    }

    async fn answer<T>(&self, call: impl Future<Output = Result<T, Error>> + Send) -> Result<T, Error> {
        timeout(self.idle, call).await.unwrap_or_else(|_| Err(self.away()))
    }

    /// Waits for the answer to a request body as long as there is progress.
    async fn while_progressing<T>(
        &self,
        progress: &Progress,
        call: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        let mut call = pin!(call);
        loop {
            let deadline = progress.lock().last_progress + self.idle;
            tokio::select! {
                biased;
                answer = &mut call => return answer,
                () = sleep_until(deadline) => {
                    let state = *progress.lock();
                    if state.is_waiting_for_producer {
                        // The server limits the pauses of a client.
                        progress.lock().last_progress = Instant::now();
                    } else if state.last_progress + self.idle <= Instant::now() {
                        return Err(self.away());
                    }
                }
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct ProgressState {
    last_progress: Instant,
    /// True if the backend has polled the producer and got no chunk.
    is_waiting_for_producer: bool,
}

#[derive(Debug, Clone)]
struct Progress(Arc<Mutex<ProgressState>>);

impl Progress {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(ProgressState { last_progress: Instant::now(), is_waiting_for_producer: false })))
    }

    fn lock(&self) -> MutexGuard<'_, ProgressState> {
        self.0.lock()
    }

    fn watch(&self, body: ByteStream) -> ByteStream {
        Box::pin(ProgressStream { body, progress: self.clone() })
    }
}

struct ProgressStream {
    body: ByteStream,
    progress: Progress,
}

impl Stream for ProgressStream {
    type Item = Result<Bytes, BodyError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = self.body.poll_next_unpin(context);
        let mut state = self.progress.lock();
        // A poll for the next chunk is progress, too: the backend has taken the last one.
        if polled.is_ready() || !state.is_waiting_for_producer {
            state.last_progress = Instant::now();
        }
        state.is_waiting_for_producer = polled.is_pending();
        polled
    }
}

/// The timeout runs only while the reader waits for a chunk, so a slow reader does not cause it.
fn watch_response(body: ByteStream, idle: Duration) -> ByteStream {
    Box::pin(stream::unfold(Some(body), move |body| async move {
        let mut body = body?;
        let Ok(item) = timeout(idle, body.next()).await else {
            let why = format!("no byte arrived for {} ms", idle.as_millis());
            return Some((Err(BodyError::Broken(why)), None));
        };
        item.map(|item| (item, Some(body)))
    }))
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Backend for IdleTimeout {
    fn name(&self) -> &BackendName {
        self.inner.name()
    }

    fn put_bytes_max(&self) -> u64 {
        self.inner.put_bytes_max()
    }

    async fn probe_traits(&self) -> Result<Traits, Error> {
        self.answer(self.inner.probe_traits()).await
    }

    async fn put(&self, key: &str, size_bytes: u64, body: ByteStream) -> Result<Written, Error> {
        let progress = Progress::new();
        self.while_progressing(&progress, self.inner.put(key, size_bytes, progress.watch(body))).await
    }

    async fn get(&self, at: KeyVersion<'_>, span: Option<Span>) -> Result<ByteStream, Error> {
        let body = self.answer(self.inner.get(at, span)).await?;
        Ok(watch_response(body, self.idle))
    }

    async fn probe(&self, at: KeyVersion<'_>) -> Probe {
        timeout(self.idle, self.inner.probe(at)).await.unwrap_or_else(|_| Probe::Unknown(self.reason()))
    }

    async fn delete_batch(&self, targets: &[DeleteKey]) -> Vec<DeleteAnswer> {
        let answers = timeout(self.idle, self.inner.delete_batch(targets)).await;
        answers.unwrap_or_else(|_| vec![DeleteAnswer::Away(self.reason()); targets.len()])
    }

    async fn delete_expected(&self, target: &DeleteKey, expected: &ExpectedBytes) -> ExpectedDelete {
        let answer = timeout(self.idle, self.inner.delete_expected(target, expected)).await;
        answer.unwrap_or_else(|_| ExpectedDelete::Answered(DeleteAnswer::Away(self.reason())))
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, Error> {
        self.answer(self.inner.list(prefix, after, limit)).await
    }

    async fn list_versions(
        &self,
        prefix: &str,
        after: Option<&VersionPosition>,
        limit: usize,
    ) -> Result<VersionsPage, Error> {
        self.answer(self.inner.list_versions(prefix, after, limit)).await
    }

    async fn start_upload(&self, key: &str) -> Result<String, Error> {
        self.answer(self.inner.start_upload(key)).await
    }

    async fn put_part(&self, part: PartOf<'_>, size_bytes: u64, body: ByteStream) -> Result<UploadedPart, Error> {
        let progress = Progress::new();
        self.while_progressing(&progress, self.inner.put_part(part, size_bytes, progress.watch(body))).await
    }

    async fn finish_upload(&self, key: &str, upload: &str, parts: &[UploadedPart]) -> Result<Written, Error> {
        self.answer(self.inner.finish_upload(key, upload, parts)).await
    }

    async fn abort_upload(&self, key: &str, upload: &str) -> DeleteAnswer {
        let answer = timeout(self.idle, self.inner.abort_upload(key, upload)).await;
        answer.unwrap_or_else(|_| DeleteAnswer::Away(self.reason()))
    }

    async fn uploads_of(&self, key: &str) -> Result<Vec<String>, Error> {
        self.answer(self.inner.uploads_of(key)).await
    }

    async fn list_uploads(&self, from: Option<&UnfinishedUpload>) -> Result<UploadsPage, Error> {
        self.answer(self.inner.list_uploads(from)).await
    }

    async fn read_own(&self, key: &str) -> Result<Option<Bytes>, Error> {
        self.answer(self.inner.read_own(key)).await
    }

    async fn write_own(&self, key: &str, body: Bytes) -> Result<(), Error> {
        self.answer(self.inner.write_own(key, body)).await
    }

    async fn store_changed(&self) -> bool {
        // Without an answer, no change was observed.
        tokio::time::timeout(self.idle, self.inner.store_changed()).await.unwrap_or(false)
    }

    async fn reopen_store(&self) -> Result<(), Error> {
        self.answer(self.inner.reopen_store()).await
    }

    async fn trust_store(&self) {
        self.inner.trust_store().await;
    }
}

#[cfg(test)]
mod tests {
    use super::IdleTimeout;
    use crate::layers::{Fault, Flaky};
    use crate::{Backend, ByteStream, Error, Memory, Probe};
    use bytes::Bytes;
    use futures_util::stream;
    use std::sync::Arc;
    use std::time::Duration;

    const IDLE: Duration = Duration::from_secs(30);

    fn backend() -> (Arc<Flaky>, IdleTimeout) {
        let memory = Memory::new("memory".parse().expect("valid"));
        let flaky = Arc::new(Flaky::new(Arc::new(memory)));
        (flaky.clone(), IdleTimeout::new(flaky, IDLE))
    }

    /// A body of ten bytes with a pause before each.
    fn dripping(pause: Duration) -> ByteStream {
        Box::pin(stream::unfold(0, move |sent| async move {
            tokio::time::sleep(pause).await;
            (sent < 10).then(|| (Ok(Bytes::from("x")), sent + 1))
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn slow_body_may_take_longer_than_the_timeout() {
        let (_, backend) = backend();
        backend.put("k", 10, dripping(IDLE / 2)).await.expect("slow is fine");
    }

    #[tokio::test(start_paused = true)]
    async fn pause_of_the_producer_causes_no_timeout() {
        let (_, backend) = backend();
        backend.put("k", 10, dripping(IDLE * 2)).await.expect("pauses of the producer do not count");
    }

    #[tokio::test(start_paused = true)]
    async fn backend_without_progress_is_away() {
        let (flaky, backend) = backend();
        flaky.fail_call(1, Fault::Delay(IDLE * 2));
        flaky.fail_call(2, Fault::Delay(IDLE * 2));
        assert!(matches!(backend.list("", None, 1).await, Err(Error::Away(_))));
        assert!(matches!(backend.probe("k".into()).await, Probe::Unknown(_)));
        assert_eq!(backend.probe("k".into()).await, Probe::Absent);
    }
}
