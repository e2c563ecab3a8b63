//! What the catalog knows of the backends themselves: the marks it wrote there, whether they are
//! frozen, and which of their bytes are the newest.

use std::time::Duration;

use async_trait::async_trait;
use s3o_model::clock::Timestamp;
use s3o_model::ids::ContentId;
use s3o_model::names::BackendName;

use crate::error::{Error, Verdict};
use crate::unit::{Row, Unit, json};
use crate::{Catalog, params};

/// How many marks that were confirmed before are kept.
const PAST_MARKS: usize = 16;

/// A backend as the catalog knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownBackend {
    /// The mark last confirmed there; `None` when it was never attached.
    pub mark: Option<String>,
    /// A mark that is about to be written there, or was, unconfirmed.
    pub next_mark: Option<String>,
    /// Marks that were confirmed before, newest last.
    pub past_marks: Vec<String>,
    /// Why it takes no writes and no deletes.
    pub frozen_reason: Option<String>,
    /// The sequence number of the mark; 0 when it was written before marks had one.
    pub mark_sequence: u64,
    /// The sequence number of the next mark.
    pub next_sequence: u64,
    /// When an operator last accepted the backend as it was found.
    pub accepted_at: Option<Timestamp>,
}

impl KnownBackend {
    /// Whether both know the same marks.
    #[must_use]
    pub fn has_marks_of(&self, other: &Self) -> bool {
        (&self.mark, &self.next_mark, &self.past_marks) == (&other.mark, &other.next_mark, &other.past_marks)
    }
}

/// A mark that is about to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedMark {
    /// The mark.
    pub mark: String,
    /// Its sequence number.
    pub sequence: u64,
}

/// What an operator accepts.
#[derive(Debug, Clone, Copy)]
pub struct Acceptance<'a> {
    /// The marks that the operator was shown; nothing is accepted if they changed.
    pub expected: &'a KnownBackend,
    /// The hash of what was found, which no live record may contradict.
    pub hash: &'a str,
    /// The mark to be written next.
    pub next: &'a PlannedMark,
    /// Content with a later identifier was made by a clock that was ahead, and counts as made after the accept.
    pub upto: Timestamp,
}

/// What is known of backends.
#[async_trait]
pub trait Identities: Send + Sync {
    /// The name of this cluster; `fresh` becomes it if it has none yet.
    async fn cluster_id(&self, fresh: &str) -> Result<String, Error>;

    /// One backend; it is entered if it was not known.
    async fn known_backend(&self, name: &BackendName) -> Result<KnownBackend, Error>;

    /// Notes the mark that is about to be written; an unconfirmed one is kept and returned.
    async fn plan_mark(&self, name: &BackendName, next: &str) -> Result<PlannedMark, Error>;

    /// Notes that the planned mark was written.
    async fn confirm_mark(&self, name: &BackendName, mark: &str) -> Result<(), Error>;

    /// How long ago the current mark was confirmed; `None` where that was not noted.
    async fn mark_age(&self, name: &BackendName) -> Result<Option<Duration>, Error>;

    /// Plans the mark of a backend that an operator accepts as it was found, if the marks are still
    /// those that were shown and no live record found anything else.
    async fn accept_mark(&self, name: &BackendName, acceptance: Acceptance<'_>) -> Result<(), Error>;

    /// Freezes a backend, or thaws it.
    async fn set_frozen(&self, name: &BackendName, reason: Option<&str>) -> Result<(), Error>;

    /// The physical keys of the newest locations that are present, younger than the last accept and no younger than
    /// `upto`, newest first. All locations of the backend are read for it.
    async fn newest_keys(&self, name: &BackendName, upto: Timestamp, limit: usize) -> Result<Vec<String>, Error>;

    /// Whether a present location names this key.
    async fn is_located(&self, name: &BackendName, physical_key: &str) -> Result<bool, Error>;

    /// How many cleanups wait at a backend.
    async fn queued_deletes(&self, name: &BackendName) -> Result<u64, Error>;
}

fn known(row: &Row) -> Result<KnownBackend, Error> {
    let text = |column| row.opt_text(column).map(|text| text.map(str::to_owned));
    Ok(KnownBackend {
        mark: text(0)?,
        next_mark: text(1)?,
        past_marks: row.json(2)?,
        frozen_reason: text(3)?,
        mark_sequence: row.size(4)?,
        next_sequence: row.size(5)?,
        accepted_at: row.opt_int(6)?.map(Timestamp::from_millis),
    })
}

/// The past marks once one more is past.
fn with_past(known: &KnownBackend, past: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut marks = known.past_marks.clone();
    marks.extend(past);
    let excess = marks.len().saturating_sub(PAST_MARKS);
    marks.drain(..excess);
    marks
}

#[async_trait]
impl Identities for Catalog {
    async fn cluster_id(&self, fresh: &str) -> Result<String, Error> {
        const KNOWN: &str = "SELECT cluster_id FROM cluster";
        if let Some(row) = self.find(KNOWN, vec![], |rows| !rows.is_empty()).await?.first() {
            return Ok(row.text(0)?.to_owned());
        }
        let mut unit = Unit::new("cluster_id");
        unit.run(
            "INSERT INTO cluster (only_row, cluster_id) VALUES (1, $1) ON CONFLICT (only_row) DO NOTHING",
            params![fresh],
        );
        let answer = unit.run("SELECT cluster_id FROM cluster", vec![]);
        Ok(self.write(unit).await?[answer].rows[0].text(0)?.to_owned())
    }

