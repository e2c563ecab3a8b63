//! Gives an upload up.

use super::UploadRef;
use crate::{Engine, Error};

impl Engine {
    /// Gives an upload up; its parts go.
    pub async fn abort_upload(&self, target: &UploadRef) -> Result<(), Error> {
        let upload = self.open_upload(target).await?;
        self.uploads.abort_upload(upload.id).await?;
        self.ring_for_cleanup();
        Ok(())
    }
}
