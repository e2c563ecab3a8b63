//! The books of the backends.

use async_trait::async_trait;
use s3o_model::names::BackendName;
use s3o_model::quota::Books;

use crate::error::Error;
use crate::unit::{Row, Unit};
use crate::{Catalog, params};

/// What is known of room.
#[async_trait]
pub trait Quotas: Send + Sync {
    /// Opens a backend's books, or changes its limit.
    async fn set_limit(&self, backend: &BackendName, limit_bytes: Option<u64>) -> Result<(), Error>;

    /// All books.
    async fn books(&self) -> Result<Vec<Books>, Error>;
}

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
    async fn set_limit(&self, backend: &BackendName, limit_bytes: Option<u64>) -> Result<(), Error> {
        let mut unit = Unit::new("set_limit");
        unit.run(
            "INSERT INTO backend_quotas (backend_name, stripe, share_bytes) VALUES ($1, 0, $2) \
             ON CONFLICT (backend_name, stripe) DO UPDATE SET share_bytes = excluded.share_bytes",
            params![backend, limit_bytes],
        );
        self.write(unit).await.map(drop)
    }

    async fn books(&self) -> Result<Vec<Books>, Error> {
        const SQL: &str = "SELECT backend_name, CAST(sum(share_bytes) AS BIGINT), CAST(sum(used_bytes) AS BIGINT), \
             CAST(sum(orphan_bytes) AS BIGINT), CAST(sum(reserved_bytes) AS BIGINT) \
             FROM backend_quotas GROUP BY backend_name ORDER BY backend_name";
        self.read(SQL, vec![]).await?.iter().map(books).collect()
    }
}
