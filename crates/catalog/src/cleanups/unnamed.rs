//! Queues keys that no row names: what reconcile found, and the keys of dead folders.
//!
//! The unit locks the keys of the backend, so that no unit that names an existing key runs beside it, and then asks all
//! naming tables in the statement that inserts the rows.

use std::collections::HashSet;
use std::sync::LazyLock;

use s3o_model::cleanup::Reason;
use s3o_model::clock::Timestamp;
use s3o_model::ids::ClaimToken;
use s3o_model::names::BackendName;
use s3o_model::reconcile::identifier_time;
use s3o_model::target::{ExpectedBytes, Target};
use s3o_model::verify::is_ours;

use crate::error::{Error, Verdict};
use crate::quotas::{Counter, add_bytes, lock_quota_rows};
use crate::unit::{Answer, LockRank, Unit, json};
use crate::verification::{nothing_names, nothing_names_draft};
use crate::{Catalog, ReconcilePass, params};

/// Number of keys in one unit.
pub const UNNAMED_UNIT_MAX: usize = 1000;
/// Number of such keys of one backend that wait in the queue at a time. Their bytes count as orphan bytes: more of them
/// would exhaust the limit of a backend that was written to without s3o.
pub const UNNAMED_WAITING_MAX: usize = 10_000;

/// Something on a backend that no row names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnnamedKey {
    /// Key on the backend; the path of a draft.
    pub physical_key: String,
    /// What is there under the key.
    pub target: Target,
    /// Bytes to count as orphan bytes: 0 for bytes that are not s3o's, and for a draft whose file has another name.
    pub size_bytes: u64,
    /// What was found there, if other programs may rewrite the key.
    pub expected: Option<ExpectedBytes>,
}

/// Creates the row by which the keys of a backend are locked.
pub(crate) const KEY_LOCK_ROW: &str =
    "INSERT INTO backend_key_locks (backend_name) VALUES ($1) ON CONFLICT (backend_name) DO NOTHING";

const LOCK_KEYS: &str = "SELECT backend_name FROM backend_key_locks WHERE backend_name = $1 \
     AND EXISTS (SELECT 1 FROM backends WHERE name = $1 AND removing_since IS NULL AND removed_at IS NULL) /*lock*/";

const SHARE_KEYS: &str = "SELECT backend_name FROM backend_key_locks WHERE backend_name = $1 /*share*/";

/// Returns a row if something already names the object `$2` on backend `$1`, or if a key that is as young as `$3` was
/// queued: its bytes may be deleted, and its cleanup done.
static NAMED_ALREADY: LazyLock<String> = LazyLock::new(|| {
    let unnamed = nothing_names("CAST($2 AS TEXT)", "''");
    format!(
        "SELECT 1 AS named WHERE NOT ({unnamed}) OR EXISTS \
         (SELECT 1 FROM backend_key_locks WHERE backend_name = $1 AND queued_upto >= CAST($3 AS BIGINT))"
    )
});

/// Adds the statements with which a unit names a key whose bytes exist already. Fails as `Fenced` if the key was named
/// or queued meanwhile.
pub(crate) fn name_existing(unit: &mut Unit, backend: &BackendName, physical_key: &str) {
    lock_shared(unit, backend);
    let born = identifier_time(physical_key).map_or(0, Timestamp::millis);
    unit.exactly(0, &NAMED_ALREADY, params![backend, physical_key, born], Verdict::Fenced);
}

/// Adds the lock under which no key of the backend is queued.
pub(crate) fn lock_shared(unit: &mut Unit, backend: &BackendName) {
    unit.lock(LockRank::BackendKeys, SHARE_KEYS, params![backend]);
}

const WAITING: &str = "cleanup_queue WHERE backend_name = $1 AND reason IN ('reconcile', 'sweep')";

