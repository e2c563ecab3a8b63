//! Stores the copies of a write: one body, several backends.

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use s3o_backend::{ByteStream, Error as BackendError, Written};
use s3o_catalog::{ContentPlan, FailedCopy, Late, StoredBytes, Unannounced};
use s3o_model::bucket::BucketSettings;
use s3o_model::content::Location;
use s3o_model::ids::WriteId;
use s3o_model::names::BackendName;
use tokio::time::{Instant, sleep_until};

use super::fan_out::{STALL_MAX, split};
use super::pin::PinnedWrite;
use super::replayable_body::ReplayableBody;
use super::{Staged, WriteTarget, late_after, upload, verification};
use crate::Engine;
use crate::body::{DigestedBody, digested};
use crate::digest::Digests;
use crate::leases::LeaseWatch;
use crate::put_object::Declared;

/// Bytes that backends have stored and the catalog has not committed yet.
pub(crate) struct WrittenBytes {
    pub(super) held_by: HeldBy,
    pub digests: Digests,
    /// The plan before content with the same digest was looked up.
    pub plan: ContentPlan,
    /// Settings of the bucket.
    pub settings: BucketSettings,
}

/// What keeps bytes from deletion until they are committed.
pub(crate) enum HeldBy {
    /// The intents of the write, one for each copy.
    Copies(Vec<WriteCopy>),
    /// An intent that pins content which was stored before.
    Pinned(PinnedWrite),
}

/// One copy of a write after it was stored or failed.
pub(crate) struct WriteCopy {
    pub staged: Staged,
    pub result: CopyResult,
}

/// The result of storing one copy.
#[derive(Debug, Clone)]
pub(crate) enum CopyResult {
    /// The backend has stored all bytes.
    Stored {
        /// Version ID that the backend returned.
        backend_version: Option<String>,
    },
    /// The bytes are not stored, or may still arrive.
    Failed(Late),
}

/// The copies of a write after the body was sent.
pub(super) struct WrittenCopies {
    pub(super) copies: Vec<WriteCopy>,
    /// `None` if the body was not read to its end.
    pub(super) digests: Option<Digests>,
    /// The errors of the failed copies.
    pub(super) errors: Vec<(BackendName, BackendError)>,
}

impl WriteCopy {
    pub(super) fn is_stored(&self) -> bool {
        matches!(self.result, CopyResult::Stored { .. })
    }

    pub(super) fn backend_version(&self) -> Option<&String> {
        match &self.result {
            CopyResult::Stored { backend_version } => backend_version.as_ref(),
            CopyResult::Failed(_) => None,
        }
    }

    pub(super) fn late(&self) -> Late {
        match self.result {
            CopyResult::Stored { .. } => Late::No,
            CopyResult::Failed(late) => late,
        }
    }
}

impl WrittenBytes {
    /// The argument of the catalog's commit.
    pub(crate) fn stored(&self) -> StoredBytes {
        let copies = match &self.held_by {
            HeldBy::Copies(copies) => copies,
            HeldBy::Pinned(pinned) => return pinned.stored(),
        };
        let first = &copies[0];
        if !first.staged.announced {
            let Location { backend, physical_key, .. } = first.staged.place.clone();
            return StoredBytes::Unannounced(Unannounced {
                backend,
                physical_key,
                size_bytes: first.staged.size_bytes,
                backend_version: first.backend_version().cloned(),
            });
        }
        let (stored, failed): (Vec<_>, Vec<_>) = copies.iter().partition(|copy| copy.is_stored());
        let version = |copy: &&WriteCopy| Some((copy.staged.id, copy.backend_version()?.clone()));
        StoredBytes::Announced {
            write: first.staged.write,
            copies: stored.len(),
            backend_versions: stored.iter().filter_map(version).collect(),
            failed: failed.iter().map(|copy| FailedCopy { intent: copy.staged.id, late: copy.late() }).collect(),
        }
    }

    /// The write, if it was announced.
    pub(super) fn announced(&self) -> Option<WriteId> {
        match &self.held_by {
            HeldBy::Copies(copies) => copies[0].staged.announced.then_some(copies[0].staged.write),
            HeldBy::Pinned(pinned) => Some(pinned.write()),
        }
    }
}

impl Engine {
    /// Stores all copies. Each one succeeds or fails on its own; a body that is not what was declared fails all.
    pub(super) async fn store(
        &self,
        target: &WriteTarget<'_>,
        staged: Vec<Staged>,
        body: &ReplayableBody,
        declared: Declared,
    ) -> WrittenCopies {
        let min = self.write_copies(&target.settings).min;
        let (digests, results) = self.send(&staged, body.offer(), declared, min).await;
        let mut written = WrittenCopies { copies: Vec::with_capacity(staged.len()), digests, errors: Vec::new() };
        for (staged, result) in staged.into_iter().zip(results) {
            let result = match result.and_then(|stored| self.accept_copy(&staged, stored, written.digests.as_ref())) {
                Ok(backend_version) => CopyResult::Stored { backend_version },
                Err(error) => {
                    let backend = staged.place.backend.clone();
                    self.record_failed_write(&backend, staged.size_bytes, &error);
                    let late = late_after(&error, self.settings().late_write_window);
                    written.errors.push((backend, error));
                    CopyResult::Failed(late)
                }
            };
            written.copies.push(WriteCopy { staged, result });
        }
        written
    }

    /// Leaves out copies whose backend was frozen since they were stored: they may be on the wrong store.
    pub(super) fn drop_frozen(&self, written: &mut WrittenCopies) {
        for copy in written.copies.iter_mut().filter(|copy| copy.is_stored()) {
            let backend = &copy.staged.place.backend;
            if let Some(error) = self.frozen_since(backend) {
                written.errors.push((backend.clone(), error));
                copy.result = CopyResult::Failed(Late::Within(self.settings().late_write_window));
            }
        }
    }

