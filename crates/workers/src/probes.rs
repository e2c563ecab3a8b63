//! Probes the backends, so that their health is known before a request needs them.
//!
//! Each backend has one loop and at most one probe in progress. A probe reads the identity object and compares it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use s3o_backend::SharedBackend;
use s3o_backend::fleet::Fleet;
use s3o_backend::identity::read_identity;
use s3o_model::backoff::Backoff;
use s3o_model::clock::Clock;
use s3o_model::names::BackendName;
use s3o_model::shared::Shared;
use tokio::time::{sleep, timeout};

use crate::{Error, IdentityWorker};

/// Timeout of a probe.
const PROBE_MAX: Duration = Duration::from_secs(5);
/// Shortest time between probes that a circuit breaker awaits.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Delay after a failed probe, and before a probe that a failed request triggered.
const AFTER_ERRORS: Backoff = Backoff { min: Duration::from_secs(1), max: Duration::from_mins(1) };

/// Probe interval of each backend; zero or absent disables its probes.
pub type ProbeIntervals = HashMap<BackendName, Duration>;

/// Probes all backends.
pub struct Prober {
    /// The configured backends; records their health.
    pub fleet: Arc<Fleet>,
    /// Reads and compares the identities.
    pub identity: Arc<IdentityWorker>,
    /// Time of the recorded health.
    pub clock: Arc<dyn Clock>,
    /// Intervals; a reload replaces them and calls `Fleet::suspect` for each backend.
    pub intervals: Shared<ProbeIntervals>,
}

impl Prober {
    /// Probes every backend; it does not return.
    pub async fn serve(&self) {
        let loops: Vec<_> = self.fleet.backends().map(|backend| self.boxed_watch(backend)).collect();
        join_all(loops).await;
    }

    fn boxed_watch<'a>(&'a self, backend: &'a SharedBackend) -> BoxFuture<'a, ()> {
        Box::pin(self.watch(backend))
    }

    async fn watch(&self, backend: &SharedBackend) {
        let name = backend.name();
        // Consecutive probes that failed or that a failed request triggered.
        let (mut failures, mut triggered) = (0, false);
        loop {
            if self.pause(name).is_none() {
                // A backend that is no longer probed must not stay unavailable forever.
                self.fleet.record_probe(name, Ok(()), self.clock.now());
                self.fleet.suspected(name).await;
                continue;
            }
            let answered = self.probe(backend).await;
            failures = if answered && !triggered { 0 } else { failures + 1 };
            // The probe may have closed the circuit that was the reason for probes.
            let Some(pause) = self.pause(name) else { continue };
            if !answered {
                sleep(AFTER_ERRORS.delay(failures, 1.0).min(pause)).await;
                continue;
            }
            triggered = tokio::select! {
                () = sleep(pause) => false,
                () = self.fleet.suspected(name) => true,
            };
            if triggered {
                sleep(AFTER_ERRORS.delay(failures + 1, 1.0).min(pause)).await;
            }
        }
    }

    /// The time between probes of an idle backend, at most until its circuit breaker awaits one; `None` if neither its
    /// interval nor its circuit breaker asks for probes.
    fn pause(&self, name: &BackendName) -> Option<Duration> {
        let interval = self.intervals.current().get(name).copied().filter(|interval| !interval.is_zero());
        let deadline = self.fleet.circuits(name).and_then(|circuits| circuits.next_deadline());
        interval.into_iter().chain(deadline.map(|deadline| deadline.max(PAUSE_MIN))).min()
    }

    /// Probes a backend once and records the result; true if the backend answered. A catalog that fails says nothing
    /// about the backend, so the answer is recorded before it is compared with the catalog.
    pub async fn probe(&self, backend: &SharedBackend) -> bool {
        let found = match timeout(PROBE_MAX, read_identity(backend.as_ref())).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {} s", PROBE_MAX.as_secs())),
        };
        self.record(backend, found.as_ref().map(drop).map_err(Clone::clone));
        let Ok(found) = found else { return false };
        match timeout(PROBE_MAX, self.identity.judge_probe(backend, found)).await {
            Ok(Err(Error::Backend { source, .. })) => {
                self.record(backend, Err(source.to_string()));
                false
            }
            Ok(_) | Err(_) => true,
        }
    }

    fn record(&self, backend: &SharedBackend, answer: Result<(), String>) {
        self.fleet.record_probe(backend.name(), answer, self.clock.now());
    }
}

#[cfg(test)]
mod tests;
