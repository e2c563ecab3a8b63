//! When what a request writes ceases to exist.

use s3o_model::clock::Timestamp;
use s3o_model::expiry::Expiry;
use s3o_model::names::BucketName;

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
}
