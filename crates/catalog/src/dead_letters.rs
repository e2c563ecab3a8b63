//! Dead letters: listed, sent back to the queue, or discarded. A unit marks the rows that it changes, and returns those
//! that it found.

use std::sync::LazyLock;

use s3o_model::cleanup::Selection;
use s3o_model::clock::Timestamp;
use s3o_model::dead_letter::DeadLetter;
use s3o_model::ids::{ClaimToken, CleanupId, DeadLetterId};
use s3o_model::names::BackendName;

use crate::cleanups::{attempts, target};
use crate::error::Error;
use crate::quotas::{Counter, move_bytes};
use crate::unit::{LockRank, Row, Unit, json};
use crate::{Catalog, params};

/// A dead letter to discard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discard {
    /// Skipped if it no longer exists.
    pub id: DeadLetterId,
    /// Detail of the finding about its bytes, as JSON; `None` if their absence is proven.
    pub written_off: Option<String>,
}

const COLUMNS: &str = "id, original_id, backend_name, physical_key, target, expected, size_bytes, \
     reason, attempts, last_error, absent_ok_after, created_at, dead_since";

static ONE: LazyLock<String> = LazyLock::new(|| format!("SELECT {COLUMNS} FROM cleanup_dlq WHERE id = $1"));
static PAGE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {COLUMNS} FROM cleanup_dlq WHERE id > $1 AND (CAST($2 AS TEXT) IS NULL OR backend_name = $2) \
         AND (CAST($3 AS TEXT) IS NULL OR reason = $3) ORDER BY id LIMIT $4"
    )
});

const LOCK: &str = "SELECT id FROM cleanup_dlq WHERE id IN NUMBERS($1) ORDER BY id /*lock*/";
const MARK: &str = "UPDATE cleanup_dlq SET token = $1 WHERE id IN NUMBERS($2)";
static DELETE_MARKED: LazyLock<String> =
    LazyLock::new(|| format!("DELETE FROM cleanup_dlq WHERE token = $1 RETURNING {COLUMNS}"));

const QUEUE_AGAIN: &str = "INSERT INTO cleanup_queue (original_id, backend_name, physical_key, target, \
     expected, size_bytes, stripe, reason, last_error, due, absent_ok_after, created_at) \
     SELECT original_id, backend_name, physical_key, target, expected, size_bytes, stripe, reason, \
     last_error, :now, absent_ok_after, created_at FROM cleanup_dlq WHERE token = $1";

static SUBTRACT_BYTES: LazyLock<String> =
    LazyLock::new(|| move_bytes(Counter::Orphan, None, "cleanup_dlq WHERE token = $1"));

const INSERT_FINDINGS: &str = "INSERT INTO findings \
     (kind, backend_name, physical_key, target, size_bytes, stripe, detail, created_at) \
     SELECT 'written_off', d.backend_name, d.physical_key, d.target, d.size_bytes, d.stripe, t.value ->> 1, :now \
     FROM json_each($2) t JOIN cleanup_dlq d ON d.id = CAST(t.value ->> 0 AS BIGINT) \
     WHERE d.token = $1 AND (t.value ->> 1) IS NOT NULL";

fn dead_letter(row: &Row) -> Result<DeadLetter, Error> {
    Ok(DeadLetter {
        id: DeadLetterId(row.int("id")?),
        original_id: CleanupId(row.int("original_id")?),
        backend: row.parse("backend_name")?,
        physical_key: row.string("physical_key")?,
        target: target(row)?,
        expected: row.opt_json("expected")?,
        size_bytes: row.size("size_bytes")?,
        reason: row.string("reason")?,
        attempts: attempts(row)?,
        last_error: row.opt_string("last_error")?,
        absent_ok_after: row.opt_time("absent_ok_after")?,
        created_at: row.time("created_at")?,
        dead_since: row.time("dead_since")?,
    })
}

