//! Retries idempotent calls, with exponential backoff and full jitter.
//!
//! Writes are never repeated: an attempt whose answer was lost may have taken effect, and a physical key is written at
//! most once. The caller repeats a write under another key.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use s3o_model::entropy::Entropy;
use s3o_model::names::BackendName;
use s3o_model::target::{ExpectedBytes, KeyVersion};
use tokio::time::Instant;

use crate::{
    Backend, ByteStream, DeleteAnswer, DeleteKey, Error, ExpectedDelete, Page, PartOf, Probe, SharedBackend, Span,
    Traits, UnfinishedUpload, UploadedPart, UploadsPage, VersionPosition, VersionsPage, Written,
};

/// Limits of retries.
#[derive(Debug, Clone, Copy)]
pub struct RetryOptions {
    /// Maximum number of attempts, the first one included.
    pub attempts_max: u32,
    /// Longest delay before the second attempt; it doubles with each further one.
    pub delay_first: Duration,
    /// Upper bound of all delays.
    pub delay_max: Duration,
    /// Time since the first attempt after which no further one is made.
    pub total_max: Duration,
}

impl Default for RetryOptions {
    fn default() -> Self {
        Self {
            attempts_max: 3,
            delay_first: Duration::from_millis(100),
            delay_max: Duration::from_secs(2),
            total_max: Duration::from_secs(10),
        }
    }
}

/// Repeats calls to a backend that is unavailable.
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
    /// Wraps `inner`.
    #[must_use]
    pub fn new(inner: SharedBackend, options: RetryOptions, entropy: Arc<dyn Entropy>) -> Self {
        Self { inner, options, entropy }
    }

    /// Repeats a call while `is_retryable`, within the limits.
    async fn with_retries<T, C, F>(&self, call: C, is_retryable: fn(&T) -> bool) -> T
    where
        C: Fn() -> F + Send + Sync,
        F: Future<Output = T> + Send,
        T: Send,
    {
        let mut attempt = 1;
        let started = Instant::now();
        loop {
            let answer = call().await;
            // A call that took long to fail would probably take as long again while a client waits.
            let too_late = started.elapsed() >= self.options.total_max;
            if attempt >= self.options.attempts_max || too_late || !is_retryable(&answer) {
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

    async fn get(&self, at: KeyVersion<'_>, span: Option<Span>) -> Result<ByteStream, Error> {
        self.with_retries(|| self.inner.get(at, span), was_away).await
    }

    async fn probe(&self, at: KeyVersion<'_>) -> Probe {
        self.with_retries(|| self.inner.probe(at), |probe| matches!(probe, Probe::Unknown(_))).await
    }

    async fn delete_batch(&self, targets: &[DeleteKey]) -> Vec<DeleteAnswer> {
        let mut answers = self.inner.delete_batch(targets).await;
        for attempt in 1..self.options.attempts_max {
            let away: Vec<usize> =
                (0..answers.len()).filter(|&position| matches!(answers[position], DeleteAnswer::Away(_))).collect();
            if away.is_empty() {
                break;
            }
            self.wait(attempt).await;
            let again: Vec<DeleteKey> = away.iter().map(|&position| targets[position].clone()).collect();
            for (position, answer) in away.into_iter().zip(self.inner.delete_batch(&again).await) {
                // `Absent` may mean that an earlier attempt with a lost answer deleted the key.
                answers[position] = answer;
            }
        }
        answers
    }

    async fn delete_expected(&self, target: &DeleteKey, expected: &ExpectedBytes) -> ExpectedDelete {
        let is_away = |answer: &ExpectedDelete| matches!(answer, ExpectedDelete::Answered(DeleteAnswer::Away(_)));
        self.with_retries(|| self.inner.delete_expected(target, expected), is_away).await
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, Error> {
        self.with_retries(|| self.inner.list(prefix, after, limit), was_away).await
    }

    async fn list_versions(
        &self,
        prefix: &str,
        after: Option<&VersionPosition>,
        limit: usize,
    ) -> Result<VersionsPage, Error> {
        self.with_retries(|| self.inner.list_versions(prefix, after, limit), was_away).await
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
        self.with_retries(|| self.inner.abort_upload(key, upload), |answer| matches!(answer, DeleteAnswer::Away(_)))
            .await
    }

    async fn uploads_of(&self, key: &str) -> Result<Vec<String>, Error> {
        self.with_retries(|| self.inner.uploads_of(key), was_away).await
    }

    async fn list_uploads(&self, from: Option<&UnfinishedUpload>) -> Result<UploadsPage, Error> {
        self.with_retries(|| self.inner.list_uploads(from), was_away).await
    }

    async fn read_own(&self, key: &str) -> Result<Option<Bytes>, Error> {
        self.with_retries(|| self.inner.read_own(key), was_away).await
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
    use super::{Retry, RetryOptions};
    use crate::layers::{Fault, Flaky};
    use crate::{Backend, DeleteAnswer, DeleteKey, Error, Memory, Probe, body};
    use bytes::Bytes;
    use s3o_model::entropy::SeededEntropy;
    use std::sync::Arc;

    fn backend() -> (Arc<Flaky>, Retry) {
        let memory = Memory::new("memory".parse().expect("valid"));
        let flaky = Arc::new(Flaky::new(Arc::new(memory)));
        (flaky.clone(), Retry::new(flaky, RetryOptions::default(), Arc::new(SeededEntropy::new(1))))
    }

    #[tokio::test(start_paused = true)]
    async fn reads_are_retried_up_to_the_limit() {
        let (flaky, backend) = backend();
        flaky.fail_call(1, Fault::Before);
        flaky.fail_call(2, Fault::Before);
        assert_eq!(backend.probe("k".into()).await, Probe::Absent);
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
    async fn only_keys_answered_away_are_deleted_again() {
        let (flaky, backend) = backend();
        for key in ["a", "b", "c"] {
            backend.put(key, 1, body::whole(Bytes::from("x"))).await.expect("put");
        }
        flaky.fail_call(4, Fault::PartialBatch);
        let targets = ["a", "b", "c"].map(|key| DeleteKey { key: key.to_owned(), version_id: None });
        assert_eq!(backend.delete_batch(&targets).await, vec![DeleteAnswer::Deleted; 3]);
        assert_eq!(flaky.calls(), 5);
    }
}
