//! Trash: objects that were deleted by prefix, kept with all attributes until their retention ends.
//!
//! An operation on a prefix is a row with a cut-off, executed in steps of one unit each. The instance that works on it
//! holds a token with a lease; after the lease another instance continues at the same position. A row in trash is a
//! reference to its content, so the bytes stay where they are and stay counted.

mod operations;
mod purge;
mod remove;
mod restore;

use std::time::Duration;

use s3o_model::clock::Timestamp;
use s3o_model::ids::{BucketId, ClaimToken, PrefixOperationId};

use crate::error::{Error, Verdict};
use crate::unit::{LockRank, Row, Unit, Value};
use crate::{Catalog, params};

pub use purge::{PurgedObject, TrashEnd};

/// What an operation does with the keys of its prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrefixOperationKind {
    /// Moves objects to trash.
    Rm,
    /// Moves the newest version of each key from trash back to its key, unless the key has an object.
    Restore,
    /// Deletes what is in trash; touches no object.
    Purge,
}

/// An operation that is about to begin.
#[derive(Debug, Clone, Copy)]
pub struct BeginPrefixOperation<'a> {
    /// Identifies the operation.
    pub id: PrefixOperationId,
    /// Decides what becomes of the keys.
    pub kind: PrefixOperationKind,
    /// Fails as `NoSuchBucket` if it does not exist.
    pub bucket: BucketId,
    /// Keys that start with these bytes; empty for all keys.
    pub prefix: &'a str,
    /// How long objects that it moves to trash are kept at least.
    pub retention: Duration,
    /// Held by the caller.
    pub token: ClaimToken,
    /// After this time without a step, another instance may take over.
    pub lease: Duration,
}

/// An operation that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefixOperation {
    /// Identifier, as operators see it.
    pub id: PrefixOperationId,
    /// Decides what becomes of the keys.
    pub kind: PrefixOperationKind,
    /// Bucket of the keys.
    pub bucket: BucketId,
    /// Name of the bucket; empty if the bucket was deleted meanwhile.
    pub bucket_name: String,
    /// Keys that start with these bytes.
    pub prefix: String,
    /// When it began.
    pub started_at: Timestamp,
    /// What it has done so far.
    pub counts: PrefixCounts,
    range_end: String,
    cutoff: i64,
    retention: i64,
    position: String,
    token: ClaimToken,
}

/// Results of an operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PrefixCounts {
    /// Objects that were moved to trash, restored or purged.
    pub objects: u64,
    /// Sum of their lengths.
    pub bytes: u64,
    /// Keys that were not restored because they have an object, also an expired one that was not removed yet.
    pub existing: u64,
    /// Keys that were not restored because their newest version has expired, or expired objects moved to trash.
    pub expired: u64,
}

/// Result of one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefixStep {
    /// True if this was the last step: the operation has ended.
    pub is_last: bool,
    /// What the operation has done so far.
    pub counts: PrefixCounts,
    /// The objects that this step deleted from trash.
    pub purged: Vec<PurgedObject>,
}

impl PrefixOperationKind {
    /// Value in the catalog and in the admin API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rm => "rm",
            Self::Restore => "restore",
            Self::Purge => "purge",
        }
    }
}

impl std::str::FromStr for PrefixOperationKind {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::Rm, Self::Restore, Self::Purge].into_iter().find(|kind| kind.as_str() == text).ok_or(())
    }
}

impl PrefixOperation {
    /// The keys that this step works on: from the position up to the next one, or to the end of the range.
    fn span(&self, next: Option<&String>) -> Vec<Value> {
        params![self.bucket, &self.position, next.unwrap_or(&self.range_end)]
    }
}

fn counts_of(row: &Row) -> Result<PrefixCounts, Error> {
    Ok(PrefixCounts {
        objects: row.size("objects")?,
        bytes: row.size("bytes")?,
        existing: row.size("existing")?,
        expired: row.size("expired")?,
    })
}

/// Locks the intents of the keys from `$2` up to `$3` of bucket `$1`.
const LOCK_INTENTS_OF_SPAN: &str = "SELECT id FROM pending_objects WHERE bucket_id = $1 AND key >= $2 AND key < $3 \
     ORDER BY id /*lock*/";

/// A crashed write that began before this step must not appear after it, also at a key without a row.
const SUPERSEDE_SPAN: &str = "UPDATE pending_objects SET superseded = 1 \
     WHERE bucket_id = $1 AND key >= $2 AND key < $3 AND superseded = 0";

