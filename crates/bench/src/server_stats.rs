//! What is known of the server behind an endpoint: its processes and its metrics.

use s3o_backend::s3::Secret;

use crate::metrics::MetricsText;

/// The server behind an endpoint, as far as it is known.
#[derive(Debug)]
pub struct MonitoredServer {
    /// Process IDs on this machine.
    pub pids: Vec<u32>,
    /// Metrics URLs, one for each instance.
    pub metrics: Vec<String>,
    /// Admin token of the first instance.
    pub token: Option<Secret>,
}

/// Metrics of an s3o server, summed over its instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerStats {
    /// Units of work in the catalog.
    pub units: u64,
    /// Transactions in the catalog; SQLite commits several units in one.
    pub commits: u64,
    /// Calls to backends.
    pub calls: u64,
    /// Rows in the cleanup queue.
    pub waiting: u64,
    pub dead: u64,
}

impl ServerStats {
    /// Reads the metrics of one instance.
    pub fn read(page: &MetricsText) -> Result<Self, String> {
        Ok(Self {
            units: page.sum("s3o_catalog_units_total")?,
            commits: page.sum("s3o_catalog_commits_total")?,
            // The metric is missing until the first backend call.
            calls: page.sum("s3o_backend_requests_total").unwrap_or(0),
            waiting: page.sum("s3o_cleanup_queue_depth")?,
            dead: page.sum("s3o_cleanup_dlq_depth")?,
        })
    }

    /// Adds another instance. Each counts its own work; all share one queue.
    pub fn and(self, other: Self) -> Self {
        Self {
            units: self.units + other.units,
            commits: self.commits + other.commits,
            calls: self.calls + other.calls,
            waiting: self.waiting.max(other.waiting),
            dead: self.dead.max(other.dead),
        }
    }
}
