//! Usage of the backends in the whole cluster: records what this process counted, and keeps the ceilings up to which it
//! may use limited backends.
//!
//! Totals are cumulative for each process and month, and are merged by the larger number: recording them twice changes
//! nothing. Without Redis, every instance records its own totals. With Redis, the worker runs under its lock and
//! records the totals of all instances, also of those that were killed. While Redis is unavailable, every instance
//! records its own. A Redis that is frozen or loses its memory costs nothing but the age of the numbers.

mod ceilings;
mod keeper;
mod known;
mod ledger;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;

use crate::{Error, Report, Worker};

pub use ledger::{BackendUsageView, UsageFlushSettings, UsageLedger, UsageLedgerParts};

/// Records the totals of this process, and those that other processes shared through Redis.
pub struct UsageFlushWorker {
    /// Shared with the requests for status and metrics.
    pub ledger: Arc<UsageLedger>,
}

#[async_trait]
impl Worker for UsageFlushWorker {
    fn name(&self) -> &'static str {
        "usage_flush"
    }

    /// Reports nothing: a flush is no event that the history of runs should keep.
    async fn tick(&self, _report: &mut Report) -> Result<(), Error> {
        self.ledger.flush().await.map(drop)
    }
}
