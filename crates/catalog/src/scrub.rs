//! Passes of the scrubber: which copies are read next, and how far a pass is on each backend.
//!
//! A pass walks over the contents in the order of their identifiers, so that it needs no index of its own. Its position
//! is a row, so that it survives restarts. Copies that could not be read are noted apart and do not stop the pass.

mod verdicts;

use std::sync::LazyLock;
use std::time::Duration;

use s3o_model::clock::{Timestamp, millis_of};
use s3o_model::content::Location;
use s3o_model::etag::{Md5, Sha256};
use s3o_model::ids::ContentId;
use s3o_model::names::BackendName;

use crate::error::Error;
use crate::unit::{Row, Unit, json};
use crate::{Catalog, params};

pub use verdicts::Accused;

/// The pass over the copies on one backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrubPass {
    /// The backend whose copies are read.
    pub backend: BackendName,
    /// When the pass began.
    pub started_at: Timestamp,
    /// When it ended; `None` while it is under way.
    pub finished_at: Option<Timestamp>,
    /// The last content that existed when it began.
    pub upto: String,
    /// The last content whose copy was read or noted for later.
    pub position: String,
    /// Number of contents up to the end of the pass.
    pub total: u64,
    /// Number of contents up to the position.
    pub done: u64,
    /// Every copy that is not noted for later was read or written since.
    pub read_since: Timestamp,
}

/// All passes, and what the scrubber must know before it reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrubState {
    /// The catalog's clock.
    pub now: Timestamp,
    /// One pass for each backend that was ever scrubbed.
    pub passes: Vec<ScrubPass>,
    /// Backends with copies that are due to be read again.
    pub retries: Vec<BackendName>,
    /// Why the scrubber stopped; `None` if it did not.
    pub stopped: Option<String>,
}

/// A copy to read, with the digests that its bytes must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrubCopy {
    /// Whole content.
    pub content: ContentId,
    /// Where the copy is.
    pub location: Location,
    /// Length of the content.
    pub size_bytes: u64,
    /// Digest of the content.
    pub md5: Option<Md5>,
    /// Digest of the content; `None` for content of old versions.
    pub sha256: Option<Sha256>,
    /// False for a suspect or lost copy, and for one that was last verified before its backend was accepted.
    pub is_trusted: bool,
    /// True if it was read twice and had the same wrong digest both times.
    pub has_wrong_digest: bool,
    /// Number of failed attempts to read it.
    pub attempts: u32,
}

/// One content of a pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrubEntry {
    /// Identifier of the content.
    pub content: String,
    /// Its copy on the backend of the pass, if it has one there.
    pub copy: Option<ScrubCopy>,
}

/// A copy to read later, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrubRetry {
    /// The content of the copy.
    pub content: ContentId,
    /// When to read it.
    pub delay: Duration,
    /// `None` for a copy that was not tried.
    pub why: Option<String>,
}

/// Kind of the finding that stops the scrubber.
const STOPPED: &str = "scrub_stopped";

/// There is always a first row.
const STATE: &str = "SELECT :now AS now, p.backend_name, p.started_at, p.finished_at, p.upto, p.position, p.total, \
     p.done, p.read_since, (SELECT detail FROM findings WHERE backend_name = '' AND physical_key = '' \
     AND kind = 'scrub_stopped') AS stopped, (SELECT min(r.due) FROM scrub_retries r \
     WHERE r.backend_name = p.backend_name) AS retry FROM (SELECT 1 AS one) AS always LEFT JOIN scrub_passes p \
     ON always.one = 1 ORDER BY p.backend_name";

/// True for a copy `l` whose bytes may be there. A copy that was lost with another store is not read.
const MAY_BE_READ: &str = "(l.state <> 'lost' OR l.wrong_digest = 1)";

/// The columns of a copy `l` of content `w` on a backend `k`.
const COPY: &str = "w.id AS content_id, w.size_bytes, w.md5, w.sha256, l.backend_name, l.physical_key, \
     l.wrong_digest, CASE WHEN l.state = 'present' AND coalesce(l.verified_at, 0) >= coalesce(k.trust_from, 0) \
     THEN 1 ELSE 0 END AS trusted";

const LATER: &str = "INSERT INTO scrub_retries (backend_name, content_id, due, attempts, last_error, read_since) \
     SELECT CAST($1 AS TEXT), t.value ->> 0, :now + CAST(t.value ->> 1 AS BIGINT), \
     CASE WHEN t.value ->> 2 IS NULL THEN 0 ELSE 1 END, t.value ->> 2, p.read_since FROM json_each($2) t \
     JOIN scrub_passes p ON p.backend_name = $1 WHERE 1 = 1 ON CONFLICT (backend_name, content_id) DO UPDATE \
     SET due = excluded.due, attempts = scrub_retries.attempts + excluded.attempts, \
     last_error = excluded.last_error";

