//! Errands: what a shared tier is told without anybody waiting for it. Bodies to keep and contents
//! to forget queue up, bounded in number and in bytes, and go out in batches, one round trip each.

use std::sync::Arc;

use s3o_model::ids::ContentId;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc};

use crate::metrics::Metrics;
use crate::tier::{Entry, FORGET_MAX, Tier};

/// How many errands may wait.
const WAITING_MAX: usize = 1024;
/// How many bytes of bodies go out at a time.
const BATCH_BYTES_MAX: usize = 4 << 20;

enum Errand {
    /// Keep a body, which takes room while it waits.
    Keep(Entry, OwnedSemaphorePermit),
    /// Forget these.
    Forget(Vec<ContentId>),
}

/// What a shared tier is still to be told.
pub(crate) struct Errands {
    tier: Arc<dyn Tier>,
    waiting: mpsc::Sender<Errand>,
    /// Taken by whoever runs them.
    queue: Mutex<mpsc::Receiver<Errand>>,
    room: Arc<Semaphore>,
    metrics: Metrics,
}

/// Errands that go out together.
#[derive(Default)]
struct Batch {
    entries: Vec<Entry>,
    permits: Vec<OwnedSemaphorePermit>,
    bytes: usize,
    forgotten: Vec<ContentId>,
}

impl Batch {
    fn take(&mut self, errand: Errand) {
        match errand {
            Errand::Keep(entry, permit) => {
                self.bytes += entry.body.len();
                self.entries.push(entry);
                self.permits.push(permit);
            }
            Errand::Forget(contents) => self.forgotten.extend(contents),
        }
    }

    fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES_MAX || self.entries.len() + self.forgotten.len() >= FORGET_MAX
    }
}

impl Errands {
    /// Errands to a tier; bodies that wait take no more than `room_bytes`.
    pub(crate) fn to(tier: Arc<dyn Tier>, room_bytes: u64, metrics: Metrics) -> Self {
        let (waiting, queue) = mpsc::channel(WAITING_MAX);
        let room = usize::try_from(room_bytes).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Self { tier, waiting, queue: Mutex::new(queue), room: Arc::new(Semaphore::new(room)), metrics }
    }

    /// Has a body kept, if there is room for it to wait.
    pub(crate) fn keep(&self, entry: Entry) {
        let bytes = u32::try_from(entry.body.len()).unwrap_or(u32::MAX);
        if self.tier.is_reachable()
            && let Ok(permit) = Arc::clone(&self.room).try_acquire_many_owned(bytes)
            && self.waiting.try_send(Errand::Keep(entry, permit)).is_err()
        {
            tracing::debug!("too many errands wait: a body is not shared");
        }
    }

    /// Has contents forgotten. Those that it is not told of end with their time.
    pub(crate) fn forget(&self, contents: &[ContentId]) {
        let is_sent = self.tier.is_reachable() && self.waiting.try_send(Errand::Forget(contents.to_vec())).is_ok();
        if !is_sent {
            self.metrics.forgot(self.tier.name(), "dropped", contents.len());
        }
    }

    /// Runs errands for as long as it is polled.
    pub(crate) async fn run(&self) {
        let mut queue = self.queue.lock().await;
        while let Some(first) = queue.recv().await {
            let mut batch = Batch::default();
            batch.take(first);
            while !batch.is_full()
                && let Ok(next) = queue.try_recv()
            {
                batch.take(next);
            }
            self.deliver(batch).await;
        }
    }

    /// What is to be forgotten comes last: content that died does not come back, so it does not
    /// matter which of the two was said first.
    async fn deliver(&self, batch: Batch) {
        if !batch.entries.is_empty()
            && let Err(error) = self.tier.keep(&batch.entries).await
        {
            tracing::debug!(%error, bodies = batch.entries.len(), "bodies were not shared");
        }
        for contents in batch.forgotten.chunks(FORGET_MAX) {
            let outcome = if self.tier.forget(contents).await.is_ok() { "ok" } else { "dropped" };
            self.metrics.forgot(self.tier.name(), outcome, contents.len());
        }
    }
}
