//! Direct mode: bytes are written before any row knows of them. It saves one transaction a write,
//! and a crash between the write and its commit leaks the bytes.

use s3o_catalog::{Ended, Error as CatalogError};
use s3o_model::placement::BackendView;
use s3o_model::quota::Books;

use super::Staged;
use crate::Engine;

/// Nothing is reserved, so placement goes by the books as they stand; the commit decides.
pub(super) fn fill_in_room(views: &mut [BackendView], books: &[Books]) {
    for view in views {
        let own = books.iter().find(|books| books.backend == view.name);
        view.available_bytes = own.and_then(Books::available_bytes);
    }
}

impl Engine {
    /// What is done about bytes whose commit failed.
    pub(super) async fn unannounced_not_committed(&self, staged: &Staged, error: &CatalogError, ended: Ended) {
        match error {
            // They may be committed: queueing them could delete an object's only copy.
            CatalogError::Unknown(why) => self.report_orphan(&staged.intent, &staged.bucket, why),
            _ => self.requeue(staged, ended).await,
        }
    }
}
