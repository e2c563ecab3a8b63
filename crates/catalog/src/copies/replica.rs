//! Another copy of existing content: announced by an intent, written, and added to the content in one transaction. A
//! move also releases the copy that it replaces in that transaction.
//!
//! The intent is no reference. Content that is deleted meanwhile is condemned at once, and the new bytes become a
//! cleanup.

use std::sync::LazyLock;
use std::time::Duration;

use s3o_model::cleanup::Reason;
use s3o_model::clock::{Timestamp, millis_of};
use s3o_model::content::Location;
use s3o_model::ids::{ContentId, InstanceId, IntentId, WriteId};
use s3o_model::names::BackendName;

use super::moves::{ReplacedCopy, ReplicaSource, TARGET_COUNTS};
use super::work::settle;
use super::{confirm, missing_copies};
use crate::cleanups::enqueue::{enqueue_after_grace, enqueue_cleanups};
use crate::error::{Error, Verdict};
use crate::intents::RESERVE;
use crate::quotas::{Counter, lock_quota_rows, move_bytes, share_anew, stripe_for};
use crate::stored_bytes::TAKES_WRITES;
use crate::unit::{LockRank, Unit};
use crate::{Catalog, params};

/// A copy that is about to be written.
#[derive(Debug, Clone)]
pub struct StageReplica {
    /// Identifier of the intent, also part of the physical key.
    pub intent: IntentId,
    /// Identifier of the write; a copy is a write of its own.
    pub write: WriteId,
    /// The content of which another copy is written.
    pub content: ContentId,
    /// Backend and physical key of the new copy.
    pub target: Location,
    /// Size of the content.
    pub size_bytes: u64,
    /// Why the copy is written.
    pub reason: Reason,
    /// The process that writes it.
    pub owner: InstanceId,
    /// How long the intent holds without renewal.
    pub lease: Duration,
}

/// A copy that was written and compared with the digest of its content.
#[derive(Debug, Clone)]
pub struct Replica {
    /// Intent of the copy.
    pub intent: IntentId,
    /// Fails as `ResolveAgain` if it was condemned meanwhile.
    pub content: ContentId,
    /// Backend of the new copy.
    pub backend: BackendName,
    /// Version ID that the backend returned.
    pub backend_version: Option<String>,
    /// The copy that was read. Its bytes had the right digest, so it is present and verified.
    pub source: Location,
    /// By the clock of the catalog: the source was opened then or later.
    pub read_since: Timestamp,
    /// What becomes of the copy that this one replaces.
    pub replaces: ReplicaSource,
}

const STAGE: &str = "INSERT INTO pending_objects \
     (id, write_id, kind, bucket_id, key, backend_name, physical_key, size_bytes, stripe, owner, lease_until, \
      created_at, copy_content_id, copy_reason) \
     SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), 'copy', 0, '', CAST($3 AS TEXT), CAST($4 AS TEXT), \
     CAST($5 AS BIGINT), CAST($6 AS BIGINT), CAST($7 AS TEXT), :now + $8, :now, id, CAST($10 AS TEXT) \
     FROM contents WHERE id = $9 AND state = 'live' ON CONFLICT DO NOTHING RETURNING lease_until";

/// Returns a row if content `$1` needs a copy on backend `$2`: it has too few, none that is present there, and a copy
/// there would count.
static NEEDED: LazyLock<String> = LazyLock::new(|| {
    let missing = missing_copies("$1");
    format!("SELECT name FROM backends WHERE {TARGET_COUNTS} AND {missing} > 0")
});

static LOCK_QUOTAS: LazyLock<String> = LazyLock::new(|| {
    lock_quota_rows(
        "object_locations WHERE content_id = $1 \
         UNION ALL SELECT backend_name, stripe FROM pending_objects WHERE id = $2",
    )
});

/// Turns a bad copy of content `$1` on backend `$2` into a cleanup, because the new copy takes its place.
static REPLACE_BAD: LazyLock<[String; 3]> = LazyLock::new(|| {
    let replaced = "object_locations WHERE content_id = $1 AND backend_name = $2 AND state <> 'present'";
    [
        enqueue_cleanups(replaced, "'replication'", None),
        move_bytes(Counter::Used, Some(Counter::Orphan), replaced),
        format!("DELETE FROM {replaced}"),
    ]
});

/// Makes the bytes of intent `$1` a copy of content `$2`, with the version ID `$3`.
static ADD: LazyLock<[String; 3]> = LazyLock::new(|| {
    [
        "INSERT INTO object_locations \
         (content_id, backend_name, physical_key, backend_version, size_bytes, stripe, state, verified_at) \
         SELECT $2, backend_name, physical_key, CAST($3 AS TEXT), size_bytes, stripe, 'present', created_at \
         FROM pending_objects WHERE id = $1"
            .to_owned(),
        move_bytes(Counter::Reserved, Some(Counter::Used), "pending_objects WHERE id = $1"),
        "DELETE FROM pending_objects WHERE id = $1".to_owned(),
    ]
});

