//! Intents whose lease expired: fenced, claimed, and resolved by the holder of the claim.

use std::sync::LazyLock;
use std::time::Duration;

use s3o_model::cleanup::Reason;
use s3o_model::clock::millis_of;
use s3o_model::content::Location;
use s3o_model::ids::{ClaimToken, WriteId};
use s3o_model::intent::Expired;

use super::{Ended, pins};
use crate::cleanups::enqueue::enqueue_cleanups;
use crate::error::Error;
use crate::quotas::{Counter, lock_quota_rows, move_bytes};
use crate::unit::{LockRank, Row, Unit, Value};
use crate::{Catalog, params};

/// The statements that turn intents into cleanups.
pub(super) struct ToCleanups {
    enqueue: String,
    lock_quota_rows: String,
    move_bytes: String,
    delete: String,
}

/// Open intents of write `$1`; `$2` is the time in which their bytes may still arrive, or NULL.
pub(super) static OPEN_TO_CLEANUPS: LazyLock<ToCleanups> =
    LazyLock::new(|| ToCleanups::of("write_id = $1 AND state = 'open'", "$2"));

/// Intent `$1`; `$2` is the time in which its bytes may still arrive, or NULL.
pub(super) static ONE_TO_CLEANUP: LazyLock<ToCleanups> = LazyLock::new(|| ToCleanups::of("id = $1", "$2"));

/// Intents of write `$2` that carry the token `$1`; `$3` is the time in which their bytes may still arrive.
static CLAIMED_TO_CLEANUPS: LazyLock<ToCleanups> =
    LazyLock::new(|| ToCleanups::of("token = $1 AND write_id = $2", "$3"));

impl ToCleanups {
    fn of(marker: &str, late: &str) -> Self {
        let intents = format!("pending_objects WHERE {marker}");
        let reason = "CASE kind WHEN 'part' THEN 'multipart' WHEN 'copy' THEN copy_reason ELSE 'put_orphan' END";
        Self {
            enqueue: enqueue_cleanups(&format!("{intents} AND physical_key IS NOT NULL"), reason, Some(late)),
            lock_quota_rows: lock_quota_rows(&intents),
            move_bytes: move_bytes(Counter::Reserved, Some(Counter::Orphan), &intents),
            delete: format!("DELETE FROM {intents}"),
        }
    }

    pub(super) fn run(&'static self, unit: &mut Unit, values: Vec<Value>) {
        unit.run(&self.enqueue, values.clone());
        unit.at(LockRank::Quota).run(&self.lock_quota_rows, values.clone());
        unit.run(&self.move_bytes, values.clone());
        unit.run(&self.delete, values);
    }
}

/// A claim is a lease, too: an expired one can be claimed again. The outer condition on the lease excludes a copy that
/// another reaper claimed between the two statements.
const FENCE: &str = "WITH chosen AS MATERIALIZED (SELECT write_id FROM pending_objects \
     WHERE lease_until >= $4 AND lease_until <= :now ORDER BY lease_until LIMIT $2 /*skip*/) \
     UPDATE pending_objects SET state = 'aborting', token = $1, lease_until = :now + $3 \
     WHERE write_id IN (SELECT write_id FROM chosen) AND (lease_until <= :now OR state = 'open')";

const FENCED: &str = "SELECT q.id, q.write_id, q.backend_name, q.physical_key, q.size_bytes, q.bucket_id, b.name, \
     q.key, q.superseded, q.draft, :now - q.created_at AS age \
     FROM pending_objects q LEFT JOIN buckets b ON b.id = q.bucket_id WHERE q.token = $1 ORDER BY q.write_id, q.id";

fn expired(row: &Row) -> Result<Expired, Error> {
    let place = match (row.opt_text("backend_name")?, row.opt_string("physical_key")?) {
        (Some(_), Some(key)) => Some((row.parse("backend_name")?, key)),
        _ => None,
    };
    let draft = row.opt_text("draft")?.map(serde_json::from_str).transpose();
    Ok(Expired {
        id: row.parse("id")?,
        write: row.parse("write_id")?,
        place,
        size_bytes: row.size("size_bytes")?,
        bucket: s3o_model::ids::BucketId(row.int("bucket_id")?),
        bucket_name: row.opt_string("name")?,
        key: row.opt_text("key")?.filter(|key| !key.is_empty()).map(|_| row.parse("key")).transpose()?,
        superseded: row.int("superseded")? != 0,
        draft: draft.map_err(|error| Error::Corrupt(format!("draft: {error}")))?,
        age: Duration::from_millis(u64::try_from(row.int("age")?).unwrap_or(0)),
    })
}

