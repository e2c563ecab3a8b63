//! Intents whose lease ran out: fenced, claimed, and resolved by whoever holds the claim.

use std::time::Duration;

use s3o_model::cleanup::Reason;
use s3o_model::clock::millis_of;
use s3o_model::ids::{ClaimToken, WriteId};
use s3o_model::intent::{Expired, Intent};
use s3o_model::names::BackendName;

use super::{Ended, pins};
use crate::error::Error;
use crate::unit::{Row, Unit};
use crate::{Catalog, params};

/// Turns intents into cleanups: `marker` selects them, `window` is the parameter that holds the
/// time in which they may still land, or null.
macro_rules! enqueue {
    ($marker:literal, $window:literal) => {
        [
            concat!(
                "INSERT INTO cleanup_queue (backend_name, physical_key, backend_version, backend_upload, size_bytes, ",
                "stripe, reason, due, absent_ok_after, created_at) ",
                "SELECT backend_name, physical_key, backend_version, backend_upload, size_bytes, stripe, ",
                "CASE kind WHEN 'part' THEN 'multipart' ELSE 'put_orphan' END, :now, :now + ",
                $window,
                ", :now FROM pending_objects WHERE physical_key IS NOT NULL AND ",
                $marker
            ),
            concat!(
                "SELECT stripe FROM backend_quotas WHERE (backend_name, stripe) IN ",
                "(SELECT backend_name, stripe FROM pending_objects WHERE ",
                $marker,
                ") ORDER BY backend_name, stripe /*lock*/"
            ),
            concat!(
                "UPDATE backend_quotas SET reserved_bytes = reserved_bytes - s.n, orphan_bytes = orphan_bytes + s.n ",
                "FROM (SELECT backend_name AS b, stripe AS t, sum(size_bytes) AS n FROM pending_objects WHERE ",
                $marker,
                " GROUP BY backend_name, stripe) s ",
                "WHERE s.b = backend_quotas.backend_name AND s.t = backend_quotas.stripe"
            ),
            concat!("DELETE FROM pending_objects WHERE ", $marker),
        ]
    };
}
pub(super) use enqueue;

/// A claim is a lease, too: one that ran out is free for the next. The outer look at the lease is
/// for a copy that another reaper took between the two.
const FENCE: &str = "WITH chosen AS MATERIALIZED (SELECT write_id FROM pending_objects \
     WHERE lease_until >= $4 AND lease_until <= :now ORDER BY lease_until LIMIT $2 /*skip*/) \
     UPDATE pending_objects SET state = 'aborting', token = $1, lease_until = :now + $3 \
     WHERE write_id IN (SELECT write_id FROM chosen) AND (lease_until <= :now OR state = 'open')";

const FENCED: &str = "SELECT q.id, q.write_id, q.backend_name, q.physical_key, q.size_bytes, q.bucket_id, b.name, \
     q.key, q.superseded, q.draft, :now - q.created_at \
     FROM pending_objects q LEFT JOIN buckets b ON b.id = q.bucket_id WHERE q.token = $1 ORDER BY q.write_id, q.id";

