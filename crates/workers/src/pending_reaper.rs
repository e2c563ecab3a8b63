//! Resolves intents whose lease expired: their writer crashed, lost its connection or is too slow.
//!
//! The reaper claims and fences them first, so that a late commit fails. It commits a write whose
//! bytes match the digests that the client declared. It turns every other write into a cleanup, which
//! also waits for bytes that arrive late. It retries later if a backend gives no clear answer.

mod resolve;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use s3o_backend::fleet::Fleet;
use s3o_catalog::Catalog;
use s3o_engine::{ContentSharing, IntentMetrics};
use s3o_model::bucket::ConfiguredBuckets;
use s3o_model::ids::{ClaimToken, IdSource};
use s3o_model::intent::{Expired, renewal_interval};
use s3o_model::recovery::{Recovery, Resolution};
use tokio::sync::Notify;

use crate::identity::IdentityWorker;
use crate::{Error, Event, Report, Worker};

/// Bounds and timing of [`PendingReaperWorker`]; a reload replaces them.
#[derive(Debug, Clone, Copy)]
pub struct ReaperSettings {
    /// Number of writes in one tick.
    pub batch_size: usize,
    /// Number of writes resolved concurrently.
    pub concurrency: usize,
    /// Duration of a claim without renewal.
    pub hold: Duration,
    /// Shortest time between two attempts at an ambiguous write.
    pub rest_min: Duration,
    /// How long bytes of an abandoned write may still arrive at the backend.
    pub late_write_window: Duration,
    /// Whether writes that can be committed are committed.
    pub recovery: Recovery,
}

/// Commits or abandons writes whose writer no longer renews its lease.
pub struct PendingReaperWorker {
    /// Claims, fences and resolves intents.
    pub intents: Arc<Catalog>,
    /// Commits finished writes.
    pub sharing: ContentSharing,
    /// The configured backends.
    pub fleet: Arc<Fleet>,
    /// Checks the identity of a backend before its bytes are read.
    pub identity: Arc<IdentityWorker>,
    /// Bucket settings, for deduplication.
    pub configured: ConfiguredBuckets,
    /// Source of tokens and identifiers.
    pub ids: IdSource,
    /// Counts resolutions of intents.
    pub metrics: IntentMetrics,
    /// Settings, replaced on reload together with the worker.
    pub settings: ReaperSettings,
    /// Wakes the cleanup worker.
    pub cleanup_wakeup: Arc<Notify>,
}

struct ResolvedWrite {
    copies: Vec<Expired>,
    /// `None` if the claim was lost.
    outcome: Result<Option<Resolution>, Error>,
}

#[async_trait]
impl Worker for PendingReaperWorker {
    fn name(&self) -> &'static str {
        "pending_reaper"
    }

    async fn tick(&self, report: &mut Report) -> Result<(), Error> {
        let token = ClaimToken::new(self.ids.fresh());
        let ReaperSettings { batch_size, hold, .. } = self.settings;
        let writes = by_write(self.intents.claim_expired(token, batch_size, hold).await?);
        if writes.is_empty() {
            return Ok(());
        }
        report.more = writes.len() >= batch_size;
        let resolved = tokio::select! {
            resolved = self.resolve_all(token, writes) => resolved,
            () = self.keep_claims(token) => Vec::new(),
        };
        self.cleanup_wakeup.notify_one();
        let mut failed = None;
        for ResolvedWrite { copies, outcome } in resolved {
            match outcome {
                Ok(resolution) => report_resolution(report, &copies, resolution.as_ref()),
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

impl PendingReaperWorker {
    async fn resolve_all(&self, token: ClaimToken, writes: Vec<Vec<Expired>>) -> Vec<ResolvedWrite> {
        let work: Vec<_> = writes.into_iter().map(|copies| self.boxed_resolve(token, copies)).collect();
        futures_util::stream::iter(work).buffer_unordered(self.settings.concurrency.max(1)).collect().await
    }

    /// Renews the claims while the bytes are read; it does not return.
    async fn keep_claims(&self, token: ClaimToken) {
        loop {
            tokio::time::sleep(renewal_interval(self.settings.hold)).await;
            if let Err(error) = self.intents.hold_expired(token, self.settings.hold).await {
                tracing::warn!(%error, "cannot renew claims on intents, another instance may take them over");
            }
        }
    }
}

/// Counts the resolution of a write and adds an audit event for each copy.
fn report_resolution(report: &mut Report, copies: &[Expired], resolution: Option<&Resolution>) {
    let Some(resolution) = resolution else {
        return report.count("stale", 1);
    };
    report.count(resolution.as_str(), 1);
    for copy in copies {
        report.events.extend(event(copy, resolution));
    }
}

/// Groups copies by write; copies of one write are adjacent in `expired`.
fn by_write(expired: Vec<Expired>) -> Vec<Vec<Expired>> {
    let mut writes: Vec<Vec<Expired>> = Vec::new();
    for copy in expired {
        match writes.last_mut() {
            Some(last) if last[0].write == copy.write => last.push(copy),
            _ => writes.push(vec![copy]),
        }
    }
    writes
}

fn event(copy: &Expired, resolution: &Resolution) -> Option<Event> {
    let (name, why) = match resolution {
        Resolution::Promoted => ("pending_reaper.promoted", None),
        Resolution::Dropped(why) => ("pending_reaper.dropped", Some(*why)),
        Resolution::Superseded => ("pending_reaper.superseded", None),
        Resolution::Ambiguous(_) => return None,
    };
    let mut event = Event::new(name);
    if let Some(key) = &copy.key {
        event = event.of(copy.bucket_name.clone(), key.as_str());
    }
    if let Some((backend, physical_key)) = &copy.place {
        event = event.at(backend, physical_key, copy.size_bytes);
    }
    Some(why.into_iter().fold(event, |event, why| event.with("why", why)))
}
