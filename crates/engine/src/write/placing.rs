//! Chooses the backend of a write, and decides after a failure whether another backend can take it.

use s3o_backend::Error as BackendError;
use s3o_catalog::{Stage, Verdict};
use s3o_model::entropy::{Entropy as _, SeededEntropy};
use s3o_model::ids::{IntentId, WriteId};
use s3o_model::intent::Intent;
use s3o_model::names::BackendName;
use s3o_model::physical_key::{NameStyle, physical_key};
use s3o_model::placement::{BackendView, Strategy, candidates};

use super::{Staged, WriteTarget};
use crate::leases::Lease;
use crate::{BackendTrouble, Engine, Error};

/// Backends that failed to take a write.
#[derive(Default)]
pub(super) struct TriedBackends {
    backends: Vec<BackendName>,
    /// The last error other than a lack of space.
    error: Option<Error>,
}

impl TriedBackends {
    /// Adds a backend that failed before the body was consumed.
    pub(super) fn add(&mut self, backend: &BackendName, error: BackendError) {
        self.backends.push(backend.clone());
        if !matches!(error, BackendError::NoSpace(_)) {
            self.error = Some(error.into());
        }
    }

    /// The error when no backend is left. It is `NoSpace` only if every backend reported a lack of space.
    pub(super) fn refusal(self, refused: Error) -> Error {
        self.error.unwrap_or(refused)
    }
}

impl Engine {
    /// Chooses the first backend that has free capacity and was not tried, and commits an intent for it.
    pub(super) async fn stage(&self, target: &WriteTarget<'_>, tried: &TriedBackends) -> Result<Staged, Error> {
        // Direct mode reserves nothing, so its counters must be current.
        let mut is_current = !self.settings().announce;
        let mut views = if is_current { self.current_views().await? } else { self.placement_views().await? };
        check_size(&views, target.size_bytes)?;
        let mut full = Vec::new();
        loop {
            let mut refused = self.refusal(&views, target.size_bytes, tried);
            let mut candidates = self.candidates(&views, target.size_bytes, tried);
            candidates.retain(|name| !full.contains(name));
            for name in candidates {
                match self.stage_on(&name, target).await {
                    Ok(staged) => return Ok(staged),
                    Err(error) => match error.verdict() {
                        Some(Verdict::NoSpace) => full.push(name),
                        Some(Verdict::Closed) => refused = frozen(&name, "the catalog allows no writes to it"),
                        Some(_) | None => return Err(error.into()),
                    },
                }
            }
            if is_current {
                return Err(refused);
            }
            // Counters that are a second old may hide the capacity that a delete has freed since.
            (views, is_current) = (self.current_views().await?, true);
        }
    }

    fn candidates(&self, views: &[BackendView], size_bytes: u64, tried: &TriedBackends) -> Vec<BackendName> {
        let strategy = self.settings().strategy;
        let mut names = match strategy {
            Strategy::Pack => candidates(strategy, views, size_bytes, |_| 0),
            Strategy::Spread => {
                let random = SeededEntropy::new(self.ids.fresh().as_u64_pair().1);
                let below = |below: usize| usize::try_from(random.next_u64()).unwrap_or(usize::MAX) % below;
                candidates(strategy, views, size_bytes, below)
            }
        };
        names.retain(|name| !tried.backends.contains(name));
        names
    }

    /// The answer if no backend can take the write: full only if no other backend is closed for another reason.
    fn refusal(&self, views: &[BackendView], size_bytes: u64, tried: &TriedBackends) -> Error {
        let may_come = |view: &&BackendView| view.allows(size_bytes) && !tried.backends.contains(&view.name);
        let mut untried = views.iter().filter(may_come);
        let closed = untried.find(|view| !view.writable || view.circuit_open);
        closed.map_or(Error::NoSpace, |view| self.closed(view))
    }

    fn closed(&self, view: &BackendView) -> Error {
        let frozen_reason = self.fleet.frozen_reason(&view.name);
        let reason = frozen_reason.unwrap_or_else(|| "writes failed repeatedly".to_owned());
        if !view.writable && view.reachable && reason != s3o_backend::fleet::NOT_REACHED {
            frozen(&view.name, &reason)
        } else {
            Error::Unavailable { trouble: BackendTrouble::Unreachable, detail: format!("{}: {reason}", view.name) }
        }
    }

