//! Writes bytes to a backend: first the intent, then the bytes; the caller commits.
//!
//! A crash at any step leaves an intent for the reaper, never bytes that no row names.

mod outcome;
mod pin;
mod placing;
mod replayable_body;
mod retry;
mod sharing;
mod upload;

use s3o_backend::{BodyError, ByteStream, Error as BackendError, SharedBackend, Written};
use s3o_catalog::{ContentPlan, Ended, Error as CatalogError, Late, StoredBytes, Unannounced};
use s3o_model::cleanup::BackendUpload;
use s3o_model::ids::{BucketId, WriteId};
use s3o_model::intent::{Draft, Intent, IntentKind};
use s3o_model::names::{BucketName, ObjectKey};
use s3o_model::write_outcome::WriteFailure;

use crate::body::{DigestedBody, Verify, digested};
use crate::digest::Digests;
use crate::leases::Lease;
use crate::put_object::Declared;
use crate::{Engine, Error};

use pin::PinnedWrite;
use placing::{TriedBackends, another_may_take};
use replayable_body::ReplayableBody;
pub(crate) use retry::UnqueuedBytes;
pub use sharing::ContentSharing;

/// The object or part that bytes are written for.
pub(crate) struct WriteTarget<'a> {
    pub kind: IntentKind,
    pub bucket: BucketId,
    pub bucket_name: &'a BucketName,
    pub key: &'a ObjectKey,
    pub size_bytes: u64,
    /// The object's row, if the reaper can commit the write without its writer.
    pub draft: Option<Draft>,
    /// True if the bucket stores equal content once.
    pub dedup: bool,
}

/// A write with its backend and physical key chosen.
pub(crate) struct Staged {
    pub intent: Intent,
    bucket: BucketName,
    /// True if the catalog has an intent for the write.
    announced: bool,
    backend: SharedBackend,
    lease: Lease,
}

/// Bytes that a backend has stored and the catalog has not committed yet.
pub(crate) struct WrittenBytes {
    held_by: HeldBy,
    pub digests: Digests,
    backend_version: Option<String>,
    /// The plan before content with the same digest was looked up.
    pub plan: ContentPlan,
}

/// What keeps bytes from deletion until they are committed.
enum HeldBy {
    /// The intent of the write that stored them.
    Staged(Box<Staged>),
    /// An intent that pins content which was stored before.
    Pinned(PinnedWrite),
}

impl WriteTarget<'_> {
    /// New content. Later writes to the bucket may share it if the bucket deduplicates.
    fn fresh_content(&self) -> ContentPlan {
        ContentPlan::Fresh(self.dedup.then_some(self.bucket))
    }
}

impl Staged {
    /// The backend upload that a failed write may have left; its ID is unknown.
    fn upload_left(&self) -> BackendUpload {
        let is_single_put = self.intent.size_bytes <= self.backend.put_bytes_max();
        if is_single_put { BackendUpload::None } else { BackendUpload::Starting }
    }
}

impl WrittenBytes {
    /// The argument of the catalog's commit.
    pub(crate) fn stored(&self) -> StoredBytes {
        let staged = match &self.held_by {
            HeldBy::Staged(staged) => staged,
            HeldBy::Pinned(pinned) => return pinned.stored(),
        };
        let intent = &staged.intent;
        let backend_version = self.backend_version.clone();
        if !staged.announced {
            return StoredBytes::Unannounced(Unannounced {
                backend: intent.backend.clone(),
                physical_key: intent.physical_key.clone(),
                size_bytes: intent.size_bytes,
                backend_version,
            });
        }
        let backend_versions = backend_version.into_iter().map(|version| (intent.id, version)).collect();
        StoredBytes::Announced { write: intent.write, copies: 1, backend_versions }
    }
}

