//! The books of the backends.

use async_trait::async_trait;
use s3o_model::ids::IntentId;
use s3o_model::names::BackendName;
use s3o_model::quota::Books;

use crate::error::Error;
use crate::unit::{Row, Unit, json};
use crate::{Catalog, params};

/// The stripe that a write is booked on.
pub(crate) fn stripe_for(intent: IntentId, stripes: u32) -> u32 {
    // The last bits of an identifier are random.
    let random = u32::from_be_bytes(intent.uuid().as_bytes()[12..].try_into().expect("four bytes"));
    random % stripes.max(1)
}

/// How a limit is shared among the stripes of a backend when room is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// As it was shared before.
    AsItIs,
    /// Anew, so that one stripe can take what fits nowhere although there is room.
    Anew,
}

/// Locked before shares are judged by their sum, so that it is the sum of everybody before.
const ENTER_LIMITED: &str = "SELECT stripe FROM backend_quotas \
     WHERE backend_name = $1 AND share_bytes IS NOT NULL ORDER BY stripe /*lock*/";

/// Gives the stripe `$1` of the backend `$3` room for `$2` bytes, and each an equal part of what is then left of the
/// limit. The shares always add up to the limit, to the byte.
const SHARE_ANEW: &str = "UPDATE backend_quotas SET share_bytes = used_bytes + orphan_bytes + reserved_bytes \
     + s.rest / s.n + CASE WHEN stripe = $1 THEN $2 + s.rest % s.n ELSE 0 END \
     FROM (SELECT CAST(sum(share_bytes) - sum(used_bytes + orphan_bytes + reserved_bytes) AS BIGINT) - $2 AS rest, \
     CAST(count(*) AS BIGINT) AS n FROM backend_quotas WHERE backend_name = $3) s \
     WHERE backend_name = $3 AND share_bytes IS NOT NULL AND s.rest >= 0";

/// Adds the statements that share a backend's limit anew, for a write of this size on this stripe.
pub(crate) fn share_anew(unit: &mut Unit, backend: &BackendName, stripe: u32, size_bytes: u64) {
    unit.run(ENTER_LIMITED, params![backend]);
    unit.run(SHARE_ANEW, params![stripe, size_bytes, backend]);
}

/// What is known of room.
#[async_trait]
pub trait Quotas: Send + Sync {
    /// Opens a backend's books, or changes its limit.
    async fn set_limit(&self, backend: &BackendName, limit_bytes: Option<u64>) -> Result<(), Error> {
        self.set_limits(&[(backend, limit_bytes)]).await
    }

    /// Opens the books of backends, or changes their limits: of all, or of none.
    async fn set_limits(&self, limits: &[(&BackendName, Option<u64>)]) -> Result<(), Error>;

    /// All books.
    async fn books(&self) -> Result<Vec<Books>, Error>;
}

const OPEN_BOOKS: &str = "INSERT INTO backend_quotas (backend_name, stripe) \
     SELECT CAST($1 AS TEXT), CAST(t.value ->> 0 AS BIGINT) FROM json_each($2) t WHERE 1 = 1 \
     ON CONFLICT (backend_name, stripe) DO NOTHING";

const ENTER: &str = "SELECT stripe FROM backend_quotas WHERE backend_name = $1 ORDER BY stripe /*lock*/";

/// A limit below what is there leaves no room, and is shared all the same.
const SET_LIMIT: &str = "UPDATE backend_quotas SET share_bytes = used_bytes + orphan_bytes + reserved_bytes \
     + s.rest / s.n + CASE WHEN stripe = 0 THEN s.rest % s.n ELSE 0 END \
     FROM (SELECT CAST($1 AS BIGINT) - CAST(sum(used_bytes + orphan_bytes + reserved_bytes) AS BIGINT) AS rest, \
     CAST(count(*) AS BIGINT) AS n FROM backend_quotas WHERE backend_name = $2) s WHERE backend_name = $2";

/// How much more a backend may hold; nothing where it has no limit.
const LEFT: &str = "SELECT CAST(sum(share_bytes) - sum(used_bytes + orphan_bytes + reserved_bytes) AS BIGINT) \
     FROM backend_quotas WHERE backend_name = $1";

fn books(row: &Row) -> Result<Books, Error> {
    let limit = row.opt_int(1)?.map(|limit| u64::try_from(limit).unwrap_or(0));
    Ok(Books {
        backend: row.parse(0)?,
        limit_bytes: limit,
        used_bytes: row.size(2)?,
        orphan_bytes: row.size(3)?,
        reserved_bytes: row.size(4)?,
    })
}

#[async_trait]
impl Quotas for Catalog {
    async fn set_limits(&self, limits: &[(&BackendName, Option<u64>)]) -> Result<(), Error> {
        let stripes: Vec<[u32; 1]> = (0..self.driver.stripes()).map(|stripe| [stripe]).collect();
        let stripes = json(&stripes);
        let mut unit = Unit::new("set_limits");
        for (backend, limit_bytes) in limits {
            unit.run(OPEN_BOOKS, params![*backend, &stripes]);
            unit.lock(ENTER, params![*backend]);
            unit.run(SET_LIMIT, params![*limit_bytes, *backend]);
        }
        self.write(unit).await.map(drop)
    }

    async fn books(&self) -> Result<Vec<Books>, Error> {
        const SQL: &str = "SELECT backend_name, CAST(sum(share_bytes) AS BIGINT), CAST(sum(used_bytes) AS BIGINT), \
             CAST(sum(orphan_bytes) AS BIGINT), CAST(sum(reserved_bytes) AS BIGINT) \
             FROM backend_quotas GROUP BY backend_name ORDER BY backend_name";
        self.survey(SQL, vec![]).await?.iter().map(books).collect()
    }
}

impl Catalog {
    /// Whether there is room on all stripes of a limited backend together.
    pub(crate) async fn has_room(&self, backend: &BackendName, size_bytes: u64) -> Result<bool, Error> {
        let left = self.read(LEFT, params![backend]).await?[0].opt_int(0)?;
        Ok(left.is_some_and(|left| u64::try_from(left).is_ok_and(|left| left >= size_bytes)))
    }
}
