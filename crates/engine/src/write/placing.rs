//! Choosing the backend of a write, and what a backend's failure means for the rest of it.

use s3o_backend::Error as BackendError;
use s3o_catalog::{Stage, Verdict};
use s3o_model::ids::{IntentId, WriteId};
use s3o_model::intent::Intent;
use s3o_model::names::BackendName;
use s3o_model::physical_key::{NameStyle, physical_key};
use s3o_model::placement::{BackendView, pack};

use super::{Staged, Target, direct};
use crate::leases::Lease;
use crate::{BackendTrouble, Engine, Error};

/// The backends that a write was tried on in vain.
#[derive(Default)]
pub(super) struct Tried {
    backends: Vec<BackendName>,
    /// The error of the last one that might have had space.
    error: Option<Error>,
}

impl Tried {
    /// Adds a backend that failed before it took a byte.
    pub(super) fn add(&mut self, backend: &BackendName, error: BackendError) {
        self.backends.push(backend.clone());
        if !matches!(error, BackendError::NoRoom(_)) {
            self.error = Some(error.into());
        }
    }

    /// The answer when no backend is left: without space everywhere only if every backend said so.
    pub(super) fn refusal(self, refused: Error) -> Error {
        self.error.unwrap_or(refused)
    }
}

impl Engine {
    /// Announces a write on the first backend that has free capacity and was not tried yet.
    pub(super) async fn stage(&self, target: &Target<'_>, tried: &Tried) -> Result<Staged, Error> {
        let mut views = self.fleet.views(self.now());
        views.retain(|view| !tried.backends.contains(&view.name));
        if !self.settings().announce {
            direct::fill_in_room(&mut views, &self.quotas.books().await?);
        }
        let closed = views.iter().find(|view| !view.writable);
        let mut refused = closed.map_or(Error::NoRoom, |view| self.closed(view));
        for name in pack::candidates(&views, target.size_bytes) {
            match self.stage_on(&name, target).await {
                Ok(staged) => return Ok(staged),
                Err(error) => match error.verdict() {
                    Some(Verdict::NoRoom) => {}
                    Some(Verdict::Closed) => refused = frozen(&name, "it takes no writes"),
                    Some(_) | None => return Err(error.into()),
                },
            }
        }
        Err(refused)
    }

    fn closed(&self, view: &BackendView) -> Error {
        let standing = self.fleet.standing(&view.name);
        let reason = standing.and_then(|standing| standing.frozen.clone()).unwrap_or_default();
        if view.reachable && reason != s3o_backend::fleet::NOT_REACHED {
            frozen(&view.name, &reason)
        } else {
            Error::Unavailable { trouble: BackendTrouble::Unreachable, detail: format!("{}: {reason}", view.name) }
        }
    }

    async fn stage_on(&self, name: &BackendName, target: &Target<'_>) -> Result<Staged, s3o_catalog::Error> {
        let gone = || s3o_catalog::Error::Guard(Verdict::Closed);
        let backend = self.fleet.get(name).cloned().ok_or_else(gone)?;
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
        let staged = self.intents.stage(&stage).await;
        let until = self.counted(stage.intent.write, staged)?;
        let lease = self.leases.hold(stage.intent.id, until, term);
        Ok(Staged { intent: stage.intent, bucket, announced: true, backend, lease })
    }

    /// How names must look there; a backend that was not reached yet keeps them as they are until
    /// it says otherwise, since the identifier alone makes them unique.
    fn name_style(&self, name: &BackendName) -> NameStyle {
        let traits = self.fleet.standing(name).and_then(|standing| standing.traits.clone());
        traits.map_or(NameStyle::Exact, |traits| traits.name_style)
    }

    /// Records what a failed write tells about the health of its backend.
    pub(super) fn record_failed_write(&self, backend: &BackendName, size_bytes: u64, error: &BackendError) {
        match error {
            BackendError::Away(_) => self.fleet.suspect(backend),
            BackendError::NoRoom(_) => self.fleet.record_no_space(backend, size_bytes, self.now()),
            _ => {}
        }
    }

    /// The answer to a write whose body cannot be offered to another backend any more.
    pub(super) async fn failed_midway(&self, error: BackendError, size_bytes: u64, tried: &Tried) -> Error {
        match error {
            BackendError::NoRoom(detail) if self.may_fit_elsewhere(size_bytes, tried).await => {
                Error::Unavailable { trouble: BackendTrouble::Full, detail }
            }
            error => error.into(),
        }
    }

    /// Whether a repeated request could find space. The backend that just failed is marked full and does not count.
    async fn may_fit_elsewhere(&self, size_bytes: u64, tried: &Tried) -> bool {
        let mut views = self.fleet.views(self.now());
        if let Ok(books) = self.quotas.books().await {
            direct::fill_in_room(&mut views, &books);
        }
        tried.error.is_some() || views.iter().any(|view| !view.writable || view.takes(size_bytes))
    }
}

/// Whether another backend may take a write that failed like this.
pub(super) fn another_may_take(error: &BackendError) -> bool {
    matches!(error, BackendError::Away(_) | BackendError::NoRoom(_))
}

fn frozen(name: &BackendName, reason: &str) -> Error {
    Error::Unavailable { trouble: BackendTrouble::Frozen, detail: format!("{name}: {reason}") }
}
