//! The cleanup queue: rows are claimed per backend and settled by the token of the claim.

pub(crate) mod enqueue;
pub(crate) mod named;
mod settle;
pub(crate) mod unnamed;
pub(crate) mod waiting;

use std::time::Duration;

use s3o_model::claim::Claimant;
use s3o_model::cleanup::{Cleanup, Outcome, Selection};
use s3o_model::clock::{Timestamp, millis_of};
use s3o_model::ids::{ClaimToken, CleanupId};
use s3o_model::names::BackendName;
use s3o_model::target::Target;

use crate::error::Error;
use crate::low_water::Queue;
use crate::unit::{Answer, Row, Unit};
use crate::{Catalog, params};

use waiting::{Ages, Waiting};

/// The outcome of a claimed cleanup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// A row of the claim.
    pub id: CleanupId,
    /// Decides whether the row is deleted, due again later, or moved to the dead letters.
    pub outcome: Outcome,
}

/// Rows that were claimed together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedCleanups {
    /// Carry the token of the claim.
    pub cleanups: Vec<Cleanup>,
    /// Time of the claim by the catalog's clock, which also set the times of the rows; the host's clock may differ.
    pub at: Timestamp,
    /// How long the first of them had been due.
    pub waited: Duration,
    /// Rows that were withdrawn because a location or an open write names their key. A finding reports each.
    pub named: Vec<Cleanup>,
}

/// A claim that was freed because its holder kept it too long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreedClaim {
    /// Backend of the cleanup.
    pub backend: BackendName,
    /// Physical key of the cleanup.
    pub physical_key: String,
    /// Length of the bytes to delete.
    pub size_bytes: u64,
    /// Instance that held the claim.
    pub claimed_by: String,
}

/// A row of the queue, claimed or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedCleanup {
    /// The bytes to delete.
    pub cleanup: Cleanup,
    /// Last error of the backend.
    pub last_error: Option<String>,
    /// Workers claim the row from this time on.
    pub due: Timestamp,
    /// Instance that holds a claim on it.
    pub claimed_by: Option<String>,
    /// When the bytes were condemned.
    pub created_at: Timestamp,
}

/// Numbers of rows that wait for workers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Depths {
    /// Rows in the queue, claimed or not.
    pub cleanups: u64,
    /// Cleanups that their backend refused too often.
    pub dead_letters: u64,
    /// Writes under way, one per copy, and expired ones.
    pub intents: u64,
    /// Open multipart uploads.
    pub uploads: u64,
    /// Contents with too few copies.
    pub missing_copies: u64,
    /// Contents with too many copies.
    pub excess_copies: u64,
}

/// `MATERIALIZED`: PostgreSQL may evaluate a sub-select with `SKIP LOCKED` twice, and gets other rows the second time.
pub(crate) const CLAIM: &str = "WITH chosen AS MATERIALIZED (SELECT id FROM cleanup_queue \
     WHERE backend_name = $1 AND due >= $5 AND due <= :now AND token IS NULL ORDER BY due, id LIMIT $2 /*skip*/) \
     UPDATE cleanup_queue SET claimed_by = $3, claimed_at = :now, token = $4 WHERE id IN (SELECT id FROM chosen) \
     RETURNING id, backend_name, physical_key, target, expected, attempts, absent_ok_after, \
     size_bytes, reason, claimed_at, due, (SELECT count(*) FROM backends b \
     WHERE b.name = backend_name AND b.accepted_at > cleanup_queue.created_at) AS later_accepts";

const PAGE: &str = "SELECT id, backend_name, physical_key, target, expected, attempts, absent_ok_after, \
     size_bytes, reason, last_error, due, claimed_by, created_at FROM cleanup_queue WHERE id > $1 \
     AND (CAST($2 AS TEXT) IS NULL OR backend_name = $2) AND (CAST($3 AS TEXT) IS NULL OR reason = $3) \
     ORDER BY id LIMIT $4";

fn freed_claim(row: &Row) -> Result<FreedClaim, Error> {
    Ok(FreedClaim {
        backend: row.parse("backend_name")?,
        physical_key: row.string("physical_key")?,
        size_bytes: row.size("size_bytes")?,
        claimed_by: row.string("claimed_by")?,
    })
}

pub(crate) fn attempts(row: &Row) -> Result<u32, Error> {
    u32::try_from(row.int("attempts")?).map_err(|_| Error::Corrupt("attempts".to_owned()))
}

pub(crate) fn target(row: &Row) -> Result<Target, Error> {
    Target::from_column(row.text("target")?).ok_or_else(|| Error::Corrupt("target".to_owned()))
}