/// Inserts those of the keys `$2` that no row names, with the reason `$3` and the token `$4`, up to the number that may
/// wait.
fn insert(condition: &str) -> String {
    format!(
        "INSERT INTO cleanup_queue (backend_name, physical_key, target, size_bytes, expected, stripe, reason, due, \
         created_at, claimed_by, claimed_at, token) \
         SELECT CAST($1 AS TEXT), w.k, w.named, w.bytes, w.there, 0, CAST($3 AS TEXT), :now, :now, 'unit', :now, \
         CAST($4 AS TEXT) FROM (SELECT t.value ->> 0 AS k, t.value ->> 1 AS named, \
         CAST(t.value ->> 2 AS BIGINT) AS bytes, t.value ->> 3 AS there FROM json_each($2) t) w WHERE {condition} \
         ORDER BY w.k LIMIT (SELECT CASE WHEN count(*) < {UNNAMED_WAITING_MAX} THEN {UNNAMED_WAITING_MAX} - count(*) \
         ELSE 0 END FROM {WAITING}) \
         ON CONFLICT (backend_name, physical_key, target) DO NOTHING RETURNING physical_key, target"
    )
}

/// True for bytes that a pass found, and that no operator wants to keep.
const IS_FOUND: &str = "EXISTS (SELECT 1 FROM findings WHERE backend_name = $1 AND physical_key = w.k \
     AND target = w.named AND size_bytes = w.bytes AND kind IN ('stray', 'old_version', 'upload', 'draft') \
     AND dismissed = 0)";

/// For objects, versions and uploads, and for drafts.
static INSERT: LazyLock<[String; 2]> =
    LazyLock::new(|| [nothing_names("w.k", "w.named"), nothing_names_draft("w.k")].map(|unnamed| insert(&unnamed)));

/// The same for what a pass found.
static INSERT_FOUND: LazyLock<[String; 2]> = LazyLock::new(|| {
    [nothing_names("w.k", "w.named"), nothing_names_draft("w.k")]
        .map(|unnamed| insert(&format!("{unnamed} AND {IS_FOUND}")))
});

/// A pass acts on its findings until an operator cancels it or accepts its backend.
const ACTS: &str = "SELECT id FROM reconcile_passes WHERE id = $1 AND state = 'acting'";

/// No key whose identifier is younger than `$2` was queued since its bytes were written. A time in the future, such as
/// of a planted key, counts as now.
const NOTE_YOUNGEST: &str = "UPDATE backend_key_locks SET queued_upto = \
     CASE WHEN CAST($2 AS BIGINT) < :now THEN CAST($2 AS BIGINT) ELSE :now END WHERE backend_name = $1 \
     AND queued_upto < CASE WHEN CAST($2 AS BIGINT) < :now THEN CAST($2 AS BIGINT) ELSE :now END";

/// Makes the bytes of the inserted rows orphan bytes, drops the findings that named them, and makes the rows claimable.
static COUNT_AND_FREE: LazyLock<[String; 4]> = LazyLock::new(|| {
    let inserted = format!("{WAITING} AND token = $2");
    [
        lock_quota_rows(&inserted),
        add_bytes(Counter::Orphan, &inserted),
        "DELETE FROM findings WHERE id IN (SELECT f.id FROM cleanup_queue c JOIN findings f \
         ON f.backend_name = c.backend_name AND f.physical_key = c.physical_key AND f.target = c.target \
         AND f.kind IN ('stray', 'old_version', 'upload', 'draft') \
         WHERE c.backend_name = $1 AND c.reason IN ('reconcile', 'sweep') AND c.token = $2)"
            .to_owned(),
        "UPDATE cleanup_queue SET token = NULL, claimed_by = NULL, claimed_at = NULL \
         WHERE backend_name = $1 AND reason IN ('reconcile', 'sweep') AND token = $2"
            .to_owned(),
    ]
});

