//! Intents: inserted before bytes are written, renewed during the write, and turned into cleanups when it is
//! abandoned.

mod expired;
mod pins;

use std::time::Duration;

use s3o_model::cleanup::{BackendUpload, Reason};
use s3o_model::clock::{Timestamp, millis_of};
use s3o_model::content::Location;
use s3o_model::ids::{ClaimToken, InstanceId, IntentId, WriteId};
use s3o_model::intent::{Expired, Intent, IntentKind};

pub use pins::Pin;

use crate::error::{Error, Verdict};
use crate::low_water::Queue;
use crate::objects::BUCKET_STANDS;
use crate::quotas::{share_anew, stripe_for};
use crate::stored_bytes::TAKES_WRITES;
use crate::unit::{LockRank, Unit, json};
use crate::{Catalog, params};

/// An intent to insert, for one copy of a write.
#[derive(Debug, Clone)]
pub struct Stage {
    /// The row to insert.
    pub intent: Intent,
    /// The process that writes, for operators.
    pub owner: InstanceId,
    /// How long the intent holds without renewal.
    pub lease: Duration,
}

/// A copy of a write that was not stored, or whose outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedCopy {
    /// Selects the row that becomes a cleanup.
    pub intent: IntentId,
    /// Whether its bytes may still arrive.
    pub late: Late,
}

/// Whether the bytes of an abandoned write may still arrive on their backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Late {
    /// They cannot: the backend answered, or was not called.
    #[default]
    No,
    /// They may, within this time; until then absence proves nothing.
    Within(Duration),
}

/// What the writer knows of a write that ended after its intent was removed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ended {
    /// Version ID that the backend returned.
    pub backend_version: Option<String>,
    /// Backend upload that may remain.
    pub upload: BackendUpload,
    /// Whether its bytes may still arrive.
    pub late: Late,
}

/// What dropping a write found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropped {
    /// True if its intents were open: it is not committed and never will be.
    pub was_open: bool,
    /// The catalog's clock in that transaction. If the intents were gone before their lease ended, a commit removed
    /// them; later, the reaper may have.
    pub now: Timestamp,
}

impl Late {
    fn window(self) -> Option<i64> {
        match self {
            Self::No => None,
            Self::Within(window) => Some(millis_of(window)),
        }
    }
}

const STAGE: &str = "INSERT INTO pending_objects \
     (id, write_id, kind, bucket_id, key, upload_id, part_number, backend_name, physical_key, size_bytes, stripe, \
      owner, lease_until, created_at, draft) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $13, $11, :now + $12, :now, $14) RETURNING lease_until";

/// A stripe without a share has no limit.
pub(crate) const RESERVE: &str = "UPDATE backend_quotas SET reserved_bytes = reserved_bytes + $2 \
     WHERE backend_name = $1 AND stripe = $3 \
     AND (share_bytes IS NULL OR used_bytes + orphan_bytes + reserved_bytes + $2 <= share_bytes)";

const OPEN_UPLOAD: &str = "SELECT id FROM multipart_uploads \
     WHERE id = $1 AND bucket_id = $2 AND key = $3 AND state = 'open' /*share*/";

/// Locks the open intents of write `$1`.
pub(crate) const OPEN_OF_WRITE: &str =
    "SELECT id FROM pending_objects WHERE write_id = $1 AND state = 'open' ORDER BY id /*lock*/";

/// The catalog's time, and the earliest lease from `$1` on that has ended.
pub(crate) const ENDED_LEASE: &str = "SELECT :now AS now, (SELECT lease_until FROM pending_objects \
     WHERE lease_until >= $1 AND lease_until <= :now ORDER BY lease_until LIMIT 1) AS ended";

fn kind_columns(kind: IntentKind) -> (&'static str, Option<s3o_model::ids::UploadId>, Option<u32>) {
    match kind {
        IntentKind::Object => ("object", None, None),
        IntentKind::Part { upload, number } => ("part", Some(upload), Some(number)),
    }
}

/// Turns the intent of a failed copy into a cleanup.
pub(crate) fn enqueue_failed(unit: &mut Unit, copy: &FailedCopy) {
    expired::ONE_TO_CLEANUP.run(unit, params![copy.intent, copy.late.window()]);
}

impl Catalog {
    /// Inserts an intent and reserves its bytes, in one transaction; the end of the lease is returned. Fails as
    /// `NoSpace` or `Closed` for this backend, `NoSuchBucket`, `NoSuchUpload`.
    pub async fn stage(&self, stage: &Stage) -> Result<Timestamp, Error> {
        self.stage_further(stage, 0).await
    }