fn claimed(rows: &[Row]) -> Result<ClaimedCleanups, Error> {
    let at = rows.first().map(|row| row.time("claimed_at")).transpose()?.unwrap_or(Timestamp::from_millis(0));
    let dues = rows.iter().map(|row| row.time("due")).collect::<Result<Vec<_>, _>>()?;
    let waited = dues.iter().min().map_or(Duration::ZERO, |due| at.since(*due));
    let claimed = |row: &Row| Ok(Cleanup { older_than_accept: row.int("later_accepts")? > 0, ..cleanup(row)? });
    let cleanups = rows.iter().map(claimed).collect::<Result<_, Error>>()?;
    Ok(ClaimedCleanups { cleanups, at, waited, named: Vec::new() })
}

fn queued(row: &Row) -> Result<QueuedCleanup, Error> {
    Ok(QueuedCleanup {
        cleanup: cleanup(row)?,
        last_error: row.opt_string("last_error")?,
        due: row.time("due")?,
        claimed_by: row.opt_string("claimed_by")?,
        created_at: row.time("created_at")?,
    })
}

fn cleanup(row: &Row) -> Result<Cleanup, Error> {
    Ok(Cleanup {
        id: CleanupId(row.int("id")?),
        backend: row.parse("backend_name")?,
        physical_key: row.string("physical_key")?,
        target: target(row)?,
        expected: row.opt_json("expected")?,
        attempts: attempts(row)?,
        absent_ok_after: row.opt_time("absent_ok_after")?,
        size_bytes: row.size("size_bytes")?,
        reason: row.string("reason")?,
        older_than_accept: false,
    })
}

impl Catalog {
    /// What waits for cleanup on these backends, in one query. Rows before the low-water marks appear only in every
    /// tenth query.
    pub async fn waiting(&self, backends: &[BackendName], ages: &Ages) -> Result<Waiting, Error> {
        self.query_waiting(backends, ages).await
    }

    /// Claims due rows of one backend, starting at its low-water mark.
    pub async fn claim_cleanups(
        &self,
        backend: &BackendName,
        limit: usize,
        claimant: &Claimant,
    ) -> Result<ClaimedCleanups, Error> {
        let from = self.low_waters.from(Queue::Lane(backend.clone()));
        let mut unit = Unit::new("claim_cleanups");
        unit.run(CLAIM, params![backend, limit, claimant.instance, claimant.token, from]);
        let claimed = claimed(&self.write(unit).await?[0].rows)?;
        named::withdraw_named(self, backend, claimant.token, claimed).await
    }

    /// Frees claims older than `grace`, starting at the low-water mark; each is returned to exactly one caller.
    pub async fn free_stale_claims(&self, grace: Duration, token: ClaimToken) -> Result<Vec<FreedClaim>, Error> {
        let from = self.low_waters.from(Queue::Claims);
        let mut unit = Unit::new("free_stale_claims");
        unit.run(
            "UPDATE cleanup_queue SET token = $3 \
             WHERE token IS NOT NULL AND claimed_at >= $2 AND claimed_at <= :now - $1",
            params![millis_of(grace), from, token],
        );
        let stale = unit.run(
            "SELECT backend_name, due, physical_key, size_bytes, claimed_by FROM cleanup_queue \
             WHERE token = $1 AND claimed_at >= $2 AND claimed_at <= :now AND token IS NOT NULL ORDER BY \
             claimed_at, id",
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

    /// A page of the queue with IDs above `after`, in ascending order.
    pub async fn queued_cleanups(
        &self,
        which: &Selection,
        after: i64,
        limit: usize,
    ) -> Result<Vec<QueuedCleanup>, Error> {
        let params = params![after, which.backend.as_ref(), which.reason.as_ref(), limit];
        self.survey(PAGE, params).await?.iter().map(queued).collect()
    }

    /// Counts the rows that wait for workers.
    pub async fn depths(&self) -> Result<Depths, Error> {
        const SQL: &str = "SELECT (SELECT count(*) FROM cleanup_queue) AS cleanups, \
             (SELECT count(*) FROM cleanup_dlq) AS dead_letters, (SELECT count(*) FROM pending_objects) AS intents, \
             (SELECT count(*) FROM multipart_uploads WHERE state = 'open') AS uploads, \
             (SELECT count(*) FROM copy_work WHERE excess = 0) AS missing_copies, \
             (SELECT count(*) FROM copy_work WHERE excess = 1) AS excess_copies";
        let row = &self.survey(SQL, vec![]).await?[0];
        Ok(Depths {
            cleanups: row.size("cleanups")?,
            dead_letters: row.size("dead_letters")?,
            intents: row.size("intents")?,
            uploads: row.size("uploads")?,
            missing_copies: row.size("missing_copies")?,
            excess_copies: row.size("excess_copies")?,
        })
    }
}

impl Catalog {
    /// Lowers the low-water marks to freed rows, whose `due` may be long ago.
    fn wait_again(&self, freed: &Answer) -> Result<(), Error> {
        for row in &freed.rows {
            let due = row.time("due")?;
            self.low_waters.of(Queue::Lane(row.parse("backend_name")?), |water| water.lower(due));
        }
        Ok(())
    }
}
