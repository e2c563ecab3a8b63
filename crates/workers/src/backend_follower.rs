//! Follows the states of the backends that all instances share, and decides with the other instances when a backend is
//! unhealthy.
//!
//! An instance that cannot use a backend records for how long. The other instances then probe it and record what they
//! see. Only if all of them have failed for long enough, its copies are replaced: one bad cable causes no copies.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use s3o_backend::fleet::CallKind;
use s3o_backend::{Fleet, SharedBackend};
use s3o_catalog::{Catalog, Error as CatalogError, SharedBackendState, UnhealthyRule};
use s3o_model::circuit::CircuitSettings;
use s3o_model::clock::Clock;
use s3o_model::ids::InstanceId;
use s3o_model::names::BackendName;
use s3o_model::outage::{OutageTracker, most_fail};
use s3o_model::shared::Shared;

use crate::{Error, IdentityWorker, Prober};

/// How often the shared states are read.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(4);
/// How long other instances have to answer: two readings of the shared states and a probe.
const ANSWER_WAIT: Duration = Duration::from_secs(13);
/// Age at which an answer is written again.
const RENEW_AFTER: Duration = Duration::from_secs(10);

/// Follows the shared states of the backends.
pub struct BackendFollower {
    /// The shared states, and the views of the instances.
    pub catalog: Arc<Catalog>,
    /// The configured backends.
    pub fleet: Arc<Fleet>,
    /// Answers identity records of other instances.
    pub identity: Arc<IdentityWorker>,
    /// Probes backends that other instances cannot use.
    pub prober: Arc<Prober>,
    /// Measures outages.
    pub clock: Arc<dyn Clock>,
    /// The author of this instance's views.
    pub instance: InstanceId,
    /// How long a backend must fail before it is unhealthy; a reload replaces it.
    pub unhealthy_after: Shared<Duration>,
    /// Its `open_timeout` is how long a backend must be usable before it is healthy again.
    pub circuit: Shared<CircuitSettings>,
    /// What this instance saw.
    pub observations: Mutex<HashMap<BackendName, BackendObservation>>,
}

/// What this instance saw of one backend, and what it recorded.
#[derive(Debug, Clone, Default)]
pub struct BackendObservation {
    outage: OutageTracker,
    /// When this instance last recorded its view, since boot, and whether it was failing.
    recorded: Option<(Duration, bool)>,
    /// When it last probed the backend because other instances could not use it.
    probed: Option<Duration>,
}

impl BackendFollower {
    /// Follows until it is dropped.
    pub async fn serve(&self) {
        loop {
            if let Err(error) = self.follow().await {
                tracing::info!(%error, "cannot follow the shared states of the backends, retrying");
            }
            tokio::time::sleep(FOLLOW_INTERVAL).await;
        }
    }

    /// Reads the shared states once, applies them, and records what this instance sees where one of them cannot use a
    /// backend.
    pub async fn follow(&self) -> Result<(), Error> {
        let states = self.catalog.backend_states().await?;
        self.identity.apply_states(&states).await?;
        let in_use: Vec<(&SharedBackend, &SharedBackendState)> = states
            .iter()
            .filter(|state| !state.removed)
            .filter_map(|state| Some((self.fleet.get(&state.name)?, state)))
            .collect();
        for (backend, state) in &in_use {
            self.observe(backend, state).await?;
        }
        self.judge(&in_use).await
    }

    async fn observe(&self, backend: &SharedBackend, state: &SharedBackendState) -> Result<(), Error> {
        let name = backend.name();
        self.update_outage(name);
        let was_failing = self.observation(name, |seen| seen.recorded.is_some_and(|(_, failing)| failing));
        let others_fail = state.failing_views > u64::from(was_failing);
        if (others_fail || state.unhealthy_since.is_some()) && self.probe_is_due(name) {
            self.prober.probe(backend).await;
            self.update_outage(name);
        }
        self.record(name, others_fail).await?;
        if state.unhealthy_since.is_some() {
            self.end_unhealthy(backend).await?;
        }
        Ok(())
    }

    /// Updates the outage of a backend by its circuit and by whether it is frozen.
    fn update_outage(&self, name: &BackendName) {
        let is_frozen = self.fleet.frozen_reason(name).is_some();
        let usable_since = self.fleet.closed_since(name, CallKind::Read).filter(|_| !is_frozen);
        let (now, settling) = (self.clock.since_boot(), self.settling());
        self.observation(name, |seen| seen.outage.record(usable_since, now, settling));
    }

    /// A backend that this instance can use is probed at most once per settling time.
    fn probe_is_due(&self, name: &BackendName) -> bool {
        let (now, settling) = (self.clock.since_boot(), self.settling());
        self.observation(name, |seen| {
            let is_due = seen.probed.is_none_or(|at| now.saturating_sub(at) >= settling)
                && seen.outage.failing_for(now).is_none();
            if is_due {
                seen.probed = Some(now);
            }
            is_due
        })
    }

