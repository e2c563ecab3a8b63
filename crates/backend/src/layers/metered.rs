//! Measures a backend: calls with their outcomes and durations, bytes in and out.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use s3o_model::names::BackendName;
use s3o_model::target::{ExpectedBytes, KeyVersion};
use tokio::time::Instant;

use crate::{
    Backend, ByteStream, DeleteAnswer, DeleteKey, Error, ExpectedDelete, Page, PartOf, Probe, SharedBackend, Span,
    Traits, UnfinishedUpload, UploadedPart, UploadsPage, VersionPosition, VersionsPage, Written,
};

/// Receives the measurements.
pub trait Meter: Send + Sync {
    /// Records one call that returned.
    fn observe(&self, backend: &BackendName, operation: &'static str, outcome: &'static str, duration: Duration);

    /// Counts bytes sent to a backend.
    fn bytes_in(&self, backend: &BackendName, bytes: u64);

    /// Counts bytes received from a backend.
    fn bytes_out(&self, backend: &BackendName, bytes: u64);
}

/// Reports every call of a backend to a [`Meter`].
pub struct Metered {
    inner: SharedBackend,
    meter: Arc<dyn Meter>,
}

impl fmt::Debug for Metered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metered").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Metered {
    /// Wraps `inner`.
    #[must_use]
    pub fn new(inner: SharedBackend, meter: Arc<dyn Meter>) -> Self {
        Self { inner, meter }
    }

    /// A call that is dropped before it returns is not counted.
    async fn timed<T>(
        &self,
        operation: &'static str,
        outcome: fn(&T) -> &'static str,
        call: impl Future<Output = T> + Send,
    ) -> T {
        let start = Instant::now();
        let answer = call.await;
        self.meter.observe(self.inner.name(), operation, outcome(&answer), start.elapsed());
        answer
    }

    fn count_in(&self, body: ByteStream) -> ByteStream {
        let (meter, name) = (Arc::clone(&self.meter), self.inner.name().clone());
        Box::pin(body.inspect(move |chunk| {
            if let Ok(chunk) = chunk {
                meter.bytes_in(&name, chunk.len() as u64);
            }
        }))
    }

    fn count_out(&self, body: ByteStream) -> ByteStream {
        let (meter, name) = (Arc::clone(&self.meter), self.inner.name().clone());
        Box::pin(body.inspect(move |chunk| {
            if let Ok(chunk) = chunk {
                meter.bytes_out(&name, chunk.len() as u64);
            }
        }))
    }
}

/// Label value of an outcome in metrics.
#[must_use]
pub fn outcome_of<T>(answer: &Result<T, Error>) -> &'static str {
    match answer {
        Ok(_) => "ok",
        Err(Error::NotFound) => "not_found",
        Err(Error::Body(_)) => "body",
        Err(Error::NoSpace(_)) => "no_space",
        Err(Error::Away(_) | Error::NotSent(_)) => "away",
        Err(Error::Refused(_)) => "refused",
        Err(Error::Unknown(_)) => "unknown",
        Err(Error::Unsupported(_)) => "unsupported",
    }
}

fn outcome_of_probe(probe: &Probe) -> &'static str {
    match probe {
        Probe::Present(_) => "ok",
        Probe::Absent => "not_found",
        Probe::Unknown(_) => "unknown",
    }
}

fn outcome_of_delete(answer: &DeleteAnswer) -> &'static str {
    match answer {
        DeleteAnswer::Deleted | DeleteAnswer::Absent => "ok",
        DeleteAnswer::Away(_) => "away",
        DeleteAnswer::Unknown(_) => "unknown",
        DeleteAnswer::Refused(_) => "refused",
    }
}

fn outcome_of_expected(answer: &ExpectedDelete) -> &'static str {
    match answer {
        ExpectedDelete::Answered(answer) => outcome_of_delete(answer),
        ExpectedDelete::Changed(_) => "changed",
    }
}

