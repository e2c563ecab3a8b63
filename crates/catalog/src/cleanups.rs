//! Cleanups in the catalog: claimed by lane, settled by token.

pub(crate) mod look;
pub(crate) mod named;

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use s3o_model::claim::Claimant;
use s3o_model::cleanup::{BackendUpload, Cleanup, Outcome, Selection};
use s3o_model::clock::{Timestamp, millis_of};
use s3o_model::ids::{ClaimToken, CleanupId};
use s3o_model::names::BackendName;

use crate::error::Error;
use crate::low_water::Queue;
use crate::objects::moment;
use crate::unit::{Answer, Row, Unit, json};
use crate::{Catalog, params};

use look::{Ages, Waiting};

/// What became of a claimed cleanup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// The row.
    pub id: CleanupId,
    /// What became of it.
    pub outcome: Outcome,
}

/// Rows that were claimed together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedCleanups {
    /// The rows.
    pub cleanups: Vec<Cleanup>,
    /// When, by the catalog's clock, which also set the moments that the rows name; the host's may differ.
    pub at: Timestamp,
    /// How long the first of them had been due.
    pub waited: Duration,
    /// Rows that are cleanups no more: a location or an open write names their key. A finding reports each.
    pub named: Vec<Cleanup>,
}

/// A claim that was taken from whoever held it for too long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreedClaim {
    /// The backend of the row.
    pub backend: BackendName,
    /// Its physical key.
    pub physical_key: String,
    /// How many bytes wait there.
    pub size_bytes: u64,
    /// Who held it.
    pub claimed_by: String,
}

/// A row of the queue as it stands, claimed or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedCleanup {
    /// What is to be cleaned up.
    pub cleanup: Cleanup,
    /// What the backend said last.
    pub last_error: Option<String>,
    /// From when on it is worked on.
    pub due: Timestamp,
    /// Who works on it.
    pub claimed_by: Option<String>,
    /// When the bytes were condemned.
    pub created_at: Timestamp,
}

/// How much waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Depths {
    /// Rows in the queue.
    pub cleanups: u64,
    /// Cleanups that were refused too often.
    pub dead_letters: u64,
    /// Intents.
    pub intents: u64,
    /// Open uploads.
    pub uploads: u64,
}

/// What is known of cleanups.
#[async_trait]
pub trait Cleanups: Send + Sync {
    /// What waits for cleanup on these backends; one look, not a transaction. What old hands left
    /// behind may take a few looks to be seen.
    async fn waiting(&self, backends: &[BackendName], ages: &Ages) -> Result<Waiting, Error>;

    /// Claims due rows of one backend, from where the last look at its lane found the first.
    async fn claim_cleanups(
        &self,
        backend: &BackendName,
        limit: usize,
        claimant: &Claimant,
    ) -> Result<ClaimedCleanups, Error>;

    /// Settles claimed rows; those that still carried the token are returned, the rest was not touched.
    async fn settle_cleanups(
        &self,
        token: ClaimToken,
        settlements: &[Settlement],
    ) -> Result<BTreeSet<CleanupId>, Error>;

    /// Frees claims older than `grace`, from where the last look found the first; each is returned
    /// to the one who freed it, and to nobody else.
    async fn free_stale_claims(&self, grace: Duration, token: ClaimToken) -> Result<Vec<FreedClaim>, Error>;

    /// A page of the queue behind a number, in the order of the rows' numbers.
    async fn queued_cleanups(&self, which: &Selection, after: i64, limit: usize) -> Result<Vec<QueuedCleanup>, Error>;

    /// How much waits.
    async fn depths(&self) -> Result<Depths, Error>;
}

/// Chosen once: a list of rows to lock that is part of the search may be asked for again, and then gives others.
pub(crate) const CLAIM: &str = "WITH chosen AS MATERIALIZED (SELECT id FROM cleanup_queue \
     WHERE backend_name = $1 AND due >= $5 AND due <= :now AND token IS NULL ORDER BY due, id LIMIT $2 /*skip*/) \
     UPDATE cleanup_queue SET claimed_by = $3, claimed_at = :now, token = $4 WHERE id IN (SELECT id FROM chosen) \
     RETURNING id, backend_name, physical_key, backend_version, backend_upload, attempts, absent_ok_after, \
     size_bytes, reason, claimed_at, due, \
     (SELECT count(*) FROM backends b WHERE b.name = backend_name AND b.accepted_at > cleanup_queue.created_at)";

