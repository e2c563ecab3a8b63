//! Writes another copy of existing content: reads a copy, compares its digest, and adds the new copy to the catalog.
//!
//! The intent precedes the bytes, as in every write. The digest is compared before the last chunk is sent, so that no
//! backend stores wrong bytes under the key of a copy.

mod commit;

use s3o_backend::fleet::NOT_REACHED;
use s3o_backend::{BodyError, ByteStream, Error as BackendError, SharedBackend, Written};
use s3o_catalog::{CopyWork, CountedLocation, Error as CatalogError, ReplicaSource, StageReplica, Verdict};
use s3o_model::cleanup::Reason;
use s3o_model::content::Location;
use s3o_model::ids::{InstanceId, IntentId, WriteId};
use s3o_model::names::BackendName;
use s3o_model::physical_key::replica_key;
use s3o_model::placement::BackendView;

use crate::Engine;
use crate::body::{DigestedBody, Verify, digested};
use crate::digest::Digests;
use crate::write::{CopyResult, Staged, late_after};

/// What became of an attempt to write another copy.
#[derive(Debug)]
pub enum CopyOutcome {
    /// The content has one more copy, at this location.
    Copied(Location),
    /// The new copy, at this location, has replaced the one that was named.
    Moved(Location),
    /// The content needs no copy any more, or it was deleted meanwhile.
    NotNeeded,
    /// Another copy of the content is being written to the same backend, or the content was deleted.
    InProgress,
    /// No backend can take a copy now.
    NoTarget,
    /// No copy could be read.
    NoSource(String),
    /// The target or the catalog failed.
    Failed(String),
}

/// Why an instance cannot write another copy of a content now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyObstacle {
    /// It cannot reach a copy, or no backend that could take another one. Other instances may.
    Unreachable,
    /// No backend has capacity for another copy.
    NoTarget,
}

/// Where a copy is written and what it replaces.
#[derive(Debug, Clone)]
struct CopyPlan {
    /// The only backend that may take it; `None` for the best one.
    target: Option<BackendName>,
    replaces: ReplicaSource,
}

impl Engine {
    /// Runs background work to its end in its own task, which a shutdown waits for like a request.
    pub fn start_task(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.start(work);
    }

    /// This process, as the catalog knows it.
    #[must_use]
    pub const fn instance(&self) -> InstanceId {
        self.instance
    }

    /// Writes another copy of a content, to the best backend that has none. Its copies are read in order until one has
    /// the right digest; each attempt has its own intent and key.
    ///
    /// The copy may take longer than the worker that asked for it: it is finished even if the caller stops waiting.
    pub async fn copy_content(&self, work: &CopyWork, replaces: ReplicaSource) -> CopyOutcome {
        self.run_copy(work, CopyPlan { target: None, replaces }).await
    }

    /// The same to this backend, as a move.
    pub async fn move_content(&self, work: &CopyWork, target: BackendName, replaces: ReplicaSource) -> CopyOutcome {
        self.run_copy(work, CopyPlan { target: Some(target), replaces }).await
    }

    async fn run_copy(&self, work: &CopyWork, plan: CopyPlan) -> CopyOutcome {
        let (engine, work) = (self.clone(), work.clone());
        let copied = self.tasks.run(async move { Ok(engine.copy_to_best(&work, &plan).await) }).await;
        copied.unwrap_or_else(|error| CopyOutcome::Failed(error.to_string()))
    }

    async fn copy_to_best(&self, work: &CopyWork, plan: &CopyPlan) -> CopyOutcome {
        let mut targets = match self.replica_targets(work).await {
            Ok(targets) => targets,
            Err(error) => return CopyOutcome::Failed(error.to_string()),
        };
        targets.retain(|backend| plan.target.as_ref().is_none_or(|target| target == backend.name()));
        for target in targets {
            // Before the source is opened, which may cost a request and its bytes.
            match self.catalog.is_copy_announced(work.content, target.name()).await {
                Ok(false) => {}
                Ok(true) => return CopyOutcome::InProgress,
                Err(error) => return CopyOutcome::Failed(error.to_string()),
            }
            match self.copy_to(work, &target, &plan.replaces).await {
                // It is full or draining: the next backend may take the copy.
                CopyOutcome::NoTarget => {}
                outcome => return outcome,
            }
        }
        CopyOutcome::NoTarget
    }

