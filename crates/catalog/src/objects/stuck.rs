//! Objects whose deletion was begun and never finished.

use std::time::Duration;

use async_trait::async_trait;
use s3o_model::clock::{Timestamp, millis_of};

use crate::error::Error;
use crate::low_water::Queue;
use crate::unit::{Row, Unit, json};
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

/// Chosen once, like the rows of a claim.
const RESET: &str = concat!(
    "WITH chosen AS MATERIALIZED (",
    stuck!("bucket_id, key", "ORDER BY deletion_initiated_at LIMIT $2 /*skip*/"),
    ") UPDATE objects SET deletion_status = 'NOT_EXPIRED', deletion_initiated_at = NULL, token = NULL \
     WHERE (bucket_id, key) IN (SELECT bucket_id, key FROM chosen) \
     RETURNING (SELECT name FROM buckets WHERE id = bucket_id), key, expires_at"
);

/// What could not be removed and is tried again is found again, if it is.
const FORGET_FINDINGS: &str = "DELETE FROM findings WHERE kind = 'not_expired' AND backend_name = '' \
     AND physical_key IN TEXTS($1)";

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
        let answers = self.write(unit).await?;
        let reset = answers[0].rows.iter().map(stuck_object).collect::<Result<Vec<_>, _>>()?;
        for row in &answers[0].rows {
            // It waits again, though it expired long ago: the next look begins there.
            if let Some(expired) = row.opt_int(2)?.map(Timestamp::from_millis) {
                self.low_waters.of(Queue::Expiries, |water| water.lower(expired));
            }
        }
        self.forget_findings(&reset).await?;
        Ok(reset)
    }
}

impl Catalog {
    async fn forget_findings(&self, reset: &[StuckObject]) -> Result<(), Error> {
        let names: Vec<String> = reset.iter().map(|object| format!("{}/{}", object.bucket, object.key)).collect();
        let mut unit = Unit::new("forget_findings");
        unit.run(FORGET_FINDINGS, params![json(&names)]);
        self.write(unit).await.map(drop)
    }
}
