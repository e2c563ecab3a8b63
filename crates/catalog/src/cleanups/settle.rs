//! Settling claimed cleanups: each row is deleted, due again later, or moved to the dead letters, in one transaction.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use s3o_model::cleanup::Outcome;
use s3o_model::clock::millis_of;
use s3o_model::ids::{ClaimToken, CleanupId};

use super::Settlement;
use crate::error::Error;
use crate::quotas::{Counter, lock_quota_rows, move_bytes};
use crate::unit::{LockRank, Unit, json};
use crate::{Catalog, params};

/// Moves rows of `$1` (a list of IDs and errors) to the dead letters. Their bytes still count as orphan: they are on
/// the backend.
const MOVE_TO_DEAD_LETTERS: &str = "INSERT INTO cleanup_dlq \
     (original_id, backend_name, physical_key, target, expected, size_bytes, stripe, reason, attempts, last_error, \
     absent_ok_after, created_at, dead_since) \
     SELECT COALESCE(q.original_id, q.id), q.backend_name, q.physical_key, q.target, q.expected, \
     q.size_bytes, q.stripe, q.reason, q.attempts + 1, t.value ->> 1, q.absent_ok_after, q.created_at, :now \
     FROM json_each($1) t JOIN cleanup_queue q ON q.id = CAST(t.value ->> 0 AS BIGINT) WHERE q.token = $2";

/// Inserts findings for rows of `$1` whose bytes were not on a backend that an operator accepted after they were
/// queued.
const NOTE_ABSENT: &str = "INSERT INTO findings \
     (kind, backend_name, physical_key, target, size_bytes, detail, created_at) \
     SELECT 'absent_after_accept', backend_name, physical_key, target, size_bytes, 'absent after accept', :now \
     FROM cleanup_queue WHERE id IN NUMBERS($1) AND token = $2 \
     ON CONFLICT (backend_name, physical_key, target, kind) DO NOTHING";

/// Inserts findings for rows of `$1` (a list of IDs and differences) under whose keys other programs stored other bytes
/// than the expected ones. The bytes are not s3o's and stay.
const NOTE_CHANGED: &str = "INSERT INTO findings \
     (kind, backend_name, physical_key, target, size_bytes, detail, created_at) \
     SELECT 'changed', q.backend_name, q.physical_key, q.target, q.size_bytes, t.value ->> 1, :now \
     FROM json_each($1) t JOIN cleanup_queue q ON q.id = CAST(t.value ->> 0 AS BIGINT) WHERE q.token = $2 \
     ON CONFLICT (backend_name, physical_key, target, kind) DO UPDATE SET detail = excluded.detail";

/// Rows of `$1` (a list of IDs) that still carry the token `$2`.
const SETTLED: &str = "cleanup_queue WHERE id IN NUMBERS($1) AND token = $2";

static LOCK: LazyLock<String> = LazyLock::new(|| format!("SELECT id FROM {SETTLED} ORDER BY id /*lock*/"));
static LOCK_QUOTA_ROWS: LazyLock<String> = LazyLock::new(|| lock_quota_rows(SETTLED));
static SUBTRACT_BYTES: LazyLock<String> = LazyLock::new(|| move_bytes(Counter::Orphan, None, SETTLED));
static DELETE: LazyLock<String> = LazyLock::new(|| format!("DELETE FROM {SETTLED}"));

const FREE: &str = "UPDATE cleanup_queue SET token = NULL, claimed_by = NULL, claimed_at = NULL \
     WHERE id IN NUMBERS($1) AND token = $2 RETURNING backend_name, due";

/// Settlements by the statement that their rows need.
#[derive(Default)]
struct Sorted<'a> {
    /// Deleted, since the bytes are.
    done: Vec<i64>,
    /// Those of `done` whose bytes were missing on a backend that an operator accepted meanwhile.
    absent: Vec<i64>,
    /// Those of `done` whose bytes are not the expected ones: ID, difference.
    changed: Vec<(i64, &'a str)>,
    /// Claimable again at once.
    freed: Vec<i64>,
    /// Due again later: ID, delay, attempts spent, error.
    later: Vec<(i64, i64, i64, &'a str)>,
    /// Moved to the dead letters: ID, error.
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
                Outcome::Changed { why } => {
                    sorted.done.push(*id);
                    sorted.changed.push((*id, why.as_str()));
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

const RETRY_LATER: &str = "UPDATE cleanup_queue SET token = NULL, claimed_by = NULL, claimed_at = NULL, \
     due = :now + CAST(t.value ->> 1 AS BIGINT), \
     attempts = attempts + CAST(t.value ->> 2 AS BIGINT), last_error = t.value ->> 3 \
     FROM json_each($1) t WHERE cleanup_queue.id = CAST(t.value ->> 0 AS BIGINT) AND token = $2";

impl Catalog {
    /// Settles claimed rows; returns those that still carried the token. The others are not changed.
    pub async fn settle_cleanups(
        &self,
        token: ClaimToken,
        settlements: &[Settlement],
    ) -> Result<BTreeSet<CleanupId>, Error> {
        let all: Vec<i64> = settlements.iter().map(|settlement| settlement.id.0).collect();
        let Sorted { done, absent, changed, freed, later, dead } = Sorted::of(settlements);
        let mut unit = Unit::new("settle_cleanups");
        let ours = unit.at(LockRank::Cleanup).run(&LOCK, params![json(&all), token]);
        let done = params![json(&done), token];
        unit.lock(LockRank::Quota, &LOCK_QUOTA_ROWS, done.clone());
        unit.run(&SUBTRACT_BYTES, done.clone());
        if !absent.is_empty() {
            unit.run(NOTE_ABSENT, params![json(&absent), token]);
        }
        if !changed.is_empty() {
            unit.run(NOTE_CHANGED, params![json(&changed), token]);
        }
        unit.run(&DELETE, done);
        if !dead.is_empty() {
            let ids: Vec<i64> = dead.iter().map(|(id, _)| *id).collect();
            unit.run(MOVE_TO_DEAD_LETTERS, params![json(&dead), token]);
            unit.run(&DELETE, params![json(&ids), token]);
        }
        let freed = unit.run(FREE, params![json(&freed), token]);
        unit.run(RETRY_LATER, params![json(&later), token]);
        let answers = self.write(unit).await?;
        self.wait_again(&answers[freed])?;
        answers[ours].rows.iter().map(|row| row.int("id").map(CleanupId)).collect()
    }
}
