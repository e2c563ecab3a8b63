//! Whether cleanup has anything to do, in one statement: an idle tick costs nothing else.

use std::collections::BTreeSet;
use std::time::Duration;

use s3o_model::clock::{Timestamp, millis_of};
use s3o_model::names::BackendName;

use crate::error::Error;
use crate::low_water::{Look, Queue};
use crate::unit::{Row, Value, json};
use crate::{Catalog, params};

/// How old things must be before cleanup deals with them.
#[derive(Debug, Clone, Copy)]
pub struct Ages {
    /// Claims, to be freed.
    pub claims: Duration,
    /// Condemned joined content, to be taken apart.
    pub joined: Duration,
    /// Answers of completed uploads, to be forgotten.
    pub answers: Duration,
    /// Condemned whole content, to be forgotten.
    pub condemned: Duration,
}

/// What waits for cleanup.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Claims whose holder is gone.
    pub claims: bool,
    /// Uploads and contents to be taken apart or forgotten.
    pub contents: bool,
    /// The backends with rows that are due and nobody's.
    pub lanes: BTreeSet<BackendName>,
}

/// What waits, the moment of its oldest, and the present one. `$1` is a list of backends and where their looks begin.
pub(crate) const LOOK: &str = "SELECT 'lane', t.value ->> 0, (SELECT due FROM cleanup_queue \
     WHERE backend_name = t.value ->> 0 AND due >= CAST(t.value ->> 1 AS BIGINT) AND due <= :now AND token IS NULL \
     ORDER BY due LIMIT 1), :now FROM json_each($1) t \
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

/// Where the looks that one statement takes begin.
struct Looks<'a> {
    lanes: Vec<(&'a BackendName, Look)>,
    claims: Look,
    condemned: Look,
}

impl Looks<'_> {
    fn lane(&self, backend: &BackendName) -> Result<Look, Error> {
        let lane = self.lanes.iter().find(|(name, _)| *name == backend);
        lane.map(|(_, look)| *look).ok_or_else(|| Error::Internal(format!("nobody asked for {backend}")))
    }

    fn values(&self, ages: &Ages) -> Vec<Value> {
        let lanes: Vec<(&str, i64)> = self.lanes.iter().map(|(backend, look)| (backend.as_str(), look.from)).collect();
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
    pub(super) async fn look_for_work(&self, backends: &[BackendName], ages: &Ages) -> Result<Waiting, Error> {
        let looks = self.looks(backends);
        let mut waiting = Waiting::default();
        for row in self.read(LOOK, looks.values(ages)).await? {
            let found = row.opt_int(2)?.is_some();
            match row.text(0)? {
                "lane" => {
                    let backend: BackendName = row.parse(1)?;
                    self.looked(Queue::Lane(backend.clone()), looks.lane(&backend)?, &row, Duration::ZERO)?;
                    waiting.lanes.extend(found.then_some(backend));
                }
                "claims" => {
                    self.looked(Queue::Claims, looks.claims, &row, ages.claims)?;
                    waiting.claims = found;
                }
                "condemned" => {
                    self.looked(Queue::Condemned, looks.condemned, &row, ages.condemned)?;
                    waiting.contents |= found;
                }
                _ => waiting.contents |= found,
            }
        }
        Ok(waiting)
    }

    fn looks<'a>(&self, backends: &'a [BackendName]) -> Looks<'a> {
        let look = |queue| self.low_waters.look(queue);
        Looks {
            lanes: backends.iter().map(|backend| (backend, look(Queue::Lane(backend.clone())))).collect(),
            claims: look(Queue::Claims),
            condemned: look(Queue::Condemned),
        }
    }

    /// Notes what a look found: the oldest row, or nothing as old as `age`.
    fn looked(&self, queue: Queue, look: Look, row: &Row, age: Duration) -> Result<(), Error> {
        let now = row.int(3)?;
        let mark = row.opt_int(2)?.unwrap_or(now - millis_of(age));
        let (now, mark) = (Timestamp::from_millis(now), Timestamp::from_millis(mark));
        self.low_waters.of(queue, |water| water.reached(look, now, mark));
        Ok(())
    }
}
