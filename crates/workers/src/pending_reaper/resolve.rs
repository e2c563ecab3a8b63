//! Resolution of one write: inspects its copies if that can decide, then commits, abandons or postpones it.

use futures_util::future::BoxFuture;
use s3o_backend::Probe;
use s3o_catalog::{CommitPut, ContentPlan, Error as CatalogError, FailedCopy, Late, PutRow, StoredBytes, Verdict};
use s3o_engine::digest::Digests;
use s3o_engine::{Resolving, reread};
use s3o_model::bucket::BucketSettings;
use s3o_model::etag::ETag;
use s3o_model::ids::{BucketId, ClaimToken, ContentId, IntentId, VersionId, WriteId};
use s3o_model::intent::{Draft, Expired};
use s3o_model::recovery::{Inspection, Resolution, inspection_delay, resolve_inspected, resolve_uninspected};
use s3o_model::target::KeyVersion;

use super::{PendingReaperWorker, ResolvedWrite};
use crate::Error;

/// Copies whose bytes match the declared digests.
pub(super) struct ProvenCopies {
    digests: Digests,
    /// Versions that were read, on backends that keep versions.
    backend_versions: Vec<(IntentId, String)>,
    /// The other copies of the write.
    failed: Vec<FailedCopy>,
}

impl ProvenCopies {
    fn of(digests: Digests) -> Self {
        Self { digests, backend_versions: Vec::new(), failed: Vec::new() }
    }

    /// The digests, and the argument of the catalog's commit for a write of so many copies.
    fn into_stored(self, write: WriteId, copies: usize, token: ClaimToken) -> (Digests, StoredBytes) {
        let Self { digests, backend_versions, failed } = self;
        let copies = copies - failed.len();
        (digests, StoredBytes::Reaped { write, copies, backend_versions, failed, token })
    }
}

/// Bytes that were read to their end.
struct ReadBytes {
    digests: Digests,
    version_id: Option<String>,
}

/// Result of an inspection, with the bytes if they could be read.
type InspectedBytes = (Inspection, Option<ReadBytes>);

