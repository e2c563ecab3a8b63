//! Identity records: each instance records the mismatch it found; all instances read the records.

use std::collections::BTreeSet;
use std::time::Duration;

use s3o_backend::SharedBackend;
use s3o_backend::fleet::NOT_REACHED;
use s3o_backend::identity::{IDENTITY_KEY, Identity as Carried, fingerprint};
use s3o_catalog::{IdentityRecord, SharedBackendState};
use s3o_model::names::BackendName;
use s3o_model::reconcile::PassFault;
use tokio::time::timeout;

use super::marks::Mismatch;
use super::{IdentityWorker, REMOVED, SinceBoot};
use crate::Error;

/// How long a record is live after its last renewal.
pub const RECORD_LEASE: Duration = Duration::from_mins(2);
/// How long the comparison of a backend with a recorded mismatch may take.
const DISPUTE_MAX: Duration = Duration::from_secs(5);
/// Age at which a record is renewed.
const RENEW_AFTER: Duration = Duration::from_secs(30);

impl IdentityWorker {
    /// Freezes a backend for this instance and records what was found.
    pub(super) async fn freeze(&self, backend: &SharedBackend, mismatch: &Mismatch) -> Result<(), Error> {
        let (name, reason) = (backend.name(), mismatch.reason.as_str());
        let before = self.parts.fleet.frozen_reason(name);
        if before.as_deref() != Some(reason) {
            tracing::error!(backend = %name, reason, "backend frozen, writes and deletes stopped, see s3o status");
            self.parts.fleet.set_frozen(name, Some(reason.to_owned()));
            self.parts.alarm.frozen(name, reason);
        }
        let was_in_use = before.is_none();
        let unknown = mismatch.found.as_ref().filter(|_| mismatch.is_unknown_mark);
        let contested = self.state(name, |state| {
            if was_in_use && state.has_confirmed {
                state.to_contest = unknown.map(|found| found.mark.clone());
            }
            unknown.filter(|found| state.to_contest.as_ref() == Some(&found.mark))
        });
        if let Some(found) = contested
            && self.contest(backend, found).await
        {
            self.state(name, |state| state.to_contest = None);
        }
        self.record(name, mismatch.found.as_ref(), mismatch.hash(), Some(reason.to_owned())).await
    }

    /// Marks the identity object of another catalog that uses this backend as contested. The process that wrote
    /// it freezes the backend when it reads that. False if the write failed; the next comparison retries.
    async fn contest(&self, backend: &SharedBackend, found: &Carried) -> bool {
        let contested = Carried { contested: true, ..found.clone() };
        match backend.write_own(IDENTITY_KEY, contested.encode()).await {
            Ok(()) => {
                let mark = &found.mark;
                tracing::error!(backend = %backend.name(), mark, "another catalog uses the backend, stop one of them");
                true
            }
            Err(error) => {
                tracing::error!(backend = %backend.name(), %error, "cannot mark identity as contested, retrying");
                false
            }
        }
    }

    /// Unfreezes the backend and closes the record of this host.
    pub(super) async fn thaw(&self, name: &BackendName) -> Result<(), Error> {
        let closed = self.parts.records.close_record(name, &self.parts.host).await?;
        if closed {
            tracing::info!(backend = %name, "backend identity matches again, deleted mismatch record");
        }
        self.state(name, |state| (state.recorded, state.to_contest) = (None, None));
        self.parts.fleet.set_frozen(name, None);
        Ok(())
    }

    async fn record(
        &self,
        name: &BackendName,
        found: Option<&Carried>,
        hash: String,
        reason: Option<String>,
    ) -> Result<(), Error> {
        let now = self.boot();
        let is_fresh = |at: SinceBoot| now.saturating_sub(at) < RENEW_AFTER;
        let is_recorded = |(at, recorded): &(SinceBoot, String)| *recorded == hash && is_fresh(*at);
        if self.state(name, |state| state.recorded.as_ref().is_some_and(is_recorded)) {
            return Ok(());
        }
        let found = serde_json::to_string(&found).unwrap_or_default();
        let host = self.parts.host.clone();
        let record = IdentityRecord { host, found, hash: hash.clone(), reason, dismissed: false, age: Duration::ZERO };
        self.parts.records.record(name, &record, RECORD_LEASE).await?;
        self.state(name, |state| state.recorded = Some((now, hash)));
        Ok(())
    }

