//! Makes no call to a backend whose circuit is open, and records the result of every call.
//!
//! Failures are: the store is away or gives no clear answer, it cuts a body off, or it refuses a call and the identity
//! object as well. Absent keys, broken bodies of clients, a full store and the refusal of one key are not. Only bytes
//! that were stored or read to their end are a success: a store may answer small requests and fail every body. Deletes
//! are skipped while a circuit is open and count only if the store refuses everything: a store that fails deletes alone
//! must stay readable. Objects of s3o itself are always read: a probe of the identity object closes the circuit.

mod call;
mod trial_body;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use s3o_model::circuit::{CallResult, CircuitState, Permit};
use s3o_model::names::BackendName;
use s3o_model::target::{ExpectedBytes, KeyVersion};

use crate::fleet::{CallKind, Circuits};
use crate::identity::IDENTITY_KEY;
use crate::{
    Backend, ByteStream, DeleteAnswer, DeleteKey, Error, ExpectedDelete, Page, PartOf, Probe, SharedBackend, Span,
    Traits, UnfinishedUpload, UploadedPart, UploadsPage, VersionPosition, VersionsPage, Written,
};

use call::{Call, RecordedBody};

const OPEN: &str = "its circuit breaker is open";
/// How long the check of a refusal waits for the identity object.
const REFUSAL_CHECK_MAX: Duration = Duration::from_secs(5);

/// A backend behind a circuit breaker.
#[derive(Debug)]
pub struct Breaker {
    inner: SharedBackend,
    circuits: Arc<Circuits>,
}

impl Breaker {
    /// Wraps a backend.
    #[must_use]
    pub fn new(inner: SharedBackend, circuits: Arc<Circuits>) -> Self {
        Self { inner, circuits }
    }

    fn start(&self, kind: CallKind) -> Result<Call, Error> {
        let permit = self.circuits.admit(kind).ok_or(Error::NotSent(OPEN))?;
        Ok(Call { circuits: Arc::clone(&self.circuits), kind, permit: Some(permit), read_key: None })
    }

    /// Lets another write be the trial if the client of this one is slow.
    fn yielding(&self, call: &Call, body: ByteStream) -> ByteStream {
        match call.permit.filter(Permit::is_trial) {
            Some(trial) => trial_body::yielding(body, Arc::clone(&self.circuits), trial),
            None => body,
        }
    }

    /// Records the answer of a call that moved no bytes.
    async fn finish<T>(&self, call: Call, answer: Result<T, Error>) -> Result<T, Error> {
        self.finish_as(call, answer, CallResult::Neutral).await
    }

    /// Records the answer of a call that stored bytes.
    async fn finish_stored<T>(&self, call: Call, answer: Result<T, Error>) -> Result<T, Error> {
        let answer = match answer {
            Err(Error::NotFound) => Err(Error::Unknown("the store answered a write with: no such key".to_owned())),
            answer => answer,
        };
        self.finish_as(call, answer, CallResult::Success).await
    }

    async fn finish_as<T>(&self, mut call: Call, answer: Result<T, Error>, done: CallResult) -> Result<T, Error> {
        let answer = match answer {
            Err(Error::Refused(why)) if self.refuses_everything().await => Err(Error::Away(why)),
            answer => answer,
        };
        call.record(match &answer {
            Ok(_) => done,
            Err(Error::Away(_) | Error::Unknown(_)) => CallResult::Failure,
            Err(
                Error::NotFound
                | Error::NotSent(_)
                | Error::Refused(_)
                | Error::Body(_)
                | Error::NoSpace(_)
                | Error::Unsupported(_),
            ) => CallResult::Neutral,
        });
        answer
    }

    /// True if the store refuses the identity object, too: its access key was revoked or its folder is closed. It is
    /// then away, and its refusals say nothing about single keys.
    async fn refuses_everything(&self) -> bool {
        let identity = tokio::time::timeout(REFUSAL_CHECK_MAX, self.inner.read_own(IDENTITY_KEY)).await;
        !matches!(identity, Ok(Ok(_)))
    }

    /// Turns refusals of a store that refuses everything into `Away`: they would make dead letters otherwise.
    async fn judge_refusals(&self, answers: Vec<DeleteAnswer>) -> Vec<DeleteAnswer> {
        let is_refused = |answer: &DeleteAnswer| matches!(answer, DeleteAnswer::Refused(_));
        if !answers.iter().any(is_refused) || !self.refuses_everything().await {
            return answers;
        }
        if let Ok(mut call) = self.start(CallKind::Read) {
            call.record(CallResult::Failure);
        }
        let away = |answer| match answer {
            DeleteAnswer::Refused(why) => DeleteAnswer::Away(why),
            other => other,
        };
        answers.into_iter().map(away).collect()
    }