    async fn copy_to(&self, work: &CopyWork, target: &SharedBackend, replaces: &ReplicaSource) -> CopyOutcome {
        let mut why = "no copy is known, or usage limits forbid to read it".to_owned();
        for copy in self.readable(work) {
            match self.copy_from(work, &copy.location, target, replaces).await {
                CopyOutcome::NoSource(error) => why = error,
                outcome => return outcome,
            }
        }
        CopyOutcome::NoSource(why)
    }

    async fn copy_from(
        &self,
        work: &CopyWork,
        source: &Location,
        target: &SharedBackend,
        replaces: &ReplicaSource,
    ) -> CopyOutcome {
        let body = match self.open_source(source).await {
            Ok(body) => body,
            Err(error) => return CopyOutcome::NoSource(error),
        };
        let staged = match self.stage_replica(work, source, target, replaces.reason()).await {
            Ok(staged) => staged,
            Err(CatalogError::Guard(Verdict::NotNeeded)) => return CopyOutcome::InProgress,
            Err(CatalogError::Guard(Verdict::NoSpace | Verdict::Closed)) => return CopyOutcome::NoTarget,
            Err(error) => return CopyOutcome::Failed(error.to_string()),
        };
        match self.transfer(work, body, &staged).await {
            Ok(written) => self.commit_replica(work, staged, (source, written), replaces).await,
            Err(error) => self.failed_transfer(work, source, staged, error).await,
        }
    }

    pub(super) async fn failed_transfer(
        &self,
        work: &CopyWork,
        source: &Location,
        staged: Staged,
        error: BackendError,
    ) -> CopyOutcome {
        let late = late_after(&error, self.settings().late_write_window);
        self.record_failed_write(&staged.place.backend, staged.size_bytes, &error);
        self.drop_replica(staged, CopyResult::Failed(late)).await;
        let BackendError::Body(error) = error else { return CopyOutcome::Failed(error.to_string()) };
        if matches!(error, BodyError::Mismatch(_) | BodyError::Long { .. }) {
            self.suspect(work.content, source).await;
        }
        CopyOutcome::NoSource(format!("{}: {error}", source.backend))
    }

    async fn open_source(&self, source: &Location) -> Result<ByteStream, String> {
        let name = &source.backend;
        let backend = self.fleet.get(name).ok_or_else(|| format!("{name}: the backend is not configured"))?;
        backend.get(source.key_version(), None).await.map_err(|error| format!("{name}: {error}"))
    }

    /// Why this instance cannot write another copy of a content now; `None` if it can try. Makes no backend call.
    pub async fn copy_obstacle(&self, work: &CopyWork) -> Result<Option<CopyObstacle>, CatalogError> {
        if !work.copies.iter().any(|copy| self.fleet.is_readable(&copy.location.backend)) {
            return Ok(Some(CopyObstacle::Unreachable));
        }
        let free = self.free_backends(work).await?;
        if free.iter().any(|view| view.reachable && view.takes(work.size_bytes)) {
            return Ok(None);
        }
        let closed = free.iter().any(|view| self.is_away(view) && as_open(view).takes(work.size_bytes));
        Ok(Some(if closed { CopyObstacle::Unreachable } else { CopyObstacle::NoTarget }))
    }

    /// Whether a backend takes no writes of this instance although others may reach it.
    fn is_away(&self, view: &BackendView) -> bool {
        let Some(state) = self.fleet.state(&view.name).filter(|state| !state.draining) else { return false };
        match state.frozen.as_deref() {
            Some(reason) => reason == NOT_REACHED,
            None => view.circuit_open || !view.reachable,
        }
    }

