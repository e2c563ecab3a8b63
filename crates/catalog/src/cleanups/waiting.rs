//! Whether cleanup has work to do, with one statement: an idle tick runs no other one.

use std::collections::BTreeSet;
use std::time::Duration;

use s3o_model::clock::{Timestamp, millis_of};
use s3o_model::names::BackendName;

use crate::error::Error;
use crate::low_water::{Queue, QueueQuery};
use crate::unit::{Row, Value, json};
use crate::{Catalog, params};

/// Minimum ages of the rows that cleanup processes.
#[derive(Debug, Clone, Copy)]
pub struct Ages {
    /// Claims, which are freed.
    pub claims: Duration,
    /// Condemned joined content, whose pieces are released.
    pub joined: Duration,
    /// Completed uploads, which are deleted with their answers.
    pub answers: Duration,
    /// Condemned whole content, which is deleted.
    pub condemned: Duration,
}

/// The kinds of work that wait for cleanup.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Waiting {
    /// True if there are claims to free.
    pub claims: bool,
    /// True if there are uploads or contents to release or delete.
    pub contents: bool,
    /// Backends with due rows that no worker has claimed.
    pub lanes: BTreeSet<BackendName>,
}

/// The oldest waiting row of each kind, and the time. `$1` is a list of backends and where their queries begin.
pub(crate) const OLDEST_WAITING: &str = "SELECT 'lane' AS kind, t.value ->> 0 AS backend, \
     (SELECT due FROM cleanup_queue \
     WHERE backend_name = t.value ->> 0 AND due >= CAST(t.value ->> 1 AS BIGINT) AND due <= :now AND token IS NULL \
     ORDER BY due LIMIT 1) AS oldest, :now AS now FROM json_each($1) t \
     UNION ALL SELECT 'claims', '', (SELECT claimed_at FROM cleanup_queue WHERE token IS NOT NULL \
     AND claimed_at >= $2 AND claimed_at <= :now - $3 ORDER BY claimed_at LIMIT 1), :now \
     UNION ALL SELECT 'condemned', '', (SELECT condemned_at FROM contents WHERE state = 'condemned' AND kind = 'whole' \
     AND condemned_at >= $4 AND condemned_at <= :now - $5 ORDER BY condemned_at LIMIT 1), :now \
     UNION ALL SELECT 'joined', '', (SELECT condemned_at FROM contents WHERE state = 'condemned' AND kind = 'joined' \
     AND condemned_at <= :now - $6 ORDER BY condemned_at LIMIT 1), :now \
     UNION ALL SELECT 'parts', '', (SELECT u.closed_at FROM multipart_uploads u WHERE u.leftover = 1 \
     ORDER BY u.closed_at LIMIT 1), :now \
     UNION ALL SELECT 'aborted', '', (SELECT closed_at FROM multipart_uploads WHERE leftover = 0 AND state = 'aborted' \
     LIMIT 1), :now \
     UNION ALL SELECT 'answers', '', (SELECT closed_at FROM multipart_uploads WHERE leftover = 0 \
     AND state = 'completed' AND closed_at <= :now - $7 ORDER BY closed_at LIMIT 1), :now";

/// Where the queries in [`OLDEST_WAITING`] begin.
struct WaitingQueries<'a> {
    lanes: Vec<(&'a BackendName, QueueQuery)>,
    claims: QueueQuery,
    condemned: QueueQuery,
}

impl WaitingQueries<'_> {
    fn lane(&self, backend: &BackendName) -> Result<QueueQuery, Error> {
        let lane = self.lanes.iter().find(|(name, _)| *name == backend);
        lane.map(|(_, query)| *query).ok_or_else(|| Error::Internal(format!("backend {backend} was not queried")))
    }

    fn values(&self, ages: &Ages) -> Vec<Value> {
        let lanes: Vec<(&str, i64)> =
            self.lanes.iter().map(|(backend, query)| (backend.as_str(), query.from)).collect();
        params![
            json(&lanes),
            self.claims.from,
            millis_of(ages.claims),
            self.condemned.from,
            millis_of(ages.condemned),
            millis_of(ages.joined),
            millis_of(ages.answers),
        ]
    }
}

impl Catalog {
    pub(super) async fn query_waiting(&self, backends: &[BackendName], ages: &Ages) -> Result<Waiting, Error> {
        let queries = self.begin_queries(backends);
        let mut waiting = Waiting::default();
        for row in self.read(OLDEST_WAITING, queries.values(ages)).await? {
            let found = row.opt_int("oldest")?.is_some();
            match row.text("kind")? {
                "lane" => {
                    let backend: BackendName = row.parse("backend")?;
                    self.end_query(Queue::Lane(backend.clone()), queries.lane(&backend)?, &row, Duration::ZERO)?;
                    waiting.lanes.extend(found.then_some(backend));
                }
                "claims" => {
                    self.end_query(Queue::Claims, queries.claims, &row, ages.claims)?;
                    waiting.claims = found;
                }
                "condemned" => {
                    self.end_query(Queue::Condemned, queries.condemned, &row, ages.condemned)?;
                    waiting.contents |= found;
                }
                _ => waiting.contents |= found,
            }
        }
        Ok(waiting)
    }

    fn begin_queries<'a>(&self, backends: &'a [BackendName]) -> WaitingQueries<'a> {
        let begin = |queue| self.low_waters.begin(queue);
        WaitingQueries {
            lanes: backends.iter().map(|backend| (backend, begin(Queue::Lane(backend.clone())))).collect(),
            claims: begin(Queue::Claims),
            condemned: begin(Queue::Condemned),
        }
    }

    /// Sets the low-water mark to the oldest row that was found, or to `age` ago if there was none.
    fn end_query(&self, queue: Queue, query: QueueQuery, row: &Row, age: Duration) -> Result<(), Error> {
        let now = row.time("now")?;
        let none = Timestamp::from_millis(now.millis() - millis_of(age));
        let mark = row.opt_time("oldest")?.unwrap_or(none);
        self.low_waters.of(queue, |water| water.reached(query, now, mark));
        Ok(())
    }
}