const PAGE: &str = "SELECT id, backend_name, physical_key, backend_version, backend_upload, attempts, absent_ok_after, \
     size_bytes, reason, last_error, due, claimed_by, created_at FROM cleanup_queue WHERE id > $1 \
     AND (CAST($2 AS TEXT) IS NULL OR backend_name = $2) AND (CAST($3 AS TEXT) IS NULL OR reason = $3) \
     ORDER BY id LIMIT $4";

/// Moves rows of `$1` (a list of ids and what the backend said) to the dead letters. Their bytes
/// stay in the books: they still are on the backend.
const BURY: &str = "INSERT INTO cleanup_dlq (original_id, backend_name, physical_key, backend_version, \
     backend_upload, size_bytes, stripe, reason, attempts, last_error, absent_ok_after, created_at, dead_since) \
     SELECT COALESCE(q.original_id, q.id), q.backend_name, q.physical_key, q.backend_version, q.backend_upload, \
     q.size_bytes, q.stripe, q.reason, q.attempts + 1, t.value ->> 1, q.absent_ok_after, q.created_at, :now \
     FROM json_each($1) t JOIN cleanup_queue q ON q.id = CAST(t.value ->> 0 AS BIGINT) WHERE q.token = $2";

/// Notes rows of `$1` whose bytes were not on a backend that was accepted after they had to go.
const NOTE_ABSENT: &str = "INSERT INTO findings (kind, backend_name, physical_key, size_bytes, detail, created_at) \
     SELECT 'absent_after_accept', backend_name, physical_key, size_bytes, 'absent after accept', :now \
     FROM cleanup_queue WHERE id IN NUMBERS($1) AND token = $2 ON CONFLICT (backend_name, physical_key, kind) DO NOTHING";

/// Rows of `$1` (a list of ids) that still carry the token `$2`.
macro_rules! settled {
    ($head:literal) => {
        concat!($head, " WHERE id IN NUMBERS($1) AND token = $2")
    };
}

fn freed_claim(row: &Row) -> Result<FreedClaim, Error> {
    Ok(FreedClaim {
        backend: row.parse(0)?,
        physical_key: row.text(2)?.to_owned(),
        size_bytes: row.size(3)?,
        claimed_by: row.text(4)?.to_owned(),
    })
}

pub(crate) fn number_of_attempts(row: &Row, column: usize) -> Result<u32, Error> {
    u32::try_from(row.int(column)?).map_err(|_| Error::Corrupt("attempts".to_owned()))
}

fn claimed(rows: &[Row]) -> Result<ClaimedCleanups, Error> {
    let at = rows.first().map(|row| moment(row, 9)).transpose()?.unwrap_or(Timestamp::from_millis(0));
    let dues = rows.iter().map(|row| moment(row, 10)).collect::<Result<Vec<_>, _>>()?;
    let waited = dues.iter().min().map_or(Duration::ZERO, |due| at.since(*due));
    let claimed = |row: &Row| Ok(Cleanup { older_than_accept: row.int(11)? > 0, ..cleanup(row)? });
    let cleanups = rows.iter().map(claimed).collect::<Result<_, Error>>()?;
    Ok(ClaimedCleanups { cleanups, at, waited, named: Vec::new() })
}

fn queued(row: &Row) -> Result<QueuedCleanup, Error> {
    Ok(QueuedCleanup {
        cleanup: cleanup(row)?,
        last_error: row.opt_text(9)?.map(str::to_owned),
        due: moment(row, 10)?,
        claimed_by: row.opt_text(11)?.map(str::to_owned),
        created_at: moment(row, 12)?,
    })
}

