//! Ends writes: counts committed ones, and carries out the decision of [`end_of_write`] for failed ones.

use s3o_catalog::{Ended, Error as CatalogError, Late, Verdict};
use s3o_model::ids::WriteId;
use s3o_model::intent::lease_holds;
use s3o_model::write_outcome::{
    BytesHeld, CommitFate, CountedEnd, DropAnswer, LeftBytes, WriteEnd, WriteFailure, end_of_write, must_drop_intents,
};

use super::{HeldBy, Staged, WrittenBytes};
use crate::leases::Lease;
use crate::{Engine, Error};

/// A write that was not committed.
pub(super) struct FailedWrite<'a> {
    pub(super) write: WriteId,
    pub(super) lease: &'a Lease,
    /// `None` if the write only pins content.
    pub(super) staged: Option<&'a Staged>,
}

impl FailedWrite<'_> {
    fn held(&self) -> BytesHeld {
        match self.staged {
            None => BytesHeld::Pinned,
            Some(staged) if staged.announced => BytesHeld::Announced,
            Some(_) => BytesHeld::Unannounced,
        }
    }
}

impl Staged {
    pub(super) fn failed(&self) -> FailedWrite<'_> {
        FailedWrite { write: self.intent.write, lease: &self.lease, staged: Some(self) }
    }
}

/// The answer to the client of a commit that failed with this error.
fn answer_of<T>(fate: CommitFate, done: T, error: CatalogError) -> Result<T, Error> {
    match fate {
        CommitFate::Committed => Ok(done),
        CommitFate::NotCommitted => Err(error.into()),
        CommitFate::Fenced => Err(CatalogError::Guard(Verdict::Fenced).into()),
        CommitFate::PinnedCopyLost => {
            Err(Error::Away("the stored copy is no longer readable, send the body again".to_owned()))
        }
    }
}

fn failure_of(error: &CatalogError) -> WriteFailure {
    match error {
        CatalogError::Guard(Verdict::Fenced) => WriteFailure::Fenced,
        CatalogError::Guard(Verdict::ResolveAgain) => WriteFailure::PinnedCopyLost,
        CatalogError::Unknown(_) => WriteFailure::CommitUnknown,
        _ => WriteFailure::NotCommitted,
    }
}

impl Engine {
    /// Ends a write whose commit failed with this error. Returns `done` if the write turns out to be committed.
    pub(crate) async fn end_uncommitted<T>(
        &self,
        written: &WrittenBytes,
        done: T,
        error: CatalogError,
    ) -> Result<T, Error> {
        let write = match &written.held_by {
            HeldBy::Staged(staged) => staged.failed(),
            HeldBy::Pinned(pinned) => pinned.failed(),
        };
        let ended = Ended { backend_version: written.backend_version.clone(), ..Ended::default() };
        let end = self.end_failed(&write, failure_of(&error), ended).await;
        if let (LeftBytes::Report, Some(staged), CatalogError::Unknown(why)) = (end.bytes, write.staged, &error) {
            self.report_orphan(&staged.intent, &staged.bucket, why.as_str());
        }
        answer_of(end.fate, done, error)
    }

    /// Ends a failed write: its intents become cleanups. If the catalog does not answer, the lease expires and the
    /// reaper resolves the intents.
    pub(super) async fn end_failed(&self, write: &FailedWrite<'_>, failure: WriteFailure, ended: Ended) -> WriteEnd {
        let held = write.held();
        let must_drop = must_drop_intents(held, failure);
        let dropped = if must_drop { Some(self.drop_intents(write, ended.late).await) } else { None };
        let end = end_of_write(held, failure, dropped);
        match end.counted {
            CountedEnd::Uncounted => {}
            CountedEnd::Dropped => self.metrics.ended(write.write, "dropped"),
            CountedEnd::Committed => self.metrics.ended(write.write, "committed"),
            CountedEnd::ByReaper => self.metrics.fenced(write.write),
            CountedEnd::DroppedInDoubt => self.metrics.in_doubt(write.write, "dropped"),
            CountedEnd::CommittedInDoubt => self.metrics.in_doubt(write.write, "committed"),
        }
        if let (LeftBytes::Requeue, Some(staged)) = (end.bytes, write.staged) {
            self.requeue(staged, ended).await;
        }
        self.wake_cleanup();
        end
    }

    async fn drop_intents(&self, write: &FailedWrite<'_>, late: Late) -> DropAnswer {
        match self.catalog.drop_write(write.write, late).await {
            Ok(dropped) if dropped.was_open => DropAnswer::WereOpen,
            Ok(dropped) if lease_holds(write.lease.until(), self.settings().lease, dropped.now) => {
                DropAnswer::GoneWithinLease
            }
            Ok(_) => DropAnswer::Gone,
            Err(error) => {
                tracing::warn!(%error, write = %write.write, "intent not dropped, leaving it to pending_reaper");
                DropAnswer::Unanswered
            }
        }
    }

    pub(crate) fn count_committed(&self, written: &WrittenBytes) {
        match &written.held_by {
            HeldBy::Staged(staged) if !staged.announced => {}
            HeldBy::Staged(staged) => self.metrics.ended(staged.intent.write, "committed"),
            HeldBy::Pinned(pinned) => self.metrics.ended(pinned.write(), "committed"),
        }
    }
}
