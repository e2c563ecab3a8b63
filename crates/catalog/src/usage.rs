//! Usage of the backends: totals of each process and month, and the ceilings up to which a process may count before it
//! queries again.
//!
//! Totals of one process only grow and are merged by the larger number, so no order and no repetition of writes
//! matters. Ceilings are computed outside from a [`MonthReading`] and are stored only if no other process has stored
//! any since.

use std::time::Duration;

use s3o_model::clock::{Timestamp, millis_of};
use s3o_model::ids::InstanceId;
use s3o_model::names::BackendName;
use s3o_model::usage::{Month, ProcessUsage, UsageKind, UsageRecord, UsageTotals};

use crate::error::{Error, Verdict};
use crate::unit::{Row, Unit, json};
use crate::{Catalog, params};

/// The row of one process and backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessRow {
    /// The counted backend.
    pub backend: BackendName,
    /// The process that counts.
    pub instance: InstanceId,
    /// Its totals and ceilings.
    pub usage: ProcessUsage,
}

/// The usage of one month as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MonthReading {
    /// The catalog's clock.
    pub now: Timestamp,
    /// Revision of the ceilings.
    pub revision: u64,
    /// Rows of all processes.
    pub rows: Vec<ProcessRow>,
}

/// New ceilings of one process.
#[derive(Debug, Clone)]
pub struct UsageAllotment {
    /// The reading from which the ceilings were computed.
    pub revision: u64,
    /// How long the process may use them.
    pub lease: Duration,
    /// Current totals of each limited backend, and their ceilings. All are of one process and one month.
    pub ceilings: Vec<(UsageRecord, UsageTotals)>,
}

const READ: &str = "SELECT n.now AS now, n.revision AS revision, u.backend_name AS backend, u.instance AS instance, \
     u.requests AS requests, u.egress_bytes AS egress, u.ingress_bytes AS ingress, \
     u.requests_ceiling AS requests_ceiling, u.egress_ceiling AS egress_ceiling, u.ingress_ceiling AS ingress_ceiling, \
     CASE WHEN u.lease_until > n.now THEN 1 ELSE 0 END AS is_live \
     FROM (SELECT :now AS now, revision FROM usage_ceilings) n \
     LEFT JOIN backend_usage u ON u.month = $1 AND u.instance <> '' ORDER BY backend, instance";

/// Merges the totals in `$1`, a list of month, backend, process and three numbers.
const MERGE: &str = "INSERT INTO backend_usage (month, backend_name, instance, requests, egress_bytes, ingress_bytes) \
     SELECT t.value ->> 0, t.value ->> 1, t.value ->> 2, CAST(t.value ->> 3 AS BIGINT), CAST(t.value ->> 4 AS BIGINT), \
     CAST(t.value ->> 5 AS BIGINT) FROM json_each($1) t WHERE 1 = 1 \
     ON CONFLICT (month, backend_name, instance) DO UPDATE SET \
     requests = CASE WHEN backend_usage.requests > excluded.requests THEN backend_usage.requests \
         ELSE excluded.requests END, \
     egress_bytes = CASE WHEN backend_usage.egress_bytes > excluded.egress_bytes THEN backend_usage.egress_bytes \
         ELSE excluded.egress_bytes END, \
     ingress_bytes = CASE WHEN backend_usage.ingress_bytes > excluded.ingress_bytes THEN backend_usage.ingress_bytes \
         ELSE excluded.ingress_bytes END \
     RETURNING :now AS now";

/// Fails if ceilings were stored since the reading.
const NEXT_REVISION: &str = "UPDATE usage_ceilings SET revision = revision + 1 WHERE revision = $1";

/// Sets the ceilings in `$1`, a list of month, backend, process and three numbers.
const SET_CEILINGS: &str = "UPDATE backend_usage SET requests_ceiling = s.requests, egress_ceiling = s.egress, \
     ingress_ceiling = s.ingress, lease_until = :now + $2 \
     FROM (SELECT t.value ->> 0 AS m, t.value ->> 1 AS b, t.value ->> 2 AS i, \
     CAST(t.value ->> 3 AS BIGINT) AS requests, CAST(t.value ->> 4 AS BIGINT) AS egress, \
     CAST(t.value ->> 5 AS BIGINT) AS ingress FROM json_each($1) t) s \
     WHERE backend_usage.month = s.m AND backend_usage.backend_name = s.b AND backend_usage.instance = s.i";

/// Only a lease that has not ended: other processes may already use the shares of an ended one.
const EXTEND_LEASES: &str = "UPDATE backend_usage SET lease_until = :now + $3 \
     WHERE month = $1 AND instance = $2 AND lease_until > :now RETURNING :now AS now";

const END_LEASES: &str =
    "UPDATE backend_usage SET lease_until = 0 WHERE month = $1 AND instance = $2 AND lease_until > 0";

/// Adds up the processes of months before `$1`.
const FOLD: &str = "INSERT INTO backend_usage (month, backend_name, instance, requests, egress_bytes, ingress_bytes) \
     SELECT month, backend_name, '', CAST(sum(requests) AS BIGINT), CAST(sum(egress_bytes) AS BIGINT), \
     CAST(sum(ingress_bytes) AS BIGINT) FROM backend_usage WHERE month < $1 AND instance <> '' \
     GROUP BY month, backend_name ON CONFLICT (month, backend_name, instance) DO UPDATE SET \
     requests = backend_usage.requests + excluded.requests, \
     egress_bytes = backend_usage.egress_bytes + excluded.egress_bytes, \
     ingress_bytes = backend_usage.ingress_bytes + excluded.ingress_bytes";

