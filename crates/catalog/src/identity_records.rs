//! Records of hosts about backends whose identity does not match, each with a lease.

use std::time::Duration;

use s3o_model::clock::millis_of;
use s3o_model::names::BackendName;

use crate::error::Error;
use crate::unit::{Row, Unit};
use crate::{Catalog, params};

/// Time for which an expired record is kept, because of its dismissal.
const ENDED_KEPT: Duration = Duration::from_hours(24);

/// The identity that a host found at a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityRecord {
    /// Host name with the listening address of the instance.
    pub host: String,
    /// The identity object as JSON.
    pub found: String,
    /// Hash of `found`.
    pub hash: String,
    /// Why the host froze the backend; `None` if the identity matches.
    pub reason: Option<String>,
    /// True if an operator dismissed a record with this hash.
    pub dismissed: bool,
    /// Time since the host first found this hash.
    pub age: Duration,
}

fn record(row: &Row) -> Result<IdentityRecord, Error> {
    Ok(IdentityRecord {
        host: row.string("host")?,
        found: row.string("found")?,
        hash: row.string("hash")?,
        reason: row.opt_string("reason")?,
        dismissed: row.opt_text("dismissed_hash")? == Some(row.text("hash")?),
        age: Duration::from_millis(u64::try_from(row.int("age")?).unwrap_or(0)),
    })
}

impl Catalog {
    /// Inserts the record of a host, or renews its lease. A dismissal holds as long as the hash stays the same. A live
    /// record of a mismatch is not replaced by one of a match: another instance may use the same host name.
    pub async fn record(&self, backend: &BackendName, record: &IdentityRecord, lease: Duration) -> Result<(), Error> {
        let IdentityRecord { host, found, hash, reason, .. } = record;
        let mut unit = Unit::new("record_identity");
        unit.run("DELETE FROM identity_records WHERE lease_until < :now - $1", params![millis_of(ENDED_KEPT)]);
        unit.run(
            "INSERT INTO identity_records (backend_name, host, found, hash, reason, lease_until, created_at) \
             VALUES ($1, $2, $3, $4, $5, :now + $6, :now) ON CONFLICT (backend_name, host) DO UPDATE SET \
             created_at = CASE WHEN identity_records.hash = excluded.hash AND identity_records.lease_until > :now \
             THEN identity_records.created_at ELSE excluded.created_at END, \
             found = excluded.found, hash = excluded.hash, reason = excluded.reason, lease_until = \
             excluded.lease_until \
             WHERE excluded.reason IS NOT NULL OR identity_records.reason IS NULL OR identity_records.lease_until \
             <= :now",
            params![backend, host, found, hash, reason.as_ref(), millis_of(lease)],
        );
        self.write(unit).await.map(drop)
    }

    /// Deletes the record of a host; `false` if there was none.
    pub async fn close_record(&self, backend: &BackendName, host: &str) -> Result<bool, Error> {
        let mut unit = Unit::new("close_record");
        unit.run("DELETE FROM identity_records WHERE backend_name = $1 AND host = $2", params![backend, host]);
        Ok(self.write(unit).await?[0].changed > 0)
    }

    /// The records of a backend whose leases have not expired.
    pub async fn live_records(&self, backend: &BackendName) -> Result<Vec<IdentityRecord>, Error> {
        const LIVE: &str = "SELECT host, found, hash, reason, dismissed_hash, :now - created_at AS age \
             FROM identity_records WHERE backend_name = $1 AND lease_until > :now ORDER BY host";
        self.read(LIVE, params![backend]).await?.iter().map(record).collect()
    }

    /// Dismisses the mismatch of a host, which no longer stops deletes until the host finds another identity. `false`
    /// if there was no such record.
    pub async fn dismiss_record(&self, backend: &BackendName, host: &str) -> Result<bool, Error> {
        let mut unit = Unit::new("dismiss_record");
        unit.run(
            "UPDATE identity_records SET dismissed_hash = hash WHERE backend_name = $1 AND host = $2 \
             AND reason IS NOT NULL",
            params![backend, host],
        );
        Ok(self.write(unit).await?[0].changed > 0)
    }
}
