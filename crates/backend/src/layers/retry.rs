//! Tries again what is safe to try again, after a wait that is jittered in full.
//!
//! Writes are never repeated: an attempt whose answer was lost may have taken effect, and a
//! physical key is written at most once. Whoever wants another attempt takes another key.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use s3o_model::entropy::Entropy;
use s3o_model::names::BackendName;
use tokio::time::Instant;

use crate::{
    Backend, ByteStream, DeleteAnswer, Doomed, Error, Page, PartOf, Probe, SharedBackend, Span, Traits,
    UnfinishedUpload, UploadedPart, UploadsPage, Written,
};

/// How often and how patiently to try again.
#[derive(Debug, Clone, Copy)]
pub struct RetryOptions {
    /// How often a call is made at most.
    pub attempts_max: u32,
    /// The longest wait before the second attempt; it doubles with each further one.
    pub delay_first: Duration,
    /// The longest wait of all.
    pub delay_max: Duration,
    /// After how long in all no further attempt is made.
    pub patience: Duration,
}

impl Default for RetryOptions {
    fn default() -> Self {
        Self {
            attempts_max: 3,
            delay_first: Duration::from_millis(100),
            delay_max: Duration::from_secs(2),
            patience: Duration::from_secs(10),
        }
    }
}

/// A backend that is asked again when it was away.
pub struct Retry {
    inner: SharedBackend,
    options: RetryOptions,
    entropy: Arc<dyn Entropy>,
}

impl std::fmt::Debug for Retry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Retry").field("inner", &self.inner).field("options", &self.options).finish_non_exhaustive()
    }
}

impl Retry {
    /// Wraps a backend.
    #[must_use]
    pub fn new(inner: SharedBackend, options: RetryOptions, entropy: Arc<dyn Entropy>) -> Self {
        Self { inner, options, entropy }
    }

    /// Makes a call until it gives something else than "try again later".
    async fn until<T, C, F>(&self, call: C, again: fn(&T) -> bool) -> T
    where
        C: Fn() -> F + Send + Sync,
        F: Future<Output = T> + Send,
        T: Send,
    {
        let mut attempt = 1;
        let started = Instant::now();
        loop {
            let answer = call().await;
            // A backend that took long to fail would take as long again, and somebody waits.
            let too_late = started.elapsed() >= self.options.patience;
            if attempt >= self.options.attempts_max || too_late || !again(&answer) {
                return answer;
            }
            self.wait(attempt).await;
            attempt += 1;
        }
    }

    async fn wait(&self, attempt: u32) {
        let doubled = self.options.delay_first.saturating_mul(2_u32.saturating_pow(attempt - 1));
        let ceiling = doubled.min(self.options.delay_max);
        tokio::time::sleep(ceiling.mul_f64(self.entropy.next_unit())).await;
    }
}

fn was_away<T>(answer: &Result<T, Error>) -> bool {
    matches!(answer, Err(Error::Away(_)))
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Backend for Retry {
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

    async fn get(&self, key: &str, span: Option<Span>) -> Result<ByteStream, Error> {
        self.until(|| self.inner.get(key, span), was_away).await
    }

    async fn probe(&self, key: &str) -> Probe {
        self.until(|| self.inner.probe(key), |probe| matches!(probe, Probe::Unknown(_))).await
    }

    async fn delete_batch(&self, doomed: &[Doomed]) -> Vec<DeleteAnswer> {
        let mut answers = self.inner.delete_batch(doomed).await;
        for attempt in 1..self.options.attempts_max {
            let away: Vec<usize> =
                (0..answers.len()).filter(|&position| matches!(answers[position], DeleteAnswer::Away(_))).collect();
            if away.is_empty() {
                break;
            }
            self.wait(attempt).await;
            let again: Vec<Doomed> = away.iter().map(|&position| doomed[position].clone()).collect();
            for (position, answer) in away.into_iter().zip(self.inner.delete_batch(&again).await) {
                // A first attempt whose answer was lost may be why nothing is there any more.
                answers[position] = answer;
            }
        }
        answers
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, Error> {
        self.until(|| self.inner.list(prefix, after, limit), was_away).await
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
        self.until(|| self.inner.abort_upload(key, upload), |answer| matches!(answer, DeleteAnswer::Away(_))).await
    }

    async fn uploads_of(&self, key: &str) -> Result<Vec<String>, Error> {
        self.until(|| self.inner.uploads_of(key), was_away).await
    }

    async fn list_uploads(&self, from: Option<&UnfinishedUpload>) -> Result<UploadsPage, Error> {
        self.until(|| self.inner.list_uploads(from), was_away).await
    }

    async fn read_own(&self, key: &str) -> Result<Option<Bytes>, Error> {
        self.until(|| self.inner.read_own(key), was_away).await
    }

    async fn write_own(&self, key: &str, body: Bytes) -> Result<(), Error> {
        self.inner.write_own(key, body).await
    }

    async fn place_changed(&self) -> bool {
        self.inner.place_changed().await
    }

    async fn reopen_place(&self) -> Result<(), Error> {
        self.inner.reopen_place().await
    }
}

#[cfg(test)]
mod tests {
    use super::{Retry, RetryOptions};
    use crate::layers::{Fault, Flaky};
    use crate::{Backend, DeleteAnswer, Doomed, Error, Memory, Probe, body};
    use bytes::Bytes;
    use s3o_model::entropy::SeededEntropy;
    use std::sync::Arc;

    fn backend() -> (Arc<Flaky>, Retry) {
        let memory = Memory::new("memory".parse().expect("valid"));
        let flaky = Arc::new(Flaky::new(Arc::new(memory)));
        (flaky.clone(), Retry::new(flaky, RetryOptions::default(), Arc::new(SeededEntropy::new(1))))
    }

    #[tokio::test(start_paused = true)]
    async fn reads_are_tried_again_and_then_given_up() {
        let (flaky, backend) = backend();
        flaky.fail_call(1, Fault::Before);
        flaky.fail_call(2, Fault::Before);
        assert_eq!(backend.probe("k").await, Probe::Absent);
        flaky.go_away();
        assert!(matches!(backend.list("", None, 1).await, Err(Error::Away(_))));
        assert_eq!(flaky.calls(), 6);
    }

    #[tokio::test(start_paused = true)]
    async fn writes_are_never_repeated() {
        let (flaky, backend) = backend();
        flaky.go_away();
        assert!(backend.put("k", 1, body::whole(Bytes::from("x"))).await.is_err());
        assert!(backend.start_upload("k").await.is_err());
        assert!(backend.write_own("k", Bytes::new()).await.is_err());
        assert_eq!(flaky.calls(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_keys_that_were_away_are_deleted_again() {
        let (flaky, backend) = backend();
        for key in ["a", "b", "c"] {
            backend.put(key, 1, body::whole(Bytes::from("x"))).await.expect("put");
        }
        flaky.fail_call(4, Fault::PartialBatch);
        let doomed = ["a", "b", "c"].map(|key| Doomed { key: key.to_owned(), version_id: None });
        assert_eq!(backend.delete_batch(&doomed).await, vec![DeleteAnswer::Deleted; 3]);
        assert_eq!(flaky.calls(), 5);
    }
}