impl Catalog {
    /// Usage of a month, with one query.
    pub async fn usage_of_month(&self, month: Month) -> Result<MonthReading, Error> {
        let rows = self.survey(READ, params![month.to_string()]).await?;
        let first = rows.first().ok_or_else(|| Error::Corrupt("usage_ceilings has no row".to_owned()))?;
        let (now, revision) = (first.time("now")?, first.size("revision")?);
        let rows = rows.iter().filter_map(|row| recorded_usage(row).transpose()).collect::<Result<_, _>>()?;
        Ok(MonthReading { now, revision, rows })
    }

    /// Records totals with one statement; totals that are recorded already change nothing. Returns the catalog's clock.
    pub async fn record_usage(&self, records: &[UsageRecord]) -> Result<Option<Timestamp>, Error> {
        if records.is_empty() {
            return Ok(None);
        }
        let mut unit = Unit::new("record_usage");
        let merged = merge(&mut unit, records);
        let answers = self.write(unit).await?;
        answers[merged].rows.first().map(|row| row.time("now")).transpose()
    }

    /// Records totals and sets new ceilings of a process. Fails as `RunAgain` if ceilings were stored since the
    /// reading.
    pub async fn allot_usage(&self, allotment: &UsageAllotment, records: &[UsageRecord]) -> Result<(), Error> {
        let UsageAllotment { revision, lease, ceilings } = allotment;
        let all: Vec<UsageRecord> = ceilings.iter().map(|(own, _)| own).chain(records).cloned().collect();
        let limits: Vec<UsageRecord> =
            ceilings.iter().map(|(own, ceilings)| UsageRecord { totals: *ceilings, ..own.clone() }).collect();
        let mut unit = Unit::new("allot_usage");
        unit.one(NEXT_REVISION, params![*revision], Verdict::RunAgain);
        merge(&mut unit, &all);
        unit.run(SET_CEILINGS, params![json(&columns(&limits)), millis_of(*lease)]);
        self.write(unit).await.map(drop)
    }

    /// Extends the leases of a process on its ceilings, of which it has `held`, with one statement. Fails as `Fenced`
    /// if one of them has ended. Returns the catalog's clock.
    pub async fn extend_usage_leases(
        &self,
        (month, instance): (Month, InstanceId),
        held: usize,
        lease: Duration,
    ) -> Result<Option<Timestamp>, Error> {
        let mut unit = Unit::new("extend_usage_leases");
        let values = params![month.to_string(), instance, millis_of(lease)];
        let extended = unit.exactly(held, EXTEND_LEASES, values, Verdict::Fenced);
        let answers = self.write(unit).await?;
        answers[extended].rows.first().map(|row| row.time("now")).transpose()
    }

    /// Records the last totals of a process that ends, and returns its shares to the others.
    pub async fn end_usage(&self, month: Month, instance: InstanceId, records: &[UsageRecord]) -> Result<(), Error> {
        let mut unit = Unit::new("end_usage");
        merge(&mut unit, records);
        unit.run(END_LEASES, params![month.to_string(), instance]);
        self.write(unit).await.map(drop)
    }

    /// Replaces the rows of all processes by their sum, in months before `fold`, and deletes months before `keep`. No
    /// process may record totals of a month that was folded.
    pub async fn fold_usage(&self, fold: Month, keep: Month) -> Result<(), Error> {
        let (fold, keep) = (fold.to_string(), keep.to_string());
        let mut unit = Unit::new("fold_usage");
        // Also a lock: a concurrent fold would add the same rows.
        unit.run("UPDATE usage_ceilings SET revision = revision", vec![]);
        unit.run(FOLD, params![&fold]);
        unit.run("DELETE FROM backend_usage WHERE month < $1 AND instance <> ''", params![&fold]);
        unit.run("DELETE FROM backend_usage WHERE month < $1", params![&keep]);
        self.write(unit).await.map(drop)
    }
}

fn merge(unit: &mut Unit, records: &[UsageRecord]) -> usize {
    unit.run(MERGE, params![json(&columns(records))])
}

/// Rows of a JSON parameter, in the order of the primary key, so that concurrent units lock them in one order. Numbers
/// without a limit are stored as 0.
fn columns(records: &[UsageRecord]) -> Vec<(String, String, String, i64, i64, i64)> {
    let number = |totals: &UsageTotals, kind| i64::try_from(totals.of(kind)).unwrap_or(0);
    let mut rows: Vec<_> = records
        .iter()
        .map(|record| {
            let [requests, egress, ingress] = UsageKind::ALL.map(|kind| number(&record.totals, kind));
            let UsageRecord { backend, month, instance, .. } = record;
            (month.to_string(), backend.to_string(), instance.to_string(), requests, egress, ingress)
        })
        .collect();
    rows.sort();
    rows
}

/// `None` for the row of a month without usage.
fn recorded_usage(row: &Row) -> Result<Option<ProcessRow>, Error> {
    if row.opt_text("backend")?.is_none() {
        return Ok(None);
    }
    let totals = |requests: &str, egress: &str, ingress: &str| {
        let (requests, egress_bytes, ingress_bytes) = (row.size(requests)?, row.size(egress)?, row.size(ingress)?);
        Ok::<_, Error>(UsageTotals { requests, egress_bytes, ingress_bytes })
    };
    Ok(Some(ProcessRow {
        backend: row.parse("backend")?,
        instance: row.parse("instance")?,
        usage: ProcessUsage {
            totals: totals("requests", "egress", "ingress")?,
            ceilings: totals("requests_ceiling", "egress_ceiling", "ingress_ceiling")?,
            is_live: row.int("is_live")? == 1,
        },
    }))
}
