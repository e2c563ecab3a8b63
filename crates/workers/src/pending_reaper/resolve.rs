//! One write: looked at where that can decide something, then finished, given up or left for later.

use futures_util::future::BoxFuture;
use s3o_backend::Probe;
use s3o_catalog::{CommitPut, Error as CatalogError, Landed, PutRow, Verdict};
use s3o_engine::digest::Digests;
use s3o_engine::{Resolving, reread};
use s3o_model::etag::ETag;
use s3o_model::ids::{BucketId, ClaimToken, ContentId, VersionId};
use s3o_model::intent::{Draft, Expired};
use s3o_model::recovery::{Look, Resolution, after_a_look, rest, without_a_look};

use super::{PendingReaper, Resolved};
use crate::Error;

/// What a look found, and the digests where the bytes could be read.
type Seen = (Look, Option<Digests>);

impl PendingReaper {
    pub(super) fn boxed_resolve(&self, token: ClaimToken, copies: Vec<Expired>) -> BoxFuture<'_, Resolved> {
        Box::pin(async move {
            let outcome = self.resolve(token, &copies).await;
            Resolved { copies, outcome }
        })
    }

    async fn resolve(&self, token: ClaimToken, copies: &[Expired]) -> Result<Option<Resolution>, Error> {
        let first = &copies[0];
        let (resolution, digests) = match (without_a_look(first, self.settings.recovery), &first.draft) {
            (Some(resolution), _) => (resolution, None),
            (None, draft) => {
                let (look, digests) = self.look_at_all(copies, draft.as_ref()).await?;
                (after_a_look(look), digests)
            }
        };
        match (resolution, digests) {
            (Resolution::Promoted, Some(digests)) => self.promote(token, copies, digests).await,
            (Resolution::Ambiguous(why), _) => {
                tracing::info!(write = %first.write, why, "intent left for later");
                let rest = rest(first.age, self.settings.rest_min);
                let ours = self.intents.postpone(token, first.write, rest).await?;
                if ours {
                    self.metrics.ambiguous();
                }
                Ok(ours.then_some(Resolution::Ambiguous(why)))
            }
            (resolution, _) => self.abandon(token, first, resolution).await,
        }
    }

    /// All copies must be what they should: one look that is not decides for all.
    async fn look_at_all(&self, copies: &[Expired], draft: Option<&Draft>) -> Result<Seen, Error> {
        let mut seen = (Look::Absent, None);
        for copy in copies {
            seen = self.look(copy, draft).await?;
            if seen.0 != Look::Matches {
                break;
            }
        }
        Ok(seen)
    }

    async fn look(&self, copy: &Expired, draft: Option<&Draft>) -> Result<Seen, Error> {
        let unknown = |why: &str| Ok((Look::Unknown(why.to_owned()), None));
        let (Some((name, key)), Some(draft)) = (&copy.place, draft) else { return Ok((Look::Absent, None)) };
        let Some(backend) = self.fleet.get(name) else { return unknown("the backend is not configured") };
        if !self.identity.permits(backend).await? {
            return unknown("the backend is frozen or was not reached");
        }
        match backend.probe(key).await {
            Probe::Unknown(why) => return unknown(&why),
            Probe::Absent => return Ok((Look::Absent, None)),
            Probe::Present(found) if found.size_bytes != copy.size_bytes => {
                return Ok((Look::Differs("the bytes have another length"), None));
            }
            Probe::Present(_) => {}
        }
        match reread(backend.as_ref(), key, copy.size_bytes, draft.checksum).await {
            Ok(digests) => Ok((compare(draft, &digests), Some(digests))),
            Err(error) => unknown(&error.to_string()),
        }
    }

    async fn promote(
        &self,
        token: ClaimToken,
        copies: &[Expired],
        digests: Digests,
    ) -> Result<Option<Resolution>, Error> {
        let first = &copies[0];
        let Draft { attributes, condition, expiry, .. } = first.draft.clone().unwrap_or_default();
        let commit = CommitPut {
            landed: Landed::Reaped { write: first.write, copies: copies.len(), token },
            content: ContentId::new(self.ids.fresh()),
            md5: digests.md5,
            sha256: Some(digests.sha256),
            dedup: self.dedup_bucket(first),
            row: PutRow {
                bucket: first.bucket,
                key: first.key.clone(),
                version: VersionId::new(self.ids.fresh()),
                size_bytes: first.size_bytes,
                etag: ETag::of_whole(digests.md5),
                checksum: digests.checksum,
                attributes,
                expiry,
            },
            condition,
            is_first: false,
        };
        let resolving = self.metrics.resolving(first.write, Resolution::Promoted.as_str());
        let committed = self.objects.commit_put(commit).await;
        answered(resolving, committed.as_ref().map(|_| true));
        match committed {
            Ok(_) => Ok(Some(Resolution::Promoted)),
            Err(CatalogError::Guard(Verdict::Fenced)) => Ok(None),
            Err(CatalogError::Guard(verdict)) => self.abandon(token, first, refusal(verdict)).await,
            Err(error) => Err(error.into()),
        }
    }

    /// The bucket of a write, where it keeps equal content once.
    fn dedup_bucket(&self, write: &Expired) -> Option<BucketId> {
        let name = write.bucket_name.as_ref()?.parse().ok()?;
        self.configured.of(&name).dedup.then_some(write.bucket)
    }

    async fn abandon(
        &self,
        token: ClaimToken,
        intent: &Expired,
        resolution: Resolution,
    ) -> Result<Option<Resolution>, Error> {
        let resolving = self.metrics.resolving(intent.write, resolution.as_str());
        let abandoned = self.intents.abandon(token, intent.write, self.settings.late_write_window).await;
        answered(resolving, abandoned.as_ref().copied());
        Ok(abandoned?.then_some(resolution))
    }
}

/// Counts a resolution that the catalog did. What it did without an answer is looked up later.
fn answered(resolving: Resolving<'_>, answer: Result<bool, &CatalogError>) {
    match answer {
        Ok(true) => resolving.done(),
        Err(CatalogError::Unknown(_)) => drop(resolving),
        Ok(false) | Err(_) => resolving.not_done(),
    }
}

fn compare(draft: &Draft, digests: &Digests) -> Look {
    match draft.declared.mismatch(digests.md5, digests.sha256, digests.checksum.as_ref()) {
        None => Look::Matches,
        Some(_) => Look::Differs("the bytes are not what was declared"),
    }
}

/// Why a write whose bytes are as they should be is not finished.
const fn refusal(verdict: Verdict) -> Resolution {
    match verdict {
        Verdict::Superseded => Resolution::Superseded,
        Verdict::Past => Resolution::Dropped("it would have expired by now"),
        Verdict::PreconditionFailed => Resolution::Dropped("its condition does not hold any more"),
        _ => Resolution::Dropped("the bucket is gone"),
    }
}