    async fn stage_on(&self, name: &BackendName, target: &WriteTarget<'_>) -> Result<Staged, s3o_catalog::Error> {
        let removed = || s3o_catalog::Error::Guard(Verdict::Closed);
        let backend = self.fleet.get(name).cloned().ok_or_else(removed)?;
        let id = self.ids.fresh();
        let intent = Intent {
            id: IntentId::new(id),
            write: WriteId::new(id),
            kind: target.kind,
            bucket: target.bucket,
            key: target.key.clone(),
            backend: name.clone(),
            physical_key: physical_key(target.bucket_name, target.key, id, self.name_style(name)),
            size_bytes: target.size_bytes,
            draft: target.draft.clone(),
        };
        let bucket = target.bucket_name.clone();
        if !self.settings().announce {
            return Ok(Staged { intent, bucket, announced: false, backend, lease: Lease::unneeded() });
        }
        let (stage, term) = (Stage { intent, owner: self.instance, lease: self.settings().lease }, self.lease_term());
        let staged = self.catalog.stage(&stage).await;
        let until = self.counted(stage.intent.write, staged)?;
        self.usage.add_reserved(name, target.size_bytes);
        let lease = self.leases.hold(stage.intent.id, until, term);
        Ok(Staged { intent: stage.intent, bucket, announced: true, backend, lease })
    }

    /// The probed name style; `Exact` for a backend that was not reached yet. The identifier alone makes names unique.
    fn name_style(&self, name: &BackendName) -> NameStyle {
        let traits = self.fleet.state(name).and_then(|state| state.traits.clone());
        traits.map_or(NameStyle::Exact, |traits| traits.name_style)
    }

    /// Updates the health of the backend after a failed write.
    pub(super) fn record_failed_write(&self, backend: &BackendName, size_bytes: u64, error: &BackendError) {
        match error {
            BackendError::Away(_) => self.fleet.suspect(backend),
            BackendError::NoSpace(_) => self.fleet.record_no_space(backend, size_bytes, self.now()),
            _ => {}
        }
    }

    /// The error of a write whose body was consumed, so that no other backend can take it.
    pub(super) async fn failed_midway(&self, error: BackendError, size_bytes: u64, tried: &TriedBackends) -> Error {
        match error {
            BackendError::NoSpace(detail) if self.may_fit_elsewhere(size_bytes, tried).await => {
                Error::Unavailable { trouble: BackendTrouble::Full, detail }
            }
            error => error.into(),
        }
    }

    /// True if a repeated request could find space. The backend that just failed is marked as full and does not count.
    async fn may_fit_elsewhere(&self, size_bytes: u64, tried: &TriedBackends) -> bool {
        let views = self.current_views().await.unwrap_or_else(|_| self.fleet.views(self.now()));
        let may_take = |view: &BackendView| !view.writable || view.circuit_open || view.takes(size_bytes);
        tried.error.is_some() || views.iter().any(may_take)
    }
}

/// Fails if the configuration of every backend forbids bodies of this size.
fn check_size(views: &[BackendView], size_bytes: u64) -> Result<(), Error> {
    if views.iter().any(|view| view.allows(size_bytes)) {
        return Ok(());
    }
    let largest = views.iter().filter_map(|view| view.object_bytes_max).max();
    largest.map_or(Ok(()), |max_bytes| Err(Error::TooLarge { max_bytes }))
}

/// True if another backend may take a write that failed with this error. A refusal counts: the store may have become
/// read-only for this access key.
pub(super) fn another_may_take(error: &BackendError) -> bool {
    matches!(
        error,
        BackendError::Away(_) | BackendError::NotSent(_) | BackendError::NoSpace(_) | BackendError::Refused(_)
    )
}

fn frozen(name: &BackendName, reason: &str) -> Error {
    Error::Unavailable { trouble: BackendTrouble::Frozen, detail: format!("{name}: {reason}") }
}
