//! All configured backends in their order, with the current state of each.
//!
//! The state changes while requests run, so readers take a snapshot, which is consistent and does
//! not change.

mod circuits;
mod health;
mod reads;
mod usage;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use parking_lot::RwLock;
use s3o_model::circuit::CircuitState;
use s3o_model::clock::Timestamp;
use s3o_model::names::BackendName;
use s3o_model::placement::BackendView;
use s3o_model::usage::UsagePurpose;
use tokio::sync::Notify;

pub use circuits::{BreakerContext, CallKind, Circuits};
pub use health::{FULL_FOR, FullMark, Health, Outage, Reachability};
pub use reads::ReadInProgress;

use crate::layers::Breaker;
use crate::usage::BackendUsage;
use crate::{SharedBackend, Traits};

/// The reason for which a backend is frozen until it is reached for the first time.
pub const NOT_REACHED: &str = "not reached since the start";

/// State of one backend at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BackendState {
    /// Probed traits; `None` until the backend was reached.
    pub traits: Option<Traits>,
    /// Why the backend is frozen: it then takes no deletes and no writes.
    pub frozen: Option<String>,
    /// Results of the last probes.
    pub reachability: Reachability,
    /// The last "no space" answer.
    pub full: Option<FullMark>,
    /// Configured size of the largest object; `None` means no limit.
    pub object_bytes_max: Option<u64>,
    /// True while the backend is being emptied: it takes no writes.
    pub draining: bool,
    /// Since when its copies do not count, because no instance can use it.
    pub unhealthy_since: Option<Timestamp>,
    /// True once a probe was answered or failed.
    pub probed: bool,
}

impl BackendState {
    /// Health at this moment.
    #[must_use]
    pub fn health(&self, now: Timestamp) -> Health {
        if let Some(outage) = self.reachability.outage() {
            return Health::Away(outage.clone());
        }
        match (&self.frozen, self.full.filter(|full| full.holds(now))) {
            (Some(reason), _) => Health::Frozen(reason.clone()),
            (None, Some(full)) => Health::Full { from_bytes: full.from_bytes },
            (None, None) => Health::Ok,
        }
    }
}

#[derive(Debug)]
struct Member {
    backend: SharedBackend,
    circuits: Option<Arc<Circuits>>,
    usage: Option<Arc<BackendUsage>>,
    state: RwLock<Arc<BackendState>>,
    /// Notified when a request saw an error that a probe should confirm.
    suspected: Arc<Notify>,
    reads: Arc<AtomicUsize>,
}

impl Member {
    fn state(&self) -> Arc<BackendState> {
        Arc::clone(&self.state.read())
    }

    fn change(&self, change: impl FnOnce(&mut BackendState)) {
        let mut held = self.state.write();
        let mut state = held.as_ref().clone();
        change(&mut state);
        *held = Arc::new(state);
    }
}

/// Two backends were given the same name.
#[derive(Debug, thiserror::Error)]
#[error("backend name {0} is used twice, names must be unique")]
pub struct DuplicateName(pub BackendName);

/// All configured backends.
#[derive(Debug, Default)]
pub struct Fleet {
    members: Vec<Member>,
}

impl Fleet {
    /// A fleet of these backends, none of them reached yet.
    pub fn new(backends: Vec<SharedBackend>) -> Result<Self, DuplicateName> {
        Self::of(backends.into_iter().map(|backend| (backend, None, Arc::default())))
    }

    /// The same, each backend behind a circuit breaker.
    pub fn with_breakers(backends: Vec<SharedBackend>, context: &BreakerContext) -> Result<Self, DuplicateName> {
        Self::of(backends.into_iter().map(|backend| {
            let suspected = Arc::<Notify>::default();
            let circuits = Circuits::new(backend.name().clone(), context.clone(), Arc::clone(&suspected));
            let circuits = Arc::new(circuits);
            let guarded: SharedBackend = Arc::new(Breaker::new(backend, Arc::clone(&circuits)));
            (guarded, Some(circuits), suspected)
        }))
    }

    fn of(
        backends: impl Iterator<Item = (SharedBackend, Option<Arc<Circuits>>, Arc<Notify>)>,
    ) -> Result<Self, DuplicateName> {
        let mut fleet = Self::default();
        for (backend, circuits, suspected) in backends {
            if fleet.get(backend.name()).is_some() {
                return Err(DuplicateName(backend.name().clone()));
            }
            let (state, reads) = (RwLock::default(), Arc::default());
            fleet.members.push(Member { backend, circuits, usage: None, state, suspected, reads });
        }
        Ok(fleet)
    }

    /// Circuit breaker of a backend; `None` if it has none or is not configured.
    #[must_use]
    pub fn circuits(&self, name: &BackendName) -> Option<&Arc<Circuits>> {
        self.member(name).and_then(|member| member.circuits.as_ref())
    }

    /// State of a backend's circuit for this kind of calls; closed if it has none.
    #[must_use]
    pub fn circuit(&self, name: &BackendName, kind: CallKind) -> CircuitState {
        self.circuits(name).map_or(CircuitState::Closed, |circuits| circuits.state(kind))
    }

    /// The backend with this name.
    #[must_use]
    pub fn get(&self, name: &BackendName) -> Option<&SharedBackend> {
        self.member(name).map(|member| &member.backend)
    }

