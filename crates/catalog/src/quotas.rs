//! The books of the backends.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use s3o_model::ids::IntentId;
use s3o_model::names::BackendName;
use s3o_model::quota::Books;

use crate::error::Error;
use crate::unit::{Row, Unit, json};
use crate::{Catalog, params};

/// Which backends have a limit, as this process was told; writes to the others may use any stripe.
#[derive(Debug, Clone, Default)]
pub(crate) struct Limited(Arc<RwLock<HashSet<BackendName>>>);

impl Limited {
    fn note(&self, backend: &BackendName, limited: bool) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if limited {
            known.insert(backend.clone());
        } else {
            known.remove(backend);
        }
    }

    /// The stripe that a write is booked on.
    pub(crate) fn stripe_for(&self, backend: &BackendName, intent: IntentId, stripes: u32) -> u32 {
        if self.0.read().unwrap_or_else(PoisonError::into_inner).contains(backend) {
            return 0;
        }
        // The last bits of an identifier are random.
        let random = u32::from_be_bytes(intent.uuid().as_bytes()[12..].try_into().expect("four bytes"));
        random % stripes.max(1)
    }
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

const SET_LIMIT: &str = "INSERT INTO backend_quotas (backend_name, stripe, share_bytes) \
     SELECT CAST($1 AS TEXT), CAST(t.value ->> 0 AS BIGINT), CAST($3 AS BIGINT) FROM json_each($2) t WHERE 1 = 1 \
     ON CONFLICT (backend_name, stripe) DO UPDATE SET share_bytes = excluded.share_bytes";

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
            unit.run(SET_LIMIT, params![*backend, &stripes, *limit_bytes]);
        }
        self.write(unit).await?;
        for (backend, limit_bytes) in limits {
            self.limited.note(backend, limit_bytes.is_some());
        }
        Ok(())
    }

    async fn books(&self) -> Result<Vec<Books>, Error> {
        const SQL: &str = "SELECT backend_name, max(share_bytes), CAST(sum(used_bytes) AS BIGINT), \
             CAST(sum(orphan_bytes) AS BIGINT), CAST(sum(reserved_bytes) AS BIGINT) \
             FROM backend_quotas GROUP BY backend_name ORDER BY backend_name";
        self.read(SQL, vec![]).await?.iter().map(books).collect()
    }
}
