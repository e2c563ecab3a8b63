//! Identity of backends: the marks that were written there, whether they are frozen, and their newest locations.

use std::time::Duration;

use s3o_model::clock::{Timestamp, millis_of};
use s3o_model::ids::ContentId;
use s3o_model::names::BackendName;

use crate::cleanups::unnamed::KEY_LOCK_ROW;
use crate::copies::start_review;
use crate::error::{Error, Verdict};
use crate::reconcile::discard_passes;
use crate::unit::{Row, Unit, json};
use crate::{Catalog, params};

/// Number of past marks that are kept.
const PAST_MARKS: usize = 16;

/// How long an instance may take to write a mark that it planned.
pub const MARK_LEASE: Duration = Duration::from_secs(30);

/// The marks and the state of a backend.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownBackend {
    /// The mark that was last confirmed; `None` if the backend was never attached.
    pub mark: Option<String>,
    /// A mark that is about to be written, or was written and not confirmed.
    pub next_mark: Option<String>,
    /// Earlier marks, newest last.
    pub past_marks: Vec<String>,
    /// Why the backend takes neither writes nor deletes.
    pub frozen_reason: Option<String>,
    /// Sequence number of the mark; 0 if it was written before marks had one.
    pub mark_sequence: u64,
    /// Sequence number of the next mark.
    pub next_sequence: u64,
    /// When an operator last accepted the backend.
    pub accepted_at: Option<Timestamp>,
    /// True if an operator removed the backend, or is removing it.
    pub removed: bool,
}

impl KnownBackend {
    /// True if both have the same current, next and past marks.
    #[must_use]
    pub fn has_marks_of(&self, other: &Self) -> bool {
        (&self.mark, &self.next_mark, &self.past_marks) == (&other.mark, &other.next_mark, &other.past_marks)
    }
}

/// A mark that is about to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedMark {
    /// Unique for every write of a mark.
    pub mark: String,
    /// Sequence number of the mark.
    pub sequence: u64,
}

/// An operator's decision to accept a backend.
#[derive(Debug, Clone, Copy)]
pub struct Acceptance<'a> {
    /// The marks that the operator was shown; nothing is accepted if they changed.
    pub expected: &'a KnownBackend,
    /// Hash of the identity that was found; no live record may have another one.
    pub hash: &'a str,
    /// The mark to be written next.
    pub next: &'a PlannedMark,
    /// Content with a later ID was created with a clock that was ahead, and counts as created after the accept.
    pub upto: Timestamp,
}

fn known(row: &Row) -> Result<KnownBackend, Error> {
    Ok(KnownBackend {
        mark: row.opt_string("mark")?,
        next_mark: row.opt_string("next_mark")?,
        past_marks: row.json("past_marks")?,
        frozen_reason: row.opt_string("frozen_reason")?,
        mark_sequence: row.size("mark_sequence")?,
        next_sequence: row.size("next_sequence")?,
        accepted_at: row.opt_time("accepted_at")?,
        removed: row.opt_int("removing_since")?.is_some(),
    })
}

/// The past marks of `known` with one more, without the oldest ones.
fn with_past(known: &KnownBackend, past: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut marks = known.past_marks.clone();
    marks.extend(past);
    let excess = marks.len().saturating_sub(PAST_MARKS);
    marks.drain(..excess);
    marks
}

impl Catalog {
    /// The ID of this cluster; stores `fresh` if there is none yet.
    pub async fn cluster_id(&self, fresh: &str) -> Result<String, Error> {
        const KNOWN: &str = "SELECT cluster_id FROM cluster";
        if let Some(row) = self.find(KNOWN, vec![], |rows| !rows.is_empty()).await?.first() {
            return row.string("cluster_id");
        }
        let mut unit = Unit::new("cluster_id");
        unit.run(
            "INSERT INTO cluster (only_row, cluster_id) VALUES (1, $1) ON CONFLICT (only_row) DO NOTHING",
            params![fresh],
        );
        let answer = unit.run(KNOWN, vec![]);
        self.write(unit).await?[answer].rows[0].string("cluster_id")
    }

    /// The marks of a backend; inserts a row if it has none.
    pub async fn known_backend(&self, name: &BackendName) -> Result<KnownBackend, Error> {
        const KNOWN: &str = "SELECT mark, next_mark, past_marks, frozen_reason, mark_sequence, next_sequence, \
             accepted_at, removing_since FROM backends WHERE name = $1";
        if let Some(row) = self.find(KNOWN, params![name], |rows| !rows.is_empty()).await?.first() {
            return known(row);
        }
        let mut unit = Unit::new("known_backend");
        unit.run("INSERT INTO backends (name) VALUES ($1) ON CONFLICT (name) DO NOTHING", params![name]);
        unit.run(KEY_LOCK_ROW, params![name]);
        let answer = unit.run(KNOWN, params![name]);
        known(&self.write(unit).await?[answer].rows[0])
    }

