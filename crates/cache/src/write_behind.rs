//! Write-behind queue of a shared tier: stores and removals that no request waits for. The queue is
//! bounded in number and in bytes, and is sent in batches, one round trip each.

use std::sync::Arc;

use s3o_model::ids::ContentId;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc};

use crate::metrics::CacheMetrics;
use crate::tier::{CacheEntry, REMOVE_MAX, Tier};

/// Largest number of queued writes.
const QUEUED_MAX: usize = 1024;
/// Largest number of body bytes in one batch.
const BATCH_BYTES_MAX: usize = 4 << 20;

enum TierWrite {
    /// Store a body; the permit counts its bytes while it is queued.
    Put(CacheEntry, OwnedSemaphorePermit),
    Remove(Vec<ContentId>),
}

pub(crate) struct WriteBehind {
    tier: Arc<dyn Tier>,
    sender: mpsc::Sender<TierWrite>,
    /// Locked by `run`.
    queue: Mutex<mpsc::Receiver<TierWrite>>,
    /// One permit for each byte that may be queued.
    free_bytes: Arc<Semaphore>,
    metrics: CacheMetrics,
}

#[derive(Default)]
struct WriteBatch {
    entries: Vec<CacheEntry>,
    permits: Vec<OwnedSemaphorePermit>,
    bytes: usize,
    removed: Vec<ContentId>,
}

impl WriteBatch {
    fn add(&mut self, write: TierWrite) {
        match write {
            TierWrite::Put(entry, permit) => {
                self.bytes += entry.body.len();
                self.entries.push(entry);
                self.permits.push(permit);
            }
            TierWrite::Remove(contents) => self.removed.extend(contents),
        }
    }

    fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES_MAX || self.entries.len() + self.removed.len() >= REMOVE_MAX
    }
}

impl WriteBehind {
    /// A queue for a tier; queued bodies take at most `bytes_max`.
    pub(crate) fn new(tier: Arc<dyn Tier>, bytes_max: u64, metrics: CacheMetrics) -> Self {
        let (sender, queue) = mpsc::channel(QUEUED_MAX);
        let permits = usize::try_from(bytes_max).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Self { tier, sender, queue: Mutex::new(queue), free_bytes: Arc::new(Semaphore::new(permits)), metrics }
    }

    /// Queues a body; drops it if the queue is full.
    pub(crate) fn put(&self, entry: CacheEntry) {
        let bytes = u32::try_from(entry.body.len()).unwrap_or(u32::MAX);
        if self.tier.is_reachable()
            && let Ok(permit) = Arc::clone(&self.free_bytes).try_acquire_many_owned(bytes)
            && self.sender.try_send(TierWrite::Put(entry, permit)).is_err()
        {
            tracing::debug!("write-behind queue full, body not written to the shared cache");
        }
    }

    /// Queues removals. Entries whose removal is dropped expire.
    pub(crate) fn remove(&self, contents: &[ContentId]) {
        let is_queued = self.tier.is_reachable() && self.sender.try_send(TierWrite::Remove(contents.to_vec())).is_ok();
        if !is_queued {
            self.metrics.count_invalidations(self.tier.name(), "dropped", contents.len());
        }
    }

    /// Sends queued writes; it does not return.
    pub(crate) async fn run(&self) {
        let mut queue = self.queue.lock().await;
        while let Some(first) = queue.recv().await {
            let mut batch = WriteBatch::default();
            batch.add(first);
            while !batch.is_full()
                && let Ok(next) = queue.try_recv()
            {
                batch.add(next);
            }
            self.send(batch).await;
        }
    }

    /// Removals come last, in any order of queueing: a removed content never comes back.
    async fn send(&self, batch: WriteBatch) {
        if !batch.entries.is_empty()
            && let Err(error) = self.tier.put(&batch.entries).await
        {
            tracing::debug!(%error, bodies = batch.entries.len(), "cannot write bodies to the shared cache");
        }
        for contents in batch.removed.chunks(REMOVE_MAX) {
            let outcome = if self.tier.remove(contents).await.is_ok() { "ok" } else { "dropped" };
            self.metrics.count_invalidations(self.tier.name(), outcome, contents.len());
        }
    }
}
