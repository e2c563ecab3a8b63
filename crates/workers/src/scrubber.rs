//! Reads every copy once per cycle and compares its bytes with the digest of its content, oldest content first.
//!
//! A pass over a backend is a row with a position, and each run reads as much as the cycle demands by then. A copy that
//! cannot be read is noted and read later. Two different digests of one copy, or too many wrong ones, accuse the
//! reader: then the scrubber stops until an operator runs it.

mod batch;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use s3o_backend::fleet::Fleet;
use s3o_catalog::{Catalog, ScrubCopy, ScrubEntry, ScrubPass, ScrubRetry, ScrubState};
use s3o_engine::{CopyRead, Engine};
use s3o_model::names::BackendName;
use s3o_model::scrub::ScrubPace;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::{CopyPace, Error, Report, Worker};
use batch::ReadBatch;

/// Number of contents of a page between two checks of the time.
const BATCH: usize = 32;
/// Number of copies in one batch of those that are read again.
const RETRIES: usize = 100;

/// Settings of the scrubber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScrubSettings {
    /// How fast a pass reads.
    pub pace: ScrubPace,
    /// Number of contents in one page of a pass.
    pub batch_size: usize,
    /// Copies above this size are read in slices of this size, apart from the pass.
    pub slice_bytes: u64,
    /// How long a tick begins to read further copies, and then slices of a large one.
    pub tick_time: Duration,
}

impl ScrubSettings {
    /// Default of `slice_bytes`.
    pub const SLICE_BYTES: u64 = 64 << 20;
    /// Default of `tick_time`.
    pub const TICK_TIME: Duration = Duration::from_secs(10);
}

/// What a process knows of its reads. It is kept across reloads, which replace the worker. Clones share it.
#[derive(Clone, Default)]
pub struct ScrubProgress(Arc<Mutex<RunProgress>>);

#[derive(Default)]
struct RunProgress {
    /// True if an operator started the run: it reads to the end of the pass, whatever the pace.
    is_manual: bool,
    /// Number of copies that the run has read.
    read: u64,
    /// Number of wrong digests that the run has found.
    mismatches: u64,
    /// Backends of which the run has begun or continued a pass.
    visited: HashSet<BackendName>,
    /// Reads of large copies, one for each backend.
    large: HashMap<BackendName, CopyRead>,
}

impl ScrubProgress {
    fn with<T>(&self, access: impl FnOnce(&mut RunProgress) -> T) -> T {
        access(&mut self.0.lock())
    }

    fn begin(&self, is_manual: bool) {
        self.with(|run| {
            let large = std::mem::take(&mut run.large);
            *run = RunProgress { is_manual, large, ..RunProgress::default() };
        });
    }
}

/// Reads stored bytes and compares their digests.
pub struct ScrubberWorker {
    /// Passes and copies.
    pub catalog: Arc<Catalog>,
    /// Reads the copies.
    pub engine: Engine,
    /// The backends that can be read.
    pub fleet: Arc<Fleet>,
    /// Replaced on reload together with the worker.
    pub settings: ScrubSettings,
    /// Leaves the stores to requests.
    pub pace: CopyPace,
    /// Survives a reload.
    pub progress: ScrubProgress,
    /// Wakes the worker that replaces bad copies.
    pub replicator_wakeup: Arc<Notify>,
}

#[async_trait]
impl Worker for ScrubberWorker {
    fn name(&self) -> &'static str {
        "scrubber"
    }

    fn begin_run(&self) {
        self.progress.begin(false);
    }

    fn begin_manual_run(&self) {
        self.progress.begin(true);
    }

    fn yields_to_requests(&self) -> bool {
        true
    }

    async fn tick(&self, report: &mut Report) -> Result<(), Error> {
        let state = self.catalog.scrub_state().await?;
        if let Some(why) = &state.stopped {
            if !self.progress.with(|run| run.is_manual) {
                tracing::warn!(reason = why, "scrubber is stopped, run `s3o scrub` to continue");
                return Ok(());
            }
            self.catalog.resume_scrub().await?;
        }
        let names: Vec<BackendName> = self.fleet.backends().map(|backend| backend.name().clone()).collect();
        let readable = names.into_iter().filter(|name| self.is_readable(name));
        let steps: Vec<_> = readable.map(|name| self.boxed_step(name, &state)).collect();
        let mut done = futures_util::stream::iter(steps).buffer_unordered(usize::MAX);
        let mut failed = Ok(());
        let mut more = false;
        while let Some((stepped, result)) = done.next().await {
            more |= stepped.more;
            report.absorb(stepped);
            failed = failed.and(result);
        }
        report.more = more;
        failed
    }
}

impl ScrubberWorker {
    /// True for a backend that this instance reaches, within its usage limits.
    fn is_readable(&self, name: &BackendName) -> bool {
        let is_frozen = self.fleet.frozen_reason(name).is_some();
        !is_frozen && self.fleet.is_readable(name) && self.fleet.permits_background(name)
    }

