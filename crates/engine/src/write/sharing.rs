//! Decides to share content: looks up content with the same digest, checks its copies, plans and commits. If the plan
//! no longer holds, it plans again. Each catalog call is one transaction; the checks happen between them.

use std::sync::Arc;

use s3o_backend::fleet::Fleet;
use s3o_catalog::{Catalog, CommitPart, CommitPut, Committed, ContentPlan, Error as CatalogError, PartSource, Verdict};
use s3o_model::clock::Timestamp;
use s3o_model::copy_check::CopyState;
use s3o_model::etag::Sha256;
use s3o_model::ids::{BucketId, ContentId};

use crate::copy_checker::CopyChecker;

/// Maximum number of plans for one commit. Other writes may create or condemn the content each time; after that, the
/// bytes become content of their own.
const ATTEMPTS_MAX: usize = 16;
/// The factor of a commit that is planned again: it may be higher than configured here, so that the missing copies are
/// always noted.
const ANY_FACTOR: usize = usize::MAX;

/// Commits written bytes, and shares content if the bucket deduplicates. Clones share the catalog and the fleet.
#[derive(Clone)]
pub struct ContentSharing {
    pub(crate) checker: CopyChecker,
}

impl ContentSharing {
    /// Commits to `catalog` and checks copies on the backends of `fleet`.
    #[must_use]
    pub fn new(catalog: Arc<Catalog>, fleet: Arc<Fleet>) -> Self {
        Self { checker: CopyChecker { catalog, fleet } }
    }

    /// Commits an object. With the plan `Fresh` and a bucket, the object may share content of that bucket. Errors are
    /// those of [`s3o_catalog::Catalog::commit_put`], but `ResolveAgain` occurs only if the plan is `Pinned`.
    /// At least `needed` copies of shared content are checked.
    pub async fn commit_put(&self, mut put: CommitPut, needed: usize) -> Result<Committed, CatalogError> {
        let wanted = put.plan;
        for _ in 0..ATTEMPTS_MAX {
            put.plan = self.plan(wanted, put.sha256, put.row.size_bytes, needed).await?;
            match self.checker.catalog.commit_put(&put).await {
                // Another write took the key, or it holds an expired object.
                Err(CatalogError::Guard(Verdict::RunAgain)) => put.is_first = false,
                Err(error) if may_plan_again(wanted, &error) => put.factor = ANY_FACTOR,
                done => return done,
            }
        }
        (put.plan, put.is_first) = (ContentPlan::Fresh(None), false);
        self.checker.catalog.commit_put(&put).await
    }

    /// Commits a part; the plan of a written part has the same meaning as for an object.
    pub(crate) async fn commit_part(&self, mut part: CommitPart, needed: usize) -> Result<Timestamp, CatalogError> {
        let PartSource::Written { sha256, plan: wanted, .. } = part.source else {
            return self.checker.catalog.commit_part(&part).await;
        };
        for _ in 0..ATTEMPTS_MAX {
            part.set_plan(self.plan(wanted, sha256, part.length, needed).await?);
            match self.checker.catalog.commit_part(&part).await {
                Err(error) if may_plan_again(wanted, &error) => part.factor = ANY_FACTOR,
                done => return done,
            }
        }
        part.set_plan(ContentPlan::Fresh(None));
        self.checker.catalog.commit_part(&part).await
    }

    /// Content of the bucket with this digest and as many copies that were just checked; `None` if there is none.
    pub(super) async fn content_to_pin(
        &self,
        bucket: BucketId,
        sha256: Sha256,
        size_bytes: u64,
        copies: usize,
    ) -> Result<Option<ContentId>, CatalogError> {
        let known = self.checker.catalog.known_content(bucket, sha256, size_bytes).await?;
        let Some(known) = known else { return Ok(None) };
        let state = self.checker.check_content(&known, size_bytes, copies).await?;
        Ok((state == CopyState::Good).then_some(known.content))
    }

    /// The plan for the content that the bucket has now.
    async fn plan(
        &self,
        wanted: ContentPlan,
        sha256: Option<Sha256>,
        size_bytes: u64,
        needed: usize,
    ) -> Result<ContentPlan, CatalogError> {
        let (ContentPlan::Fresh(Some(bucket)), Some(sha256)) = (wanted, sha256) else { return Ok(wanted) };
        let known = self.checker.catalog.known_content(bucket, sha256, size_bytes).await?;
        let Some(known) = known else { return Ok(wanted) };
        Ok(match self.checker.check_content(&known, size_bytes, needed).await? {
            CopyState::Good | CopyState::Bad => ContentPlan::Joined(known.content),
            // Bytes that were just stored must not depend on copies that may be lost.
            CopyState::Unclear => ContentPlan::Fresh(None),
        })
    }
}

/// True if the content was created or condemned meanwhile. A pinned write cannot be planned again: its body was not
/// stored.
fn may_plan_again(wanted: ContentPlan, error: &CatalogError) -> bool {
    error.verdict() == Some(Verdict::ResolveAgain) && !matches!(wanted, ContentPlan::Pinned(_))
}