    /// The healthy backends without a copy.
    async fn free_backends(&self, work: &CopyWork) -> Result<Vec<BackendView>, CatalogError> {
        let has_copy =
            |name: &BackendName| work.copies.iter().any(|copy| copy.is_present && copy.location.backend == *name);
        let is_healthy =
            |name: &BackendName| self.fleet.state(name).is_some_and(|state| state.unhealthy_since.is_none());
        let views = self.placement_views().await?;
        let is_free = |view: &BackendView| {
            let name = &view.name;
            !has_copy(name) && is_healthy(name) && self.fleet.permits_background(name)
        };
        Ok(views.into_iter().filter(is_free).collect())
    }

    /// The backends for another copy, in order: those that take writes of this size, have no copy, and are healthy.
    async fn replica_targets(&self, work: &CopyWork) -> Result<Vec<SharedBackend>, CatalogError> {
        let free = self.free_backends(work).await?;
        let names = self.place(&free, work.size_bytes);
        Ok(names.iter().filter_map(|name| self.fleet.get(name)).cloned().collect())
    }

    async fn stage_replica(
        &self,
        work: &CopyWork,
        source: &Location,
        backend: &SharedBackend,
        reason: Reason,
    ) -> Result<Staged, CatalogError> {
        let (id, name, size_bytes) = (self.ids.fresh(), backend.name(), work.size_bytes);
        let physical_key = replica_key(&source.physical_key, id, self.name_style(name));
        let stage = StageReplica {
            intent: IntentId::new(id),
            write: WriteId::new(id),
            content: work.content,
            target: Location { backend: name.clone(), physical_key, backend_version: None },
            size_bytes,
            reason,
            owner: self.instance,
            lease: self.settings().lease,
        };
        let term = self.lease_term();
        let until = self.counted(stage.write, self.catalog.stage_replica(&stage).await)?;
        self.usage.add_reserved(name, size_bytes);
        Ok(Staged {
            id: stage.intent,
            write: stage.write,
            place: stage.target,
            size_bytes,
            object: None,
            announced: true,
            backend: backend.clone(),
            lease: self.leases.hold(stage.intent, until, term),
        })
    }

    /// The copies in the order to read them: present ones first, those behind an open circuit last. Copies on backends
    /// near a usage limit are left to requests.
    fn readable<'a>(&self, work: &'a CopyWork) -> Vec<&'a CountedLocation> {
        let is_permitted = |copy: &&CountedLocation| self.fleet.permits_background(&copy.location.backend);
        let mut copies: Vec<&CountedLocation> = work.copies.iter().filter(is_permitted).collect();
        copies.sort_by_key(|copy| (self.is_open(&copy.location.backend), !copy.is_present));
        copies
    }

    /// Sends the bytes to the target and compares their digest. `Error::Body` means that the source failed.
    async fn transfer(&self, work: &CopyWork, body: ByteStream, staged: &Staged) -> Result<Written, BackendError> {
        let body = digested(body, work.size_bytes, None, compare(work), staged.lease.watch()).await?;
        let DigestedBody { stream, digests } = body;
        let written = self.send_copy(staged, stream).await?;
        let digests = digests.ready().await.ok();
        self.accept_copy(staged, written.clone(), digests.as_ref()).map(|_| written)
    }
}

/// The backend as if this instance reached it.
fn as_open(view: &BackendView) -> BackendView {
    BackendView { writable: true, circuit_open: false, ..view.clone() }
}

/// Compares the computed digests with those of the content.
fn compare(work: &CopyWork) -> Verify {
    let (md5, sha256) = (work.md5, work.sha256);
    Box::new(move |digests: &Digests| {
        let differs =
            md5.is_some_and(|md5| md5 != digests.md5) || sha256.is_some_and(|sha256| sha256 != digests.sha256);
        if differs { Err(BodyError::Mismatch("digest in the catalog")) } else { Ok(()) }
    })
}