    /// True while deletes are skipped.
    fn skips_deletes(&self) -> bool {
        [CallKind::Read, CallKind::Write].iter().any(|kind| self.circuits.state(*kind) == CircuitState::Open)
    }
}

fn fingerprint(key: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Backend for Breaker {
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
        let call = self.start(CallKind::Write)?;
        let body = self.yielding(&call, body);
        self.finish_stored(call, self.inner.put(key, size_bytes, body).await).await
    }

    async fn get(&self, at: KeyVersion<'_>, span: Option<Span>) -> Result<ByteStream, Error> {
        let mut call = self.start(CallKind::Read)?;
        call.read_key = Some(fingerprint(at.key));
        match self.inner.get(at, span).await {
            Ok(body) => Ok(Box::pin(RecordedBody { body, call, left_bytes: span.map(|span| span.length) })),
            Err(error) => self.finish(call, Err(error)).await,
        }
    }

    async fn probe(&self, at: KeyVersion<'_>) -> Probe {
        let Ok(mut call) = self.start(CallKind::Read) else { return Probe::Unknown(OPEN.to_owned()) };
        let probe = self.inner.probe(at).await;
        call.record(match &probe {
            // Without a clear answer about the identity object, it is not the fault of this key.
            Probe::Unknown(_) if self.refuses_everything().await => CallResult::Failure,
            Probe::Present(_) | Probe::Absent | Probe::Unknown(_) => CallResult::Neutral,
        });
        probe
    }

    async fn delete_batch(&self, doomed: &[DeleteKey]) -> Vec<DeleteAnswer> {
        if self.skips_deletes() {
            return vec![DeleteAnswer::Away(OPEN.to_owned()); doomed.len()];
        }
        let answers = self.inner.delete_batch(doomed).await;
        self.judge_refusals(answers).await
    }

    async fn delete_expected(&self, doomed: &DeleteKey, expected: &ExpectedBytes) -> ExpectedDelete {
        if self.skips_deletes() {
            return ExpectedDelete::Answered(DeleteAnswer::Away(OPEN.to_owned()));
        }
        match self.inner.delete_expected(doomed, expected).await {
            ExpectedDelete::Answered(answer) => {
                ExpectedDelete::Answered(self.judge_refusals(vec![answer]).await.remove(0))
            }
            ExpectedDelete::Changed(why) => ExpectedDelete::Changed(why),
        }
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, Error> {
        let call = self.start(CallKind::Read)?;
        self.finish(call, self.inner.list(prefix, after, limit).await).await
    }

    async fn list_versions(
        &self,
        prefix: &str,
        after: Option<&VersionPosition>,
        limit: usize,
    ) -> Result<VersionsPage, Error> {
        let call = self.start(CallKind::Read)?;
        self.finish(call, self.inner.list_versions(prefix, after, limit).await).await
    }

    async fn start_upload(&self, key: &str) -> Result<String, Error> {
        let call = self.start(CallKind::Write)?;
        self.finish(call, self.inner.start_upload(key).await).await
    }

    async fn put_part(&self, part: PartOf<'_>, size_bytes: u64, body: ByteStream) -> Result<UploadedPart, Error> {
        let call = self.start(CallKind::Write)?;
        let body = self.yielding(&call, body);
        self.finish_stored(call, self.inner.put_part(part, size_bytes, body).await).await
    }

    async fn finish_upload(&self, key: &str, upload: &str, parts: &[UploadedPart]) -> Result<Written, Error> {
        let call = self.start(CallKind::Write)?;
        self.finish_stored(call, self.inner.finish_upload(key, upload, parts).await).await
    }

    async fn abort_upload(&self, key: &str, upload: &str) -> DeleteAnswer {
        if self.skips_deletes() {
            return DeleteAnswer::Away(OPEN.to_owned());
        }
        let answer = self.inner.abort_upload(key, upload).await;
        self.judge_refusals(vec![answer]).await.remove(0)
    }

    async fn uploads_of(&self, key: &str) -> Result<Vec<String>, Error> {
        let call = self.start(CallKind::Read)?;
        self.finish(call, self.inner.uploads_of(key).await).await
    }

    async fn list_uploads(&self, from: Option<&UnfinishedUpload>) -> Result<UploadsPage, Error> {
        let call = self.start(CallKind::Read)?;
        self.finish(call, self.inner.list_uploads(from).await).await
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
mod tests;
