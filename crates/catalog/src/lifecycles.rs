//! Lifecycle rules of buckets, the objects and uploads that are due by them, and the units that delete these.
//!
//! The statements that delete due rows check again what the query found: the version, the tags if the rule has any, the
//! age by the catalog's clock, and that the rules did not change.

mod objects;
mod uploads;

use s3o_model::clock::Timestamp;
use s3o_model::ids::{BucketId, ClaimToken, UploadId, VersionId};
use s3o_model::lifecycle::{Rule, Threshold};
use s3o_model::names::{BucketName, ObjectKey};
use s3o_model::object::Tags;

use crate::error::{Error, Verdict};
use crate::unit::{Row, Unit, json};
use crate::{Catalog, params};

/// A bucket with its lifecycle configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuledBucket {
    /// Never reused for another bucket.
    pub id: BucketId,
    /// For audit lines; the row is selected by `id`.
    pub name: BucketName,
    /// Changes with every change of the rules and never repeats.
    pub revision: i64,
    /// Empty if only the configuration of s3o has rules for the bucket.
    pub rules: Vec<Rule>,
}

/// Where the rule of a deletion comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authority {
    /// The configuration of s3o; the caller knows whether it is still in force.
    Configuration,
    /// The bucket's own rules, of this revision.
    Bucket(i64),
}

/// A range of keys of a bucket, and when its objects are due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueRange {
    /// Bucket of the keys.
    pub bucket: BucketId,
    /// Lower bound, inclusive.
    pub from: String,
    /// Upper bound, exclusive; `None` for no bound.
    pub before: Option<String>,
    /// Age or date of a due object.
    pub threshold: Threshold,
}

/// An object that was due when its page was read; the deleting transaction checks that again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueObject {
    /// In the bucket of the queried range.
    pub key: ObjectKey,
    /// A later version is not deleted.
    pub version: VersionId,
    /// Length of the object.
    pub size_bytes: u64,
    /// Tags when the object was found due.
    pub tags: Tags,
    /// The age counts from here.
    pub last_modified: Timestamp,
    /// The catalog's clock when the object was found due.
    pub seen_at: Timestamp,
}

/// The due objects of one page of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DuePage {
    /// Ordered by key.
    pub objects: Vec<DueObject>,
    /// First key of the next page; `None` on the last one.
    pub next: Option<String>,
}

/// Objects of one bucket that a rule deletes.
#[derive(Debug, Clone)]
pub struct DueBatch<'a> {
    /// Bucket of all objects.
    pub bucket: BucketId,
    /// Re-checked in the deleting transaction.
    pub authority: Authority,
    /// Re-checked in the deleting transaction.
    pub threshold: Threshold,
    /// At most a thousand.
    pub objects: &'a [DueObject],
    /// True if the rule selects by tags: an object whose tags changed meanwhile is then kept.
    pub by_tags: bool,
}

/// An open upload that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueUpload {
    /// Open when it was found due.
    pub id: UploadId,
    /// Key of the object that it would create.
    pub key: ObjectKey,
    /// The age counts from here.
    pub created_at: Timestamp,
    /// The catalog's clock when the upload was found due.
    pub seen_at: Timestamp,
}

/// SQL that is true for rows that were written at `column` and are due by a [`Threshold`] in three parameters.
fn due(column: &str, step: &str, age: &str, from: &str) -> String {
    format!("{column} <= :now / {step} * {step} - {age} AND :now >= {from}")
}

/// Returns the bucket if its rules still have the revision `$2`, and keeps them until the unit ends.
const RULES_STAND: &str = "SELECT id FROM buckets WHERE id = $1 AND lifecycle_revision = $2 /*share*/";

fn ruled_bucket(row: &Row) -> Result<RuledBucket, Error> {
    Ok(RuledBucket {
        id: BucketId(row.int("id")?),
        name: row.parse("name")?,
        revision: row.int("lifecycle_revision")?,
        rules: row.opt_json("lifecycle")?.unwrap_or_default(),
    })
}

impl Catalog {
    /// The lifecycle configuration of a bucket; `None` if it has none.
    pub async fn lifecycle(&self, bucket: BucketId) -> Result<Option<RuledBucket>, Error> {
        const SQL: &str = "SELECT id, name, lifecycle_revision, lifecycle FROM buckets WHERE id = $1";
        let rows = self.read(SQL, params![bucket]).await?;
        let row = rows.first().ok_or(Error::Guard(Verdict::NoSuchBucket))?;
        row.opt_text("lifecycle")?.map(|_| ruled_bucket(row)).transpose()
    }

    /// Replaces a bucket's rules, or deletes them. The old rules delete nothing after this returns.
    pub async fn set_lifecycle(&self, bucket: BucketId, rules: Option<&[Rule]>) -> Result<(), Error> {
        let mut unit = Unit::new("set_lifecycle");
        unit.one(
            "UPDATE buckets SET lifecycle = $2, lifecycle_revision = lifecycle_revision + 1 WHERE id = $1",
            params![bucket, rules.map(|rules| json(&rules))],
            Verdict::NoSuchBucket,
        );
        self.write(unit).await.map(drop)
    }

    /// The first bucket with a name above `after` that has rules of its own or is in `named`.
    pub async fn ruled_bucket(&self, after: &str, named: &[&str]) -> Result<Option<RuledBucket>, Error> {
        const SQL: &str = "SELECT id, name, lifecycle_revision, lifecycle FROM buckets \
             WHERE name > $1 AND (lifecycle IS NOT NULL OR name IN TEXTS($2)) ORDER BY name LIMIT 1";
        self.read(SQL, params![after, json(&named)]).await?.first().map(ruled_bucket).transpose()
    }

    /// The due objects among the first `limit` objects of a range.
    pub async fn due_objects(&self, range: &DueRange, limit: usize) -> Result<DuePage, Error> {
        objects::due_objects(self, range, limit).await
    }

    /// Deletes the objects that did not change and are still due, and returns their keys. Fails as `RunAgain`, and
    /// deletes nothing, if the rules changed.
    pub async fn delete_due(&self, batch: &DueBatch<'_>, token: ClaimToken) -> Result<Vec<ObjectKey>, Error> {
        objects::delete(self, batch, token).await
    }

    /// Due open uploads of a range after the given one, ordered by key and ID.
    pub async fn due_uploads(
        &self,
        range: &DueRange,
        after: Option<&DueUpload>,
        limit: usize,
    ) -> Result<Vec<DueUpload>, Error> {
        uploads::due_uploads(self, range, after, limit).await
    }

    /// Aborts an upload if it is still open and due. Returns the bytes of its parts, or `None` if it was closed. Fails
    /// as `RunAgain` if the rules changed.
    pub async fn abort_due(&self, id: UploadId, revision: i64, threshold: Threshold) -> Result<Option<u64>, Error> {
        uploads::abort(self, id, revision, threshold).await
    }
}
