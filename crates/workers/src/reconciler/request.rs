//! Passes on request: begins them, follows them to their end, and cancels them.

use std::sync::Arc;
use std::time::Duration;

use s3o_backend::SharedBackend;
use s3o_backend::fleet::Fleet;
use s3o_catalog::{Catalog, PassState, ReconcilePass};
use s3o_model::ids::InstanceId;
use s3o_model::names::BackendName;
use s3o_model::shared::Shared;

use super::dry_run::dry_run;
use super::view::PassView;
use super::{NAME, ReconcileSettings};
use crate::identity::{IdentityWorker, REMOVED};
use crate::walk::PagePosition;
use crate::{Error, Runner};

/// Number of foreign folders that are shown.
const FOLDERS_SHOWN: usize = 1001;
/// Delay between two runs of the worker for one request.
const ROUND_DELAY: Duration = Duration::from_millis(100);

/// Starts, shows and cancels passes.
pub struct ReconcileService {
    /// Passes and findings.
    pub catalog: Arc<Catalog>,
    /// The configured backends.
    pub fleet: Arc<Fleet>,
    /// Compared before and after a dry run.
    pub identity: Arc<IdentityWorker>,
    /// Runs the worker, under its lock and with its audit.
    pub runner: Arc<Runner>,
    /// Settings of the worker.
    pub settings: Shared<ReconcileSettings>,
    /// Recorded in the passes.
    pub instance: InstanceId,
}

impl ReconcileService {
    /// Begins a pass over one backend or all of them, joins those that are unfinished, and returns when all ended. They
    /// go on if the caller stops waiting.
    pub async fn run(&self, backend: Option<&str>) -> Result<Vec<PassView>, Error> {
        let names: Vec<BackendName> = self.backends(backend)?.iter().map(|backend| backend.name().clone()).collect();
        for name in &names {
            while self.catalog.forget_staged().await? {}
            self.catalog.begin_pass(name, &PagePosition::START.to_text(), self.instance).await?;
        }
        let mut before = Vec::new();
        loop {
            let run = self.runner.run_now(NAME).await;
            let passes = self.newest(&names).await?;
            let has_ended = |pass: &ReconcilePass| match pass.state {
                PassState::Open | PassState::Folding => false,
                // The rest waits for deletions.
                PassState::Acting => before.contains(&(pass.id, pass.position.clone())),
                PassState::Done | PassState::Invalid | PassState::Cancelled | PassState::Discarded => true,
            };
            // Without a trusted clock the worker waits, and the passes go on later.
            let is_held = run.is_none_or(|run| run.reason.is_some());
            if is_held || passes.iter().all(has_ended) {
                return self.views(passes).await;
            }
            before = passes.into_iter().map(|pass| (pass.id, pass.position)).collect();
            tokio::time::sleep(ROUND_DELAY).await;
        }
    }

    /// What a pass would find now.
    pub async fn dry_run(&self, backend: Option<&str>) -> Result<Vec<PassView>, Error> {
        let share = self.settings.current().max_delete_fraction;
        let mut views = Vec::new();
        for backend in self.backends(backend)? {
            views.push(dry_run(&self.catalog, &self.fleet, &self.identity, backend, share).await?);
        }
        Ok(views)
    }

    /// The newest passes.
    pub async fn show(&self, backend: Option<&str>) -> Result<Vec<PassView>, Error> {
        let names: Vec<BackendName> = self.backends(backend)?.iter().map(|backend| backend.name().clone()).collect();
        let passes = self.newest(&names).await?;
        self.views(passes).await
    }

    /// Cancels the unfinished passes; returns the backends that had one.
    pub async fn cancel(&self, backend: Option<&str>) -> Result<Vec<String>, Error> {
        let mut cancelled = Vec::new();
        for backend in self.backends(backend)? {
            if self.catalog.cancel_pass(backend.name()).await? {
                cancelled.push(backend.name().to_string());
            }
        }
        while self.catalog.forget_staged().await? {}
        Ok(cancelled)
    }

    /// The named backend, or all that are not removed.
    fn backends(&self, name: Option<&str>) -> Result<Vec<&SharedBackend>, Error> {
        let Some(name) = name else {
            let is_removed =
                |backend: &&SharedBackend| self.fleet.frozen_reason(backend.name()).as_deref() == Some(REMOVED);
            return Ok(self.fleet.backends().filter(|backend| !is_removed(backend)).collect());
        };
        let unknown = || Error::NoSuchBackend(name.to_owned());
        let parsed: BackendName = name.parse().map_err(|_| unknown())?;
        self.fleet.get(&parsed).map(|backend| vec![backend]).ok_or_else(unknown)
    }

    async fn newest(&self, names: &[BackendName]) -> Result<Vec<ReconcilePass>, Error> {
        let mut passes = self.catalog.reconcile_passes().await?;
        passes.retain(|pass| names.contains(&pass.backend));
        Ok(passes)
    }

    async fn views(&self, passes: Vec<ReconcilePass>) -> Result<Vec<PassView>, Error> {
        let mut views = Vec::new();
        for pass in passes {
            let folders = self.catalog.foreign_folders(pass.id, FOLDERS_SHOWN).await?;
            views.push(PassView::of(pass, folders));
        }
        Ok(views)
    }
}