pub(super) async fn claim(
    catalog: &Catalog,
    token: ClaimToken,
    limit: usize,
    hold: Duration,
) -> Result<Vec<Expired>, Error> {
    let Some(from) = catalog.first_ended_lease().await? else { return Ok(Vec::new()) };
    let mut unit = Unit::new("claim_expired");
    unit.run(FENCE, params![token, limit, millis_of(hold), from.millis()]);
    let fenced = unit.run(FENCED, params![token]);
    catalog.write(unit).await?[fenced].rows.iter().map(expired).collect()
}

pub(super) async fn hold(catalog: &Catalog, token: ClaimToken, hold: Duration) -> Result<(), Error> {
    let mut unit = Unit::new("hold_expired");
    unit.run("UPDATE pending_objects SET lease_until = :now + $2 WHERE token = $1", params![token, millis_of(hold)]);
    catalog.write(unit).await.map(drop)
}

pub(super) async fn abandon(
    catalog: &Catalog,
    token: ClaimToken,
    write: WriteId,
    late: Duration,
) -> Result<bool, Error> {
    let mut unit = Unit::new("abandon");
    let ours = unit.at(LockRank::Intent).run(
        "SELECT id FROM pending_objects WHERE token = $1 AND write_id = $2 ORDER BY id /*lock*/",
        params![token, write],
    );
    pins::CLAIMED.lock_and_release(&mut unit, &[token.into(), write.into()], Reason::Dedup);
    CLAIMED_TO_CLEANUPS.run(&mut unit, params![token, write, millis_of(late)]);
    Ok(!catalog.write(unit).await?[ours].rows.is_empty())
}

pub(super) async fn postpone(
    catalog: &Catalog,
    token: ClaimToken,
    write: WriteId,
    rest: Duration,
) -> Result<bool, Error> {
    let mut unit = Unit::new("postpone");
    let left = unit.run(
        "UPDATE pending_objects SET token = NULL, lease_until = :now + $3 WHERE token = $1 AND write_id = $2",
        params![token, write, millis_of(rest)],
    );
    Ok(catalog.write(unit).await?[left].changed > 0)
}

/// True if only the queue can name bytes `$2` on backend `$1`. A location names them if the reaper promoted the write,
/// an intent if the reaper may still promote it.
const UNNAMED: &str = "NOT EXISTS (SELECT 1 FROM object_locations WHERE backend_name = $1 AND physical_key = $2) \
     AND NOT EXISTS (SELECT 1 FROM pending_objects WHERE backend_name = $1 AND physical_key = $2) \
     AND NOT EXISTS (SELECT 1 FROM cleanup_dlq WHERE backend_name = $1 AND physical_key = $2 \
     AND (target = '' OR substr(target, 1, 8) = 'version:'))";

/// The cleanup of the object `$2`, by its key or its version.
const OBJECT_QUEUED: &str = "cleanup_queue WHERE backend_name = $1 AND physical_key = $2 \
     AND (target = '' OR substr(target, 1, 8) = 'version:')";

/// True if an operator removed backend `$1`.
const REMOVED: &str = "EXISTS (SELECT 1 FROM backends WHERE name = $1 AND removed_at IS NOT NULL)";

/// Waits for units that are resolving the intent or the cleanup.
const LOCK_NAMED: [(LockRank, &str); 4] = [
    (LockRank::Intent, "SELECT id FROM pending_objects WHERE backend_name = $1 AND physical_key = $2 /*lock*/"),
    (LockRank::Backend, "SELECT name FROM backends WHERE name = $1 /*share*/"),
    (LockRank::Cleanup, "SELECT id FROM cleanup_queue WHERE backend_name = $1 AND physical_key = $2 /*lock*/"),
    (LockRank::DeadLetter, "SELECT id FROM cleanup_dlq WHERE backend_name = $1 AND physical_key = $2 /*lock*/"),
];

