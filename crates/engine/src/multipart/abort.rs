//! Aborts an upload.

use super::UploadRef;
use crate::{Engine, Error};

impl Engine {
    /// Aborts an upload and queues its parts for deletion.
    pub async fn abort_upload(&self, target: &UploadRef) -> Result<(), Error> {
        let upload = self.open_upload(target).await?;
        self.catalog.abort_upload(upload.id).await?;
        self.wake_cleanup();
        Ok(())
    }
}
