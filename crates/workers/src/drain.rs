//! Empties draining backends: moves the copies that are needed to other backends, and removes the others.
//!
//! A pass walks over the copies in the order of their keys. It is repeated until one finds nothing: writes that began
//! before the drain may still commit behind it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use s3o_catalog::{Catalog, CopyWork, Error as CatalogError, RemoveCopy, ReplacedCopy, ReplicaSource, Verdict};
use s3o_engine::{CopyOutcome, Engine};
use s3o_model::cleanup::Reason;
use s3o_model::content::Location;
use s3o_model::names::BackendName;
use tokio::sync::Notify;

use crate::copy_tasks::CopyBounds;
use crate::replicator::CopySettings;
use crate::{CopyTasks, Error, Event, Report, Worker};

/// Progress of the drains on this instance. Clones share it.
#[derive(Clone, Default)]
pub struct DrainProgress(Arc<Mutex<HashMap<BackendName, DrainPass>>>);

/// One pass over the copies of a draining backend.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DrainPass {
    /// Copies that this process moved or removed since the drain began.
    pub moved: u64,
    /// Bytes of these copies.
    pub moved_bytes: u64,
    /// Copies that could not be moved in the current pass, by reason.
    pub stuck: HashMap<String, u64>,
    /// The last key of the current pass.
    position: String,
    /// True once the backend was found empty, until it is no longer draining.
    completed: bool,
}

impl DrainProgress {
    /// The state of one drain, as far as this instance works on it.
    #[must_use]
    pub fn of(&self, name: &BackendName) -> DrainPass {
        self.0.lock().get(name).cloned().unwrap_or_default()
    }

    fn change<T>(&self, name: &BackendName, change: impl FnOnce(&mut DrainPass) -> T) -> T {
        change(self.0.lock().entry(name.clone()).or_default())
    }

    fn keep_only(&self, draining: &[BackendName]) {
        self.0.lock().retain(|name, _| draining.contains(name));
    }
}

/// Empties draining backends.
pub struct DrainWorker {
    /// Locations and states of the backends.
    pub catalog: Arc<Catalog>,
    /// Writes and probes copies.
    pub engine: Engine,
    /// Bounds, replaced on reload together with the worker.
    pub settings: CopySettings,
    /// The copies in progress; they survive a reload.
    pub tasks: CopyTasks,
    /// Shown to operators; survives a reload.
    pub progress: DrainProgress,
    /// Wakes the cleanup worker.
    pub cleanup_wakeup: Arc<Notify>,
}

/// Takes one copy off a draining backend.
struct CopyDrain {
    catalog: Arc<Catalog>,
    engine: Engine,
    progress: DrainProgress,
    /// The draining backend.
    name: BackendName,
    grace: Duration,
    work: CopyWork,
}

/// What became of one copy on a draining backend.
enum Drained {
    Moved(Location),
    /// Another backend has a copy now, but it could not be verified; the next pass removes this one.
    Copied,
    Removed,
    /// Another unit moved or deleted it meanwhile.
    Gone,
    Stuck(String),
}

#[async_trait]
impl Worker for DrainWorker {
    fn name(&self) -> &'static str {
        "drain"
    }

    async fn tick(&self, report: &mut Report) -> Result<(), Error> {
        let draining = self.catalog.draining_backends().await?;
        self.progress.keep_only(&draining);
        for name in &draining {
            report.more |= self.step(name, report).await?;
        }
        if !report.items.is_empty() {
            self.cleanup_wakeup.notify_one();
        }
        Ok(())
    }
}

impl DrainWorker {
    /// Works on the next page of copies; true if another page follows at once.
    async fn step(&self, name: &BackendName, report: &mut Report) -> Result<bool, Error> {
        let bounds = CopyBounds::of_tick(self.settings.concurrency);
        let position = self.progress.change(name, |pass| {
            if pass.position.is_empty() {
                pass.stuck.clear();
            }
            pass.position.clone()
        });
        let page = self.catalog.contents_on(name, &position, self.settings.batch_size).await?;
        let is_last_page = page.len() < self.settings.batch_size;
        let (position, is_cut) = self.start_copies(name, page, bounds).await;
        self.tasks.report(bounds, report).await?;
        if is_last_page && !is_cut && !self.tasks.is_busy() {
            return self.end_pass(name, report).await.map(|()| false);
        }
        if let Some(position) = position {
            self.progress.change(name, |pass| pass.position = position);
        }
        Ok(true)
    }