    fn boxed_step<'a>(
        &'a self,
        name: BackendName,
        state: &'a ScrubState,
    ) -> BoxFuture<'a, (Report, Result<(), Error>)> {
        Box::pin(async move {
            let mut report = Report::default();
            let result = self.step(&name, state, &mut report).await;
            (report, result)
        })
    }

    /// Works on one backend: continues its pass, then reads copies again that are due.
    async fn step(&self, name: &BackendName, state: &ScrubState, report: &mut Report) -> Result<(), Error> {
        let until = Instant::now() + self.settings.tick_time;
        if let Some(pass) = self.current_pass(name, state).await? {
            self.continue_pass(pass, state, until, report).await?;
        }
        // The pass may have noted a large copy.
        if state.retries.contains(name) || report.items.contains_key("later") {
            self.read_again(name, until, report).await?;
        }
        Ok(())
    }

    /// The pass that is under way, or a new one if it is due.
    async fn current_pass(&self, name: &BackendName, state: &ScrubState) -> Result<Option<ScrubPass>, Error> {
        let known = state.passes.iter().find(|pass| pass.backend == *name);
        let is_first_visit = self.progress.with(|run| run.visited.insert(name.clone()) && run.is_manual);
        let is_due = known.is_none_or(|pass| {
            pass.finished_at.is_some() && (is_first_visit || self.settings.pace.is_over(pass.started_at, state.now))
        });
        if !is_due {
            return Ok(known.filter(|pass| pass.finished_at.is_none()).cloned());
        }
        self.catalog.begin_scrub(name, known).await?;
        let begun = self.catalog.scrub_state().await?;
        Ok(begun.passes.into_iter().find(|pass| pass.backend == *name && pass.finished_at.is_none()))
    }

    /// Reads pages until the pass is as far as it should be by now.
    async fn continue_pass(
        &self,
        mut pass: ScrubPass,
        state: &ScrubState,
        until: Instant,
        report: &mut Report,
    ) -> Result<(), Error> {
        let is_manual = self.progress.with(|run| run.is_manual);
        let target = self.settings.pace.target(pass.total, pass.started_at, state.now);
        while is_manual || pass.done < target {
            let mut page = self.catalog.scrub_page(&pass, self.settings.batch_size).await?;
            let batch = self.read_page(&pass.backend, &mut page, until, report).await?;
            if !self.is_readable(&pass.backend) && !batch.later.is_empty() {
                // The backend went away. The page is read again when it is back.
                return Ok(());
            }
            self.catalog.settle_scrub(&pass.backend, Some((&pass, &page)), &batch.later, &batch.read).await?;
            self.stop_if_needed(batch, report).await?;
            let Some(last) = page.pop() else {
                report.count("passes", 1);
                return Ok(());
            };
            (pass.position, pass.done) = (last.content, pass.done + page.len() as u64 + 1);
            if Instant::now() >= until {
                report.more |= is_manual || pass.done < target;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads the copies of a page in batches. Shortens the page to what was read in time.
    async fn read_page(
        &self,
        name: &BackendName,
        page: &mut Vec<ScrubEntry>,
        until: Instant,
        report: &mut Report,
    ) -> Result<ReadBatch, Error> {
        let (mut all, mut reached) = (ReadBatch::default(), 0);
        for entries in page.chunks(BATCH) {
            let copies = entries.iter().filter_map(|entry| entry.copy.clone()).collect();
            all.append(self.read_batch(copies, report).await?);
            reached += entries.len();
            if all.stop.is_some() || Instant::now() >= until || !self.is_readable(name) {
                break;
            }
        }
        page.truncate(reached);
        Ok(all)
    }

    /// Reads copies that are due again: small ones in a batch, and one large one in slices.
    async fn read_again(&self, name: &BackendName, until: Instant, report: &mut Report) -> Result<(), Error> {
        let (due, rows) = self.catalog.scrub_retries(name, RETRIES).await?;
        let (large, small): (Vec<_>, Vec<_>) = due.into_iter().partition(|copy| self.is_large(copy));
        let batch = self.read_batch(small, report).await?;
        self.catalog.settle_scrub(name, None, &batch.later, &batch.read).await?;
        self.stop_if_needed(batch, report).await?;
        report.more |= rows == RETRIES;
        self.read_large(name, large, until + self.settings.tick_time, report).await
    }

    /// Reads large copies one by one. A read that takes longer than the tick goes on with the next one.
    async fn read_large(
        &self,
        name: &BackendName,
        mut due: Vec<ScrubCopy>,
        until: Instant,
        report: &mut Report,
    ) -> Result<(), Error> {
        let mut under_way = self.progress.with(|run| run.large.remove(name));
        while !due.is_empty() {
            let continued = under_way.take().and_then(|read| {
                let position = due.iter().position(|copy| copy == read.copy())?;
                due.remove(position);
                Some(read)
            });
            let mut read = continued.unwrap_or_else(|| CopyRead::new(due.remove(0), self.settings.slice_bytes));
            let Some(outcome) = self.pace.write(self.engine.scrub_copy(&mut read, until)).await? else {
                self.progress.with(|run| run.large.insert(name.clone(), read));
                report.more = true;
                return Ok(());
            };
            let mut batch = ReadBatch::default();
            self.record(vec![(read.copy().clone(), outcome)], &mut batch, report).await?;
            self.catalog.settle_scrub(name, None, &batch.later, &batch.read).await?;
            self.stop_if_needed(batch, report).await?;
        }
        Ok(())
    }

    /// Stops the scrubber on all instances if a batch accused the reader.
    async fn stop_if_needed(&self, batch: ReadBatch, report: &mut Report) -> Result<(), Error> {
        let Some(why) = batch.stop else { return Ok(()) };
        tracing::error!(reason = why, "scrubber stopped, check memory, network and proxies, then run `s3o scrub`");
        report.count("stopped", 1);
        self.catalog.stop_scrub(&why).await?;
        Err(Error::ReaderFault(why))
    }
}

/// A copy that is read again after this time.
fn later(copy: &ScrubCopy, delay: Duration, why: Option<String>) -> ScrubRetry {
    ScrubRetry { content: copy.content, delay, why }
}
