//! Writing bytes: an intent first, then the bytes, then nothing until the catalog has committed.
//!
//! A crash at any step leaves an intent for the reaper, never bytes that nobody knows.

mod direct;
mod leftovers;
mod outcome;
mod pin;
mod placing;
mod source;
mod upload;

use s3o_backend::{BodyError, ByteStream, Error as BackendError, SharedBackend, Written};
use s3o_catalog::{Ended, Error as CatalogError, Landed, Late, Unannounced};
use s3o_model::cleanup::BackendUpload;
use s3o_model::ids::{BucketId, WriteId};
use s3o_model::intent::{Draft, Intent, IntentKind};
use s3o_model::names::{BucketName, ObjectKey};

use crate::body::{DigestedBody, Verify, digested};
use crate::digest::Digests;
use crate::leases::Lease;
use crate::put_object::Declared;
use crate::{Engine, Error};

pub(crate) use leftovers::Leftovers;
pub(crate) use outcome::Fate;
use pin::Pinned;
use placing::{Tried, another_may_take};
use source::Source;

/// What bytes are about to be written for.
pub(crate) struct Target<'a> {
    pub kind: IntentKind,
    pub bucket: BucketId,
    pub bucket_name: &'a BucketName,
    pub key: &'a ObjectKey,
    pub size_bytes: u64,
    /// What the object would be, where the reaper could finish the write.
    pub draft: Option<Draft>,
    /// Whether the bucket keeps equal content once.
    pub dedup: bool,
}

/// A write that is about to happen.
pub(crate) struct Staged {
    pub intent: Intent,
    bucket: BucketName,
    /// Whether the catalog knows of it.
    announced: bool,
    backend: SharedBackend,
    lease: Lease,
}

/// Bytes that are where they should be, not yet committed.
pub(crate) struct WrittenBytes {
    held: Held,
    pub digests: Digests,
    backend_version: Option<String>,
    /// The bucket, where it keeps equal content once.
    pub dedup: Option<BucketId>,
}

/// By what bytes are held until they are committed.
enum Held {
    /// They were written.
    Staged(Box<Staged>),
    /// They were there already.
    Pinned(Pinned),
}

impl Target<'_> {
    /// The bucket, where it keeps equal content once.
    fn dedup_bucket(&self) -> Option<BucketId> {
        self.dedup.then_some(self.bucket)
    }
}

impl Staged {
    /// What may be left of a backend upload; nobody can tell how far one came.
    fn upload_left(&self) -> BackendUpload {
        let in_one_go = self.intent.size_bytes <= self.backend.put_bytes_max();
        if in_one_go { BackendUpload::None } else { BackendUpload::Starting }
    }
}

impl WrittenBytes {
    /// The bytes as the catalog commits them.
    pub(crate) fn landed(&self) -> Landed {
        let staged = match &self.held {
            Held::Staged(staged) => staged,
            Held::Pinned(pinned) => return pinned.landed(),
        };
        let intent = &staged.intent;
        let backend_version = self.backend_version.clone();
        if !staged.announced {
            return Landed::Unannounced(Unannounced {
                backend: intent.backend.clone(),
                physical_key: intent.physical_key.clone(),
                size_bytes: intent.size_bytes,
                backend_version,
            });
        }
        let backend_versions = backend_version.into_iter().map(|version| (intent.id, version)).collect();
        Landed::Announced { write: intent.write, copies: 1, backend_versions }
    }
}

impl Engine {
    /// Announces a write, does it, and verifies what was declared. On an error nothing is left
    /// but a cleanup. Bytes that are known before they are sent, and are there, are only compared.
    pub(crate) async fn write_bytes(
        &self,
        target: Target<'_>,
        body: ByteStream,
        declared: Declared,
    ) -> Result<WrittenBytes, Error> {
        if let Some(pinned) = self.pin(&target, &declared).await? {
            return self.compare(&target, pinned, body, declared).await;
        }
        let source = Source::new(body, target.size_bytes);
        let mut tried = Tried::default();
        loop {
            let staged = match self.stage(&target, &tried).await {
                Ok(staged) => staged,
                Err(refused) => return Err(tried.refusal(refused)),
            };
            match self.fill(&staged, target.size_bytes, source.offer(), declared.clone()).await {
                Ok((digests, written)) => {
                    let (held, dedup) = (Held::Staged(Box::new(staged)), target.dedup_bucket());
                    return Ok(WrittenBytes { held, digests, backend_version: written.version_id, dedup });
                }
                Err(error) => {
                    let late = late_after(&error, self.settings().late_write_window);
                    self.give_up(&staged, Ended { late, ..Ended::default() }).await;
                    let backend = &staged.intent.backend;
                    self.record_failed_write(backend, target.size_bytes, &error);
                    if !(another_may_take(&error) && source.is_whole()) {
                        return Err(self.failed_midway(error, target.size_bytes, &tried).await);
                    }
                    tracing::info!(%backend, %error, "backend cannot take the write, trying the next one");
                    tried.add(backend, error);
                }
            }
        }
    }

    /// Counts an announcement; one whose answer was lost is looked up later.
    fn counted<T>(&self, write: WriteId, announced: Result<T, CatalogError>) -> Result<T, CatalogError> {
        match &announced {
            Ok(_) => self.metrics.announced(write),
            Err(CatalogError::Unknown(_)) => self.metrics.maybe_announced(write),
            Err(_) => {}
        }
        announced
    }

    async fn fill(
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

/// Whether a failed write may still land.
fn late_after(error: &BackendError, window: std::time::Duration) -> Late {
    match error {
        // The store answered, or never had all the bytes.
        BackendError::Body(_) | BackendError::NoRoom(_) | BackendError::Refused(_) | BackendError::Unsupported(_) => {
            Late::No
        }
        BackendError::NotFound | BackendError::Away(_) | BackendError::Unknown(_) => Late::Within(window),
    }
}

/// Compares the digests with everything that was declared.
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

/// Where the store's `ETag` is the MD5 of the bytes, it tells what really arrived.
fn check_etag(
    fleet: &s3o_backend::fleet::Fleet,
    staged: &Staged,
    written: &Written,
    digests: &Digests,
    size_bytes: u64,
) -> Result<(), BackendError> {
    let in_one_go = size_bytes <= staged.backend.put_bytes_max();
    let standing = fleet.standing(&staged.intent.backend);
    let tells_md5 = standing.and_then(|standing| standing.traits.clone()).is_some_and(|traits| traits.etag_is_md5);
    match &written.etag {
        Some(etag) if in_one_go && tells_md5 && *etag != digests.md5.to_string() => {
            Err(BackendError::Refused(format!("the store has other bytes than it was sent: {etag}")))
        }
        Some(_) | None => Ok(()),
    }
}