/// A unit whose first statements lock and mark these rows.
fn marked(name: &'static str, ids: &[DeadLetterId], token: ClaimToken) -> Unit {
    let mut unit = Unit::new(name);
    unit.at(LockRank::DeadLetter).run(LOCK, params![json(&ids)]);
    unit.run(MARK, params![token, json(&ids)]);
    unit
}

impl Catalog {
    /// Runs a unit that ends by deleting the marked rows, and returns them.
    async fn delete_marked(&self, mut unit: Unit, token: ClaimToken) -> Result<Vec<DeadLetter>, Error> {
        let removed = unit.run(&DELETE_MARKED, params![token]);
        let answers = self.write(unit).await?;
        let mut letters: Vec<DeadLetter> = answers[removed].rows.iter().map(dead_letter).collect::<Result<_, _>>()?;
        letters.sort_by_key(|letter| letter.id);
        Ok(letters)
    }
}

impl Catalog {
    /// A page of dead letters with IDs above `after`, in ascending order.
    pub async fn dead_letters(&self, which: &Selection, after: i64, limit: usize) -> Result<Vec<DeadLetter>, Error> {
        let params = params![after, which.backend.as_ref(), which.reason.as_ref(), limit];
        self.survey(&PAGE, params).await?.iter().map(dead_letter).collect()
    }

    /// `None` if it was retried or discarded.
    pub async fn dead_letter(&self, id: DeadLetterId) -> Result<Option<DeadLetter>, Error> {
        self.survey(&ONE, params![id.0]).await?.first().map(dead_letter).transpose()
    }

    /// The highest ID. An operation on "all" dead letters stops there, so that it excludes later ones.
    pub async fn newest_dead_letter(&self) -> Result<Option<DeadLetterId>, Error> {
        const NEWEST: &str = "SELECT max(id) AS newest FROM cleanup_dlq";
        Ok(self.survey(NEWEST, vec![]).await?[0].opt_int("newest")?.map(DeadLetterId))
    }

    /// Sends dead letters back to the queue, due now and without attempts. Returns those that still existed.
    pub async fn retry_dead_letters(&self, ids: &[DeadLetterId], token: ClaimToken) -> Result<Vec<DeadLetter>, Error> {
        let mut unit = marked("retry_dead_letters", ids, token);
        unit.run(QUEUE_AGAIN, params![token]);
        self.delete_marked(unit, token).await
    }

    /// Deletes dead letters, subtracts their bytes from the counters, and inserts the given findings. Returns those
    /// that still existed.
    pub async fn discard_dead_letters(
        &self,
        discards: &[Discard],
        token: ClaimToken,
    ) -> Result<Vec<DeadLetter>, Error> {
        let ids: Vec<DeadLetterId> = discards.iter().map(|discard| discard.id).collect();
        let findings: Vec<_> = discards.iter().map(|discard| (discard.id, discard.written_off.as_deref())).collect();
        let mut unit = marked("discard_dead_letters", &ids, token);
        unit.run(&SUBTRACT_BYTES, params![token]);
        unit.run(INSERT_FINDINGS, params![token, json(&findings)]);
        self.delete_marked(unit, token).await
    }

    /// The time of the catalog's clock, which also set the times of dead letters.
    pub async fn present(&self) -> Result<Timestamp, Error> {
        self.survey("SELECT :now AS now", vec![]).await?[0].time("now")
    }

    /// Sum of the written-off bytes of each backend that has any.
    pub async fn written_off(&self) -> Result<Vec<(BackendName, u64)>, Error> {
        const SUMS: &str = "SELECT backend_name, CAST(sum(size_bytes) AS BIGINT) AS bytes FROM findings \
             WHERE kind = 'written_off' GROUP BY backend_name ORDER BY backend_name";
        let rows = self.survey(SUMS, vec![]).await?;
        rows.iter().map(|row| Ok((row.parse("backend_name")?, row.size("bytes")?))).collect()
    }
}