    /// Records the mark that is about to be written, within [`MARK_LEASE`]. If there is an unconfirmed one, that is
    /// kept and returned. Fails as `Closed` if the backend is being removed.
    pub async fn plan_mark(&self, name: &BackendName, next: &str) -> Result<PlannedMark, Error> {
        let mut unit = Unit::new("plan_mark");
        // A backend that is being removed gets no mark any more.
        unit.one(
            "UPDATE backends SET next_sequence = CASE WHEN next_mark IS NULL THEN mark_sequence + 1 \
             ELSE next_sequence END, next_mark = coalesce(next_mark, $2), mark_planned_until = :now + $3 \
             WHERE name = $1 AND removing_since IS NULL",
            params![name, next, millis_of(MARK_LEASE)],
            Verdict::Closed,
        );
        let answer = unit.run("SELECT next_mark, next_sequence FROM backends WHERE name = $1", params![name]);
        let answers = self.write(unit).await?;
        let missing = || Error::Internal(format!("backend {name} is not in the catalog"));
        let row = answers[answer].rows.first().ok_or_else(missing)?;
        Ok(PlannedMark { mark: row.string("next_mark")?, sequence: row.size("next_sequence")? })
    }

    /// Records that the planned mark was written. Fails as `RunAgain` if another mark is planned.
    pub async fn confirm_mark(&self, name: &BackendName, mark: &str) -> Result<(), Error> {
        let known = self.known_backend(name).await?;
        let past = with_past(&known, known.mark.clone());
        let mut unit = Unit::new("confirm_mark");
        unit.one(
            "UPDATE backends SET mark = $2, mark_sequence = next_sequence, next_mark = NULL, past_marks = $3, \
             marked_at = :now WHERE name = $1 AND next_mark = $2",
            params![name, mark, json(&past)],
            Verdict::RunAgain,
        );
        self.write(unit).await.map(drop)
    }

    /// True while an instance may still write a mark that it planned.
    pub async fn is_mark_planned(&self, name: &BackendName) -> Result<bool, Error> {
        const PLANNED: &str = "SELECT name FROM backends WHERE name = $1 AND next_mark IS NOT NULL \
             AND mark_planned_until > :now";
        Ok(!self.read(PLANNED, params![name]).await?.is_empty())
    }

    /// Time since the current mark was confirmed; `None` if that was not recorded.
    pub async fn mark_age(&self, name: &BackendName) -> Result<Option<Duration>, Error> {
        const AGE: &str = "SELECT :now - marked_at AS age FROM backends WHERE name = $1";
        let rows = self.read(AGE, params![name]).await?;
        let age = rows.first().map(|row| row.opt_int("age")).transpose()?.flatten();
        Ok(age.map(|age| Duration::from_millis(u64::try_from(age).unwrap_or(0))))
    }

    /// Plans the mark of a backend that an operator accepts. Fails as `RunAgain` if the marks changed since they were
    /// shown, or a live record has another identity.
    pub async fn accept_mark(&self, name: &BackendName, acceptance: Acceptance<'_>) -> Result<(), Error> {
        let Acceptance { expected, hash, next, upto } = acceptance;
        // A slow process may still write the replaced next mark, so it becomes a past one.
        let past = with_past(expected, expected.next_mark.clone());
        let mut unit = Unit::new("accept_mark");
        unit.one(
            "UPDATE backends SET next_mark = $2, next_sequence = $3, past_marks = $4, accepted_at = :now, \
             mark_planned_until = :now + $9, trust_from = :now, removing_since = NULL, removed_at = NULL, \
             accepted_content = (SELECT max(content_id) FROM object_locations WHERE backend_name = $1 AND \
             content_id <= $8) \
             WHERE name = $1 AND COALESCE(mark, '') = $5 AND COALESCE(next_mark, '') = $6 AND NOT EXISTS \
             (SELECT 1 FROM identity_records r WHERE r.backend_name = $1 AND r.hash <> $7 AND \
             COALESCE(r.dismissed_hash, '') <> r.hash AND r.lease_until > :now)",
            params![
                name,
                &next.mark,
                next.sequence,
                json(&past),
                expected.mark.clone().unwrap_or_default(),
                expected.next_mark.clone().unwrap_or_default(),
                hash,
                ContentId::last_of(upto),
                millis_of(MARK_LEASE),
            ],
            Verdict::RunAgain,
        );
        discard_passes(&mut unit, name);
        // Copies that were verified before no longer count, until they are found on the accepted store.
        start_review(&mut unit);
        self.write(unit).await.map(drop)
    }

    /// Physical keys of the newest present locations that are younger than the last accept and not younger than `upto`,
    /// newest first. Reads all locations of the backend.
    pub async fn newest_keys(&self, name: &BackendName, upto: Timestamp, limit: usize) -> Result<Vec<String>, Error> {
        const NEWEST: &str = "SELECT physical_key FROM object_locations WHERE backend_name = $1 AND state = 'present' \
             AND content_id > COALESCE((SELECT accepted_content FROM backends WHERE name = $1), '') AND content_id \
             <= $3 ORDER BY content_id DESC LIMIT $2";
        self.condition.demand_undamaged()?;
        let rows = self.scan(NEWEST, params![name, limit, ContentId::last_of(upto)]).await?;
        rows.iter().map(|row| row.string("physical_key")).collect()
    }

    /// True if a present location names this key.
    pub async fn is_located(&self, name: &BackendName, physical_key: &str) -> Result<bool, Error> {
        const LOCATED: &str = "SELECT 1 FROM object_locations WHERE backend_name = $1 AND physical_key = $2 \
             AND state = 'present'";
        Ok(!self.read(LOCATED, params![name, physical_key]).await?.is_empty())
    }

    /// Number of queued cleanups of a backend.
    pub async fn queued_deletes(&self, name: &BackendName) -> Result<u64, Error> {
        const QUEUED: &str = "SELECT count(*) AS n FROM cleanup_queue WHERE backend_name = $1";
        self.read(QUEUED, params![name]).await?[0].size("n")
    }
}
