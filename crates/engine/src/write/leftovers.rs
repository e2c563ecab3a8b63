//! Bytes that wait to be queued for deletion: the catalog was away when their write was abandoned.
//!
//! They are counted and audited once and tried again until the catalog has taken them.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use s3o_catalog::{Ended, Error as CatalogError};
use s3o_model::cleanup::Reason;
use s3o_model::ids::IntentId;
use s3o_model::intent::Intent;
use s3o_model::names::BucketName;

use super::Staged;
use crate::Engine;
use crate::engine::Orphan;

/// How soon a cleanup that could not be queued is tried again.
const REST_MIN: Duration = Duration::from_secs(1);
/// The rest doubles up to this.
const REST_MAX: Duration = Duration::from_mins(1);

/// Bytes that wait to be queued.
#[derive(Default)]
pub(crate) struct Leftovers(Mutex<BTreeMap<IntentId, Leftover>>);

#[derive(Clone)]
struct Leftover {
    intent: Intent,
    ended: Ended,
}

impl Leftovers {
    fn all(&self) -> MutexGuard<'_, BTreeMap<IntentId, Leftover>> {
        self.0.lock()
    }
}

impl Engine {
    /// The reaper queued these bytes while they were still on their way; it may have looked before
    /// they landed, and its cleanup may be settled.
    pub(super) async fn requeue(&self, staged: &Staged, ended: Ended) {
        let ended = Ended { upload: staged.upload_left(), ..ended };
        match self.intents.requeue(&staged.intent, &ended).await {
            Ok(()) => self.ring_for_cleanup(),
            Err(error) => self.not_queued(staged, ended, &error),
        }
    }

    fn not_queued(&self, staged: &Staged, ended: Ended, error: &CatalogError) {
        self.report_orphan(&staged.intent, &staged.bucket, &error.to_string());
        let intent = staged.intent.clone();
        self.leftovers.all().insert(intent.id, Leftover { intent, ended });
        self.metrics.left().notify_one();
    }

    /// Counts and audits bytes that no row may name.
    pub(super) fn report_orphan(&self, intent: &Intent, bucket: &BucketName, error: &str) {
        let Intent { backend, physical_key, size_bytes, key, .. } = intent;
        tracing::error!(%backend, physical_key, error, "bytes could not be queued for deletion");
        self.metrics.orphaned(backend, Reason::PutOrphan);
        self.alarm.orphaned(&Orphan { backend, physical_key, size_bytes: *size_bytes, bucket, key, error });
    }

    /// Does again what the catalog did not answer, for as long as it is polled.
    pub(crate) async fn keep_leftovers(&self) {
        loop {
            self.metrics.left().notified().await;
            let mut rest = REST_MIN;
            loop {
                tokio::time::sleep(rest).await;
                if self.finish_leftovers().await {
                    break;
                }
                rest = (rest * 2).min(REST_MAX);
            }
        }
    }

    /// Does once again what the catalog did not answer: queues bytes of abandoned writes, and looks up what
    /// became of writes. Says whether nothing is left.
    pub async fn finish_leftovers(&self) -> bool {
        let left: Vec<Leftover> = self.leftovers.all().values().cloned().collect();
        for Leftover { intent, ended } in left {
            match self.intents.requeue(&intent, &ended).await {
                Ok(()) => {
                    self.leftovers.all().remove(&intent.id);
                    tracing::info!(backend = %intent.backend, physical_key = intent.physical_key, "bytes queued on retry");
                    self.ring_for_cleanup();
                }
                Err(error) => tracing::warn!(%error, intent = %intent.id, "bytes still cannot be queued for deletion"),
            }
        }
        self.look_up_doubts().await;
        self.leftovers.all().is_empty() && self.metrics.doubtful().is_empty()
    }

    async fn look_up_doubts(&self) {
        let doubtful = self.metrics.doubtful();
        if doubtful.is_empty() {
            return;
        }
        let writes: Vec<_> = doubtful.iter().map(|(write, _)| *write).collect();
        match self.intents.announced(&writes).await {
            Ok(open) => self.metrics.looked_up(&doubtful, &open),
            Err(error) => tracing::debug!(%error, writes = writes.len(), "outcomes not looked up"),
        }
    }
}