impl Catalog {
    /// Queues at most [`UNNAMED_UNIT_MAX`] keys that no location, intent, cleanup, dead letter or written-off finding
    /// names, and returns those that were queued. No more than [`UNNAMED_WAITING_MAX`] wait at a time. `reason` is
    /// `Reconcile` or `Sweep`. Callers confirm the keys with [`Catalog::confirm_unnamed`] before. Fails as `Closed` if
    /// the backend is being removed.
    pub async fn enqueue_unnamed(
        &self,
        backend: &BackendName,
        reason: Reason,
        keys: &[UnnamedKey],
        token: ClaimToken,
    ) -> Result<Vec<UnnamedKey>, Error> {
        let mut unit = Unit::new("enqueue_unnamed");
        unit.at(LockRank::BackendKeys).one(LOCK_KEYS, params![backend], Verdict::Closed);
        self.enqueue(unit, &INSERT, (backend, reason), (keys, token)).await
    }

    /// The same for what a pass found, unless an operator dismissed it since. Fails as `RunAgain` if the pass ended.
    pub async fn enqueue_found(
        &self,
        pass: &ReconcilePass,
        keys: &[UnnamedKey],
        token: ClaimToken,
    ) -> Result<Vec<UnnamedKey>, Error> {
        let mut unit = Unit::new("enqueue_found");
        unit.at(LockRank::BackendKeys).one(LOCK_KEYS, params![&pass.backend], Verdict::Closed);
        unit.one(ACTS, params![pass.id], Verdict::RunAgain);
        self.enqueue(unit, &INSERT_FOUND, (&pass.backend, Reason::Reconcile), (keys, token)).await
    }

    async fn enqueue(
        &self,
        mut unit: Unit,
        [insert, insert_drafts]: &'static [String; 2],
        (backend, reason): (&BackendName, Reason),
        (keys, token): (&[UnnamedKey], ClaimToken),
    ) -> Result<Vec<UnnamedKey>, Error> {
        self.condition.demand_sound()?;
        if keys.len() > UNNAMED_UNIT_MAX {
            return Err(Error::Internal(format!("{} keys in one unit, at most {UNNAMED_UNIT_MAX}", keys.len())));
        }
        let (drafts, others): (Vec<_>, Vec<_>) = keys.iter().partition(|key| key.target == Target::Draft);
        let mut inserted = Vec::new();
        for (sql, keys) in [(insert, others), (insert_drafts, drafts)] {
            if !keys.is_empty() {
                inserted.push(unit.run(sql, params![backend, list(&keys), reason.as_str(), token]));
            }
        }
        let [lock_quotas, count, forget, free] = &*COUNT_AND_FREE;
        unit.run(NOTE_YOUNGEST, params![backend, youngest(keys)]);
        unit.at(LockRank::Quota).run(lock_quotas, params![backend, token]);
        for sql in [count, forget, free] {
            unit.run(sql, params![backend, token]);
        }
        let answers = self.write(unit).await?;
        let queued = queued(inserted.iter().map(|answer| &answers[*answer]))?;
        let is_queued = |key: &&UnnamedKey| queued.contains(&(key.physical_key.clone(), key.target.to_column()));
        Ok(keys.iter().filter(is_queued).cloned().collect())
    }
}

/// Time of the youngest identifier of s3o's keys, in milliseconds; the end of all times if one tells no time.
fn youngest(keys: &[UnnamedKey]) -> i64 {
    let born = |key: &UnnamedKey| identifier_time(&key.physical_key).map_or(i64::MAX, Timestamp::millis);
    keys.iter().filter(|key| is_ours(&key.physical_key)).map(born).max().unwrap_or(-1)
}

/// The keys as rows of a list: key, target, bytes, what is expected there.
fn list(keys: &[&UnnamedKey]) -> String {
    let row = |key: &&UnnamedKey| {
        let expected = key.expected.as_ref().map(json);
        (key.physical_key.clone(), key.target.to_column(), key.size_bytes, expected)
    };
    json(&keys.iter().map(row).collect::<Vec<_>>())
}

fn queued<'a>(answers: impl Iterator<Item = &'a Answer>) -> Result<HashSet<(String, String)>, Error> {
    let rows = answers.flat_map(|answer| &answer.rows);
    rows.map(|row| Ok((row.string("physical_key")?, row.string("target")?))).collect()
}
