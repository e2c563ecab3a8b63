//! Writes bytes to backends: first the intents, then the bytes; the caller commits.
//!
//! A crash at any step leaves intents for the reaper, never bytes that no row names.

mod copies;
mod fan_out;
mod outcome;
mod pin;
mod placing;
mod replayable_body;
mod retry;
mod sharing;
mod staging;
mod upload;

use s3o_backend::{BodyError, ByteStream, Error as BackendError, SharedBackend, Written};
use s3o_catalog::{ContentPlan, Error as CatalogError, Late};
use s3o_model::bucket::BucketSettings;
use s3o_model::cleanup::BackendUpload;
use s3o_model::content::Location;
use s3o_model::ids::{BucketId, IntentId, WriteId};
use s3o_model::intent::{Draft, IntentKind};
use s3o_model::names::{BackendName, BucketName, ObjectKey};
use s3o_model::write_outcome::WriteFailure;

use crate::body::Verify;
use crate::leases::Lease;
use crate::put_object::Declared;
use crate::{Engine, Error, Settings};

use copies::WrittenCopies;
pub(crate) use copies::{CopyResult, HeldBy, WriteCopy, WrittenBytes};
use outcome::FailedWrite;
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
    /// Settings of the bucket.
    pub settings: BucketSettings,
}

/// Number of copies of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WriteCopies {
    /// Stored if enough backends take writes.
    pub wanted: usize,
    /// A write with fewer copies is not acknowledged.
    pub min: usize,
}

/// One copy of a write, with its backend and physical key chosen.
pub(crate) struct Staged {
    /// Identifier of the intent.
    pub id: IntentId,
    /// All copies of a write share it.
    pub write: WriteId,
    pub place: Location,
    pub size_bytes: u64,
    /// Bucket and key that the client wrote to; `None` for another copy of existing content.
    pub object: Option<(BucketName, ObjectKey)>,
    /// True if the catalog has an intent for the write.
    pub announced: bool,
    pub backend: SharedBackend,
    pub lease: Lease,
}

impl WriteTarget<'_> {
    /// New content. Later writes to the bucket may share it if the bucket deduplicates.
    fn fresh_content(&self) -> ContentPlan {
        ContentPlan::Fresh(self.settings.dedup.then_some(self.bucket))
    }
}

impl Staged {
    /// Where the bytes are, with the version that the backend returned.
    pub(crate) fn stored_as(&self, written: &Written) -> Location {
        Location { backend_version: written.version_id.clone(), ..self.place.clone() }
    }

    /// The backend upload that a failed write may have left; its ID is unknown.
    fn upload_left(&self) -> BackendUpload {
        let is_single_put = self.size_bytes <= self.backend.put_bytes_max();
        if is_single_put { BackendUpload::None } else { BackendUpload::Starting }
    }
}

impl Engine {
    /// Announces a write, stores its copies and verifies the declared digests. After an error only cleanups are left.
    /// If the bucket deduplicates and has content with the declared digest, the body is only compared with it.
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
            let mut written = self.store(&target, staged, &body, declared.clone()).await;
            self.replace_failed(&target, &mut written, &body, &declared).await;
            match self.enough_copies(&target, written).await {
                Ok(bytes) => return Ok(bytes),
                Err(failed) => self.try_next(failed, &body, &mut tried, target.size_bytes).await?,
            }
        }
    }

    /// The written bytes if enough copies are stored; otherwise the write is dropped and its errors are returned.
    async fn enough_copies(
        &self,
        target: &WriteTarget<'_>,
        mut written: WrittenCopies,
    ) -> Result<WrittenBytes, Vec<(BackendName, BackendError)>> {
        self.drop_frozen(&mut written);
        let WrittenCopies { copies, digests, errors } = written;
        let stored = copies.iter().filter(|copy| copy.is_stored()).count();
        let WriteCopies { wanted, min } = self.write_copies(&target.settings);
        if let Some(digests) = digests.filter(|_| stored >= min) {
            if stored < wanted {
                self.metrics.degraded();
            }
            let (held_by, plan) = (HeldBy::Copies(copies), target.fresh_content());
            return Ok(WrittenBytes { held_by, digests, plan, settings: target.settings });
        }
        self.end_failed(&FailedWrite::of(&copies), WriteFailure::NotCommitted).await;
        Err(errors)
    }

    /// Decides after a failed write whether the next backend is tried; otherwise returns the error of the request.
    async fn try_next(
        &self,
        failed: Vec<(BackendName, BackendError)>,
        body: &ReplayableBody,
        tried: &mut TriedBackends,
        size_bytes: u64,
    ) -> Result<(), Error> {
        let another = body.is_replayable() && failed.iter().all(|(_, error)| another_may_take(error));
        for (backend, error) in failed {
            if !another {
                return Err(self.failed_midway(error, size_bytes, tried).await);
            }
            tracing::info!(%backend, %error, "backend cannot take the write, trying the next one");
            tried.add(&backend, error);
        }
        Ok(())
    }

    /// Number of copies that a write to a bucket stores before it is acknowledged. Direct mode stores one.
    pub(crate) fn write_copies(&self, bucket: &BucketSettings) -> WriteCopies {
        let Settings { announce, write_copies, write_copies_min, .. } = self.settings();
        let wanted = if announce { write_copies.min(bucket.factor).max(1) } else { 1 };
        WriteCopies { wanted, min: write_copies_min.clamp(1, wanted) }
    }

    /// Counts an announced write. If the answer was lost, a later lookup decides.
    pub(crate) fn counted<T>(&self, write: WriteId, announced: Result<T, CatalogError>) -> Result<T, CatalogError> {
        match &announced {
            Ok(_) => self.metrics.announced(write),
            Err(CatalogError::Unknown(_)) => self.metrics.maybe_announced(write),
            Err(_) => {}
        }
        announced
    }
}

/// How long a backend may still store the bytes of a failed write.
pub(crate) fn late_after(error: &BackendError, window: std::time::Duration) -> Late {
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
