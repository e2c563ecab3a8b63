//! Resolves intents whose lease ran out: their writer is dead, cut off or too slow.
//!
//! They are fenced first, so that a late commit fails, and their bytes become cleanups. Where the
//! write may still land, the cleanup waits for it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use s3o_catalog::Intents;
use s3o_model::ids::{ClaimToken, IdSource};
use tokio::sync::Notify;

use crate::{Error, Report, Worker};

/// How the reaper works.
#[derive(Debug, Clone, Copy)]
pub struct ReaperSettings {
    /// How many writes one tick resolves.
    pub batch_size: usize,
    /// How long a write whose owner is gone may still land.
    pub late_write_window: Duration,
}

/// Resolves intents whose lease ran out.
pub struct PendingReaper {
    /// The intents.
    pub intents: Arc<dyn Intents>,
    /// Where tokens come from.
    pub ids: IdSource,
    /// How it works.
    pub settings: ReaperSettings,
    /// Rung when bytes are to be deleted.
    pub cleanup_bell: Arc<Notify>,
}

#[async_trait]
impl Worker for PendingReaper {
    fn name(&self) -> &'static str {
        "pending_reaper"
    }

    async fn tick(&self, report: &mut Report) -> Result<(), Error> {
        let ReaperSettings { batch_size, late_write_window } = self.settings;
        let token = ClaimToken::new(self.ids.fresh());
        let fenced = self.intents.reap(token, batch_size, late_write_window).await?;
        report.more = fenced.len() >= batch_size;
        report.count("dropped", fenced.len() as u64);
        for intent in &fenced {
            tracing::info!(
                intent = %intent.id, backend = %intent.backend, physical_key = intent.physical_key,
                size_bytes = intent.size_bytes, "intent dropped"
            );
        }
        if !fenced.is_empty() {
            self.cleanup_bell.notify_one();
        }
        Ok(())
    }
}