fn expired(row: &Row) -> Result<Expired, Error> {
    let place = match (row.opt_text(2)?, row.opt_text(3)?) {
        (Some(_), Some(key)) => Some((row.parse::<BackendName>(2)?, key.to_owned())),
        _ => None,
    };
    let draft = row.opt_text(9)?.map(serde_json::from_str).transpose();
    Ok(Expired {
        id: row.parse(0)?,
        write: row.parse(1)?,
        place,
        size_bytes: row.size(4)?,
        bucket: s3o_model::ids::BucketId(row.int(5)?),
        bucket_name: row.opt_text(6)?.map(str::to_owned),
        key: row.parse(7)?,
        superseded: row.int(8)? != 0,
        draft: draft.map_err(|error| Error::Corrupt(format!("draft: {error}")))?,
        age: Duration::from_millis(u64::try_from(row.int(10)?).unwrap_or(0)),
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
    const ENQUEUE: [&str; 4] = enqueue!("token = $1 AND write_id = $2", "$3");
    let mut unit = Unit::new("abandon");
    let ours = unit.run(
        "SELECT id FROM pending_objects WHERE token = $1 AND write_id = $2 ORDER BY id /*lock*/",
        params![token, write],
    );
    pins::CLAIMED.release(&mut unit, &[token.into(), write.into()], Reason::Dedup);
    for sql in ENQUEUE {
        unit.run(sql, params![token, write, millis_of(late)]);
    }
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

/// True where nothing but the queue can name these bytes: the reaper may have finished the write,
/// or may be about to.
macro_rules! unnamed {
    () => {
        "NOT EXISTS (SELECT 1 FROM object_locations WHERE backend_name = $1 AND physical_key = $2) \
         AND NOT EXISTS (SELECT 1 FROM pending_objects WHERE backend_name = $1 AND physical_key = $2) \
         AND NOT EXISTS (SELECT 1 FROM cleanup_dlq WHERE backend_name = $1 AND physical_key = $2)"
    };
}

pub(super) async fn requeue(catalog: &Catalog, intent: &Intent, ended: &Ended) -> Result<(), Error> {
    // Whoever resolves the intent now is waited for.
    const NAMED: [&str; 3] = [
        "SELECT id FROM pending_objects WHERE backend_name = $1 AND physical_key = $2 /*lock*/",
        "SELECT id FROM cleanup_queue WHERE backend_name = $1 AND physical_key = $2 /*lock*/",
        "SELECT id FROM cleanup_dlq WHERE backend_name = $1 AND physical_key = $2 /*lock*/",
    ];
    let place = params![&intent.backend, &intent.physical_key];
    let sized = params![&intent.backend, &intent.physical_key, intent.size_bytes];
    let mut unit = Unit::new("requeue");
    for sql in NAMED {
        unit.run(sql, place.clone());
    }
    // The earlier cleanup still stands, maybe as a dead letter, or it was settled and its bytes
    // are off the books: only then are they booked again, and no longer written off. Who claimed
    // it may have looked before the bytes landed, so the claim ends.
    unit.run(
        concat!(
            "UPDATE backend_quotas SET orphan_bytes = orphan_bytes + $3 WHERE backend_name = $1 AND stripe = 0 ",
            "AND NOT EXISTS (SELECT 1 FROM cleanup_queue WHERE backend_name = $1 AND physical_key = $2) AND ",
            unnamed!()
        ),
        sized,
    );
    unit.run(
        concat!(
            "DELETE FROM findings WHERE backend_name = $1 AND physical_key = $2 AND kind = 'written_off' AND ",
            unnamed!()
        ),
        place,
    );
    unit.run(
        concat!(
            "INSERT INTO cleanup_queue ",
            "(backend_name, physical_key, size_bytes, stripe, reason, due, created_at, backend_version, ",
            "backend_upload, absent_ok_after) ",
            "SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), CAST($3 AS BIGINT), 0, 'put_orphan', :now, :now, ",
            "CAST($4 AS TEXT), CAST($5 AS TEXT), :now + CAST($6 AS BIGINT) WHERE ",
            unnamed!(),
            " ON CONFLICT (backend_name, physical_key) DO UPDATE SET due = excluded.due, ",
            "token = NULL, claimed_by = NULL, claimed_at = NULL, ",
            "backend_version = COALESCE(excluded.backend_version, cleanup_queue.backend_version), ",
            "backend_upload = COALESCE(cleanup_queue.backend_upload, excluded.backend_upload), ",
            "absent_ok_after = COALESCE(excluded.absent_ok_after, cleanup_queue.absent_ok_after)"
        ),
        params![
            &intent.backend,
            &intent.physical_key,
            intent.size_bytes,
            ended.backend_version.as_ref(),
            ended.upload.to_column(),
            ended.late.window(),
        ],
    );
    unit.run(
        "UPDATE cleanup_dlq SET backend_version = COALESCE($3, backend_version) \
         WHERE backend_name = $1 AND physical_key = $2",
        params![&intent.backend, &intent.physical_key, ended.backend_version.as_ref()],
    );
    catalog.write(unit).await.map(drop)
}
