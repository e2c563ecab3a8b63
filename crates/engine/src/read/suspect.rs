//! Reads suspect copies before they are served: a client gets their bytes only if they are those that were written.

use s3o_backend::{BodyError, Error as BackendError};
use s3o_catalog::WrittenDigests;
use s3o_model::content::{CopyTrust, ReadableCopy};
use s3o_model::ids::ContentId;

use crate::{Engine, Error, reread};

impl Engine {
    /// Compares all bytes of a copy, if it is suspect, with the digests of its content, whatever part of it is wanted.
    /// A copy that has them is present again. Fails as `Damaged` if they differ, or if no digest is known.
    pub(super) async fn verify_suspect(
        &self,
        content: ContentId,
        copy: &ReadableCopy,
        size_bytes: u64,
    ) -> Result<(), Error> {
        if copy.trust != CopyTrust::Suspect {
            return Ok(());
        }
        let copy = &copy.location;
        let damaged = |why: &str| Error::Damaged(format!("the copy on {} is damaged: {why}", copy.backend));
        let digests = self.catalog.written_digests(content).await?;
        let Some(digests) = digests else { return Err(damaged("its content was deleted")) };
        let WrittenDigests { md5, sha256, read_at } = digests;
        let Some(backend) = self.fleet.get(&copy.backend) else { return Err(damaged("backend is not configured")) };
        let found = match reread(backend.as_ref(), copy.key_version(), size_bytes, None).await {
            Err(BackendError::Body(BodyError::Short { .. } | BodyError::Long { .. })) => {
                return Err(damaged("not the size that was written"));
            }
            found => found?,
        };
        let is_known = md5.is_some() || sha256.is_some();
        if !is_known || md5.is_some_and(|md5| md5 != found.md5) || sha256.is_some_and(|digest| digest != found.sha256) {
            return Err(damaged("not the digest that was written"));
        }
        // The read does not depend on this: the next one verifies the copy again.
        if let Err(error) = self.catalog.confirm_copy(content, copy, read_at).await {
            tracing::info!(%content, backend = %copy.backend, %error, "copy verified, but not recorded");
        }
        Ok(())
    }
}
