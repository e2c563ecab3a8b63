//! Objects whose deletion was claimed and never finished.

use std::time::Duration;

use s3o_model::clock::millis_of;

use crate::error::Error;
use crate::low_water::Queue;
use crate::unit::{Row, Unit, json};
use crate::{Catalog, params};

/// An object whose claim was reset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StuckObject {
    /// Name of the bucket.
    pub bucket: String,
    /// For the audit line, as clients see it.
    pub key: String,
}

const ANY_STUCK: &str = "SELECT 1 FROM objects WHERE deletion_status = 'DELETION_IN_PROGRESS' \
     AND deletion_initiated_at <= :now - $1 LIMIT 1";

/// `MATERIALIZED` for the same reason as in the claim of cleanups.
const RESET: &str = "WITH chosen AS MATERIALIZED (SELECT bucket_id, key FROM objects \
     WHERE deletion_status = 'DELETION_IN_PROGRESS' AND deletion_initiated_at <= :now - $1 \
     ORDER BY deletion_initiated_at LIMIT $2 /*skip*/) \
     UPDATE objects SET deletion_status = 'NOT_EXPIRED', deletion_initiated_at = NULL, token = NULL \
     WHERE (bucket_id, key) IN (SELECT bucket_id, key FROM chosen) \
     RETURNING (SELECT name FROM buckets WHERE id = bucket_id) AS bucket, key, expires_at";

/// The next failed deletion inserts its finding again.
const FORGET_FINDINGS: &str = "DELETE FROM findings WHERE kind = 'not_expired' AND backend_name = '' \
     AND physical_key IN TEXTS($1)";

fn stuck_object(row: &Row) -> Result<StuckObject, Error> {
    Ok(StuckObject { bucket: row.string("bucket")?, key: row.string("key")? })
}

impl Catalog {
    /// Resets claims older than `after`, at most `limit`, so that the objects can be claimed again. The worker that
    /// held a claim finds no row with its token. Each object is returned to one caller.
    pub async fn reset_stuck(&self, after: Duration, limit: usize) -> Result<Vec<StuckObject>, Error> {
        if self.read(ANY_STUCK, params![millis_of(after)]).await?.is_empty() {
            return Ok(Vec::new());
        }
        let mut unit = Unit::new("reset_stuck");
        unit.run(RESET, params![millis_of(after), limit]);
        let answers = self.write(unit).await?;
        let reset = answers[0].rows.iter().map(stuck_object).collect::<Result<Vec<_>, _>>()?;
        for row in &answers[0].rows {
            // It can be claimed again although it expired long ago: the next query begins there.
            if let Some(expired) = row.opt_time("expires_at")? {
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
