//! Fault injection: every call has a number, and a test can make any of them fail.
//!
//! Calls are numbered from 1 in the order in which they start. A test counts the calls of a run without faults and then
//! fails each of them in turn. Without a plan this layer changes nothing.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use s3o_model::clock::Clock;
use s3o_model::names::BackendName;
use s3o_model::target::{ExpectedBytes, KeyVersion};

use crate::{
    Backend, ByteStream, DeleteAnswer, DeleteKey, Error, ExpectedDelete, Page, PartOf, Probe, SharedBackend, Span,
    Traits, UnfinishedUpload, UploadedPart, UploadsPage, VersionPosition, VersionsPage, Written, body,
};

mod effects;
mod late;
mod plan;
#[cfg(test)]
mod tests;

use effects::{
    answer_with_fault, call_lost, cut, cut_request, delete_answer, no_space, pause, response_lost, stall,
    without_effect,
};
use late::{LateCall, LateWrite};
use plan::PlannedFaults;
pub use plan::{Fault, FaultPlan, LoggedCall};

/// Makes calls to a backend fail, as planned by a test.
pub struct Flaky {
    inner: SharedBackend,
    plan: Mutex<PlannedFaults>,
    clock: Option<Arc<dyn Clock>>,
    late: Mutex<Vec<LateWrite>>,
}

