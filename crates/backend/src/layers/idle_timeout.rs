//! Gives up on a backend that stands still, never on one that is merely slow.
//!
//! The clock runs from the last sign of life: a chunk of a body taken, a chunk of an answer
//! given. While a backend waits for a body's producer, the clock stands: how long a sender may
//! pause is for whoever receives from it to say.

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
use tokio::time::{Instant, sleep_until, timeout};

use crate::{
    Backend, BodyError, ByteStream, DeleteAnswer, Doomed, Error, Page, PartOf, Probe, SharedBackend, Span, Traits,
    UnfinishedUpload, UploadedPart, UploadsPage, Written,
};

/// A backend that is given up on when it stands still.
#[derive(Debug)]
pub struct IdleTimeout {
    inner: SharedBackend,
    idle: Duration,
}

impl IdleTimeout {
    /// Wraps a backend.
    #[must_use]
    pub fn new(inner: SharedBackend, idle: Duration) -> Self {
        Self { inner, idle }
    }

    fn why(&self) -> String {
        format!("nothing moved for {} ms", self.idle.as_millis())
    }

    fn away(&self) -> Error {
        Error::Away(self.why())
    }

    async fn answer<T>(&self, call: impl Future<Output = Result<T, Error>> + Send) -> Result<T, Error> {
        timeout(self.idle, call).await.unwrap_or_else(|_| Err(self.away()))
    }

    /// Waits for the answer to a body as long as anything moves.
    async fn moving<T>(
        &self,
        progress: &Progress,
        call: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        let mut call = pin!(call);
        loop {
            let deadline = progress.lock().moved_at + self.idle;
            tokio::select! {
                biased;
                answer = &mut call => return answer,
                () = sleep_until(deadline) => {
                    let movement = *progress.lock();
                    if movement.producer_waits {
                        // How long a sender may pause is for whoever receives from it to say.
                        progress.lock().moved_at = Instant::now();
                    } else if movement.moved_at + self.idle <= Instant::now() {
                        return Err(self.away());
                    }
                }
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Movement {
    moved_at: Instant,
    /// Whether the backend has asked the producer for more and was given nothing.
    producer_waits: bool,
}

#[derive(Debug, Clone)]
struct Progress(Arc<Mutex<Movement>>);

impl Progress {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(Movement { moved_at: Instant::now(), producer_waits: false })))
    }

    fn lock(&self) -> MutexGuard<'_, Movement> {
        self.0.lock()
    }

    fn watch(&self, body: ByteStream) -> ByteStream {
        Box::pin(Watched { body, progress: self.clone() })
    }
}

struct Watched {
    body: ByteStream,
    progress: Progress,
}

impl Stream for Watched {
    type Item = Result<Bytes, BodyError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = self.body.poll_next_unpin(context);
        let mut movement = self.progress.lock();
        // Asking for the next chunk is a sign of life as well: the last one was taken.
        if polled.is_ready() || !movement.producer_waits {
            movement.moved_at = Instant::now();
        }
        movement.producer_waits = polled.is_pending();
        polled
    }
}

/// The clock runs only while somebody waits for a chunk, so a slow reader costs nothing.
fn watch_answer(body: ByteStream, idle: Duration) -> ByteStream {
    Box::pin(stream::unfold(Some(body), move |body| async move {
        let mut body = body?;
        let Ok(item) = timeout(idle, body.next()).await else {
            let why = format!("no byte came for {} ms", idle.as_millis());
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
        self.moving(&progress, self.inner.put(key, size_bytes, progress.watch(body))).await
    }

    async fn get(&self, key: &str, span: Option<Span>) -> Result<ByteStream, Error> {
        let body = self.answer(self.inner.get(key, span)).await?;
        Ok(watch_answer(body, self.idle))
    }

    async fn probe(&self, key: &str) -> Probe {
        timeout(self.idle, self.inner.probe(key)).await.unwrap_or_else(|_| Probe::Unknown(self.why()))
    }

    async fn delete_batch(&self, doomed: &[Doomed]) -> Vec<DeleteAnswer> {
        let answers = timeout(self.idle, self.inner.delete_batch(doomed)).await;
        answers.unwrap_or_else(|_| vec![DeleteAnswer::Away(self.why()); doomed.len()])
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, Error> {
        self.answer(self.inner.list(prefix, after, limit)).await
    }

    async fn start_upload(&self, key: &str) -> Result<String, Error> {
        self.answer(self.inner.start_upload(key)).await
    }

    async fn put_part(&self, part: PartOf<'_>, size_bytes: u64, body: ByteStream) -> Result<UploadedPart, Error> {
        let progress = Progress::new();
        self.moving(&progress, self.inner.put_part(part, size_bytes, progress.watch(body))).await
    }

    async fn finish_upload(&self, key: &str, upload: &str, parts: &[UploadedPart]) -> Result<Written, Error> {
        self.answer(self.inner.finish_upload(key, upload, parts)).await
    }

    async fn abort_upload(&self, key: &str, upload: &str) -> DeleteAnswer {
        let answer = timeout(self.idle, self.inner.abort_upload(key, upload)).await;
        answer.unwrap_or_else(|_| DeleteAnswer::Away(self.why()))
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

    async fn place_changed(&self) -> bool {
        // What cannot be read now has not been seen to change.
        tokio::time::timeout(self.idle, self.inner.place_changed()).await.unwrap_or(false)
    }

    async fn reopen_place(&self) -> Result<(), Error> {
        self.answer(self.inner.reopen_place()).await
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

    /// A body of ten bytes, one every so often.
    fn dripping(pause: Duration) -> ByteStream {
        Box::pin(stream::unfold(0, move |sent| async move {
            tokio::time::sleep(pause).await;
            (sent < 10).then(|| (Ok(Bytes::from("x")), sent + 1))
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_may_take_longer_than_the_timeout() {
        let (_, backend) = backend();
        backend.put("k", 10, dripping(IDLE / 2)).await.expect("slow is fine");
    }

    #[tokio::test(start_paused = true)]
    async fn a_producer_that_stands_still_is_not_the_backends_fault() {
        let (_, backend) = backend();
        backend
            .put("k", 10, dripping(IDLE * 2))
            .await
            .expect("how long a sender may pause is not for this layer to say");
    }

    #[tokio::test(start_paused = true)]
    async fn a_backend_that_stands_still_is_away() {
        let (flaky, backend) = backend();
        flaky.fail_call(1, Fault::Delay(IDLE * 2));
        flaky.fail_call(2, Fault::Delay(IDLE * 2));
        assert!(matches!(backend.list("", None, 1).await, Err(Error::Away(_))));
        assert!(matches!(backend.probe("k").await, Probe::Unknown(_)));
        assert_eq!(backend.probe("k").await, Probe::Absent);
    }
}
