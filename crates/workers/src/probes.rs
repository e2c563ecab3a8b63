//! Probes the backends, so that their health is known before a request needs them.
//!
//! Each backend has one loop and at most one probe under way. A probe reads the identity object and compares it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use s3o_backend::SharedBackend;
use s3o_backend::fleet::Fleet;
use s3o_model::backoff::Backoff;
use s3o_model::clock::Clock;
use s3o_model::names::BackendName;
use s3o_model::shared::Shared;
use tokio::time::{sleep, timeout};

use crate::{Error, Identity};

/// How long a probe may take.
const PROBE_MAX: Duration = Duration::from_secs(5);
/// The pause after a failed probe, and before one that a failed request asked for.
const AFTER_ERRORS: Backoff = Backoff { min: Duration::from_secs(1), max: Duration::from_mins(1) };

/// How often each backend is probed; zero or absent: never.
pub type ProbeIntervals = HashMap<BackendName, Duration>;

/// What the prober needs.
pub struct Prober {
    /// The backends, whose health is recorded.
    pub fleet: Arc<Fleet>,
    /// What reads and compares their identities.
    pub identity: Arc<Identity>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// How often; a reload replaces it and calls `Fleet::suspect` for each backend.
    pub intervals: Shared<ProbeIntervals>,
}

impl Prober {
    /// Probes every backend for as long as it is polled.
    pub async fn serve(&self) {
        let loops: Vec<_> = self.fleet.backends().map(|backend| self.boxed_watch(backend)).collect();
        join_all(loops).await;
    }

    fn boxed_watch<'a>(&'a self, backend: &'a SharedBackend) -> BoxFuture<'a, ()> {
        Box::pin(self.watch(backend))
    }

    async fn watch(&self, backend: &SharedBackend) {
        let name = backend.name();
        // Probes in a row that failed or that a failed request asked for.
        let (mut troubled, mut asked) = (0, false);
        loop {
            let interval = self.interval(name);
            if interval.is_zero() {
                // What is not probed any more must not stay away for ever.
                self.fleet.record_probe(name, Ok(()), self.clock.now());
                self.fleet.suspected(name).await;
                continue;
            }
            let answered = self.probe(backend).await;
            troubled = if answered && !asked { 0 } else { troubled + 1 };
            if !answered {
                sleep(AFTER_ERRORS.delay(troubled, 1.0).min(interval)).await;
                continue;
            }
            asked = tokio::select! {
                () = sleep(interval) => false,
                () = self.fleet.suspected(name) => true,
            };
            if asked {
                sleep(AFTER_ERRORS.delay(troubled + 1, 1.0).min(interval)).await;
            }
        }
    }

    fn interval(&self, name: &BackendName) -> Duration {
        self.intervals.current().get(name).copied().unwrap_or_default()
    }

    /// Probes a backend once and records the answer; says whether it answered.
    pub async fn probe(&self, backend: &SharedBackend) -> bool {
        let answer = match timeout(PROBE_MAX, self.identity.probe(backend)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(Error::Backend { source, .. })) => Err(source.to_string()),
            // The catalog did not answer, which says nothing of the backend.
            Ok(Err(_)) => return true,
            Err(_) => Err(format!("no answer within {} s", PROBE_MAX.as_secs())),
        };
        let answered = answer.is_ok();
        self.fleet.record_probe(backend.name(), answer, self.clock.now());
        answered
    }
}

#[cfg(test)]
mod tests;