impl fmt::Debug for Flaky {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flaky").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Flaky {
    fn lock(&self) -> MutexGuard<'_, PlannedFaults> {
        self.plan.lock()
    }

    /// Logs a call and returns its fault, after the delay that the fault prescribes.
    async fn begin(&self, operation: &'static str, key: &str) -> Option<Fault> {
        self.store_due_writes().await;
        let fault = self.lock().next(operation, key);
        match fault {
            Some(Fault::Delay(delay) | Fault::Hang(delay)) => tokio::time::sleep(delay).await,
            Some(Fault::Stall(delay)) if !["put", "put_part"].contains(&operation) => tokio::time::sleep(delay).await,
            _ => {}
        }
        fault
    }

    /// Runs a call that fails before it starts, after it ended, or not at all.
    async fn plain<T>(
        &self,
        operation: &'static str,
        key: &str,
        call: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        let fault = self.begin(operation, key).await;
        if let Some(error) = fault.and_then(without_effect) {
            return Err(error);
        }
        let answer = call.await;
        if fault == Some(Fault::After) { Err(response_lost()) } else { answer }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Backend for Flaky {
    fn name(&self) -> &BackendName {
        self.inner.name()
    }

    fn put_bytes_max(&self) -> u64 {
        self.inner.put_bytes_max()
    }

    async fn probe_traits(&self) -> Result<Traits, Error> {
        self.plain("probe_traits", "", self.inner.probe_traits()).await
    }

    async fn put(&self, key: &str, size_bytes: u64, body: ByteStream) -> Result<Written, Error> {
        let fault = self.begin("put", key).await;
        if let Some(Fault::Late(delay)) = fault {
            let bytes = body::collect(body, size_bytes).await?;
            return Err(self.write_later(delay, LateCall::Put { key: key.to_owned(), bytes }));
        }
        if let Some(Fault::NoSpace(after_bytes)) = fault {
            return Err(no_space(body, after_bytes).await);
        }
        if let Some(error) = fault.and_then(without_effect) {
            return Err(error);
        }
        let body = stall(fault, cut_request(fault, body), size_bytes).await?;
        answer_with_fault(fault, self.inner.put(key, size_bytes, body).await)
    }

    async fn get(&self, at: KeyVersion<'_>, span: Option<Span>) -> Result<ByteStream, Error> {
        match self.begin("get", at.key).await {
            Some(Fault::Wrong404) => Err(call_lost()),
            Some(Fault::After) => Err(Error::Away("injected: the answer was lost".to_owned())),
            Some(Fault::Cut(after_bytes)) => Ok(cut(self.inner.get(at, span).await?, after_bytes)),
            Some(Fault::Pause(after_bytes, delay)) => Ok(pause(self.inner.get(at, span).await?, after_bytes, delay)),
            fault => match fault.and_then(without_effect) {
                Some(error) => Err(error),
                None => self.inner.get(at, span).await,
            },
        }
    }

    async fn probe(&self, at: KeyVersion<'_>) -> Probe {
        match self.begin("probe", at.key).await {
            Some(Fault::After | Fault::Wrong404) => Probe::Unknown("injected: unknown".to_owned()),
            fault => match fault.and_then(without_effect) {
                Some(error) => Probe::Unknown(error.to_string()),
                None => self.inner.probe(at).await,
            },
        }
    }

    async fn delete_batch(&self, targets: &[DeleteKey]) -> Vec<DeleteAnswer> {
        let key = targets.first().map(|targets| targets.key.as_str()).unwrap_or_default();
        match self.begin("delete_batch", key).await {
            _ if self.refuses_deletes() => vec![DeleteAnswer::Refused("injected: denied".to_owned()); targets.len()],
            Some(Fault::After) => {
                self.inner.delete_batch(targets).await;
                vec![DeleteAnswer::Unknown(response_lost().to_string()); targets.len()]
            }
            Some(Fault::PartialBatch) => {
                let tried: Vec<DeleteKey> = targets.iter().step_by(2).cloned().collect();
                let away = DeleteAnswer::Away("injected: key not processed".to_owned());
                let answers = self.inner.delete_batch(&tried).await;
                answers.into_iter().flat_map(|answer| [answer, away.clone()]).take(targets.len()).collect()
            }
            fault => match fault.and_then(without_effect) {
                Some(error) => vec![delete_answer(&error); targets.len()],
                None => self.inner.delete_batch(targets).await,
            },
        }
    }

    async fn delete_expected(&self, target: &DeleteKey, expected: &ExpectedBytes) -> ExpectedDelete {
        match self.begin("delete_expected", &target.key).await {
            _ if self.refuses_deletes() => {
                ExpectedDelete::Answered(DeleteAnswer::Refused("injected: denied".to_owned()))
            }
            Some(Fault::After) => {
                self.inner.delete_expected(target, expected).await;
                ExpectedDelete::Answered(DeleteAnswer::Unknown(response_lost().to_string()))
            }
            fault => match fault.and_then(without_effect) {
                Some(error) => ExpectedDelete::Answered(delete_answer(&error)),
                None => self.inner.delete_expected(target, expected).await,
            },
        }
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, Error> {
        match self.begin("list", prefix).await {
            Some(Fault::After | Fault::Wrong404) => Err(call_lost()),
            Some(Fault::ShortPage) => {
                let mut page = self.inner.list(prefix, after, 1).await?;
                page.truncated |= !page.items.is_empty();
                Ok(page)
            }
            fault => match fault.and_then(without_effect) {
                Some(error) => Err(error),
                None => self.inner.list(prefix, after, limit).await,
            },
        }
    }

    async fn list_versions(
        &self,
        prefix: &str,
        after: Option<&VersionPosition>,
        limit: usize,
    ) -> Result<VersionsPage, Error> {
        match self.begin("list_versions", prefix).await {
            Some(Fault::After | Fault::Wrong404) => Err(call_lost()),
            Some(Fault::ShortPage) => self.inner.list_versions(prefix, after, 1).await,
            fault => match fault.and_then(without_effect) {
                Some(error) => Err(error),
                None => self.inner.list_versions(prefix, after, limit).await,
            },
        }
    }

    async fn start_upload(&self, key: &str) -> Result<String, Error> {
        self.plain("start_upload", key, self.inner.start_upload(key)).await
    }

    async fn put_part(&self, part: PartOf<'_>, size_bytes: u64, body: ByteStream) -> Result<UploadedPart, Error> {
        let fault = self.begin("put_part", part.key).await;
        if let Some(error) = fault.and_then(without_effect) {
            return Err(error);
        }
        let body = stall(fault, cut_request(fault, body), size_bytes).await?;
        answer_with_fault(fault, self.inner.put_part(part, size_bytes, body).await)
    }

    async fn finish_upload(&self, key: &str, upload: &str, parts: &[UploadedPart]) -> Result<Written, Error> {
        let fault = self.begin("finish_upload", key).await;
        if let Some(Fault::Late(delay)) = fault {
            let (key, upload, parts) = (key.to_owned(), upload.to_owned(), parts.to_vec());
            return Err(self.write_later(delay, LateCall::Finish { key, upload, parts }));
        }
        if let Some(error) = fault.and_then(without_effect) {
            return Err(error);
        }
        answer_with_fault(fault, self.inner.finish_upload(key, upload, parts).await)
    }

    async fn abort_upload(&self, key: &str, upload: &str) -> DeleteAnswer {
        match self.begin("abort_upload", key).await {
            Some(Fault::After) => {
                self.inner.abort_upload(key, upload).await;
                DeleteAnswer::Unknown(response_lost().to_string())
            }
            fault => match fault.and_then(without_effect) {
                Some(error) => delete_answer(&error),
                None => self.inner.abort_upload(key, upload).await,
            },
        }
    }

    async fn uploads_of(&self, key: &str) -> Result<Vec<String>, Error> {
        self.plain("uploads_of", key, self.inner.uploads_of(key)).await
    }

    async fn list_uploads(&self, from: Option<&UnfinishedUpload>) -> Result<UploadsPage, Error> {
        self.plain("list_uploads", "", self.inner.list_uploads(from)).await
    }

    async fn read_own(&self, key: &str) -> Result<Option<Bytes>, Error> {
        self.plain("read_own", key, self.inner.read_own(key)).await
    }

    async fn write_own(&self, key: &str, body: Bytes) -> Result<(), Error> {
        self.plain("write_own", key, self.inner.write_own(key, body)).await
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
