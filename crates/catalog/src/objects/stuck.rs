//! Objects whose deletion was begun and never finished.

use std::time::Duration;

use async_trait::async_trait;
use s3o_model::clock::millis_of;

use crate::error::Error;
use crate::unit::{Row, Unit};
use crate::{Catalog, params};

/// An object that was taken from whoever was deleting it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StuckObject {
    /// Its bucket.
    pub bucket: String,
    /// Its key.
    pub key: String,
}

/// What is known of deletions that do not end.
#[async_trait]
pub trait StuckObjects: Send + Sync {
    /// Gives up deletions begun longer ago than `after`, at most `limit`: they can be begun again,
    /// and whoever held them finds nothing under its token. Each is told to one caller.
    async fn reset_stuck(&self, after: Duration, limit: usize) -> Result<Vec<StuckObject>, Error>;
}

macro_rules! stuck {
    ($columns:literal, $tail:literal) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM objects WHERE deletion_status = 'DELETION_IN_PROGRESS' AND deletion_initiated_at <= :now - $1 ",
            $tail
        )
    };
}

const RESET: &str = concat!(
    "UPDATE objects SET deletion_status = 'NOT_EXPIRED', deletion_initiated_at = NULL, token = NULL \
     WHERE (bucket_id, key) IN (",
    stuck!("bucket_id, key", "ORDER BY deletion_initiated_at LIMIT $2 /*skip*/"),
    ") RETURNING (SELECT name FROM buckets WHERE id = bucket_id), key"
);

fn stuck_object(row: &Row) -> Result<StuckObject, Error> {
    Ok(StuckObject { bucket: row.text(0)?.to_owned(), key: row.text(1)?.to_owned() })
}

#[async_trait]
impl StuckObjects for Catalog {
    async fn reset_stuck(&self, after: Duration, limit: usize) -> Result<Vec<StuckObject>, Error> {
        if self.read(stuck!("1", "LIMIT 1"), params![millis_of(after)]).await?.is_empty() {
            return Ok(Vec::new());
        }
        let mut unit = Unit::new("reset_stuck");
        unit.run(RESET, params![millis_of(after), limit]);
        self.write(unit).await?[0].rows.iter().map(stuck_object).collect()
    }
}