    /// Whether a live record blocks deletes on a backend.
    pub(super) async fn is_disputed(&self, name: &BackendName) -> Result<bool, Error> {
        let disputing = self.disputing_record(name).await?;
        if let Some(IdentityRecord { host, reason, .. }) = &disputing {
            let reason = reason.as_deref().unwrap_or_default();
            tracing::info!(backend = %name, host, reason, "deletes paused, an instance found a different store");
        }
        let why = disputing.as_ref().map(|record| format!("instance {} finds a different store there", record.host));
        self.state(name, |state| state.disputed = why);
        Ok(disputing.is_some())
    }

    async fn disputing_record(&self, name: &BackendName) -> Result<Option<IdentityRecord>, Error> {
        let live = self.parts.records.live_records(name).await?;
        Ok(live.into_iter().find(|record| record.reason.is_some() && !record.dismissed))
    }

    /// Why a listing of a backend proves nothing: its identity, compared now, does not match, or an instance finds
    /// another store there.
    pub async fn store_fault(&self, backend: &SharedBackend) -> Result<Option<PassFault>, Error> {
        let name = backend.name();
        if self.parts.fleet.frozen_reason(name).as_deref() == Some(NOT_REACHED) {
            let away = s3o_backend::Error::Unknown(NOT_REACHED.to_owned());
            return Err(Error::of(backend, away));
        }
        if self.is_frozen(name) || !self.check(backend).await? {
            return Ok(Some(PassFault::Identity));
        }
        Ok(self.disputing_record(name).await?.map(|record| PassFault::Disputed(record.host)))
    }

    /// Follows the states of the backends that all instances share: placement avoids draining backends, removed ones
    /// take no calls, and this instance records what it finds where another one recorded a mismatch. The operator is
    /// shown both, and neither can be accepted while they differ.
    pub async fn follow_states(&self) -> Result<(), Error> {
        self.apply_states(&self.parts.records.backend_states().await?).await
    }

    /// The same with states that the caller has just read.
    pub async fn apply_states(&self, states: &[SharedBackendState]) -> Result<(), Error> {
        for state in states {
            let name = &state.name;
            self.parts.fleet.set_draining(name, state.draining_since.is_some());
            self.parts.fleet.set_unhealthy(name, state.unhealthy_since);
            if state.removed {
                self.parts.fleet.set_frozen(name, Some(REMOVED.to_owned()));
            }
        }
        // One that hangs must not keep this instance from the states of the others.
        for state in states.iter().filter(|state| state.disputed) {
            let answered = timeout(DISPUTE_MAX, self.answer_dispute(&state.name)).await;
            if !matches!(answered, Ok(Ok(()))) {
                tracing::info!(backend = %state.name, "cannot compare a backend with a recorded mismatch, retrying");
            }
        }
        self.hasten_copies().await
    }

    async fn answer_dispute(&self, name: &BackendName) -> Result<(), Error> {
        let Some(backend) = self.parts.fleet.get(name).filter(|_| !self.is_frozen(name)) else { return Ok(()) };
        let compared = self.compare(backend).await?;
        if !compared.verdict.fits() {
            return self.freeze(backend, &compared.mismatch()).await;
        }
        let hash = fingerprint(compared.found.as_ref(), None);
        self.record(name, compared.found.as_ref(), hash, None).await
    }

    /// If a backend became usable, copies that could not be written or probed are tried again.
    async fn hasten_copies(&self) -> Result<(), Error> {
        let views = self.parts.fleet.views(self.parts.clock.now()).into_iter();
        let usable: BTreeSet<BackendName> =
            views.filter(|view| view.writable && view.reachable && !view.circuit_open).map(|view| view.name).collect();
        let before = std::mem::replace(&mut *self.usable.lock(), usable.clone());
        if !usable.is_subset(&before) {
            self.parts.identities.hasten_copy_work().await?;
        }
        Ok(())
    }

    /// Dismisses the record of a host at the operator's request: it blocks no deletes until the host
    /// finds something else. False if there is no such record.
    pub async fn dismiss(&self, name: &str, host: &str) -> Result<bool, Error> {
        let unknown = || Error::NoSuchBackend(name.to_owned());
        let name: BackendName = name.parse().map_err(|_| unknown())?;
        self.parts.fleet.get(&name).ok_or_else(unknown)?;
        let dismissed = self.parts.records.dismiss_record(&name, host).await?;
        if dismissed {
            tracing::warn!(backend = %name, host, "identity record dismissed");
        }
        Ok(dismissed)
    }
}