    /// All backends, in configuration order.
    pub fn backends(&self) -> impl Iterator<Item = &SharedBackend> {
        self.members.iter().map(|member| &member.backend)
    }

    /// Snapshot of a backend's state.
    #[must_use]
    pub fn state(&self, name: &BackendName) -> Option<Arc<BackendState>> {
        self.member(name).map(Member::state)
    }

    /// Why a backend is frozen; `None` if it is not frozen or not configured.
    #[must_use]
    pub fn frozen_reason(&self, name: &BackendName) -> Option<String> {
        self.state(name).and_then(|state| state.frozen.clone())
    }

    /// All backends as input of placement, in order. The caller sets the counters, which only the catalog knows.
    #[must_use]
    pub fn views(&self, now: Timestamp) -> Vec<BackendView> {
        let view = |member: &Member| {
            let state = member.state();
            let reads_open =
                member.circuits.as_ref().is_some_and(|circuits| circuits.state(CallKind::Read) == CircuitState::Open);
            BackendView {
                name: member.backend.name().clone(),
                writable: state.frozen.is_none() && !state.draining,
                circuit_open: !member.circuits.as_ref().is_none_or(|circuits| circuits.admits(CallKind::Write)),
                // Bytes that cannot be read back, or do not count, go there only if no other backend takes them.
                reachable: state.reachability.outage().is_none() && !reads_open && state.unhealthy_since.is_none(),
                full_from_bytes: state.full.filter(|full| full.holds(now)).map(|full| full.from_bytes),
                object_bytes_max: state.object_bytes_max,
                filled_bytes: 0,
                limit_bytes: None,
                usage_reached: member.reached_limit(UsagePurpose::Write).is_some(),
                ingress_left_bytes: member.usage.as_ref().and_then(|usage| usage.ingress_left_bytes()),
            }
        };
        self.members.iter().map(view).collect()
    }

    /// Health of every backend, in order.
    #[must_use]
    pub fn health(&self, now: Timestamp) -> Vec<(BackendName, Health)> {
        let of = |member: &Member| (member.backend.name().clone(), member.state().health(now));
        self.members.iter().map(of).collect()
    }

    /// Records the result of a probe, which may close or open circuits, and drops a "no space" mark that has expired.
    pub fn record_probe(&self, name: &BackendName, answer: Result<(), String>, now: Timestamp) {
        if let Some(circuits) = self.circuits(name) {
            circuits.record_probe(answer.is_ok());
        }
        self.update_health(name, |state| {
            state.reachability.record(answer, now);
            state.probed = true;
            state.full = state.full.filter(|full| full.holds(now));
        });
    }

    /// Requests an early probe of a backend after a request could not reach it.
    pub fn suspect(&self, name: &BackendName) {
        if let Some(member) = self.member(name) {
            member.suspected.notify_one();
        }
    }

    /// Waits until an early probe of a backend is requested.
    pub async fn suspected(&self, name: &BackendName) {
        match self.member(name) {
            Some(member) => member.suspected.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Changes the state of a backend and logs its health if that changed.
    fn update_health(&self, name: &BackendName, change: impl FnOnce(&mut BackendState)) {
        let Some(member) = self.member(name) else { return };
        // A "no space" mark counts until it is dropped, so that its expiry is logged as well.
        let recorded =
            |state: &BackendState| state.health(state.full.map_or(Timestamp::from_millis(0), |full| full.at));
        let before = recorded(&member.state());
        member.change(change);
        let after = recorded(&member.state());
        if before.as_str() == after.as_str() {
            return;
        }
        if after == Health::Ok {
            tracing::info!(backend = %name, before = before.as_str(), "backend health is ok");
        } else {
            tracing::warn!(backend = %name, before = before.as_str(), health = %after, "backend health changed");
        }
    }

    /// Records the probed traits of a backend.
    pub fn set_traits(&self, name: &BackendName, traits: Traits) {
        if let Some(member) = self.member(name) {
            member.change(|state| state.traits = Some(traits));
        }
    }

    /// Sets the size of the largest object that a backend takes; `None` means no limit.
    pub fn set_object_bytes_max(&self, name: &BackendName, bytes: Option<u64>) {
        if let Some(member) = self.member(name) {
            member.change(|state| state.object_bytes_max = bytes);
        }
    }

    /// Records whether a backend is being emptied.
    pub fn set_draining(&self, name: &BackendName, draining: bool) {
        if let Some(member) = self.member(name)
            && member.state().draining != draining
        {
            tracing::info!(backend = %name, draining, "drain state of backend changed");
            member.change(|state| state.draining = draining);
        }
    }

    /// Records since when the copies on a backend do not count because no instance can use it.
    pub fn set_unhealthy(&self, name: &BackendName, since: Option<Timestamp>) {
        if let Some(member) = self.member(name)
            && member.state().unhealthy_since != since
        {
            member.change(|state| state.unhealthy_since = since);
        }
    }

    /// Freezes a backend, or unfreezes it with `None`.
    pub fn set_frozen(&self, name: &BackendName, reason: Option<String>) {
        if let Some(member) = self.member(name) {
            member.change(|state| state.frozen = reason);
        }
    }

    fn member(&self, name: &BackendName) -> Option<&Member> {
        self.members.iter().find(|member| member.backend.name() == name)
    }
}

#[cfg(test)]
mod tests;