    /// Writes the view of this instance while it or another one cannot use the backend, and deletes it afterwards.
    async fn record(&self, name: &BackendName, others_fail: bool) -> Result<(), Error> {
        let now = self.clock.since_boot();
        let (failing_for, recorded) = self.observation(name, |seen| (seen.outage.failing_for(now), seen.recorded));
        if failing_for.is_none() && !others_fail {
            if recorded.is_some() {
                self.catalog.close_view(self.instance, name).await?;
                self.observation(name, |seen| seen.recorded = None);
            }
            return Ok(());
        }
        let is_fresh = |(at, failing): (Duration, bool)| !failing && now.saturating_sub(at) < RENEW_AFTER;
        if failing_for.is_none() && recorded.is_some_and(is_fresh) {
            return Ok(());
        }
        self.catalog.record_view(self.instance, name, failing_for).await?;
        self.observation(name, |seen| seen.recorded = Some((now, failing_for.is_some())));
        Ok(())
    }

    /// Ends the unhealthy state if this instance could use the backend for long enough and a probe confirms that now.
    async fn end_unhealthy(&self, backend: &SharedBackend) -> Result<(), Error> {
        let (now, settling) = (self.clock.since_boot(), self.settling());
        let is_over = self.observation(backend.name(), |seen| seen.outage.is_over(now, settling));
        if !is_over || !self.prober.probe(backend).await {
            return Ok(());
        }
        if applied(self.catalog.end_unhealthy(backend.name()).await)? {
            tracing::info!(backend = %backend.name(), "backend is healthy again, its copies count");
        }
        Ok(())
    }

    /// Makes backends unhealthy that no instance could use for long enough, unless most of the backends fail.
    async fn judge(&self, in_use: &[(&SharedBackend, &SharedBackendState)]) -> Result<(), Error> {
        let after = *self.unhealthy_after.current();
        let is_candidate =
            |state: &SharedBackendState| state.unhealthy_since.is_none() && fails(state) && lasts(state, after);
        let candidates: Vec<_> = in_use.iter().filter(|(_, state)| is_candidate(state)).collect();
        let known_to_fail = in_use.iter().filter(|(_, state)| fails(state)).count();
        if candidates.is_empty() || most_fail(known_to_fail, in_use.len()) {
            return Ok(());
        }
        let silent = self.count_silent(in_use).await;
        if most_fail(known_to_fail + silent, in_use.len()) {
            tracing::warn!("most of the backends fail, writing no copies for them");
            return Ok(());
        }
        let configured: Vec<BackendName> = in_use.iter().map(|(backend, _)| backend.name().clone()).collect();
        for (backend, state) in candidates {
            // It may have come back a moment ago.
            if self.fleet.frozen_reason(&state.name).is_some() || !self.prober.probe(backend).await {
                self.begin_unhealthy(&state.name, &configured).await?;
            }
        }
        Ok(())
    }

    /// The number of backends that seem to be usable and do not answer a probe: an idle one may fail unnoticed.
    async fn count_silent(&self, in_use: &[(&SharedBackend, &SharedBackendState)]) -> usize {
        let probes = in_use.iter().filter(|(_, state)| !fails(state)).map(|(backend, _)| self.prober.probe(backend));
        join_all(probes).await.into_iter().filter(|answered| !answered).count()
    }

    async fn begin_unhealthy(&self, name: &BackendName, configured: &[BackendName]) -> Result<(), Error> {
        let rule = UnhealthyRule { after: *self.unhealthy_after.current(), answer_wait: ANSWER_WAIT };
        if applied(self.catalog.begin_unhealthy(name, configured, rule).await)? {
            tracing::warn!(backend = %name, after = ?rule.after, "backend is unhealthy, its copies are replaced");
        }
        Ok(())
    }

    fn settling(&self) -> Duration {
        self.circuit.current().open_timeout
    }

    fn observation<T>(&self, name: &BackendName, work: impl FnOnce(&mut BackendObservation) -> T) -> T {
        work(self.observations.lock().entry(name.clone()).or_default())
    }
}

/// True if no instance can use the backend.
const fn fails(state: &SharedBackendState) -> bool {
    state.unhealthy_since.is_some() || (state.failing_views > 0 && state.usable_views == 0)
}

fn lasts(state: &SharedBackendState, after: Duration) -> bool {
    state.failing_for.is_some_and(|failing| failing >= after)
}

/// Whether a change was made; false if its guard did not hold, because another instance was faster.
fn applied(changed: Result<(), CatalogError>) -> Result<bool, Error> {
    match changed {
        Ok(()) => Ok(true),
        Err(CatalogError::Guard(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests;