    /// Inserts a further intent of a write that has `held` open ones. Fails as `Fenced` if it has not: the reaper may
    /// have resolved the write, which must not begin again.
    pub async fn stage_further(&self, stage: &Stage, held: usize) -> Result<Timestamp, Error> {
        let intent = &stage.intent;
        let only = std::slice::from_ref(stage);
        let leases = match self.stage_with(only, held, false).await {
            // The stripe is full; other stripes may have free capacity.
            Err(Error::Guard(Verdict::NoSpace)) if self.has_capacity(&intent.backend, intent.size_bytes).await? => {
                self.stage_with(only, held, true).await
            }
            done => done,
        };
        Ok(leases?[0])
    }

    /// Inserts the intents of several copies of one write and reserves their bytes, in one transaction; the end of each
    /// lease is returned. Fails as `NoSpace` or `Closed` if one of the backends refuses: the caller stages the copies
    /// one by one to learn which one.
    pub async fn stage_copies(&self, stages: &[Stage]) -> Result<Vec<Timestamp>, Error> {
        self.stage_with(stages, 0, false).await
    }

    /// Announces a write whose bytes are already stored: the content is referred to until the write is committed or
    /// dropped. The end of the lease is returned. Fails as `ResolveAgain` if the content is condemned or has no good
    /// copy, `NoSuchBucket`, `NoSuchUpload`.
    pub async fn pin(&self, pin: &Pin) -> Result<Timestamp, Error> {
        pins::pin(self, pin).await
    }

    /// Renews leases; returns the intents that are still open, with the new end of each lease.
    pub async fn renew(&self, intents: &[IntentId], lease: Duration) -> Result<Vec<(IntentId, Timestamp)>, Error> {
        let list = json(&intents);
        let mut unit = Unit::new("renew");
        // In the order of commits, or renewals and commits deadlock.
        unit.at(LockRank::Intent).run(
            "SELECT id FROM pending_objects WHERE id IN TEXTS($1) AND state = 'open' ORDER BY id /*lock*/",
            params![&list],
        );
        let renewed = unit.run(
            "UPDATE pending_objects SET lease_until = :now + $2 \
             WHERE id IN TEXTS($1) AND state = 'open' RETURNING id, lease_until",
            params![&list, millis_of(lease)],
        );
        let answers = self.write(unit).await?;
        answers[renewed].rows.iter().map(|row| Ok((row.parse("id")?, row.time("lease_until")?))).collect()
    }

    /// Records a backend upload in its intent, before it is used. Fails as `Fenced`.
    pub async fn note_upload(&self, intent: IntentId, upload: &BackendUpload) -> Result<(), Error> {
        let mut unit = Unit::new("note_upload");
        unit.one(
            "UPDATE pending_objects SET backend_upload = $2 WHERE id = $1 AND state = 'open'",
            params![intent, upload.to_column()],
            Verdict::Fenced,
        );
        self.write(unit).await.map(drop)
    }

    /// Drops a write: its open intents become cleanups, and pinned content is released. It waits for a commit of the
    /// same write whose answer was lost, so the result shows whether that commit happened.
    pub async fn drop_write(&self, write: WriteId, late: Late) -> Result<Dropped, Error> {
        let mut unit = Unit::new("drop_write");
        let open = unit.at(LockRank::Intent).run(OPEN_OF_WRITE, params![write]);
        pins::OPEN.lock_and_release(&mut unit, &[write.into()], Reason::Dedup);
        expired::OPEN_TO_CLEANUPS.run(&mut unit, params![write, late.window()]);
        let clock = unit.run("SELECT :now AS now", vec![]);
        let answers = self.write(unit).await?;
        let now = answers[clock].rows[0].time("now")?;
        Ok(Dropped { was_open: !answers[open].rows.is_empty(), now })
    }

    /// Returns which of these writes still have intents, after waiting for transactions that are resolving one.
    pub async fn announced(&self, writes: &[WriteId]) -> Result<Vec<WriteId>, Error> {
        let mut unit = Unit::new("announced");
        let open = unit.at(LockRank::Intent).run(
            "SELECT write_id FROM pending_objects WHERE write_id IN TEXTS($1) ORDER BY id /*lock*/",
            params![json(&writes)],
        );
        self.write(unit).await?[open].rows.iter().map(|row| row.parse("write_id")).collect()
    }

    /// Queues the bytes of a fenced write for deletion again, now that the write has ended. Does nothing if a location
    /// names them, since the reaper promoted the write, or if the reaper still holds it.
    pub async fn requeue(&self, place: &Location, size_bytes: u64, ended: &Ended) -> Result<(), Error> {
        expired::requeue(self, place, size_bytes, ended).await
    }

    /// Fences intents whose lease expired and claims them for `hold`, at most `limit` writes, all copies of each. A
    /// claim that is not resolved in time passes to the next caller.
    pub async fn claim_expired(&self, token: ClaimToken, limit: usize, hold: Duration) -> Result<Vec<Expired>, Error> {
        expired::claim(self, token, limit, hold).await
    }

