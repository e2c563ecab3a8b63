//! What the catalog knows of the backends themselves: the marks it wrote there, and whether they
//! are frozen.

use async_trait::async_trait;
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
}

/// What is known of backends.
#[async_trait]
pub trait Identities: Send + Sync {
    /// The name of this cluster; `fresh` becomes it if it has none yet.
    async fn cluster_id(&self, fresh: &str) -> Result<String, Error>;

    /// One backend; it is entered if it was not known.
    async fn known_backend(&self, name: &BackendName) -> Result<KnownBackend, Error>;

    /// Notes the mark that is about to be written; an unconfirmed one is kept and returned.
    async fn plan_mark(&self, name: &BackendName, next: &str) -> Result<String, Error>;

    /// Notes that the planned mark was written.
    async fn confirm_mark(&self, name: &BackendName, mark: &str) -> Result<(), Error>;

    /// Freezes a backend, or thaws it.
    async fn set_frozen(&self, name: &BackendName, reason: Option<&str>) -> Result<(), Error>;
}

fn known(row: &Row) -> Result<KnownBackend, Error> {
    let text = |column| row.opt_text(column).map(|text| text.map(str::to_owned));
    Ok(KnownBackend { mark: text(0)?, next_mark: text(1)?, past_marks: row.json(2)?, frozen_reason: text(3)? })
}

#[async_trait]
impl Identities for Catalog {
    async fn cluster_id(&self, fresh: &str) -> Result<String, Error> {
        let mut unit = Unit::new("cluster_id");
        unit.run(
            "INSERT INTO cluster (only_row, cluster_id) VALUES (1, $1) ON CONFLICT (only_row) DO NOTHING",
            params![fresh],
        );
        let answer = unit.run("SELECT cluster_id FROM cluster", vec![]);
        Ok(self.write(unit).await?[answer].rows[0].text(0)?.to_owned())
    }

    async fn known_backend(&self, name: &BackendName) -> Result<KnownBackend, Error> {
        const KNOWN: &str = "SELECT mark, next_mark, past_marks, frozen_reason FROM backends WHERE name = $1";
        if let Some(row) = self.read(KNOWN, params![name]).await?.first() {
            return known(row);
        }
        let mut unit = Unit::new("known_backend");
        unit.run("INSERT INTO backends (name) VALUES ($1) ON CONFLICT (name) DO NOTHING", params![name]);
        let answer = unit.run(KNOWN, params![name]);
        known(&self.write(unit).await?[answer].rows[0])
    }

    async fn plan_mark(&self, name: &BackendName, next: &str) -> Result<String, Error> {
        let mut unit = Unit::new("plan_mark");
        unit.run("UPDATE backends SET next_mark = $2 WHERE name = $1 AND next_mark IS NULL", params![name, next]);
        let answer = unit.run("SELECT next_mark FROM backends WHERE name = $1", params![name]);
        let answers = self.write(unit).await?;
        let row = answers[answer].rows.first().ok_or_else(|| Error::Internal(format!("backend {name} unknown")))?;
        Ok(row.text(0)?.to_owned())
    }

    async fn confirm_mark(&self, name: &BackendName, mark: &str) -> Result<(), Error> {
        let mut past = self.known_backend(name).await?;
        past.past_marks.extend(past.mark.clone());
        let excess = past.past_marks.len().saturating_sub(PAST_MARKS);
        past.past_marks.drain(..excess);
        let mut unit = Unit::new("confirm_mark");
        unit.one(
            "UPDATE backends SET mark = $2, next_mark = NULL, past_marks = $3 WHERE name = $1 AND next_mark = $2",
            params![name, mark, json(&past.past_marks)],
            Verdict::RunAgain,
        );
        self.write(unit).await.map(drop)
    }

    async fn set_frozen(&self, name: &BackendName, reason: Option<&str>) -> Result<(), Error> {
        let mut unit = Unit::new("set_frozen");
        unit.run("UPDATE backends SET frozen_reason = $2 WHERE name = $1", params![name, reason]);
        self.write(unit).await.map(drop)
    }
}
