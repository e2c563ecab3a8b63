//! Resolves intents whose lease ran out: their writer is dead, cut off or too slow.
//!
//! They are fenced and claimed first, so that a late commit fails. A write whose bytes are proven to
//! be what their sender declared is finished; everything else that is proven becomes a cleanup,
//! which looks out for bytes that land late. What nobody can tell is looked at again.

mod resolve;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use s3o_backend::fleet::Fleet;
use s3o_catalog::{Intents, Objects};
use s3o_engine::IntentMetrics;
use s3o_model::bucket::ConfiguredBuckets;
use s3o_model::ids::{ClaimToken, IdSource};
use s3o_model::intent::{Expired, renewal_interval};
use s3o_model::recovery::{Recovery, Resolution};
use tokio::sync::Notify;

use crate::identity::Identity;
use crate::{Error, Event, Report, Worker};

/// How the reaper works.
#[derive(Debug, Clone, Copy)]
pub struct ReaperSettings {
    /// How many writes one tick resolves.
    pub batch_size: usize,
    /// How many of them side by side.
    pub concurrency: usize,
    /// How long a claim holds without renewal.
    pub hold: Duration,
    /// The least time between two looks at an unclear write.
    pub rest_min: Duration,
    /// How long a write whose owner is gone may still land.
    pub late_write_window: Duration,
    /// What is done with writes that can be finished.
    pub recovery: Recovery,
}

/// Resolves intents whose lease ran out.
pub struct PendingReaper {
    /// The intents.
    pub intents: Arc<dyn Intents>,
    /// What finished writes become.
    pub objects: Arc<dyn Objects>,
    /// The backends.
    pub fleet: Arc<Fleet>,
    /// Whether the backends still are who they were.
    pub identity: Arc<Identity>,
    /// How buckets were configured.
    pub configured: ConfiguredBuckets,
    /// Where tokens come from.
    pub ids: IdSource,
    /// Counts what becomes of announced writes.
    pub metrics: IntentMetrics,
    /// How it works.
    pub settings: ReaperSettings,
    /// Rung when bytes are to be deleted.
    pub cleanup_bell: Arc<Notify>,
}

/// What became of one write; `None` if the claim was lost.
struct Resolved {
    copies: Vec<Expired>,
    outcome: Result<Option<Resolution>, Error>,
}

#[async_trait]
impl Worker for PendingReaper {
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
        self.cleanup_bell.notify_one();
        let mut failed = None;
        for Resolved { copies, outcome } in resolved {
            match outcome {
                Ok(resolution) => note(report, &copies, resolution.as_ref()),
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

impl PendingReaper {
    async fn resolve_all(&self, token: ClaimToken, writes: Vec<Vec<Expired>>) -> Vec<Resolved> {
        let work: Vec<_> = writes.into_iter().map(|copies| self.boxed_resolve(token, copies)).collect();
        futures_util::stream::iter(work).buffer_unordered(self.settings.concurrency.max(1)).collect().await
    }

    /// Renews the claims for as long as the bytes take to read; it never ends by itself.
    async fn keep_claims(&self, token: ClaimToken) {
        loop {
            tokio::time::sleep(renewal_interval(self.settings.hold)).await;
            if let Err(error) = self.intents.hold_expired(token, self.settings.hold).await {
                tracing::warn!(%error, "claims on intents were not renewed");
            }
        }
    }
}

/// Notes what became of a write in the report, which the audit trail is made from.
fn note(report: &mut Report, copies: &[Expired], resolution: Option<&Resolution>) {
    let Some(resolution) = resolution else {
        return report.count("stale", 1);
    };
    report.count(resolution.as_str(), 1);
    for copy in copies {
        report.events.extend(event(copy, resolution));
    }
}

/// The copies of each write, together.
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
    let mut event = Event::new(name).of(copy.bucket_name.clone(), copy.key.as_str());
    if let Some((backend, physical_key)) = &copy.place {
        event = event.at(backend, physical_key, copy.size_bytes);
    }
    Some(why.into_iter().fold(event, |event, why| event.with("why", why)))
}