    /// Extends the claims that still carry the token.
    pub async fn hold_expired(&self, token: ClaimToken, hold: Duration) -> Result<(), Error> {
        expired::hold(self, token, hold).await
    }

    /// Turns a claimed write into cleanups that wait for late bytes for `late`, and releases pinned content; `false`
    /// if the claim was lost.
    pub async fn abandon(&self, token: ClaimToken, write: WriteId, late: Duration) -> Result<bool, Error> {
        expired::abandon(self, token, write, late).await
    }

    /// Frees a claimed write, to be claimed again after `rest`; `false` if the claim was lost.
    pub async fn postpone(&self, token: ClaimToken, write: WriteId, rest: Duration) -> Result<bool, Error> {
        expired::postpone(self, token, write, rest).await
    }

    /// Ends all leases and claims, at the start of the only process that uses the catalog: their holders are dead.
    pub async fn take_over(&self) -> Result<(), Error> {
        let mut unit = Unit::new("take_over");
        unit.run("UPDATE pending_objects SET lease_until = :now WHERE lease_until > :now", vec![]);
        unit.run(
            "UPDATE cleanup_queue SET token = NULL, claimed_by = NULL, claimed_at = NULL WHERE token IS NOT NULL",
            vec![],
        );
        unit.run("UPDATE backend_usage SET lease_until = 0 WHERE lease_until > 0", vec![]);
        self.write(unit).await.map(drop)
    }
}

impl Catalog {
    /// With `shares_anew`, each stripe first gets the capacity it needs from the other stripes of its backend.
    async fn stage_with(&self, stages: &[Stage], held: usize, shares_anew: bool) -> Result<Vec<Timestamp>, Error> {
        let first = &stages[0].intent;
        let mut unit = Unit::new("stage");
        unit.at(LockRank::Bucket).one(BUCKET_STANDS, params![first.bucket], Verdict::NoSuchBucket);
        if let (_, Some(upload), _) = kind_columns(first.kind) {
            let open = params![upload, first.bucket, &first.key];
            unit.at(LockRank::Upload).one(OPEN_UPLOAD, open, Verdict::NoSuchUpload);
        }
        if held > 0 {
            unit.at(LockRank::Intent).exactly(held, OPEN_OF_WRITE, params![first.write], Verdict::Fenced);
        }
        // In the order of the backends' names: writers that reserve in different orders deadlock.
        let mut ordered: Vec<(usize, &Stage)> = stages.iter().enumerate().collect();
        ordered.sort_by(|(_, one), (_, other)| one.intent.backend.cmp(&other.intent.backend));
        for (_, stage) in &ordered {
            unit.at(LockRank::Backend).one(TAKES_WRITES, params![&stage.intent.backend], Verdict::Closed);
        }
        let mut leases = vec![0; stages.len()];
        for (position, stage) in ordered {
            leases[position] = self.reserve(&mut unit, stage, shares_anew);
        }
        let answers = self.write(unit).await?;
        leases.into_iter().map(|answer| answers[answer].rows[0].time("lease_until")).collect()
    }

    /// Inserts one intent and reserves its bytes; returns the index of the answer with the end of its lease.
    fn reserve(&self, unit: &mut Unit, stage: &Stage, shares_anew: bool) -> usize {
        let intent = &stage.intent;
        let (kind, upload, number) = kind_columns(intent.kind);
        let stripe = stripe_for(intent.id, self.driver.stripes());
        let mut values = params![intent.id, intent.write, kind, intent.bucket, &intent.key, upload, number];
        values.extend(params![&intent.backend, &intent.physical_key, intent.size_bytes, stage.owner]);
        values.extend(params![millis_of(stage.lease), stripe, intent.draft.as_ref().map(json)]);
        let staged = unit.run(STAGE, values);
        if shares_anew {
            share_anew(unit, &intent.backend, stripe, intent.size_bytes);
        }
        unit.at(LockRank::Quota).one(RESERVE, params![&intent.backend, intent.size_bytes, stripe], Verdict::NoSpace);
        staged
    }

    /// The earliest lease that has ended. Committed writes leave dead entries in that index, so each query begins at
    /// the low-water mark of the last one.
    async fn first_ended_lease(&self) -> Result<Option<Timestamp>, Error> {
        let query = self.low_waters.begin(Queue::Leases);
        let row = &self.read(ENDED_LEASE, params![query.from]).await?[0];
        let (now, ended) = (row.time("now")?, row.opt_time("ended")?);
        self.low_waters.of(Queue::Leases, |water| water.reached(query, now, ended.unwrap_or(now)));
        Ok(ended)
    }
}
