//! Adds a written copy to its content. A move first proves that the new copy is where it should be.

use s3o_backend::{Error as BackendError, Written};
use s3o_catalog::{CopyWork, Error as CatalogError, Replica, ReplicaSource, Verdict};
use s3o_model::content::Location;
use s3o_model::copy_check::CopyState;

use super::CopyOutcome;
use crate::Engine;
use crate::write::{CopyResult, Staged, WriteCopy};

impl Engine {
    /// Commits a copy that was read from `source`. A move whose reason no longer holds is committed as a plain copy, if
    /// the content lacks one. A move whose target could not be proven adds nothing: a copy that its backend lacks would
    /// count.
    pub(super) async fn commit_replica(
        &self,
        work: &CopyWork,
        staged: Staged,
        (source, written): (&Location, Written),
        replaces: &ReplicaSource,
    ) -> CopyOutcome {
        let (target, is_move) = (staged.stored_as(&written), replaces.replaced().is_some());
        if is_move && !self.is_proven(&target, work.size_bytes).await {
            let unproven = BackendError::Unknown("the new copy could not be verified on its backend".to_owned());
            return self.failed_transfer(work, source, staged, unproven).await;
        }
        let mut replica = Replica {
            intent: staged.id,
            content: work.content,
            backend: target.backend.clone(),
            backend_version: written.version_id.clone(),
            source: source.clone(),
            read_since: work.read_at,
            replaces: replaces.clone(),
        };
        let mut committed = self.catalog.commit_replica(&replica).await;
        if is_move && matches!(committed, Err(CatalogError::Guard(Verdict::NotNeeded))) {
            replica.replaces = ReplicaSource::Nothing;
            committed = self.catalog.commit_replica(&replica).await;
        }
        let added = |location| match replica.replaces {
            ReplicaSource::Nothing => CopyOutcome::Copied(location),
            ReplicaSource::Drained(_) | ReplicaSource::Rebalanced(_) => CopyOutcome::Moved(location),
        };
        if let Err(error) = committed {
            let refused = self.end_refused(work, staged, (source, written), error).await;
            return refused.unwrap_or_else(|| added(target));
        }
        self.metrics.ended(staged.write, "committed");
        added(target)
    }

    /// Whether a copy that was just written is on the right store: it is probed, and the identity of its backend is
    /// read after that. Nothing else could tell that the store was exchanged during the write.
    async fn is_proven(&self, copy: &Location, size_bytes: u64) -> bool {
        let checker = &self.sharing.checker;
        let proven = checker.check_copy(copy, size_bytes).await == CopyState::Good
            && checker.has_right_identity(&copy.backend).await;
        if !proven {
            let Location { backend, physical_key, .. } = copy;
            tracing::info!(%backend, physical_key, "new copy not verified, keeping the copy that it was to replace");
        }
        proven
    }

    /// Ends a copy whose commit failed; `None` if it turns out to be committed.
    async fn end_refused(
        &self,
        work: &CopyWork,
        staged: Staged,
        (source, written): (&Location, Written),
        error: CatalogError,
    ) -> Option<CopyOutcome> {
        let stored = CopyResult::Stored { backend_version: written.version_id };
        let verdict = error.verdict();
        let copies = [WriteCopy { staged, result: stored }];
        let ended = self.end_uncommitted_copy(&copies, error).await;
        let Err(failed) = ended else { return None };
        if !matches!(verdict, Some(Verdict::NotNeeded | Verdict::ResolveAgain)) {
            return Some(CopyOutcome::Failed(failed.to_string()));
        }
        // The source was read and is good: a suspect one counts again.
        Some(match self.catalog.confirm_copy(work.content, source, work.read_at).await {
            Ok(()) => CopyOutcome::NotNeeded,
            Err(error) => CopyOutcome::Failed(error.to_string()),
        })
    }
}
