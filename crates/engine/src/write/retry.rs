//! Retries after lost answers of the catalog: queues the bytes of abandoned writes, and looks up the outcomes of writes
//! in doubt.
//!
//! Bytes that could not be queued are counted and audited once, and retried until the catalog has queued them.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use s3o_catalog::{Ended, Error as CatalogError};
use s3o_model::cleanup::Reason;
use s3o_model::content::Location;
use s3o_model::ids::IntentId;

use super::{Staged, WriteCopy};
use crate::Engine;
use crate::engine::Orphan;

/// Delay before the first retry; it doubles with each further one.
const DELAY_MIN: Duration = Duration::from_secs(1);
const DELAY_MAX: Duration = Duration::from_mins(1);

/// Bytes of abandoned writes that are not queued for deletion yet.
#[derive(Default)]
pub(crate) struct UnqueuedBytes(Mutex<BTreeMap<IntentId, UnqueuedCleanup>>);

#[derive(Clone)]
struct UnqueuedCleanup {
    place: Location,
    size_bytes: u64,
    ended: Ended,
}

impl UnqueuedBytes {
    fn all(&self) -> MutexGuard<'_, BTreeMap<IntentId, UnqueuedCleanup>> {
        self.0.lock()
    }
}

impl Engine {
    /// Queues the bytes again. The reaper queued them during the write; that cleanup may have been settled before the
    /// bytes were stored.
    pub(super) async fn requeue(&self, copy: &WriteCopy) {
        let staged = &copy.staged;
        let ended =
            Ended { backend_version: copy.backend_version().cloned(), upload: staged.upload_left(), late: copy.late() };
        match self.catalog.requeue(&staged.place, staged.size_bytes, &ended).await {
            Ok(()) => self.wake_cleanup(),
            Err(error) => self.retry_later(staged, ended, &error),
        }
    }

    fn retry_later(&self, staged: &Staged, ended: Ended, error: &CatalogError) {
        self.report_orphan(staged, &error.to_string());
        let (place, size_bytes) = (staged.place.clone(), staged.size_bytes);
        self.unqueued.all().insert(staged.id, UnqueuedCleanup { place, size_bytes, ended });
        self.metrics.retry_needed().notify_one();
    }

    /// Counts and audits bytes that no row may name.
    pub(super) fn report_orphan(&self, staged: &Staged, error: &str) {
        let Location { backend, physical_key, .. } = &staged.place;
        tracing::error!(%backend, physical_key, error, "cannot queue bytes for deletion");
        self.metrics.orphaned(backend, Reason::PutOrphan);
        let (size_bytes, object) = (staged.size_bytes, staged.object.as_ref());
        self.alarm.orphaned(&Orphan { backend, physical_key, size_bytes, object, error });
    }

    /// Retries whenever an answer was lost, with growing delays; it does not return.
    pub(crate) async fn keep_retrying(&self) {
        loop {
            self.metrics.retry_needed().notified().await;
            let mut delay = DELAY_MIN;
            loop {
                tokio::time::sleep(delay).await;
                if self.retry_unanswered().await {
                    break;
                }
                delay = (delay * 2).min(DELAY_MAX);
            }
        }
    }

    /// Retries once: queues the bytes of abandoned writes and looks up the outcomes of writes in doubt. Returns true if
    /// no retry is left.
    pub async fn retry_unanswered(&self) -> bool {
        let unqueued = self.unqueued.all().clone();
        for (intent, UnqueuedCleanup { place, size_bytes, ended }) in unqueued {
            let Location { backend, physical_key, .. } = &place;
            match self.catalog.requeue(&place, size_bytes, &ended).await {
                Ok(()) => {
                    self.unqueued.all().remove(&intent);
                    tracing::info!(%backend, physical_key, "bytes queued on retry");
                    self.wake_cleanup();
                }
                Err(error) => tracing::warn!(%error, %intent, "bytes still cannot be queued for deletion"),
            }
        }
        self.resolve_in_doubt().await;
        self.unqueued.all().is_empty() && self.metrics.in_doubt_writes().is_empty()
    }

    async fn resolve_in_doubt(&self) {
        let in_doubt = self.metrics.in_doubt_writes();
        if in_doubt.is_empty() {
            return;
        }
        let writes: Vec<_> = in_doubt.iter().map(|(write, _)| *write).collect();
        match self.catalog.announced(&writes).await {
            Ok(open) => self.metrics.resolve_in_doubt(&in_doubt, &open),
            Err(error) => tracing::debug!(%error, writes = writes.len(), "cannot read outcomes of writes, retrying"),
        }
    }
}