    async fn known_backend(&self, name: &BackendName) -> Result<KnownBackend, Error> {
        const KNOWN: &str = "SELECT mark, next_mark, past_marks, frozen_reason, mark_sequence, next_sequence, \
             accepted_at FROM backends WHERE name = $1";
        if let Some(row) = self.find(KNOWN, params![name], |rows| !rows.is_empty()).await?.first() {
            return known(row);
        }
        let mut unit = Unit::new("known_backend");
        unit.run("INSERT INTO backends (name) VALUES ($1) ON CONFLICT (name) DO NOTHING", params![name]);
        let answer = unit.run(KNOWN, params![name]);
        known(&self.write(unit).await?[answer].rows[0])
    }

    async fn plan_mark(&self, name: &BackendName, next: &str) -> Result<PlannedMark, Error> {
        let mut unit = Unit::new("plan_mark");
        unit.run(
            "UPDATE backends SET next_mark = $2, next_sequence = mark_sequence + 1 \
             WHERE name = $1 AND next_mark IS NULL",
            params![name, next],
        );
        let answer = unit.run("SELECT next_mark, next_sequence FROM backends WHERE name = $1", params![name]);
        let answers = self.write(unit).await?;
        let row = answers[answer].rows.first().ok_or_else(|| Error::Internal(format!("backend {name} unknown")))?;
        Ok(PlannedMark { mark: row.text(0)?.to_owned(), sequence: row.size(1)? })
    }

    async fn confirm_mark(&self, name: &BackendName, mark: &str) -> Result<(), Error> {
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

    async fn mark_age(&self, name: &BackendName) -> Result<Option<Duration>, Error> {
        const AGE: &str = "SELECT :now - marked_at FROM backends WHERE name = $1";
        let rows = self.read(AGE, params![name]).await?;
        let age = rows.first().map(|row| row.opt_int(0)).transpose()?.flatten();
        Ok(age.map(|age| Duration::from_millis(u64::try_from(age).unwrap_or(0))))
    }

    async fn accept_mark(&self, name: &BackendName, acceptance: Acceptance<'_>) -> Result<(), Error> {
        let Acceptance { expected, hash, next, upto } = acceptance;
        // The next mark that is given up may still be written by a slow process: it is known as a past one.
        let past = with_past(expected, expected.next_mark.clone());
        let mut unit = Unit::new("accept_mark");
        unit.one(
            "UPDATE backends SET next_mark = $2, next_sequence = $3, past_marks = $4, accepted_at = :now, \
             accepted_content = (SELECT max(content_id) FROM object_locations WHERE backend_name = $1 AND content_id <= $8) \
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
            ],
            Verdict::RunAgain,
        );
        self.write(unit).await.map(drop)
    }

    async fn set_frozen(&self, name: &BackendName, reason: Option<&str>) -> Result<(), Error> {
        let mut unit = Unit::new("set_frozen");
        unit.run("UPDATE backends SET frozen_reason = $2 WHERE name = $1", params![name, reason]);
        self.write(unit).await.map(drop)
    }

    async fn newest_keys(&self, name: &BackendName, upto: Timestamp, limit: usize) -> Result<Vec<String>, Error> {
        const NEWEST: &str = "SELECT physical_key FROM object_locations WHERE backend_name = $1 AND state = 'present' \
             AND content_id > COALESCE((SELECT accepted_content FROM backends WHERE name = $1), '') AND content_id <= $3 \
             ORDER BY content_id DESC LIMIT $2";
        self.condition.demand_undamaged()?;
        let rows = self.scan(NEWEST, params![name, limit, ContentId::last_of(upto)]).await?;
        rows.iter().map(|row| row.text(0).map(str::to_owned)).collect()
    }

    async fn is_located(&self, name: &BackendName, physical_key: &str) -> Result<bool, Error> {
        const LOCATED: &str = "SELECT 1 FROM object_locations WHERE backend_name = $1 AND physical_key = $2 \
             AND state = 'present'";
        Ok(!self.read(LOCATED, params![name, physical_key]).await?.is_empty())
    }

    async fn queued_deletes(&self, name: &BackendName) -> Result<u64, Error> {
        const QUEUED: &str = "SELECT count(*) FROM cleanup_queue WHERE backend_name = $1";
        self.read(QUEUED, params![name]).await?[0].size(0)
    }
}
