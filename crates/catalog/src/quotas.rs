//! Quota accounting of the backends: used, orphan and reserved bytes, in stripes.

use std::sync::LazyLock;

use s3o_model::ids::IntentId;
use s3o_model::names::BackendName;
use s3o_model::quota::QuotaUsage;

use crate::error::Error;
use crate::unit::{LockRank, Row, Unit, json};
use crate::{Catalog, params};

/// A column of `backend_quotas` that counts bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counter {
    /// Bytes of locations.
    Used,
    /// Bytes of cleanups and dead letters.
    Orphan,
    /// Bytes of intents.
    Reserved,
}

impl Counter {
    const fn column(self) -> &'static str {
        match self {
            Self::Used => "used_bytes",
            Self::Orphan => "orphan_bytes",
            Self::Reserved => "reserved_bytes",
        }
    }
}

/// SQL that moves the bytes of `rows` between counters, each row in its own stripe. With `None` the bytes are no longer
/// counted. `rows` is a table and a condition, with columns `backend_name`, `stripe` and `size_bytes`.
pub(crate) fn move_bytes(from: Counter, to: Option<Counter>, rows: &str) -> String {
    let from = from.column();
    let add = to.map(Counter::column).map(|to| format!(", {to} = {to} + s.n")).unwrap_or_default();
    format!(
        "UPDATE backend_quotas SET {from} = {from} - s.n{add} \
         FROM (SELECT backend_name AS b, stripe AS t, sum(size_bytes) AS n FROM {rows} \
         GROUP BY backend_name, stripe) s \
         WHERE s.b = backend_quotas.backend_name AND s.t = backend_quotas.stripe"
    )
}

/// SQL that adds the bytes of `rows`, which no counter includes yet, to a counter.
pub(crate) fn add_bytes(to: Counter, rows: &str) -> String {
    let to = to.column();
    format!(
        "UPDATE backend_quotas SET {to} = {to} + s.n \
         FROM (SELECT backend_name AS b, stripe AS t, CAST(sum(size_bytes) AS BIGINT) AS n FROM {rows} \
         GROUP BY backend_name, stripe) s \
         WHERE s.b = backend_quotas.backend_name AND s.t = backend_quotas.stripe"
    )
}

/// SQL that locks the quota rows which count `rows`, in the order of every unit that changes several of them.
pub(crate) fn lock_quota_rows(rows: &str) -> String {
    format!(
        "SELECT stripe FROM backend_quotas WHERE (backend_name, stripe) IN (SELECT backend_name, stripe FROM {rows}) \
         ORDER BY backend_name, stripe /*lock*/"
    )
}

/// The stripe that counts the bytes of a write.
pub(crate) fn stripe_for(intent: IntentId, stripes: u32) -> u32 {
    // The last bits of an identifier are random.
    let random = u32::from_be_bytes(intent.uuid().as_bytes()[12..].try_into().expect("four bytes"));
    random % stripes.max(1)
}

/// Locked before shares are compared with their sum, so that no other unit changes the sum.
const LOCK_LIMITED: &str = "SELECT stripe FROM backend_quotas \
     WHERE backend_name = $1 AND share_bytes IS NOT NULL ORDER BY stripe /*lock*/";

/// Gives stripe `$1` of backend `$3` capacity for `$2` bytes, and each stripe an equal part of what is then left of
/// the limit. The shares always add up to the limit, to the byte.
const SHARE_ANEW: &str = "UPDATE backend_quotas SET share_bytes = used_bytes + orphan_bytes + reserved_bytes \
     + s.rest / s.n + CASE WHEN stripe = $1 THEN $2 + s.rest % s.n ELSE 0 END \
     FROM (SELECT CAST(sum(share_bytes) - sum(used_bytes + orphan_bytes + reserved_bytes) AS BIGINT) - $2 AS rest, \
     CAST(count(*) AS BIGINT) AS n FROM backend_quotas WHERE backend_name = $3) s \
     WHERE backend_name = $3 AND share_bytes IS NOT NULL AND s.rest >= 0";

/// Adds the statements that divide a backend's limit again, so that this stripe has capacity for the write if the
/// backend has.
pub(crate) fn share_anew(unit: &mut Unit, backend: &BackendName, stripe: u32, size_bytes: u64) {
    unit.at(LockRank::Quota).run(LOCK_LIMITED, params![backend]);
    unit.run(SHARE_ANEW, params![stripe, size_bytes, backend]);
}

