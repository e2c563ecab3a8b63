//! Compares backends with the catalog, and acts on what two passes found.
//!
//! A pass is a row in the catalog. A tick continues the passes that are unfinished and begins those that are due; it
//! holds no lock between ticks, and any instance continues the pass of another one.

mod actions;
mod dry_run;
mod request;
mod steps;
mod view;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use s3o_backend::SharedBackend;
use s3o_backend::fleet::Fleet;
use s3o_catalog::{Catalog, PassState, ReconcilePass};
use s3o_engine::Engine;
use s3o_model::ids::{IdSource, InstanceId};
use s3o_model::names::BackendName;
use s3o_model::shared::Shared;
use tokio::sync::Notify;

use crate::identity::IdentityWorker;
use crate::walk::PagePosition;
use crate::{Error, Report, Worker};

pub use request::ReconcileService;
pub use view::{FolderView, FoundView, KindView, PassView};

/// Time that one tick spends on one backend.
const TICK_TIME: Duration = Duration::from_secs(1);
/// Name of the worker.
const NAME: &str = "reconciler";

/// Settings of the reconciler; a reload replaces them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReconcileSettings {
    /// False: passes begin only on request.
    pub enabled: bool,
    /// Time between the beginnings of two passes over one backend.
    pub interval: Duration,
    /// Shortest time between two passes that confirm a finding.
    pub grace: Duration,
    /// A pass that would remove a larger share of the keys must be approved.
    pub max_delete_fraction: f64,
}

/// Compares backends with the catalog.
pub struct ReconcilerWorker {
    /// Passes and findings.
    pub catalog: Arc<Catalog>,
    /// The configured backends.
    pub fleet: Arc<Fleet>,
    /// Compared when a pass begins, continues and ends.
    pub identity: Arc<IdentityWorker>,
    /// Reads copies that were lost and are there again.
    pub engine: Engine,
    /// Settings; a reload replaces them.
    pub settings: Shared<ReconcileSettings>,
    /// Recorded in the passes.
    pub instance: InstanceId,
    /// Source of claim tokens.
    pub ids: IdSource,
    /// Wakes the cleanup worker.
    pub cleanup_wakeup: Arc<Notify>,
}

/// What a tick does about one backend.
#[derive(Debug, PartialEq, Eq)]
enum PassPlan<'a> {
    Continue(&'a ReconcilePass),
    Begin,
    Wait,
}

/// Decides by the newest pass of a backend.
fn plan<'a>(newest: Option<&'a ReconcilePass>, settings: &ReconcileSettings) -> PassPlan<'a> {
    // A pass in the future began when the clock was ahead.
    let is_due =
        |pass: &ReconcilePass| pass.cut_off > pass.read_at || pass.read_at.since(pass.cut_off) >= settings.interval;
    match newest {
        Some(pass) if pass.state.is_unfinished() => PassPlan::Continue(pass),
        Some(pass) if settings.enabled && is_due(pass) => PassPlan::Begin,
        Some(pass) if pass.state == PassState::Acting => PassPlan::Continue(pass),
        None if settings.enabled => PassPlan::Begin,
        Some(_) | None => PassPlan::Wait,
    }
}

#[async_trait]
impl Worker for ReconcilerWorker {
    fn name(&self) -> &'static str {
        NAME
    }

    fn is_time_dependent(&self) -> bool {
        true
    }

    fn yields_to_requests(&self) -> bool {
        true
    }

    async fn tick(&self, report: &mut Report) -> Result<(), Error> {
        let passes = self.catalog.reconcile_passes().await?;
        let (mut more, mut failed) = (false, Ok(()));
        for backend in self.fleet.backends() {
            let newest = passes.iter().find(|pass| pass.backend == *backend.name());
            match self.work_on(backend, newest, report).await {
                Ok(unfinished) => more |= unfinished,
                // The passes over the other backends go on.
                Err(error) => failed = Err(error),
            }
        }
        report.more = more;
        failed
    }
}

impl ReconcilerWorker {
    /// Continues or begins the pass over one backend; true if it should go on at once.
    async fn work_on(
        &self,
        backend: &SharedBackend,
        newest: Option<&ReconcilePass>,
        report: &mut Report,
    ) -> Result<bool, Error> {
        let settings = *self.settings.current();
        let pass = match plan(newest, &settings) {
            PassPlan::Wait => None,
            PassPlan::Continue(pass) => Some(pass.clone()),
            PassPlan::Begin => self.begin(backend.name()).await?,
        };
        match pass {
            Some(pass) => self.continue_pass(backend, pass, report).await,
            None => Ok(false),
        }
    }

    /// Begins a pass; `None` if the backend is being removed. Another instance may have begun it.
    async fn begin(&self, name: &BackendName) -> Result<Option<ReconcilePass>, Error> {
        while self.catalog.forget_staged().await? {}
        self.catalog.begin_pass(name, &PagePosition::START.to_text(), self.instance).await?;
        let newest = self.catalog.reconcile_pass(name).await?;
        Ok(newest.filter(|pass| pass.state.is_unfinished()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use s3o_catalog::{PassState, ReconcilePass};
    use s3o_model::clock::Timestamp;
    use s3o_model::reconcile::PassCounts;

    use super::{PassPlan, ReconcileSettings, plan};

    const HOUR: Duration = Duration::from_hours(1);

    fn settings(enabled: bool) -> ReconcileSettings {
        ReconcileSettings { enabled, interval: HOUR, grace: HOUR, max_delete_fraction: 0.01 }
    }

    fn pass(state: PassState, age: Duration) -> ReconcilePass {
        let cut_off = Timestamp::from_millis(1_700_000_000_000);
        ReconcilePass {
            id: 1,
            backend: "disk".parse().expect("valid"),
            state,
            position: String::new(),
            counts: PassCounts::default(),
            cut_off,
            held: None,
            instance: String::new(),
            failures: 0,
            reason: None,
            updated_at: cut_off,
            ended_at: None,
            read_at: cut_off.after(age),
        }
    }

    #[test]
    fn pass_begins_an_interval_after_the_last_one_began() {
        let young = pass(PassState::Done, HOUR / 2);
        let old = pass(PassState::Invalid, HOUR);
        assert_eq!(plan(None, &settings(true)), PassPlan::Begin);
        assert_eq!(plan(Some(&young), &settings(true)), PassPlan::Wait);
        assert_eq!(plan(Some(&old), &settings(true)), PassPlan::Begin);
        let ahead = ReconcilePass { cut_off: young.cut_off.after(24 * HOUR), ..young };
        assert_eq!(plan(Some(&ahead), &settings(true)), PassPlan::Begin, "the clock was ahead");
    }

    #[test]
    fn disabled_reconciler_only_ends_what_was_begun() {
        assert_eq!(plan(None, &settings(false)), PassPlan::Wait);
        assert_eq!(plan(Some(&pass(PassState::Done, HOUR)), &settings(false)), PassPlan::Wait);
        for state in [PassState::Open, PassState::Folding, PassState::Acting] {
            let unfinished = pass(state, HOUR);
            assert_eq!(plan(Some(&unfinished), &settings(false)), PassPlan::Continue(&unfinished), "{state:?}");
        }
    }

    #[test]
    fn next_pass_does_not_wait_for_deletions_of_the_last_one() {
        assert_eq!(plan(Some(&pass(PassState::Acting, HOUR)), &settings(true)), PassPlan::Begin);
        let unfinished = pass(PassState::Folding, HOUR);
        assert_eq!(plan(Some(&unfinished), &settings(true)), PassPlan::Continue(&unfinished));
    }
}