const READ: &str = "DELETE FROM scrub_retries WHERE backend_name = $1 AND content_id IN TEXTS($2)";

const MOVE: &str = "UPDATE scrub_passes SET position = $4, done = done + $5 \
     WHERE backend_name = $1 AND started_at = $2 AND position = $3";

/// The copies that were written before the pass began were read in it.
const FINISH: &str = "UPDATE scrub_passes SET finished_at = :now, read_since = started_at \
     WHERE backend_name = $1 AND started_at = $2 AND position = $3";

fn pass(row: &Row) -> Result<ScrubPass, Error> {
    Ok(ScrubPass {
        backend: row.parse("backend_name")?,
        started_at: row.time("started_at")?,
        finished_at: row.opt_time("finished_at")?,
        upto: row.string("upto")?,
        position: row.string("position")?,
        total: row.size("total")?,
        done: row.size("done")?,
        read_since: row.time("read_since")?,
    })
}

/// `None` for content that has no copy to read there.
fn copy(row: &Row) -> Result<Option<ScrubCopy>, Error> {
    if row.opt_text("physical_key")?.is_none() {
        return Ok(None);
    }
    let is_known = |column| row.opt_text(column).map(|text| text.is_some());
    Ok(Some(ScrubCopy {
        content: row.parse("content_id")?,
        location: Location { backend: row.parse("backend_name")?, physical_key: row.string("physical_key")? },
        size_bytes: row.size("size_bytes")?,
        md5: is_known("md5")?.then(|| row.parse("md5")).transpose()?,
        sha256: is_known("sha256")?.then(|| row.parse("sha256")).transpose()?,
        is_trusted: row.int("trusted")? == 1,
        has_wrong_digest: row.int("wrong_digest")? == 1,
        attempts: u32::try_from(row.int("attempts")?).unwrap_or(u32::MAX),
    }))
}

impl Catalog {
    /// The passes of the scrubber, with one statement.
    pub async fn scrub_state(&self) -> Result<ScrubState, Error> {
        let rows = self.read(STATE, vec![]).await?;
        let first = &rows[0];
        let (now, stopped) = (first.time("now")?, first.opt_string("stopped")?);
        let mut state = ScrubState { now, passes: Vec::new(), retries: Vec::new(), stopped };
        for row in rows.iter().filter(|row| row.opt_text("backend_name").is_ok_and(|name| name.is_some())) {
            let pass = pass(row)?;
            if row.opt_time("retry")?.is_some_and(|due| due <= now) {
                state.retries.push(pass.backend.clone());
            }
            state.passes.push(pass);
        }
        Ok(state)
    }

    /// Begins a pass over all contents that exist now. `known` is the last pass, which must not have changed.
    pub async fn begin_scrub(&self, backend: &BackendName, known: Option<&ScrubPass>) -> Result<(), Error> {
        const BOUNDS: &str = "SELECT count(*) AS n, min(id) AS first, max(id) AS last FROM contents";
        const BEGIN: &str = "INSERT INTO scrub_passes (backend_name, started_at, upto, total, read_since) \
             VALUES ($1, :now, $2, $3, coalesce($4, :now)) ON CONFLICT (backend_name) DO UPDATE SET \
             started_at = excluded.started_at, finished_at = NULL, upto = excluded.upto, position = '', \
             total = excluded.total, done = 0 WHERE scrub_passes.started_at = $5 AND scrub_passes.finished_at > 0";
        let rows = self.scan(BOUNDS, vec![]).await?;
        let last = rows[0].opt_string("last")?.unwrap_or_default();
        // Content that was never scrubbed was last hashed when it was written, which is the time in its identifier.
        let oldest = rows[0].opt_text("first")?.and_then(written_at);
        let mut unit = Unit::new("begin_scrub");
        let started = known.map(|known| known.started_at.millis());
        let values = params![backend, last, rows[0].size("n")?, oldest.map(Timestamp::millis), started];
        unit.run(BEGIN, values);
        self.write(unit).await.map(drop)
    }