impl PendingReaperWorker {
    pub(super) fn boxed_resolve(&self, token: ClaimToken, copies: Vec<Expired>) -> BoxFuture<'_, ResolvedWrite> {
        Box::pin(async move {
            let outcome = self.resolve(token, &copies).await;
            ResolvedWrite { copies, outcome }
        })
    }

    async fn resolve(&self, token: ClaimToken, copies: &[Expired]) -> Result<Option<Resolution>, Error> {
        let first = &copies[0];
        let (resolution, proven) = match (resolve_uninspected(first, self.settings.recovery), &first.draft) {
            (Some(resolution), _) => (resolution, None),
            (None, draft) => self.inspect_all(copies, draft.as_ref()).await?,
        };
        match (resolution, proven) {
            (Resolution::Promoted, Some(proven)) => self.promote(token, copies, proven).await,
            (Resolution::Ambiguous(why), _) => {
                tracing::info!(write = %first.write, reason = why, "outcome of write unknown, retrying later");
                let delay = inspection_delay(first.age, self.settings.rest_min);
                let ours = self.intents.postpone(token, first.write, delay).await?;
                if ours {
                    self.metrics.ambiguous();
                }
                Ok(ours.then_some(Resolution::Ambiguous(why)))
            }
            (resolution, _) => self.abandon(token, first, resolution).await,
        }
    }

    /// Inspects every copy. One that matches is enough to commit the write; the others become cleanups.
    async fn inspect_all(
        &self,
        copies: &[Expired],
        draft: Option<&Draft>,
    ) -> Result<(Resolution, Option<ProvenCopies>), Error> {
        let (mut inspections, mut proven): (Vec<Inspection>, Option<ProvenCopies>) = (Vec::new(), None);
        let (mut failed, mut backend_versions) = (Vec::new(), Vec::new());
        for copy in copies {
            let (inspection, read) = self.inspect(copy, draft).await?;
            match (&inspection, read) {
                (Inspection::Matches, Some(ReadBytes { digests, version_id })) => {
                    backend_versions.extend(version_id.map(|version| (copy.id, version)));
                    proven.get_or_insert_with(|| ProvenCopies::of(digests));
                }
                _ => failed.push(FailedCopy { intent: copy.id, late: Late::Within(self.settings.late_write_window) }),
            }
            inspections.push(inspection);
        }
        let proven = proven.map(|proven| ProvenCopies { backend_versions, failed, ..proven });
        Ok((resolve_inspected(inspections), proven))
    }

    async fn inspect(&self, copy: &Expired, draft: Option<&Draft>) -> Result<InspectedBytes, Error> {
        let unknown = |why: &str| Ok((Inspection::Unknown(why.to_owned()), None));
        let (Some((name, key)), Some(draft)) = (&copy.place, draft) else { return Ok((Inspection::Absent, None)) };
        let Some(backend) = self.fleet.get(name) else { return unknown("the backend is not configured") };
        if !self.fleet.permits_background(name) {
            return unknown("a usage limit of the backend is near");
        }
        if !self.identity.permits(backend).await? {
            return unknown("the backend is frozen or was not reached");
        }
        let version_id = match backend.probe(key.into()).await {
            Probe::Unknown(why) => return unknown(&why),
            Probe::Absent => return Ok((Inspection::Absent, None)),
            Probe::Present(found) if found.size_bytes != copy.size_bytes => {
                return Ok((Inspection::Differs("the size of the bytes differs from the intent"), None));
            }
            Probe::Present(found) => found.version_id,
        };
        // The version that is read is the one that becomes the copy, whatever others write over it.
        let at = KeyVersion::new(key, version_id.as_deref());
        match reread(backend.as_ref(), at, copy.size_bytes, draft.checksum).await {
            Ok(digests) => Ok((compare(draft, &digests), Some(ReadBytes { digests, version_id }))),
            Err(error) => unknown(&error.to_string()),
        }
    }

    async fn promote(
        &self,
        token: ClaimToken,
        copies: &[Expired],
        proven: ProvenCopies,
    ) -> Result<Option<Resolution>, Error> {
        let first = &copies[0];
        let (digests, stored) = proven.into_stored(first.write, copies.len(), token);
        let Some(key) = first.key.clone() else { return Ok(None) };
        let Draft { attributes, condition, expiry, .. } = first.draft.clone().unwrap_or_default();
        let commit = CommitPut {
            stored,
            content: ContentId::new(self.ids.fresh()),
            md5: digests.md5,
            sha256: Some(digests.sha256),
            plan: ContentPlan::Fresh(self.dedup_bucket(first)),
            row: PutRow {
                bucket: first.bucket,
                key,
                version: VersionId::new(self.ids.fresh()),
                size_bytes: first.size_bytes,
                etag: ETag::of_whole(digests.md5),
                checksum: digests.checksum,
                attributes,
                expiry,
            },
            condition,
            is_first: false,
            factor: self.factor(first),
        };
        let resolving = self.metrics.resolving(first.write, Resolution::Promoted.as_str());
        let committed = self.sharing.commit_put(commit, 1).await;
        record_outcome(resolving, committed.as_ref().map(|_| true));
        match committed {
            Ok(_) => Ok(Some(Resolution::Promoted)),
            Err(CatalogError::Guard(Verdict::Fenced)) => Ok(None),
            Err(CatalogError::Guard(verdict)) => self.abandon(token, first, refusal(verdict)).await,
            Err(error) => Err(error.into()),
        }
    }

    /// The bucket of a write if it deduplicates content.
    fn dedup_bucket(&self, write: &Expired) -> Option<BucketId> {
        self.bucket_settings(write)?.dedup.then_some(write.bucket)
    }

    fn factor(&self, write: &Expired) -> usize {
        self.bucket_settings(write).unwrap_or_default().factor
    }

    fn bucket_settings(&self, write: &Expired) -> Option<BucketSettings> {
        Some(self.configured.of(&write.bucket_name.as_ref()?.parse().ok()?))
    }

    async fn abandon(
        &self,
        token: ClaimToken,
        intent: &Expired,
        resolution: Resolution,
    ) -> Result<Option<Resolution>, Error> {
        let resolving = self.metrics.resolving(intent.write, resolution.as_str());
        let abandoned = self.intents.abandon(token, intent.write, self.settings.late_write_window).await;
        record_outcome(resolving, abandoned.as_ref().copied());
        Ok(abandoned?.then_some(resolution))
    }
}

/// Counts a resolution that the catalog committed. The metrics resolve an unknown outcome later.
fn record_outcome(resolving: Resolving<'_>, answer: Result<bool, &CatalogError>) {
    match answer {
        Ok(true) => resolving.done(),
        Err(CatalogError::Unknown(_)) => drop(resolving),
        Ok(false) | Err(_) => resolving.not_done(),
    }
}

fn compare(draft: &Draft, digests: &Digests) -> Inspection {
    match draft.declared.mismatch(digests.md5, digests.sha256, digests.checksum.as_ref()) {
        None => Inspection::Matches,
        Some(_) => Inspection::Differs("the bytes differ from the declared digests"),
    }
}

/// Why a write whose bytes match is not committed.
const fn refusal(verdict: Verdict) -> Resolution {
    match verdict {
        Verdict::Superseded => Resolution::Superseded,
        Verdict::Past => Resolution::Dropped("the object would have expired already"),
        Verdict::PreconditionFailed => Resolution::Dropped("its precondition no longer holds"),
        _ => Resolution::Dropped("the bucket is gone"),
    }
}