impl Catalog {
    /// Begins an operation. Fails as `Overlaps` if another one works on keys of the prefix.
    pub async fn begin_prefix_operation(&self, begin: &BeginPrefixOperation<'_>) -> Result<PrefixOperation, Error> {
        operations::begin(self, begin).await
    }

    /// The operations that have not ended and work on keys of this prefix, oldest first.
    pub async fn overlapping_operations(&self, bucket: BucketId, prefix: &str) -> Result<Vec<PrefixOperation>, Error> {
        operations::overlapping(self, bucket, prefix).await
    }

    /// All operations that have not ended, oldest first.
    pub async fn prefix_operations(&self) -> Result<Vec<PrefixOperation>, Error> {
        operations::all(self).await
    }

    /// Takes over an operation whose lease has ended; `None` if there is none.
    pub async fn take_over_prefix_operation(
        &self,
        token: ClaimToken,
        lease: Duration,
    ) -> Result<Option<PrefixOperation>, Error> {
        operations::take_over(self, token, lease).await
    }

    /// Runs the next step of an operation and extends its lease. Fails as `Fenced` if another instance has taken it
    /// over or it has ended, `NoSuchBucket` if the bucket was deleted.
    pub async fn step_prefix_operation(
        &self,
        operation: &mut PrefixOperation,
        token: ClaimToken,
        lease: Duration,
    ) -> Result<PrefixStep, Error> {
        let next = match operation.kind {
            PrefixOperationKind::Rm => self.first_key_after_page(remove::PAGE_END, operation).await?,
            PrefixOperationKind::Restore => self.first_key_after_page(restore::PAGE_END, operation).await?,
            PrefixOperationKind::Purge => self.first_key_after_page(purge::PAGE_END, operation).await?,
        };
        let mut unit = Unit::new(operation.kind.unit_name());
        let held = params![operation.id, operation.token, &operation.position];
        unit.at(LockRank::Operation).one(operations::HELD, held, Verdict::Fenced);
        let span = operation.span(next.as_ref());
        let purged = match operation.kind {
            PrefixOperationKind::Rm => {
                remove::add(&mut unit, operation, span, token);
                None
            }
            PrefixOperationKind::Restore => {
                restore::add(&mut unit, operation, span, token);
                None
            }
            PrefixOperationKind::Purge => Some(purge::add(&mut unit, operation, span, token)),
        };
        let advanced = operations::advance(&mut unit, operation, next.as_deref(), lease);
        let answers = self.write(unit).await?;
        let row = answers[advanced].rows.first().ok_or(Error::Guard(Verdict::Fenced))?;
        let counts = counts_of(row)?;
        let purged =
            purged.map(|index| answers[index].rows.iter().map(purge::purged).collect::<Result<Vec<_>, Error>>());
        let purged = purged.transpose()?.unwrap_or_default();
        let is_last = next.is_none();
        operation.position = next.unwrap_or_default();
        Ok(PrefixStep { is_last, counts, purged })
    }

    /// Ends an operation that cannot continue; its steps so far stay.
    pub async fn abandon_prefix_operation(&self, operation: &PrefixOperation) -> Result<(), Error> {
        operations::abandon(self, operation).await
    }

    /// Lets another instance continue an operation at once.
    pub async fn release_prefix_operation(&self, operation: &PrefixOperation) -> Result<(), Error> {
        operations::release(self, operation).await
    }

    /// Deletes up to `limit` objects from trash that are due for this reason. Also returns whether more may be due.
    pub async fn end_trash(
        &self,
        end: TrashEnd,
        limit: usize,
        token: ClaimToken,
    ) -> Result<(Vec<PurgedObject>, bool), Error> {
        purge::end(self, end, limit.min(self.driver.moved_rows_max()), token).await
    }

    /// Inserts a finding about the first object that is due for this reason, since its deletion fails, and skips it
    /// from now on. A purge of its prefix tries again.
    pub async fn skip_trash(&self, end: TrashEnd, why: &str, token: ClaimToken) -> Result<(), Error> {
        purge::skip(self, end, why, token).await
    }
}

impl Catalog {
    /// The first key that the next step leaves to later ones; `None` if it is the last step.
    async fn first_key_after_page(
        &self,
        sql: &'static str,
        operation: &PrefixOperation,
    ) -> Result<Option<String>, Error> {
        let mut values = operation.span(None);
        values.extend(params![self.driver.moved_rows_max()]);
        self.read(sql, values).await?.first().map(|row| row.string("key")).transpose()
    }
}

impl PrefixOperationKind {
    const fn unit_name(self) -> &'static str {
        match self {
            Self::Rm => "move_to_trash",
            Self::Restore => "restore_from_trash",
            Self::Purge => "purge_prefix",
        }
    }
}