    /// The next contents of a pass, at most `limit`; none at its end.
    pub async fn scrub_page(&self, pass: &ScrubPass, limit: usize) -> Result<Vec<ScrubEntry>, Error> {
        static PAGE: LazyLock<String> = LazyLock::new(|| {
            format!(
                "SELECT {COPY}, 0 AS attempts FROM (SELECT id, size_bytes, md5, sha256 FROM contents \
                 WHERE id > $2 AND id <= $3 ORDER BY id LIMIT $4) w LEFT JOIN object_locations l \
                 ON l.content_id = w.id AND l.backend_name = $1 AND {MAY_BE_READ} \
                 LEFT JOIN backends k ON k.name = l.backend_name ORDER BY w.id"
            )
        });
        let rows = self.read(&PAGE, params![&pass.backend, &pass.position, &pass.upto, limit]).await?;
        rows.iter().map(|row| Ok(ScrubEntry { content: row.string("content_id")?, copy: copy(row)? })).collect()
    }

    /// Copies on a backend that are due to be read again, at most `limit`, and how many rows there were: rows of copies
    /// that are gone are deleted.
    pub async fn scrub_retries(&self, backend: &BackendName, limit: usize) -> Result<(Vec<ScrubCopy>, usize), Error> {
        static DUE: LazyLock<String> = LazyLock::new(|| {
            format!(
                "SELECT {COPY}, r.attempts, r.content_id AS noted FROM (SELECT content_id, attempts, due \
                 FROM scrub_retries WHERE backend_name = $1 AND due <= :now ORDER BY due LIMIT $2) r \
                 LEFT JOIN contents w ON w.id = r.content_id LEFT JOIN object_locations l \
                 ON l.content_id = w.id AND l.backend_name = $1 AND {MAY_BE_READ} \
                 LEFT JOIN backends k ON k.name = l.backend_name ORDER BY r.due"
            )
        });
        let rows = self.read(&DUE, params![backend, limit]).await?;
        let copies = rows.iter().filter_map(|row| copy(row).transpose()).collect::<Result<Vec<_>, _>>()?;
        let is_gone = |row: &&Row| row.opt_text("physical_key").is_ok_and(|key| key.is_none());
        let gone = rows.iter().filter(is_gone).map(|row| row.parse("noted")).collect::<Result<Vec<ContentId>, _>>()?;
        if !gone.is_empty() {
            self.settle_scrub(backend, None, &[], &gone).await?;
        }
        Ok((copies, rows.len()))
    }

    /// Records what became of copies: moves the pass on behind these entries, or ends it if there are none. Notes
    /// copies that are read `later`, and forgets those that were `read`. A pass that another process moved on stays
    /// where it is.
    pub async fn settle_scrub(
        &self,
        backend: &BackendName,
        page: Option<(&ScrubPass, &[ScrubEntry])>,
        later: &[ScrubRetry],
        read: &[ContentId],
    ) -> Result<(), Error> {
        let mut unit = Unit::new("settle_scrub");
        let noted: Vec<(String, i64, &Option<String>)> =
            later.iter().map(|retry| (retry.content.to_string(), millis_of(retry.delay), &retry.why)).collect();
        if !noted.is_empty() {
            unit.run(LATER, params![backend, json(&noted)]);
        }
        if !read.is_empty() {
            unit.run(READ, params![backend, json(&read)]);
        }
        if let Some((pass, entries)) = page {
            let mut values = params![backend, pass.started_at.millis(), &pass.position];
            match entries.last() {
                Some(last) => {
                    values.extend(params![&last.content, entries.len()]);
                    unit.run(MOVE, values)
                }
                None => unit.run(FINISH, values),
            };
        }
        self.write(unit).await.map(drop)
    }

    /// Since when every copy on a backend in use was read or written; `None` if no copy was ever scrubbed.
    pub async fn scrubbed_since(&self) -> Result<Option<(Timestamp, Timestamp)>, Error> {
        const OLDEST: &str = "SELECT :now AS now, min(s.read_since) AS oldest FROM (SELECT backend_name, read_since \
             FROM scrub_passes UNION ALL SELECT backend_name, read_since FROM scrub_retries) s \
             JOIN backends b ON b.name = s.backend_name AND b.removing_since IS NULL";
        let rows = self.survey(OLDEST, vec![]).await?;
        let now = rows[0].time("now")?;
        Ok(rows[0].opt_time("oldest")?.map(|oldest| (oldest, now)))
    }
}

/// The time in a content identifier.
fn written_at(id: &str) -> Option<Timestamp> {
    let millis = i64::from_str_radix(id.get(..12)?, 16).ok()?;
    Some(Timestamp::from_millis(millis))
}