/// Makes the version `$3` of key `$2` the target of its cleanup or dead letter.
static LEARN_VERSION: LazyLock<[String; 2]> = LazyLock::new(|| {
    ["cleanup_queue", "cleanup_dlq"].map(|table| {
        format!(
            "UPDATE {table} SET target = 'version:' || CAST($3 AS TEXT) \
             WHERE backend_name = $1 AND physical_key = $2 AND target = ''"
        )
    })
});

/// The earlier cleanup still exists, maybe as a dead letter, or it was settled and its bytes are no longer counted.
/// Only in the second case are they counted again and no longer written off. The claim of an existing cleanup ends,
/// because the claimant may have probed before the bytes arrived.
static REQUEUE: LazyLock<[String; 4]> = LazyLock::new(|| {
    [
        // A removed backend has no lane in which a cleanup could be done.
        format!(
            "INSERT INTO findings (kind, backend_name, physical_key, size_bytes, detail, created_at) \
             SELECT 'written_off', CAST($1 AS TEXT), CAST($2 AS TEXT), CAST($3 AS BIGINT), \
             '\"a write ended after the backend was removed\"', :now WHERE {UNNAMED} AND {REMOVED} \
             ON CONFLICT (backend_name, physical_key, target, kind) DO NOTHING"
        ),
        format!(
            "UPDATE backend_quotas SET orphan_bytes = orphan_bytes + $3 WHERE backend_name = $1 AND stripe = 0 \
             AND NOT EXISTS (SELECT 1 FROM {OBJECT_QUEUED}) AND {UNNAMED} AND NOT {REMOVED}"
        ),
        format!(
            "DELETE FROM findings WHERE backend_name = $1 AND physical_key = $2 AND kind = 'written_off' AND {UNNAMED} \
             AND NOT {REMOVED}"
        ),
        requeue_target(
            &format!("coalesce('version:' || CAST($4 AS TEXT), (SELECT max(target) FROM {OBJECT_QUEUED}), '')"),
            "CAST($3 AS BIGINT)",
            "$5",
        ),
    ]
});

/// Queues the upload `$3` of key `$2`, which an abandoned write may have left.
static REQUEUE_UPLOAD: LazyLock<String> = LazyLock::new(|| {
    let target = "CASE CAST($3 AS TEXT) WHEN '?' THEN 'upload' ELSE 'upload:' || substr(CAST($3 AS TEXT), 4) END";
    requeue_target(target, "0", "$4")
});

/// SQL that queues one target of key `$2`, or makes its cleanup due again. `late` is the parameter with the time in
/// which its bytes may still arrive, or NULL.
fn requeue_target(target: &str, size: &str, late: &str) -> String {
    format!(
        "INSERT INTO cleanup_queue (backend_name, physical_key, size_bytes, stripe, reason, due, created_at, \
         target, absent_ok_after) \
         SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), {size}, 0, 'put_orphan', :now, :now, \
         {target}, :now + CAST({late} AS BIGINT) WHERE {UNNAMED} AND NOT {REMOVED} \
         ON CONFLICT (backend_name, physical_key, target) DO UPDATE SET due = excluded.due, \
         token = NULL, claimed_by = NULL, claimed_at = NULL, \
         absent_ok_after = COALESCE(excluded.absent_ok_after, cleanup_queue.absent_ok_after)"
    )
}

pub(super) async fn requeue(catalog: &Catalog, place: &Location, size_bytes: u64, ended: &Ended) -> Result<(), Error> {
    let Location { backend, physical_key, .. } = place;
    let mut unit = Unit::new("requeue");
    for (rank, sql) in LOCK_NAMED {
        unit.at(rank).run(sql, params![backend, physical_key]);
    }
    if let Some(version) = &ended.backend_version {
        for sql in LEARN_VERSION.iter() {
            unit.run(sql, params![backend, physical_key, version]);
        }
    }
    let (version, late) = (ended.backend_version.as_ref(), ended.late.window());
    for sql in REQUEUE.iter() {
        unit.run(sql, params![backend, physical_key, size_bytes, version, late]);
    }
    if let Some(upload) = ended.upload.to_column() {
        unit.run(&REQUEUE_UPLOAD, params![backend, physical_key, upload, late]);
    }
    catalog.write(unit).await.map(drop)
}
