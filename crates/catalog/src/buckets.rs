//! Buckets in the catalog.

use async_trait::async_trait;
use s3o_model::bucket::Bucket;
use s3o_model::clock::Timestamp;
use s3o_model::ids::BucketId;
use s3o_model::names::BucketName;
use s3o_model::object::Tags;

use crate::error::{Error, Verdict};
use crate::unit::{Row, Unit, json};
use crate::{Catalog, params};

/// What is known of buckets.
#[async_trait]
pub trait Buckets: Send + Sync {
    /// All buckets, by name.
    async fn buckets(&self) -> Result<Vec<Bucket>, Error>;

    /// One bucket, if it exists.
    async fn bucket(&self, name: &BucketName) -> Result<Option<Bucket>, Error>;

    /// Creates a bucket; `false` if it was there before.
    async fn create_bucket(&self, name: &BucketName) -> Result<bool, Error>;

    /// Removes a bucket that holds no object and no open upload. A write that is under way finds
    /// it gone when it commits.
    async fn delete_bucket(&self, id: BucketId) -> Result<(), Error>;

    /// Replaces a bucket's tags.
    async fn set_bucket_tags(&self, id: BucketId, tags: &Tags) -> Result<(), Error>;
}

fn bucket(row: &Row) -> Result<Bucket, Error> {
    Ok(Bucket {
        id: BucketId(row.int(0)?),
        name: row.parse(1)?,
        created_at: Timestamp::from_millis(row.int(2)?),
        tags: row.json(3)?,
    })
}

#[async_trait]
impl Buckets for Catalog {
    async fn buckets(&self) -> Result<Vec<Bucket>, Error> {
        let rows = self.read("SELECT id, name, created_at, tags FROM buckets ORDER BY name", vec![]).await?;
        rows.iter().map(bucket).collect()
    }

    async fn bucket(&self, name: &BucketName) -> Result<Option<Bucket>, Error> {
        const SQL: &str = "SELECT id, name, created_at, tags FROM buckets WHERE name = $1";
        self.find(SQL, params![name], |rows| !rows.is_empty()).await?.first().map(bucket).transpose()
    }

    async fn create_bucket(&self, name: &BucketName) -> Result<bool, Error> {
        let mut unit = Unit::new("create_bucket");
        unit.run(
            "INSERT INTO buckets (name, created_at) VALUES ($1, :now) ON CONFLICT (name) DO NOTHING",
            params![name],
        );
        Ok(self.write(unit).await?[0].changed == 1)
    }

    async fn delete_bucket(&self, id: BucketId) -> Result<(), Error> {
        let mut unit = Unit::new("delete_bucket");
        unit.one("SELECT id FROM buckets WHERE id = $1 /*lock*/", params![id], Verdict::NoSuchBucket);
        unit.one(
            "DELETE FROM buckets WHERE id = $1 \
             AND NOT EXISTS (SELECT 1 FROM objects WHERE bucket_id = $1) \
             AND NOT EXISTS (SELECT 1 FROM multipart_uploads WHERE bucket_id = $1 AND state = 'open')",
            params![id],
            Verdict::NotEmpty,
        );
        self.write(unit).await.map(drop)
    }

    async fn set_bucket_tags(&self, id: BucketId, tags: &Tags) -> Result<(), Error> {
        let mut unit = Unit::new("set_bucket_tags");
        unit.one("UPDATE buckets SET tags = $2 WHERE id = $1", params![id, json(tags)], Verdict::NoSuchBucket);
        self.write(unit).await.map(drop)
    }
}
