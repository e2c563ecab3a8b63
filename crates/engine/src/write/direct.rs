//! Direct mode: bytes are written before any row knows of them. It saves one transaction a write,
//! and a crash between the write and its commit leaks the bytes.

use s3o_catalog::{Ended, Error as CatalogError};
use s3o_model::cleanup::Reason;
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
    pub(super) async fn unannounced_not_committed(&self, staged: &Staged, error: &CatalogError, ended: &Ended) {
        match error {
            // They may be committed: queueing them could delete an object's only copy.
            CatalogError::Unknown(why) => self.sound_alarm(staged, why),
            _ => self.queue_unannounced(staged, ended).await,
        }
    }

    /// Queues bytes of a write that came to nothing; if that fails, nobody will find them but a
    /// comparison of the backend with the catalog.
    pub(super) async fn queue_unannounced(&self, staged: &Staged, ended: &Ended) {
        match self.intents.requeue(&staged.intent, ended).await {
            Ok(()) => self.ring_for_cleanup(),
            Err(error) => self.sound_alarm(staged, &error.to_string()),
        }
    }

    fn sound_alarm(&self, staged: &Staged, error: &str) {
        let intent = &staged.intent;
        tracing::error!(backend = %intent.backend, physical_key = intent.physical_key, error, "bytes that no row knows");
        self.metrics.orphaned(&intent.backend, Reason::PutOrphan);
        self.alarm.orphaned(&intent.backend, &intent.physical_key, intent.size_bytes, error);
    }
}
