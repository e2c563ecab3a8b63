//! Lifecycle rules in the catalog, what is due by them, and the units that remove it.
//!
//! What was due when somebody looked is asked again in the statements that remove it: the version,
//! the tags where they matter, the age by the catalog's clock, and that the rules still are those.

mod objects;
mod uploads;

use async_trait::async_trait;
use s3o_model::clock::Timestamp;
use s3o_model::ids::{BucketId, ClaimToken, UploadId, VersionId};
use s3o_model::lifecycle::{Rule, Threshold};
use s3o_model::names::{BucketName, ObjectKey};
use s3o_model::object::Tags;

use crate::error::{Error, Verdict};
use crate::unit::{Row, Unit, json};
use crate::{Catalog, params};

/// A bucket with the rules that were set for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuledBucket {
    /// The bucket.
    pub id: BucketId,
    /// Its name.
    pub name: BucketName,
    /// Which rules these are: another one is another set.
    pub revision: i64,
    /// The rules; none where only the configuration has some.
    pub rules: Vec<Rule>,
}

/// Whose rule it is that something is removed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authority {
    /// The configuration's: whoever holds it knows whether it is in force.
    Configuration,
    /// The bucket's own, of this revision.
    Bucket(i64),
}

/// Which keys of which bucket, and what is due among them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueRange {
    /// The bucket.
    pub bucket: BucketId,
    /// The first key.
    pub from: String,
    /// The first key behind them; `None` where there is no bound.
    pub before: Option<String>,
    /// What is due.
    pub threshold: Threshold,
}

/// An object that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueObject {
    /// Its key.
    pub key: ObjectKey,
    /// Its version.
    pub version: VersionId,
    /// How many bytes.
    pub size_bytes: u64,
    /// Its tags.
    pub tags: Tags,
    /// When it was written.
    pub last_modified: Timestamp,
    /// What the catalog's clock showed when it was found due.
    pub seen_at: Timestamp,
}

/// What is due on one page of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DuePage {
    /// The objects, by key.
    pub objects: Vec<DueObject>,
    /// Where the next page begins; `None` on the last.
    pub next: Option<String>,
}

/// Objects of one bucket that a rule removes.
#[derive(Debug, Clone)]
pub struct DueBatch<'a> {
    /// The bucket.
    pub bucket: BucketId,
    /// Whose rule it is.
    pub authority: Authority,
    /// What is due.
    pub threshold: Threshold,
    /// The objects, at most a thousand.
    pub objects: &'a [DueObject],
    /// Whether the rule asks for tags: an object that got other ones meanwhile is then left alone.
    pub by_tags: bool,
}

/// An open upload that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueUpload {
    /// The upload.
    pub id: UploadId,
    /// Its key.
    pub key: ObjectKey,
    /// When it was begun.
    pub created_at: Timestamp,
    /// What the catalog's clock showed when it was found due.
    pub seen_at: Timestamp,
}

/// What is known of lifecycle rules, and of what they mean.
#[async_trait]
pub trait Lifecycles: Send + Sync {
    /// The rules that were set for a bucket, if any were.
    async fn lifecycle(&self, bucket: BucketId) -> Result<Option<RuledBucket>, Error>;

    /// Replaces a bucket's rules, or removes them. Once this is done, nothing is removed by the rules before.
    async fn set_lifecycle(&self, bucket: BucketId, rules: Option<&[Rule]>) -> Result<(), Error>;

    /// The first bucket behind that name for which rules were set, or that is one of these.
    async fn ruled_bucket(&self, after: &str, named: &[&str]) -> Result<Option<RuledBucket>, Error>;

    /// What is due among the first `limit` objects of a range.
    async fn due_objects(&self, range: &DueRange, limit: usize) -> Result<DuePage, Error>;

