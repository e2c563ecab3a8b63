//! Creating, reading, tagging and deleting buckets.

use s3o_model::bucket::Bucket;
use s3o_model::ids::BucketId;
use s3o_model::names::BucketName;
use s3o_model::object::Tags;

use crate::error::{Error, Verdict};
use crate::unit::{LockRank, Row, Unit, json};
use crate::{Catalog, params};

fn bucket(row: &Row) -> Result<Bucket, Error> {
    Ok(Bucket {
        id: BucketId(row.int("id")?),
        name: row.parse("name")?,
        created_at: row.time("created_at")?,
        tags: row.json("tags")?,
    })
}

impl Catalog {
    /// All buckets, ordered by name.
    pub async fn buckets(&self) -> Result<Vec<Bucket>, Error> {
        let rows = self.read("SELECT id, name, created_at, tags FROM buckets ORDER BY name", vec![]).await?;
        rows.iter().map(bucket).collect()
    }

    /// `None` if the bucket does not exist.
    pub async fn bucket(&self, name: &BucketName) -> Result<Option<Bucket>, Error> {
        const SQL: &str = "SELECT id, name, created_at, tags FROM buckets WHERE name = $1";
        self.find(SQL, params![name], |rows| !rows.is_empty()).await?.first().map(bucket).transpose()
    }

    /// Creates a bucket; `false` if it exists. Without a factor it has that of the cluster.
    pub async fn create_bucket(&self, name: &BucketName, factor: Option<usize>) -> Result<bool, Error> {
        let mut unit = Unit::new("create_bucket");
        unit.run(
            "INSERT INTO buckets (name, created_at, factor) \
             VALUES ($1, :now, coalesce(CAST($2 AS BIGINT), (SELECT factor FROM cluster), 1)) \
             ON CONFLICT (name) DO NOTHING",
            params![name, factor],
        );
        Ok(self.write(unit).await?[0].changed == 1)
    }

    /// Deletes a bucket. Fails as `NotEmpty` if it has an object or an open upload, `InTrash` if it has none of these
    /// but objects in trash. A write that is under way fails as
    /// `NoSuchBucket` when it commits.
    pub async fn delete_bucket(&self, id: BucketId) -> Result<(), Error> {
        let mut unit = Unit::new("delete_bucket");
        let lock = "SELECT id FROM buckets WHERE id = $1 /*lock*/";
        unit.at(LockRank::Bucket).one(lock, params![id], Verdict::NoSuchBucket);
        // A bucket that also has objects fails as `NotEmpty` below: they are what its owner can see.
        unit.exactly(
            0,
            "SELECT 1 FROM trash_objects WHERE bucket_id = $1 \
             AND NOT EXISTS (SELECT 1 FROM objects WHERE bucket_id = $1) \
             AND NOT EXISTS (SELECT 1 FROM multipart_uploads WHERE bucket_id = $1 AND state = 'open') LIMIT 1",
            params![id],
            Verdict::InTrash,
        );
        unit.one(
            "DELETE FROM buckets WHERE id = $1 \
             AND NOT EXISTS (SELECT 1 FROM objects WHERE bucket_id = $1) \
             AND NOT EXISTS (SELECT 1 FROM multipart_uploads WHERE bucket_id = $1 AND state = 'open')",
            params![id],
            Verdict::NotEmpty,
        );
        self.write(unit).await.map(drop)
    }

    /// Replaces all tags of a bucket. Fails as `NoSuchBucket`.
    pub async fn set_bucket_tags(&self, id: BucketId, tags: &Tags) -> Result<(), Error> {
        let mut unit = Unit::new("set_bucket_tags");
        unit.one("UPDATE buckets SET tags = $2 WHERE id = $1", params![id, json(tags)], Verdict::NoSuchBucket);
        self.write(unit).await.map(drop)
    }
}