fn cleanup(row: &Row) -> Result<Cleanup, Error> {
    Ok(Cleanup {
        id: CleanupId(row.int(0)?),
        backend: row.parse(1)?,
        physical_key: row.text(2)?.to_owned(),
        backend_version: row.opt_text(3)?.map(str::to_owned),
        upload: BackendUpload::from_column(row.opt_text(4)?.map(str::to_owned)),
        attempts: number_of_attempts(row, 5)?,
        absent_ok_after: row.opt_int(6)?.map(Timestamp::from_millis),
        size_bytes: row.size(7)?,
        reason: row.text(8)?.to_owned(),
        older_than_accept: false,
    })
}

/// Settlements by what is to be done with their rows.
#[derive(Default)]
struct Sorted<'a> {
    /// They are gone, and so are their bytes.
    done: Vec<i64>,
    /// They are gone, and their bytes were not on a backend that an operator accepted meanwhile.
    absent: Vec<i64>,
    /// They just lose their claim.
    freed: Vec<i64>,
    /// They come back later: id, delay, attempts spent, why.
    later: Vec<(i64, i64, i64, &'a str)>,
    /// They become dead letters: id, why.
    dead: Vec<(i64, &'a str)>,
}

impl<'a> Sorted<'a> {
    fn of(settlements: &'a [Settlement]) -> Self {
        let mut sorted = Self::default();
        for Settlement { id: CleanupId(id), outcome } in settlements {
            match outcome {
                Outcome::Done | Outcome::DoneAbsent => sorted.done.push(*id),
                Outcome::AbsentAfterAccept => {
                    sorted.done.push(*id);
                    sorted.absent.push(*id);
                }
                Outcome::Deferred => sorted.freed.push(*id),
                Outcome::Wait { delay, why } => sorted.later.push((*id, millis_of(*delay), 0, why.as_str())),
                Outcome::Retry { delay, why } => sorted.later.push((*id, millis_of(*delay), 1, why.as_str())),
                Outcome::DeadLetter { why } => sorted.dead.push((*id, why.as_str())),
            }
        }
        sorted
    }
}

#[async_trait]
impl Cleanups for Catalog {
    async fn waiting(&self, backends: &[BackendName], ages: &Ages) -> Result<Waiting, Error> {
        self.look_for_work(backends, ages).await
    }

    async fn claim_cleanups(
        &self,
        backend: &BackendName,
        limit: usize,
        claimant: &Claimant,
    ) -> Result<ClaimedCleanups, Error> {
        let from = self.low_waters.from(Queue::Lane(backend.clone()));
        let mut unit = Unit::new("claim_cleanups");
        unit.run(CLAIM, params![backend, limit, claimant.instance, claimant.token, from]);
        let claimed = claimed(&self.write(unit).await?[0].rows)?;
        named::set_aside(self, backend, claimant.token, claimed).await
    }

    async fn settle_cleanups(
        &self,
        token: ClaimToken,
        settlements: &[Settlement],
    ) -> Result<BTreeSet<CleanupId>, Error> {
        let all: Vec<i64> = settlements.iter().map(|settlement| settlement.id.0).collect();
        let Sorted { done, absent, freed, later, dead } = Sorted::of(settlements);
        let mut unit = Unit::new("settle_cleanups");
        let ours = unit.run(
            concat!(settled!("SELECT id FROM cleanup_queue"), " ORDER BY id /*lock*/"),
            params![json(&all), token],
        );
        let done = params![json(&done), token];
        // In order: others that change several rows of the books wait their turn instead of each other.
        unit.lock(
            concat!(
                "SELECT stripe FROM backend_quotas WHERE (backend_name, stripe) IN \
                 (SELECT backend_name, stripe FROM cleanup_queue",
                settled!(""),
                ") ORDER BY backend_name, stripe /*lock*/"
            ),
            done.clone(),
        );
        unit.run(
            concat!(
                "UPDATE backend_quotas SET orphan_bytes = orphan_bytes - s.n \
                 FROM (SELECT backend_name AS b, stripe AS t, sum(size_bytes) AS n FROM cleanup_queue",
                settled!(""),
                " GROUP BY backend_name, stripe) s \
                 WHERE s.b = backend_quotas.backend_name AND s.t = backend_quotas.stripe"
            ),
            done.clone(),
        );
        if !absent.is_empty() {
            unit.run(NOTE_ABSENT, params![json(&absent), token]);
        }
        unit.run(settled!("DELETE FROM cleanup_queue"), done);
        if !dead.is_empty() {
            let ids: Vec<i64> = dead.iter().map(|(id, _)| *id).collect();
            unit.run(BURY, params![json(&dead), token]);
            unit.run(settled!("DELETE FROM cleanup_queue"), params![json(&ids), token]);
        }
        let freed = unit.run(
            concat!(
                settled!("UPDATE cleanup_queue SET token = NULL, claimed_by = NULL, claimed_at = NULL"),
                " RETURNING backend_name, due"
            ),
            params![json(&freed), token],
        );
        unit.run(
            "UPDATE cleanup_queue SET token = NULL, claimed_by = NULL, claimed_at = NULL, \
             due = :now + CAST(t.value ->> 1 AS BIGINT), \
             attempts = attempts + CAST(t.value ->> 2 AS BIGINT), last_error = t.value ->> 3 \
             FROM json_each($1) t WHERE cleanup_queue.id = CAST(t.value ->> 0 AS BIGINT) AND token = $2",
            params![json(&later), token],
        );
        let answers = self.write(unit).await?;
        self.wait_again(&answers[freed])?;
        answers[ours].rows.iter().map(|row| row.int(0).map(CleanupId)).collect()
    }

    async fn free_stale_claims(&self, grace: Duration, token: ClaimToken) -> Result<Vec<FreedClaim>, Error> {
        let from = self.low_waters.from(Queue::Claims);
        let mut unit = Unit::new("free_stale_claims");
        unit.run(
            "UPDATE cleanup_queue SET token = $3 \
             WHERE token IS NOT NULL AND claimed_at >= $2 AND claimed_at <= :now - $1",
            params![millis_of(grace), from, token],
        );
        let stale = unit.run(
            "SELECT backend_name, due, physical_key, size_bytes, claimed_by FROM cleanup_queue \
             WHERE token = $1 AND claimed_at >= $2 AND claimed_at <= :now AND token IS NOT NULL ORDER BY claimed_at, id",
            params![token, from],
        );
        unit.run(
            "UPDATE cleanup_queue SET token = NULL, claimed_by = NULL, claimed_at = NULL \
             WHERE token = $1 AND claimed_at >= $2 AND claimed_at <= :now",
            params![token, from],
        );
        let answers = self.write(unit).await?;
        self.wait_again(&answers[stale])?;
        answers[stale].rows.iter().map(freed_claim).collect()
    }

    async fn queued_cleanups(&self, which: &Selection, after: i64, limit: usize) -> Result<Vec<QueuedCleanup>, Error> {
        let params = params![after, which.backend.as_ref(), which.reason.as_ref(), limit];
        self.survey(PAGE, params).await?.iter().map(queued).collect()
    }

    async fn depths(&self) -> Result<Depths, Error> {
        const SQL: &str = "SELECT (SELECT count(*) FROM cleanup_queue), (SELECT count(*) FROM cleanup_dlq), \
             (SELECT count(*) FROM pending_objects), (SELECT count(*) FROM multipart_uploads WHERE state = 'open')";
        let row = &self.survey(SQL, vec![]).await?[0];
        Ok(Depths { cleanups: row.size(0)?, dead_letters: row.size(1)?, intents: row.size(2)?, uploads: row.size(3)? })
    }
}

impl Catalog {
    /// Rows lost their claim and keep their `due`, which may be long ago: the next look begins there.
    fn wait_again(&self, freed: &Answer) -> Result<(), Error> {
        for row in &freed.rows {
            let due = moment(row, 1)?;
            self.low_waters.of(Queue::Lane(row.parse(0)?), |water| water.lower(due));
        }
        Ok(())
    }
}
