//! Times that lie further ahead than the settings allow, because they were written with a clock that was ahead.
//!
//! Rows with such times would wait for as long as the clock was wrong, so they are made due now. Only the time from
//! which an absence is proven is never set to now: it is reduced to its maximum.

use std::time::Duration;

use s3o_model::clock::millis_of;

use crate::error::Error;
use crate::unit::{Unit, Value};
use crate::{Catalog, params};

/// How far ahead the times of rows may lie by the settings.
#[derive(Debug, Clone, Copy)]
pub struct Longest {
    /// Delay until a cleanup is due.
    pub due: Duration,
    /// Time of a claim: the difference that is allowed between clocks of instances.
    pub claim: Duration,
    /// Lease of a write.
    pub lease: Duration,
    /// Start of a deletion: the difference that is allowed between clocks of instances.
    pub deletion: Duration,
    /// Delay until an absence proves that a write never arrived.
    pub absence: Duration,
    /// Time of a condemnation or of an upload: the difference that is allowed between clocks of instances.
    pub past: Duration,
    /// Lease of an identity record.
    pub record: Duration,
}

/// Describes up to ten rows of each kind, for operators.
const SHOWN: &str = "SELECT * FROM (SELECT 'cleanup ' || physical_key || ' is due in ' || ((due - :now) / 1000) \
       || ' s' AS shown FROM cleanup_queue WHERE due > :now + $1 AND token IS NULL LIMIT 10) AS a \
     UNION ALL SELECT * FROM (SELECT 'cleanup ' || physical_key || ' was claimed ' || ((claimed_at - :now) / 1000) \
       || ' s ahead' FROM cleanup_queue WHERE token IS NOT NULL AND claimed_at > :now + $2 LIMIT 10) AS b \
     UNION ALL SELECT * FROM (SELECT 'intent ' || write_id || ' is leased for ' || ((lease_until - :now) / 1000) || \
     ' s' FROM pending_objects WHERE lease_until > :now + $3 LIMIT 10) AS c \
     UNION ALL SELECT * FROM (SELECT 'deletion of ' || key || ' began ' || ((deletion_initiated_at - :now) / 1000) \
       || ' s ahead' FROM objects WHERE deletion_status = 'DELETION_IN_PROGRESS' \
       AND deletion_initiated_at > :now + $4 LIMIT 10) AS d \
     UNION ALL SELECT * FROM (SELECT 'absence of ' || physical_key || ' counts in ' \
       || ((absent_ok_after - :now) / 1000) || ' s' FROM cleanup_queue \
       WHERE absent_ok_after IS NOT NULL AND absent_ok_after > :now + $5 LIMIT 10) AS e \
     UNION ALL SELECT * FROM (SELECT 'content ' || id || ' was condemned ' || ((condemned_at - :now) / 1000) \
       || ' s ahead' FROM contents WHERE state = 'condemned' AND kind = 'joined' \
       AND condemned_at > :now + $6 LIMIT 10) AS f \
     UNION ALL SELECT * FROM (SELECT 'upload ' || id || ' was created ' || ((created_at - :now) / 1000) || ' s ahead' \
       FROM multipart_uploads WHERE state = 'open' AND created_at > :now + $6 LIMIT 10) AS g \
     UNION ALL SELECT * FROM (SELECT 'record of ' || host || ' for backend ' || backend_name || ' is leased for ' \
       || ((lease_until - :now) / 1000) || ' s' FROM identity_records WHERE lease_until > :now + $7 LIMIT 10) AS h \
     UNION ALL SELECT * FROM (SELECT 'object ' || key || ' was deleted to trash ' || ((deleted_at - :now) / 1000) \
       || ' s ahead' FROM trash_objects WHERE deleted_at > :now + $6 LIMIT 10) AS i \
     UNION ALL SELECT * FROM (SELECT kind || ' of prefix ' || prefix || ' is leased for ' \
       || ((lease_until - :now) / 1000) || ' s' FROM prefix_operations WHERE lease_until > :now + $3 LIMIT 10) AS j";

/// Returns a row if there is any such time. Usually there is none, and nothing else runs.
const FOUND: &str = "SELECT 1 WHERE \
     EXISTS (SELECT 1 FROM cleanup_queue WHERE backend_name IN (SELECT name FROM backends) \
       AND due > :now + $1 AND token IS NULL) \
     OR EXISTS (SELECT 1 FROM cleanup_queue WHERE token IS NOT NULL AND claimed_at > :now + $2) \
     OR EXISTS (SELECT 1 FROM pending_objects WHERE lease_until > :now + $3) \
     OR EXISTS (SELECT 1 FROM objects WHERE deletion_status = 'DELETION_IN_PROGRESS' \
       AND deletion_initiated_at > :now + $4) \
     OR EXISTS (SELECT 1 FROM cleanup_queue WHERE absent_ok_after IS NOT NULL AND absent_ok_after > :now + $5) \
     OR EXISTS (SELECT 1 FROM cleanup_dlq WHERE absent_ok_after IS NOT NULL AND absent_ok_after > :now + $5) \
     OR EXISTS (SELECT 1 FROM contents WHERE state = 'condemned' AND kind = 'joined' AND condemned_at > :now + $6) \
     OR EXISTS (SELECT 1 FROM multipart_uploads WHERE state = 'open' AND created_at > :now + $6) \
     OR EXISTS (SELECT 1 FROM multipart_parts WHERE last_modified > :now + $6) \
     OR EXISTS (SELECT 1 FROM trash_objects WHERE deleted_at > :now + $6) \
     OR EXISTS (SELECT 1 FROM prefix_operations WHERE lease_until > :now + $3) \
     OR EXISTS (SELECT 1 FROM identity_records WHERE lease_until > :now + $7)";