const CREATE_STRIPES: &str = "INSERT INTO backend_quotas (backend_name, stripe) \
     SELECT CAST($1 AS TEXT), CAST(t.value ->> 0 AS BIGINT) FROM json_each($2) t WHERE 1 = 1 \
     ON CONFLICT (backend_name, stripe) DO NOTHING";

const LOCK_STRIPES: &str = "SELECT stripe FROM backend_quotas WHERE backend_name = $1 ORDER BY stripe /*lock*/";

/// A limit below the stored bytes leaves no capacity; it is divided all the same.
const SET_LIMIT: &str = "UPDATE backend_quotas SET share_bytes = used_bytes + orphan_bytes + reserved_bytes \
     + s.rest / s.n + CASE WHEN stripe = 0 THEN s.rest % s.n ELSE 0 END \
     FROM (SELECT CAST($1 AS BIGINT) - CAST(sum(used_bytes + orphan_bytes + reserved_bytes) AS BIGINT) AS rest, \
     CAST(count(*) AS BIGINT) AS n FROM backend_quotas WHERE backend_name = $2) s WHERE backend_name = $2";

/// Free capacity of a backend; NULL if it has no limit.
const FREE: &str = "SELECT \
     CAST(sum(share_bytes) - sum(used_bytes + orphan_bytes + reserved_bytes) AS BIGINT) AS free_bytes \
     FROM backend_quotas WHERE backend_name = $1";

/// Counters of a backend, summed over its stripes.
pub(crate) const SUMS: &str = "backend_name, CAST(sum(share_bytes) AS BIGINT) AS limit_bytes, \
     CAST(sum(used_bytes) AS BIGINT) AS used, CAST(sum(orphan_bytes) AS BIGINT) AS orphan, \
     CAST(sum(reserved_bytes) AS BIGINT) AS reserved";

pub(crate) fn quota_usage(row: &Row) -> Result<QuotaUsage, Error> {
    let limit = row.opt_int("limit_bytes")?.map(|limit| u64::try_from(limit).unwrap_or(0));
    Ok(QuotaUsage {
        backend: row.parse("backend_name")?,
        limit_bytes: limit,
        used_bytes: row.size("used")?,
        orphan_bytes: row.size("orphan")?,
        reserved_bytes: row.size("reserved")?,
    })
}

impl Catalog {
    /// Creates a backend's quota rows, or changes its limit.
    pub async fn set_limit(&self, backend: &BackendName, limit_bytes: Option<u64>) -> Result<(), Error> {
        self.set_limits(&[(backend, limit_bytes)]).await
    }

    /// Creates the quota rows of all these backends, or changes their limits, in one transaction.
    pub async fn set_limits(&self, limits: &[(&BackendName, Option<u64>)]) -> Result<(), Error> {
        let stripes: Vec<[u32; 1]> = (0..self.driver.stripes()).map(|stripe| [stripe]).collect();
        let stripes = json(&stripes);
        let mut unit = Unit::new("set_limits");
        for (backend, limit_bytes) in limits {
            unit.run(CREATE_STRIPES, params![*backend, &stripes]);
            unit.lock(LockRank::Quota, LOCK_STRIPES, params![*backend]);
            unit.run(SET_LIMIT, params![*limit_bytes, *backend]);
        }
        self.write(unit).await.map(drop)
    }

    /// Counters of every backend, summed over its stripes, ordered by name.
    pub async fn quota_usage(&self) -> Result<Vec<QuotaUsage>, Error> {
        static SQL: LazyLock<String> =
            LazyLock::new(|| format!("SELECT {SUMS} FROM backend_quotas GROUP BY backend_name ORDER BY backend_name"));
        self.survey(&SQL, vec![]).await?.iter().map(quota_usage).collect()
    }
}

impl Catalog {
    /// True if the stripes of a backend with a limit have this capacity together.
    pub(crate) async fn has_capacity(&self, backend: &BackendName, size_bytes: u64) -> Result<bool, Error> {
        let free = self.read(FREE, params![backend]).await?[0].opt_int("free_bytes")?;
        Ok(free.is_some_and(|free| u64::try_from(free).is_ok_and(|free| free >= size_bytes)))
    }
}