    /// Starts the work on a page. Returns the last key that needs no second start in this pass, and whether the time of
    /// the tick was over before all were started.
    async fn start_copies(
        &self,
        name: &BackendName,
        page: Vec<CopyWork>,
        bounds: CopyBounds,
    ) -> (Option<String>, bool) {
        let mut position = None;
        for work in page {
            let (content, key) = (work.content, copy_on(&work, name).map(|copy| copy.physical_key));
            if !self.tasks.is_running(content)
                && !self.tasks.start(&self.engine, content, bounds, self.drain_of(name, work).run()).await
            {
                return (position, true);
            }
            position = key;
        }
        (position, false)
    }

    fn drain_of(&self, name: &BackendName, work: CopyWork) -> CopyDrain {
        CopyDrain {
            catalog: Arc::clone(&self.catalog),
            engine: self.engine.clone(),
            progress: self.progress.clone(),
            name: name.clone(),
            grace: self.settings.reader_grace,
            work,
        }
    }

    /// Ends a pass. The drain is complete when the backend holds nothing.
    async fn end_pass(&self, name: &BackendName, report: &mut Report) -> Result<(), Error> {
        self.progress.change(name, |pass| pass.position = String::new());
        let is_empty = self.catalog.backend_holdings(name).await?.is_empty();
        let is_new = self.progress.change(name, |pass| !std::mem::replace(&mut pass.completed, is_empty));
        if is_empty && is_new {
            tracing::info!(backend = %name, "drain complete, the backend holds nothing");
            report.count("completed", 1);
            report.events.push(Event::new("drain.completed").with("backend", name.to_string()));
        }
        Ok(())
    }
}

impl CopyDrain {
    async fn run(self) -> Result<Report, Error> {
        let drained = self.drain().await?;
        let mut report = Report::default();
        self.record(&drained, &mut report);
        Ok(report)
    }

    async fn drain(&self) -> Result<Drained, Error> {
        let work = &self.work;
        let Some(copy) = copy_on(work, &self.name) else { return Ok(Drained::Gone) };
        if work.counting() >= work.factor {
            return self.remove(copy).await;
        }
        let replaces = ReplicaSource::Drained(ReplacedCopy { copy, grace: self.grace });
        Ok(match self.engine.copy_content(work, replaces).await {
            CopyOutcome::Moved(target) => Drained::Moved(target),
            CopyOutcome::Copied(_) => Drained::Copied,
            CopyOutcome::NotNeeded => Drained::Gone,
            CopyOutcome::InProgress => Drained::Stuck("a copy is being written".to_owned()),
            CopyOutcome::NoTarget => Drained::Stuck("no other backend can take it".to_owned()),
            CopyOutcome::NoSource(why) | CopyOutcome::Failed(why) => Drained::Stuck(why),
        })
    }

    async fn remove(&self, copy: Location) -> Result<Drained, Error> {
        let kept = self.engine.proven_copies(&self.work, &copy).await;
        let (content, grace) = (self.work.content, self.grace);
        match self.catalog.remove_copy(&RemoveCopy { content, copy, kept, reason: Reason::Drain, grace }).await {
            Ok(()) => Ok(Drained::Removed),
            Err(CatalogError::Guard(Verdict::NotNeeded)) => {
                Ok(Drained::Stuck("too few of its other copies could be verified, or the backend is frozen".to_owned()))
            }
            Err(CatalogError::Guard(_)) => Ok(Drained::Gone),
            Err(error) => Err(error.into()),
        }
    }

    fn record(&self, result: &Drained, report: &mut Report) {
        let (name, work) = (&self.name, &self.work);
        let outcome = match result {
            Drained::Moved(_) => "moved",
            Drained::Removed => "removed",
            Drained::Copied => return report.count("copied", 1),
            Drained::Gone => return,
            Drained::Stuck(why) => {
                self.progress.change(name, |pass| *pass.stuck.entry(why.clone()).or_default() += 1);
                return report.count("stuck", 1);
            }
        };
        report.count(outcome, 1);
        self.progress.change(name, |pass| {
            pass.moved += 1;
            pass.moved_bytes += work.size_bytes;
        });
        if let Drained::Moved(Location { backend, physical_key, .. }) = result {
            let event = Event::new("drain.moved").at(backend, physical_key, work.size_bytes);
            report.events.push(event.with("from", name.to_string()).with("content", work.content.to_string()));
        }
    }
}

fn copy_on(work: &CopyWork, name: &BackendName) -> Option<Location> {
    work.copies.iter().map(|copy| &copy.location).find(|location| location.backend == *name).cloned()
}
