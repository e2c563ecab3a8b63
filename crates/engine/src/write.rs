//! Writing bytes: an intent first, then the bytes, then nothing until the catalog has committed.
//!
//! A crash at any step leaves an intent for the reaper, never bytes that nobody knows.

mod direct;
mod leftovers;
mod outcome;
mod pin;
mod source;
mod upload;

use s3o_backend::{BodyError, ByteStream, Error as BackendError, SharedBackend, Written};
use s3o_catalog::{Ended, Error as CatalogError, Landed, Late, Stage, Unannounced, Verdict};
use s3o_model::cleanup::BackendUpload;
use s3o_model::ids::{BucketId, IntentId, WriteId};
use s3o_model::intent::{Draft, Intent, IntentKind};
use s3o_model::names::{BackendName, BucketName, ObjectKey};
use s3o_model::physical_key::{NameStyle, physical_key};
use s3o_model::placement::pack;

use crate::body::{DigestedBody, Verify, digested};
use crate::digest::Digests;
use crate::leases::Lease;
use crate::put_object::Declared;
use crate::{Engine, Error};

pub(crate) use leftovers::Leftovers;
pub(crate) use outcome::Fate;
use pin::Pinned;
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

/// The backends that did not answer a write, and what the last of them did instead.
#[derive(Default)]
struct Away {
    backends: Vec<BackendName>,
    error: Option<Error>,
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
        let mut away = Away::default();
        loop {
            let staged = match self.stage(&target, &away.backends).await {
                Ok(staged) => staged,
                // Whoever else has no room: the bytes might have fitted where nobody answered.
                Err(refused) => return Err(away.error.unwrap_or(refused)),
            };
            match self.fill(&staged, target.size_bytes, source.offer(), declared.clone()).await {
                Ok((digests, written)) => {
                    let (held, dedup) = (Held::Staged(Box::new(staged)), target.dedup_bucket());
                    return Ok(WrittenBytes { held, digests, backend_version: written.version_id, dedup });
                }
                Err(error) => {
                    let late = late_after(&error, self.settings().late_write_window);
                    self.give_up(&staged, Ended { late, ..Ended::default() }).await;
                    let elsewhere = matches!(error, BackendError::Away(_)) && source.is_whole();
                    if !elsewhere {
                        return Err(error.into());
                    }
                    tracing::info!(backend = %staged.intent.backend, %error, "backend away, the write goes elsewhere");
                    away.backends.push(staged.intent.backend.clone());
                    away.error = Some(error.into());
                }
            }
        }
    }

    /// Announces a write on the first backend that has room and is not left out.
    async fn stage(&self, target: &Target<'_>, left_out: &[BackendName]) -> Result<Staged, Error> {
        let mut views = self.fleet.views();
        views.retain(|view| !left_out.contains(&view.name));
        if !self.settings().announce {
            direct::fill_in_room(&mut views, &self.quotas.books().await?);
        }
        let mut refused = match views.iter().find(|view| !view.writable) {
            Some(closed) => Error::Away(format!("backend {} takes no writes now", closed.name)),
            None => Error::NoRoom,
        };
        for name in pack::candidates(&views, target.size_bytes) {
            match self.stage_on(&name, target).await {
                Ok(staged) => return Ok(staged),
                Err(error) => match error.verdict() {
                    Some(Verdict::NoRoom) => {}
                    Some(Verdict::Closed) => refused = error.into(),
                    Some(_) | None => return Err(error.into()),
                },
            }
        }
        Err(refused)
    }

    async fn stage_on(&self, name: &BackendName, target: &Target<'_>) -> Result<Staged, CatalogError> {
        let gone = || CatalogError::Guard(Verdict::Closed);
        let backend = self.fleet.get(name).cloned().ok_or_else(gone)?;
        let id = self.ids.fresh();
        let intent = Intent {
            id: IntentId::new(id),
            write: WriteId::new(id),
            kind: target.kind,
            bucket: target.bucket,
            key: target.key.clone(),
            backend: name.clone(),
            physical_key: physical_key(target.bucket_name, target.key, id, self.name_style(name)),
            size_bytes: target.size_bytes,
            draft: target.draft.clone(),
        };
        let bucket = target.bucket_name.clone();
        if !self.settings().announce {
            return Ok(Staged { intent, bucket, announced: false, backend, lease: Lease::unneeded() });
        }
        let (stage, term) = (Stage { intent, owner: self.instance, lease: self.settings().lease }, self.lease_term());
        let staged = self.intents.stage(&stage).await;
        let until = self.counted(stage.intent.write, staged)?;
        let lease = self.leases.hold(stage.intent.id, until, term);
        Ok(Staged { intent: stage.intent, bucket, announced: true, backend, lease })
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

    /// How names must look there; a backend that was not reached yet keeps them as they are until
    /// it says otherwise, since the identifier alone makes them unique.
    fn name_style(&self, name: &BackendName) -> NameStyle {
        let traits = self.fleet.standing(name).and_then(|standing| standing.traits.clone());
        traits.map_or(NameStyle::Exact, |traits| traits.name_style)
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