    /// Removes objects that still are what was seen and due, under the rules that are in force; the keys
    /// that went are returned. Fails as `RunAgain`, and removes nothing, if the rules are not those any more.
    async fn delete_due(&self, batch: &DueBatch<'_>, token: ClaimToken) -> Result<Vec<ObjectKey>, Error>;

    /// Open uploads of a range behind a key and an upload that are due, by key.
    async fn due_uploads(
        &self,
        range: &DueRange,
        after: Option<&DueUpload>,
        limit: usize,
    ) -> Result<Vec<DueUpload>, Error>;

    /// Aborts an upload if it still is open and due. How many bytes its parts have is returned; nothing, if
    /// it was closed. Fails as `RunAgain` if the rules are not those any more.
    async fn abort_due(&self, id: UploadId, revision: i64, threshold: Threshold) -> Result<Option<u64>, Error>;
}

/// True for what was written at `$column` and is due by the numbers `$step`, `$age` and `$from`.
macro_rules! due {
    ($column:literal, $step:literal, $age:literal, $from:literal) => {
        concat!($column, " <= :now / ", $step, " * ", $step, " - ", $age, " AND :now >= ", $from)
    };
}
use due;

/// Held until the unit ends: rules are replaced before it, and it does nothing, or behind it.
const RULES_STAND: &str = "SELECT id FROM buckets WHERE id = $1 AND lifecycle_revision = $2 /*share*/";

fn ruled_bucket(row: &Row) -> Result<RuledBucket, Error> {
    Ok(RuledBucket {
        id: BucketId(row.int(0)?),
        name: row.parse(1)?,
        revision: row.int(2)?,
        rules: row.opt_json(3)?.unwrap_or_default(),
    })
}

#[async_trait]
impl Lifecycles for Catalog {
    async fn lifecycle(&self, bucket: BucketId) -> Result<Option<RuledBucket>, Error> {
        const SQL: &str = "SELECT id, name, lifecycle_revision, lifecycle FROM buckets WHERE id = $1";
        let rows = self.read(SQL, params![bucket]).await?;
        let row = rows.first().ok_or(Error::Guard(Verdict::NoSuchBucket))?;
        row.opt_text(3)?.map(|_| ruled_bucket(row)).transpose()
    }

    async fn set_lifecycle(&self, bucket: BucketId, rules: Option<&[Rule]>) -> Result<(), Error> {
        let mut unit = Unit::new("set_lifecycle");
        unit.one(
            "UPDATE buckets SET lifecycle = $2, lifecycle_revision = lifecycle_revision + 1 WHERE id = $1",
            params![bucket, rules.map(|rules| json(&rules))],
            Verdict::NoSuchBucket,
        );
        self.write(unit).await.map(drop)
    }

    async fn ruled_bucket(&self, after: &str, named: &[&str]) -> Result<Option<RuledBucket>, Error> {
        const SQL: &str = "SELECT id, name, lifecycle_revision, lifecycle FROM buckets \
             WHERE name > $1 AND (lifecycle IS NOT NULL OR name IN TEXTS($2)) ORDER BY name LIMIT 1";
        self.read(SQL, params![after, json(&named)]).await?.first().map(ruled_bucket).transpose()
    }

    async fn due_objects(&self, range: &DueRange, limit: usize) -> Result<DuePage, Error> {
        objects::due(self, range, limit).await
    }

    async fn delete_due(&self, batch: &DueBatch<'_>, token: ClaimToken) -> Result<Vec<ObjectKey>, Error> {
        objects::delete(self, batch, token).await
    }

    async fn due_uploads(
        &self,
        range: &DueRange,
        after: Option<&DueUpload>,
        limit: usize,
    ) -> Result<Vec<DueUpload>, Error> {
        uploads::due(self, range, after, limit).await
    }

    async fn abort_due(&self, id: UploadId, revision: i64, threshold: Threshold) -> Result<Option<u64>, Error> {
        uploads::abort(self, id, revision, threshold).await
    }
}
