//! When what a request writes ceases to exist.

use s3o_model::clock::Timestamp;
use s3o_model::expiry::Expiry;
use s3o_model::ids::VersionId;
use s3o_model::names::{BucketName, ObjectKey};

use crate::{Engine, Error};

impl Engine {
    /// When an object of this bucket ceases to exist: as asked, or else as the bucket has it.
    pub(crate) fn expiry(
        &self,
        bucket: &BucketName,
        asked: Option<Expiry>,
        now: Timestamp,
    ) -> Result<Option<Expiry>, Error> {
        let expiry = asked.or_else(|| self.bucket_settings(bucket).default_ttl.map(Expiry::After));
        expiry.map_or(Ok(()), |expiry| expiry.check(now))?;
        Ok(expiry)
    }

    /// When an object that was just written ceases to exist, for a writer whose answer was lost on the way.
    /// `None` if another request changed it since: nobody can tell any more.
    pub(crate) async fn expiry_of(
        &self,
        bucket: &BucketName,
        key: &ObjectKey,
        version: VersionId,
    ) -> Option<Timestamp> {
        let there = self.find(bucket, key).await.ok()?.object?;
        there.expires_at.filter(|_| there.version == version)
    }
}
