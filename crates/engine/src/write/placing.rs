//! Chooses the backends of a write, and decides after a failure whether another backend can take it.

use s3o_backend::Error as BackendError;
use s3o_model::entropy::{Entropy as _, SeededEntropy};
use s3o_model::names::BackendName;
use s3o_model::physical_key::NameStyle;
use s3o_model::placement::{BackendView, Strategy, candidates};
use s3o_model::usage::{ReachedLimit, UsagePurpose};

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
    pub(super) fn candidates(&self, views: &[BackendView], size_bytes: u64, tried: &TriedBackends) -> Vec<BackendName> {
        let mut names = self.place(views, size_bytes);
        names.retain(|name| !tried.backends.contains(name));
        names
    }

    /// The backends to try for a body of this size, in order.
    pub(crate) fn place(&self, views: &[BackendView], size_bytes: u64) -> Vec<BackendName> {
        let strategy = self.settings().strategy;
        match strategy {
            Strategy::Pack => candidates(strategy, views, size_bytes, |_| 0),
            Strategy::Spread => {
                let random = SeededEntropy::new(self.ids.fresh().as_u64_pair().1);
                let below = |below: usize| usize::try_from(random.next_u64()).unwrap_or(usize::MAX) % below;
                candidates(strategy, views, size_bytes, below)
            }
        }
    }

    /// The answer if no backend can take the write: full only if no other backend is closed for another reason.
    pub(super) fn refusal(&self, views: &[BackendView], size_bytes: u64, tried: &TriedBackends) -> Error {
        let may_come = |view: &&BackendView| view.allows(size_bytes) && !tried.backends.contains(&view.name);
        let untried: Vec<&BackendView> = views.iter().filter(may_come).collect();
        let is_closed = |view: &BackendView| !view.writable || view.circuit_open;
        let mut limited = untried.iter().filter(|view| !is_closed(view) && view.lacks_usage(size_bytes));
        if let Some(limit) = limited.find_map(|view| self.reached_limit(view, size_bytes)) {
            return Error::LimitReached(limit);
        }
        let closed = untried.iter().find(|view| is_closed(view));
        closed.map_or(Error::NoSpace, |view| self.closed(view))
    }

    fn reached_limit(&self, view: &BackendView, size_bytes: u64) -> Option<ReachedLimit> {
        let reached = self.fleet.reached_limit(&view.name, UsagePurpose::Write);
        reached.or_else(|| self.fleet.usage(&view.name).map(|usage| usage.refuse_ingress(size_bytes)))
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

    /// The probed name style; `Exact` for a backend that was not reached yet. The identifier alone makes names unique.
    pub(crate) fn name_style(&self, name: &BackendName) -> NameStyle {
        let traits = self.fleet.state(name).and_then(|state| state.traits.clone());
        traits.map_or(NameStyle::Exact, |traits| traits.name_style)
    }

    /// Updates the health of the backend after a failed write.
    pub(crate) fn record_failed_write(&self, backend: &BackendName, size_bytes: u64, error: &BackendError) {
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

/// True if another backend may take a write that failed with this error. A refusal counts: the store may have become
/// read-only for this access key.
pub(super) fn another_may_take(error: &BackendError) -> bool {
    matches!(
        error,
        BackendError::Away(_) | BackendError::NotSent(_) | BackendError::NoSpace(_) | BackendError::Refused(_)
    )
}

pub(super) fn frozen(name: &BackendName, reason: &str) -> Error {
    Error::Unavailable { trouble: BackendTrouble::Frozen, detail: format!("{name}: {reason}") }
}