/// The statements that turn one copy of live content into a cleanup, due after a grace for its readers.
pub(super) struct ReleaseCopy([String; 3]);

/// The copy of content `$1` at `$2`, `$3`; `$4` is the grace in milliseconds, `$5` the reason.
pub(super) static RELEASE_COPY: LazyLock<ReleaseCopy> = LazyLock::new(|| {
    let released = "object_locations WHERE content_id = $1 AND backend_name = $2 AND physical_key = $3";
    ReleaseCopy([
        enqueue_after_grace(released, "$5", "$4"),
        move_bytes(Counter::Used, Some(Counter::Orphan), released),
        format!("DELETE FROM {released}"),
    ])
});

impl ReleaseCopy {
    /// Adds the statements for a unit that has locked the content and the quota rows of its copies.
    pub(super) fn run(
        &'static self,
        unit: &mut Unit,
        content: ContentId,
        copy: &Location,
        (grace, reason): (Duration, Reason),
    ) {
        let Location { backend, physical_key, .. } = copy;
        let values = params![content, backend, physical_key.as_str(), millis_of(grace), reason.as_str()];
        for sql in &self.0 {
            unit.run(sql, values.clone());
        }
    }
}

impl Catalog {
    /// Announces another copy of live content and reserves its bytes; the end of the lease is returned. Fails as
    /// `NotNeeded` if the content is gone or a copy of it is being written there, `Closed` or `NoSpace` for a backend
    /// that refuses.
    pub async fn stage_replica(&self, stage: &StageReplica) -> Result<Timestamp, Error> {
        match self.stage_replica_with(stage, false).await {
            Err(Error::Guard(Verdict::NoSpace))
                if self.has_capacity(&stage.target.backend, stage.size_bytes).await? =>
            {
                self.stage_replica_with(stage, true).await
            }
            done => done,
        }
    }

    async fn stage_replica_with(&self, stage: &StageReplica, shares_anew: bool) -> Result<Timestamp, Error> {
        let StageReplica { intent, write, content, target, size_bytes, reason, owner, lease } = stage;
        let stripe = stripe_for(*intent, self.driver.stripes());
        let mut unit = Unit::new("stage_replica");
        unit.at(LockRank::Backend).one(TAKES_WRITES, params![&target.backend], Verdict::Closed);
        let mut values = params![*intent, *write, &target.backend, target.physical_key.as_str(), *size_bytes, stripe];
        values.extend(params![*owner, millis_of(*lease), *content, reason.as_str()]);
        let staged = unit.one(STAGE, values, Verdict::NotNeeded);
        if shares_anew {
            share_anew(&mut unit, &target.backend, stripe, *size_bytes);
        }
        unit.at(LockRank::Quota).one(RESERVE, params![&target.backend, *size_bytes, stripe], Verdict::NoSpace);
        self.write(unit).await?[staged].rows[0].time("lease_until")
    }

    /// True if a copy of this content is being written to this backend.
    pub async fn is_copy_announced(&self, content: ContentId, backend: &BackendName) -> Result<bool, Error> {
        const ANNOUNCED: &str = "SELECT id FROM pending_objects WHERE copy_content_id = $1 AND backend_name = $2";
        Ok(!self.read(ANNOUNCED, params![content, backend]).await?.is_empty())
    }

    /// Adds a written copy to its content, if the content still needs it. Fails as `Fenced` if the intent is no longer
    /// held, `ResolveAgain` if the content was condemned, `NotNeeded` if it has enough copies or the target does not
    /// count.
    pub async fn commit_replica(&self, replica: &Replica) -> Result<(), Error> {
        let Replica { intent, content, backend, backend_version, source, read_since, replaces } = replica;
        let mut unit = Unit::new("commit_replica");
        unit.at(LockRank::Intent).one(
            "SELECT id FROM pending_objects WHERE id = $1 AND state = 'open' /*lock*/",
            params![*intent],
            Verdict::Fenced,
        );
        unit.at(LockRank::Content).one(
            "SELECT id FROM contents WHERE id = $1 AND state = 'live' /*lock*/",
            params![*content],
            Verdict::ResolveAgain,
        );
        confirm(&mut unit, *content, source, *read_since);
        match replaces {
            ReplicaSource::Nothing => {
                unit.one(&NEEDED, params![*content, backend], Verdict::NotNeeded);
            }
            ReplicaSource::Drained(_) | ReplicaSource::Rebalanced(_) => {
                replaces.guard_move(&mut unit, *content, backend);
            }
        }
        unit.lock(LockRank::Quota, &LOCK_QUOTAS, params![*content, *intent]);
        for sql in REPLACE_BAD.iter() {
            unit.run(sql, params![*content, backend]);
        }
        for sql in ADD.iter() {
            unit.run(sql, params![*intent, *content, backend_version.as_ref()]);
        }
        if let Some(ReplacedCopy { copy, grace }) = replaces.replaced() {
            RELEASE_COPY.run(&mut unit, *content, copy, (*grace, replaces.reason()));
        }
        settle(&mut unit, *content);
        self.write(unit).await.map(drop)
    }
}
