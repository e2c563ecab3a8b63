//! Ends writes: counts committed ones, and carries out the decision of [`end_of_write`] for failed ones.

use s3o_catalog::{Error as CatalogError, Late, Verdict};
use s3o_model::clock::Timestamp;
use s3o_model::ids::WriteId;
use s3o_model::intent::lease_holds;
use s3o_model::write_outcome::{
    BytesHeld, CommitFate, CountedEnd, DropAnswer, LeftBytes, WriteEnd, WriteFailure, end_of_write, must_drop_intents,
};

use super::{CopyResult, HeldBy, Staged, WriteCopy, WrittenBytes};
use crate::leases::Lease;
use crate::{Engine, Error};

/// A write that was not committed.
pub(super) struct FailedWrite<'a> {
    pub(super) write: WriteId,
    pub(super) leases: Vec<&'a Lease>,
    /// Empty if the write only pins content.
    pub(super) copies: &'a [WriteCopy],
}

impl<'a> FailedWrite<'a> {
    /// A write with at least one copy.
    pub(super) fn of(copies: &'a [WriteCopy]) -> Self {
        let leases = copies.iter().map(|copy| &copy.staged.lease).collect();
        Self { write: copies[0].staged.write, leases, copies }
    }

    fn held(&self) -> BytesHeld {
        match self.copies.first() {
            None => BytesHeld::Pinned,
            Some(copy) if copy.staged.announced => BytesHeld::Announced,
            Some(_) => BytesHeld::Unannounced,
        }
    }

    /// Whether bytes of any copy may still arrive.
    fn late(&self) -> Late {
        self.copies.iter().map(WriteCopy::late).find(|late| *late != Late::No).unwrap_or_default()
    }

    /// When the first lease ends: from then on the reaper may claim all intents of the write.
    fn held_until(&self) -> Timestamp {
        let ends = self.leases.iter().map(|lease| lease.until());
        ends.min().unwrap_or(Timestamp::from_millis(0))
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
            HeldBy::Copies(copies) => FailedWrite::of(copies),
            HeldBy::Pinned(pinned) => pinned.failed(),
        };
        let end = self.end_failed(&write, failure_of(&error)).await;
        if let (LeftBytes::Report, CatalogError::Unknown(why)) = (end.bytes, &error) {
            for copy in write.copies {
                self.report_orphan(&copy.staged, why.as_str());
            }
        }
        answer_of(end.fate, done, error)
    }

    /// Ends another copy of existing content whose commit failed; `Ok` if it turns out to be committed.
    pub(crate) async fn end_uncommitted_copy(&self, copies: &[WriteCopy; 1], error: CatalogError) -> Result<(), Error> {
        let end = self.end_failed(&FailedWrite::of(copies), failure_of(&error)).await;
        answer_of(end.fate, (), error)
    }

    /// Ends another copy of existing content that was not written.
    pub(crate) async fn drop_replica(&self, staged: Staged, result: CopyResult) {
        let copies = [WriteCopy { staged, result }];
        self.end_failed(&FailedWrite::of(&copies), WriteFailure::NotCommitted).await;
    }

    /// Ends a failed write: its intents become cleanups. If the catalog does not answer, the lease expires and the
    /// reaper resolves the intents.
    pub(super) async fn end_failed(&self, write: &FailedWrite<'_>, failure: WriteFailure) -> WriteEnd {
        let held = write.held();
        let must_drop = must_drop_intents(held, failure);
        let dropped = if must_drop { Some(self.drop_intents(write).await) } else { None };
        let end = end_of_write(held, failure, dropped);
        match end.counted {
            CountedEnd::Uncounted => {}
            CountedEnd::Dropped => self.metrics.ended(write.write, "dropped"),
            CountedEnd::Committed => self.metrics.ended(write.write, "committed"),
            CountedEnd::ByReaper => self.metrics.fenced(write.write),
            CountedEnd::DroppedInDoubt => self.metrics.in_doubt(write.write, "dropped"),
            CountedEnd::CommittedInDoubt => self.metrics.in_doubt(write.write, "committed"),
        }
        if end.bytes == LeftBytes::Requeue {
            for copy in write.copies {
                self.requeue(copy).await;
            }
        }
        self.wake_cleanup();
        end
    }

    async fn drop_intents(&self, write: &FailedWrite<'_>) -> DropAnswer {
        match self.catalog.drop_write(write.write, write.late()).await {
            Ok(dropped) if dropped.was_open => DropAnswer::WereOpen,
            Ok(dropped) if lease_holds(write.held_until(), self.settings().lease, dropped.now) => {
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
        if let Some(write) = written.announced() {
            self.metrics.ended(write, "committed");
        }
    }
}
