//! What hosts found at backends whose identity does not fit, each with a lease.

use std::time::Duration;

use async_trait::async_trait;
use s3o_model::clock::millis_of;
use s3o_model::names::BackendName;

use crate::error::Error;
use crate::unit::{Row, Unit};
use crate::{Catalog, params};

/// How long a record whose lease has ended is kept, with the dismissal of what it found.
const ENDED_KEPT: Duration = Duration::from_hours(24);

/// What a host found at a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityRecord {
    /// The host, with the address on which the instance listens.
    pub host: String,
    /// The identity object that it found, as JSON.
    pub found: String,
    /// The hash of what it found.
    pub hash: String,
    /// Why the backend is frozen there; `None` where the identity fits.
    pub reason: Option<String>,
    /// Whether an operator dismissed exactly what it found.
    pub dismissed: bool,
    /// For how long it has found that.
    pub age: Duration,
}

/// What hosts found at backends. A record counts until its lease ends.
#[async_trait]
pub trait IdentityRecords: Send + Sync {
    /// Enters what this host found, or renews the lease of its record. A dismissal holds as long as the hash stays the
    /// same. A live record of what does not fit is not replaced by one that fits: another instance may run under the same
    /// name.
    async fn record(&self, backend: &BackendName, record: &IdentityRecord, lease: Duration) -> Result<(), Error>;

    /// Removes the record of a host; says whether there was one.
    async fn close_record(&self, backend: &BackendName, host: &str) -> Result<bool, Error>;

    /// The records of a backend whose leases live.
    async fn live_records(&self, backend: &BackendName) -> Result<Vec<IdentityRecord>, Error>;

    /// The backends where a live record that was not dismissed does not fit.
    async fn disputed_backends(&self) -> Result<Vec<BackendName>, Error>;

    /// Dismisses what a host found; it stops no deletes until it finds something else. Says whether
    /// there was such a record.
    async fn dismiss_record(&self, backend: &BackendName, host: &str) -> Result<bool, Error>;
}

fn record(row: &Row) -> Result<IdentityRecord, Error> {
    Ok(IdentityRecord {
        host: row.text(0)?.to_owned(),
        found: row.text(1)?.to_owned(),
        hash: row.text(2)?.to_owned(),
        reason: row.opt_text(3)?.map(str::to_owned),
        dismissed: row.opt_text(4)? == Some(row.text(2)?),
        age: Duration::from_millis(u64::try_from(row.int(5)?).unwrap_or(0)),
    })
}

#[async_trait]
impl IdentityRecords for Catalog {
    async fn record(&self, backend: &BackendName, record: &IdentityRecord, lease: Duration) -> Result<(), Error> {
        let IdentityRecord { host, found, hash, reason, .. } = record;
        let mut unit = Unit::new("record_identity");
        unit.run("DELETE FROM identity_records WHERE lease_until < :now - $1", params![millis_of(ENDED_KEPT)]);
        unit.run(
            "INSERT INTO identity_records (backend_name, host, found, hash, reason, lease_until, created_at) \
             VALUES ($1, $2, $3, $4, $5, :now + $6, :now) ON CONFLICT (backend_name, host) DO UPDATE SET \
             created_at = CASE WHEN identity_records.hash = excluded.hash AND identity_records.lease_until > :now \
             THEN identity_records.created_at ELSE excluded.created_at END, \
             found = excluded.found, hash = excluded.hash, reason = excluded.reason, lease_until = excluded.lease_until \
             WHERE excluded.reason IS NOT NULL OR identity_records.reason IS NULL OR identity_records.lease_until <= :now",
            params![backend, host, found, hash, reason.as_ref(), millis_of(lease)],
        );
        self.write(unit).await.map(drop)
    }

    async fn close_record(&self, backend: &BackendName, host: &str) -> Result<bool, Error> {
        let mut unit = Unit::new("close_record");
        unit.run("DELETE FROM identity_records WHERE backend_name = $1 AND host = $2", params![backend, host]);
        Ok(self.write(unit).await?[0].changed > 0)
    }

    async fn live_records(&self, backend: &BackendName) -> Result<Vec<IdentityRecord>, Error> {
        const LIVE: &str = "SELECT host, found, hash, reason, dismissed_hash, :now - created_at FROM identity_records \
             WHERE backend_name = $1 AND lease_until > :now ORDER BY host";
        self.read(LIVE, params![backend]).await?.iter().map(record).collect()
    }

    async fn disputed_backends(&self) -> Result<Vec<BackendName>, Error> {
        const DISPUTED: &str = "SELECT DISTINCT backend_name FROM identity_records WHERE reason IS NOT NULL \
             AND COALESCE(dismissed_hash, '') <> hash AND lease_until > :now ORDER BY backend_name";
        self.read(DISPUTED, vec![]).await?.iter().map(|row| row.parse(0)).collect()
    }

    async fn dismiss_record(&self, backend: &BackendName, host: &str) -> Result<bool, Error> {
        let mut unit = Unit::new("dismiss_record");
        unit.run(
            "UPDATE identity_records SET dismissed_hash = hash WHERE backend_name = $1 AND host = $2 \
             AND reason IS NOT NULL",
            params![backend, host],
        );
        Ok(self.write(unit).await?[0].changed > 0)
    }
}