/// The outcome of a batch is that of the first key that was not deleted.
#[expect(clippy::ptr_arg, reason = "the type of the trait method's result")]
fn outcome_of_batch(answers: &Vec<DeleteAnswer>) -> &'static str {
    answers.iter().map(outcome_of_delete).find(|outcome| *outcome != "ok").unwrap_or("ok")
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Backend for Metered {
    fn name(&self) -> &BackendName {
        self.inner.name()
    }

    fn put_bytes_max(&self) -> u64 {
        self.inner.put_bytes_max()
    }

    async fn probe_traits(&self) -> Result<Traits, Error> {
        self.timed("probe_traits", outcome_of, self.inner.probe_traits()).await
    }

    async fn put(&self, key: &str, size_bytes: u64, body: ByteStream) -> Result<Written, Error> {
        self.timed("put", outcome_of, self.inner.put(key, size_bytes, self.count_in(body))).await
    }

    async fn get(&self, at: KeyVersion<'_>, span: Option<Span>) -> Result<ByteStream, Error> {
        let body = self.timed("get", outcome_of, self.inner.get(at, span)).await?;
        Ok(self.count_out(body))
    }

    async fn probe(&self, at: KeyVersion<'_>) -> Probe {
        self.timed("probe", outcome_of_probe, self.inner.probe(at)).await
    }

    async fn delete_batch(&self, targets: &[DeleteKey]) -> Vec<DeleteAnswer> {
        self.timed("delete_batch", outcome_of_batch, self.inner.delete_batch(targets)).await
    }

    async fn delete_expected(&self, target: &DeleteKey, expected: &ExpectedBytes) -> ExpectedDelete {
        self.timed("delete_expected", outcome_of_expected, self.inner.delete_expected(target, expected)).await
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, Error> {
        self.timed("list", outcome_of, self.inner.list(prefix, after, limit)).await
    }

    async fn list_versions(
        &self,
        prefix: &str,
        after: Option<&VersionPosition>,
        limit: usize,
    ) -> Result<VersionsPage, Error> {
        self.timed("list_versions", outcome_of, self.inner.list_versions(prefix, after, limit)).await
    }

    async fn start_upload(&self, key: &str) -> Result<String, Error> {
        self.timed("start_upload", outcome_of, self.inner.start_upload(key)).await
    }

    async fn put_part(&self, part: PartOf<'_>, size_bytes: u64, body: ByteStream) -> Result<UploadedPart, Error> {
        self.timed("put_part", outcome_of, self.inner.put_part(part, size_bytes, self.count_in(body))).await
    }

    async fn finish_upload(&self, key: &str, upload: &str, parts: &[UploadedPart]) -> Result<Written, Error> {
        self.timed("finish_upload", outcome_of, self.inner.finish_upload(key, upload, parts)).await
    }

    async fn abort_upload(&self, key: &str, upload: &str) -> DeleteAnswer {
        self.timed("abort_upload", outcome_of_delete, self.inner.abort_upload(key, upload)).await
    }

    async fn uploads_of(&self, key: &str) -> Result<Vec<String>, Error> {
        self.timed("uploads_of", outcome_of, self.inner.uploads_of(key)).await
    }

    async fn list_uploads(&self, from: Option<&UnfinishedUpload>) -> Result<UploadsPage, Error> {
        self.timed("list_uploads", outcome_of, self.inner.list_uploads(from)).await
    }

    async fn read_own(&self, key: &str) -> Result<Option<Bytes>, Error> {
        self.timed("read_own", outcome_of, self.inner.read_own(key)).await
    }

    async fn write_own(&self, key: &str, body: Bytes) -> Result<(), Error> {
        self.timed("write_own", outcome_of, self.inner.write_own(key, body)).await
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
    use super::{Meter, Metered};
    use crate::{Backend, DeleteKey, Memory, body};
    use bytes::Bytes;
    use futures_util::StreamExt;
    use s3o_model::names::BackendName;
    use std::sync::Arc;
    use std::time::Duration;

    use parking_lot::Mutex;

    #[derive(Default)]
    struct Noted(Mutex<Vec<String>>);

    impl Noted {
        fn note(&self, line: String) {
            self.0.lock().push(line);
        }
    }

    impl Meter for Noted {
        fn observe(&self, backend: &BackendName, operation: &'static str, outcome: &'static str, _: Duration) {
            self.note(format!("{backend} {operation} {outcome}"));
        }

        fn bytes_in(&self, _: &BackendName, bytes: u64) {
            self.note(format!("in {bytes}"));
        }

        fn bytes_out(&self, _: &BackendName, bytes: u64) {
            self.note(format!("out {bytes}"));
        }
    }

    #[tokio::test]
    async fn calls_outcomes_and_bytes_are_counted() {
        let noted = Arc::new(Noted::default());
        let metered = Metered::new(Arc::new(Memory::new("m".parse().expect("valid"))), noted.clone());
        metered.put("k", 3, body::whole(Bytes::from("abc"))).await.expect("put");
        let mut body = metered.get("k".into(), None).await.expect("get");
        while body.next().await.is_some() {}
        assert!(metered.get("missing".into(), None).await.is_err());
        metered.delete_batch(&[DeleteKey { key: "k".to_owned(), version_id: None }]).await;
        let lines = noted.0.lock().clone();
        assert_eq!(lines, ["in 3", "m put ok", "m get ok", "out 3", "m get not_found", "m delete_batch ok"]);
    }
}