/// Bounds the rows of each kind that one call changes: changing a whole queue would block the writer of SQLite.
const ROWS_MAX: usize = 1000;

/// The setting that bounds a time.
type Bound = fn(&Longest) -> Duration;

/// The statement that repairs each kind, and the setting that bounds it.
const END: [(&str, Bound); 12] = [
    (
        "UPDATE cleanup_queue SET due = :now WHERE id IN (SELECT id FROM cleanup_queue \
         WHERE backend_name IN (SELECT name FROM backends) AND due > :now + $1 AND token IS NULL LIMIT $2)",
        |longest| longest.due,
    ),
    (
        "UPDATE cleanup_queue SET token = NULL, claimed_by = NULL, claimed_at = NULL, due = :now \
         WHERE id IN (SELECT id FROM cleanup_queue WHERE token IS NOT NULL AND claimed_at > :now + $1 LIMIT $2)",
        |longest| longest.claim,
    ),
    (
        "UPDATE pending_objects SET lease_until = :now \
         WHERE id IN (SELECT id FROM pending_objects WHERE lease_until > :now + $1 LIMIT $2)",
        |longest| longest.lease,
    ),
    (
        "UPDATE objects SET deletion_status = 'NOT_EXPIRED', deletion_initiated_at = NULL, token = NULL \
         WHERE (bucket_id, key) IN (SELECT bucket_id, key FROM objects \
         WHERE deletion_status = 'DELETION_IN_PROGRESS' AND deletion_initiated_at > :now + $1 LIMIT $2)",
        |longest| longest.deletion,
    ),
    (
        "UPDATE cleanup_queue SET absent_ok_after = :now + $1 WHERE id IN (SELECT id FROM cleanup_queue \
         WHERE absent_ok_after IS NOT NULL AND absent_ok_after > :now + $1 LIMIT $2)",
        |longest| longest.absence,
    ),
    (
        "UPDATE cleanup_dlq SET absent_ok_after = :now + $1 WHERE id IN (SELECT id FROM cleanup_dlq \
         WHERE absent_ok_after IS NOT NULL AND absent_ok_after > :now + $1 LIMIT $2)",
        |longest| longest.absence,
    ),
    (
        "UPDATE contents SET condemned_at = :now WHERE id IN (SELECT id FROM contents \
         WHERE state = 'condemned' AND kind = 'joined' AND condemned_at > :now + $1 LIMIT $2)",
        |longest| longest.past,
    ),
    (
        "UPDATE multipart_uploads SET created_at = :now / 1000 * 1000 WHERE id IN (SELECT id FROM multipart_uploads \
         WHERE state = 'open' AND created_at > :now + $1 LIMIT $2)",
        |longest| longest.past,
    ),
    (
        "UPDATE multipart_parts SET last_modified = :now / 1000 * 1000 WHERE (upload_id, number) IN \
         (SELECT upload_id, number FROM multipart_parts WHERE last_modified > :now + $1 LIMIT $2)",
        |longest| longest.past,
    ),
    // It counts as deleted now, so that its retention begins; a purge at once would delete what can still be restored.
    (
        "UPDATE trash_objects SET deleted_at = :now, purge_at = :now + purge_at - deleted_at \
         WHERE id IN (SELECT id FROM trash_objects WHERE deleted_at > :now + $1 LIMIT $2)",
        |longest| longest.past,
    ),
    ("UPDATE prefix_operations SET lease_until = :now WHERE lease_until > :now + $1", |longest| longest.lease),
    ("UPDATE identity_records SET lease_until = :now + $1 WHERE lease_until > :now + $1", |longest| longest.record),
];

impl Longest {
    fn values(&self) -> Vec<Value> {
        let Self { due, claim, lease, deletion, absence, past, record } = *self;
        let all = [due, claim, lease, deletion, absence, past, record];
        all.into_iter().map(|longest| millis_of(longest).into()).collect()
    }
}

impl Catalog {
    /// Makes rows due whose times lie further ahead than these, at most a thousand of each kind. Returns the number of
    /// changed rows.
    pub async fn end_future(&self, longest: &Longest) -> Result<usize, Error> {
        self.condition.demand_undamaged()?;
        if self.scan(FOUND, longest.values()).await?.is_empty() {
            return Ok(0);
        }
        let mut unit = Unit::new("end_future");
        for (sql, bound) in END {
            unit.run(sql, params![millis_of(bound(longest)), ROWS_MAX]);
        }
        Ok(self.write(unit).await?.iter().map(|answer| answer.changed).sum())
    }

    /// Descriptions of rows whose times lie further ahead than these, up to ten of each kind.
    pub async fn future(&self, longest: &Longest) -> Result<Vec<String>, Error> {
        let rows = self.survey(SHOWN, longest.values()).await?;
        rows.iter().map(|row| row.string("shown")).collect()
    }
}