impl Engine {
    /// Announces a write, stores the bytes and verifies the declared digests. After an error only a cleanup is left. If
    /// the bucket deduplicates and has content with the declared digest, the body is only compared with it.
    pub(crate) async fn write_bytes(
        &self,
        target: WriteTarget<'_>,
        body: ByteStream,
        declared: Declared,
    ) -> Result<WrittenBytes, Error> {
        if let Some(pinned) = self.pin(&target, &declared).await? {
            return self.compare(&target, pinned, body, declared).await;
        }
        let body = ReplayableBody::new(body, target.size_bytes);
        let mut tried = TriedBackends::default();
        loop {
            let staged = match self.stage(&target, &tried).await {
                Ok(staged) => staged,
                Err(refused) => return Err(tried.refusal(refused)),
            };
            match self.store(&staged, target.size_bytes, body.offer(), declared.clone()).await {
                Ok((digests, written)) => {
                    let (held_by, plan) = (HeldBy::Staged(Box::new(staged)), target.fresh_content());
                    return Ok(WrittenBytes { held_by, digests, backend_version: written.version_id, plan });
                }
                Err(error) => {
                    let late = late_after(&error, self.settings().late_write_window);
                    let ended = Ended { late, ..Ended::default() };
                    self.end_failed(&staged.failed(), WriteFailure::NotCommitted, ended).await;
                    let backend = &staged.intent.backend;
                    self.record_failed_write(backend, target.size_bytes, &error);
                    if !(another_may_take(&error) && body.is_replayable()) {
                        return Err(self.failed_midway(error, target.size_bytes, &tried).await);
                    }
                    tracing::info!(%backend, %error, "backend cannot take the write, trying the next one");
                    tried.add(backend, error);
                }
            }
        }
    }

    /// Counts an announced write. If the answer was lost, a later lookup decides.
    fn counted<T>(&self, write: WriteId, announced: Result<T, CatalogError>) -> Result<T, CatalogError> {
        match &announced {
            Ok(_) => self.metrics.announced(write),
            Err(CatalogError::Unknown(_)) => self.metrics.maybe_announced(write),
            Err(_) => {}
        }
        announced
    }

    async fn store(
        &self,
        staged: &Staged,
        size_bytes: u64,
        body: ByteStream,
        declared: Declared,
    ) -> Result<(Digests, Written), BackendError> {
        let algorithm = declared.algorithm();
        let verify = verification(declared);
        let body = digested(body, size_bytes, algorithm, verify, staged.lease.watch()).await?;
        let DigestedBody { stream, digests } = body;
        let key = &staged.intent.physical_key;
        let written = if size_bytes > staged.backend.put_bytes_max() {
            upload::write(self, staged, size_bytes, stream).await?
        } else {
            staged.backend.put(key, size_bytes, stream).await?
        };
        let digests = digests.ready().await.map_err(|error| BackendError::Unknown(error.to_string()))?;
        check_etag(&self.fleet, staged, &written, &digests, size_bytes)?;
        Ok((digests, written))
    }
}

/// How long a backend may still store the bytes of a failed write.
fn late_after(error: &BackendError, window: std::time::Duration) -> Late {
    match error {
        // The store refused the write, or did not receive all bytes.
        BackendError::Body(_)
        | BackendError::NoSpace(_)
        | BackendError::Refused(_)
        | BackendError::NotSent(_)
        | BackendError::Unsupported(_) => Late::No,
        BackendError::NotFound | BackendError::Away(_) | BackendError::Unknown(_) => Late::Within(window),
    }
}

/// Compares the computed digests with the declared ones.
fn verification(declared: Declared) -> Verify {
    Box::new(move |digests| {
        let mismatch = |what| Err(BodyError::Mismatch(what));
        let computed = digests.checksum.as_ref();
        if let Some(what) = declared.digests.mismatch(digests.md5, digests.sha256, computed) {
            return mismatch(what);
        }
        match declared.trailer {
            Some(trailer) if (trailer.value)().as_ref() != computed.map(|ours| &ours.value) => mismatch("checksum"),
            Some(_) | None => Ok(()),
        }
    })
}

/// Compares the store's `ETag` with the MD5 of the bytes, if the store's trait says that they are equal.
fn check_etag(
    fleet: &s3o_backend::fleet::Fleet,
    staged: &Staged,
    written: &Written,
    digests: &Digests,
    size_bytes: u64,
) -> Result<(), BackendError> {
    let is_single_put = size_bytes <= staged.backend.put_bytes_max();
    let state = fleet.state(&staged.intent.backend);
    let etag_is_md5 = state.and_then(|state| state.traits.clone()).is_some_and(|traits| traits.etag_is_md5);
    match &written.etag {
        Some(etag) if is_single_put && etag_is_md5 && *etag != digests.md5.to_string() => Err(BackendError::Refused(
            format!("the store returned the ETag {etag}, the MD5 of the bytes is {}", digests.md5),
        )),
        Some(_) | None => Ok(()),
    }
}