    fn frozen_since(&self, backend: &BackendName) -> Option<BackendError> {
        let reason = self.fleet.frozen_reason(backend)?;
        Some(BackendError::Away(format!("the backend was frozen during the write: {reason}")))
    }

    /// Stores further copies of a small body on other backends, in place of those that failed.
    pub(super) async fn replace_failed(
        &self,
        target: &WriteTarget<'_>,
        written: &mut WrittenCopies,
        body: &ReplayableBody,
        declared: &Declared,
    ) {
        let stored = |written: &WrittenCopies| written.copies.iter().filter(|copy| copy.is_stored()).count();
        let wanted = self.write_copies(&target.settings).wanted;
        while (1..wanted).contains(&stored(written)) && body.is_replayable() {
            let Some(staged) = self.stage_another(target, &written.copies).await else { return };
            let another = self.store(target, vec![staged], body, declared.clone()).await;
            written.copies.extend(another.copies);
            written.errors.extend(another.errors);
        }
    }

    async fn send(
        &self,
        copies: &[Staged],
        body: ByteStream,
        declared: Declared,
        copies_min: usize,
    ) -> (Option<Digests>, Vec<Result<Written, BackendError>>) {
        let (size_bytes, algorithm) = (copies[0].size_bytes, declared.algorithm());
        let lease = LeaseWatch::of(copies.iter().map(|copy| &copy.lease));
        let body = match digested(body, size_bytes, algorithm, verification(declared), lease).await {
            Ok(body) => body,
            Err(error) => return (None, copies.iter().map(|_| Err(error.clone().into())).collect()),
        };
        let DigestedBody { stream, digests } = body;
        let results = match copies {
            [only] => vec![self.send_copy(only, stream).await],
            several => self.send_to_all(several, copies_min, stream).await,
        };
        (digests.ready().await.ok(), results)
    }

    /// Sends one body to several backends. Once enough copies are stored, the others have a limited time to answer.
    async fn send_to_all(
        &self,
        copies: &[Staged],
        copies_min: usize,
        body: ByteStream,
    ) -> Vec<Result<Written, BackendError>> {
        let (fan_out, streams) = split(body, copies[0].size_bytes, copies.len(), copies_min);
        let mut fan_out = std::pin::pin!(fan_out.run());
        let sends = copies.iter().zip(streams).enumerate();
        let mut sends: FuturesUnordered<_> =
            sends.map(|(position, (copy, stream))| self.boxed_send(position, copy, stream)).collect();
        let mut results: Vec<Option<Result<Written, BackendError>>> = copies.iter().map(|_| None).collect();
        let (mut is_sent, mut deadline) = (false, None);
        while !sends.is_empty() {
            tokio::select! {
                biased;
                () = &mut fan_out, if !is_sent => is_sent = true,
                Some((position, result)) = sends.next() => {
                    results[position] = Some(result);
                    let stored = results.iter().flatten().filter(|result| result.is_ok()).count();
                    if stored >= copies_min {
                        deadline.get_or_insert(Instant::now() + STALL_MAX);
                    }
                }
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => break,
            }
        }
        // Cancels the calls without an answer: their circuit breakers count them only afterwards.
        drop(sends);
        let answers = results.into_iter().zip(copies);
        answers.map(|(result, copy)| result.unwrap_or_else(|| self.unanswered(&copy.place.backend))).collect()
    }

    fn unanswered(&self, backend: &BackendName) -> Result<Written, BackendError> {
        self.fleet.record_unanswered_write(backend);
        Err(BackendError::Unknown("the backend did not answer in time, enough other copies are stored".to_owned()))
    }

    fn boxed_send<'a>(
        &'a self,
        position: usize,
        copy: &'a Staged,
        stream: ByteStream,
    ) -> BoxFuture<'a, (usize, Result<Written, BackendError>)> {
        Box::pin(async move { (position, self.send_copy(copy, stream).await) })
    }

    pub(crate) async fn send_copy(&self, copy: &Staged, stream: ByteStream) -> Result<Written, BackendError> {
        let size_bytes = copy.size_bytes;
        if size_bytes > copy.backend.put_bytes_max() {
            upload::write(self, copy, size_bytes, stream).await
        } else {
            copy.backend.put(&copy.place.physical_key, size_bytes, stream).await
        }
    }

    /// Returns the version ID of a stored copy, if its backend is still the one that the copy was announced for and
    /// has stored the bytes that were sent.
    pub(crate) fn accept_copy(
        &self,
        copy: &Staged,
        written: Written,
        digests: Option<&Digests>,
    ) -> Result<Option<String>, BackendError> {
        let digests = digests.ok_or_else(|| BackendError::Unknown("the body was not read to its end".to_owned()))?;
        if let Some(error) = self.frozen_since(&copy.place.backend) {
            return Err(error);
        }
        let state = self.fleet.state(&copy.place.backend);
        let etag_is_md5 = state.and_then(|state| state.traits.clone()).is_some_and(|traits| traits.etag_is_md5);
        let is_single_put = copy.size_bytes <= copy.backend.put_bytes_max();
        match &written.etag {
            Some(etag) if is_single_put && etag_is_md5 && *etag != digests.md5.to_string() => {
                Err(BackendError::Refused(format!(
                    "the store returned the ETag {etag}, the MD5 of the bytes is {}",
                    digests.md5
                )))
            }
            Some(_) | None => Ok(written.version_id),
        }
    }
}
