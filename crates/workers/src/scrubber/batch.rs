//! Reads a batch of copies, and records what was found. No copy of a batch is accused if one read of it accuses the
//! reader.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use s3o_catalog::{Accused, Error as CatalogError, ScrubCopy, ScrubRetry};
use s3o_engine::{CopyRead, ScrubOutcome};
use s3o_model::backoff::Backoff;
use s3o_model::content::Location;
use s3o_model::ids::ContentId;
use s3o_model::scrub::accuses_too_many;
use tokio::time::Instant;

use super::{ScrubberWorker, later};
use crate::{Error, Event, Report};

/// Number of copies of one backend that are read at a time.
const CONCURRENCY: usize = 4;
/// Longest read of a copy that is not large.
const READ_TIME_MAX: Duration = Duration::from_mins(5);
/// Delay of a copy that could not be read.
const RETRY: Backoff = Backoff { min: Duration::from_mins(5), max: Duration::from_hours(6) };

/// What became of a batch.
#[derive(Debug, Default)]
pub(super) struct ReadBatch {
    pub later: Vec<ScrubRetry>,
    /// Contents whose copies were read.
    pub read: Vec<ContentId>,
    /// Why the reader is accused.
    pub stop: Option<String>,
}

impl ReadBatch {
    pub fn append(&mut self, mut other: Self) {
        self.later.append(&mut other.later);
        self.read.append(&mut other.read);
        self.stop = self.stop.take().or(other.stop);
    }
}

type ReadCopy = (ScrubCopy, Result<Option<ScrubOutcome>, CatalogError>);

impl ScrubberWorker {
    /// True for a copy that may take longer than a tick.
    pub(super) fn is_large(&self, copy: &ScrubCopy) -> bool {
        copy.size_bytes > self.settings.slice_bytes
    }

    /// Reads copies of one backend. Large ones are left for later.
    pub(super) async fn read_batch(&self, copies: Vec<ScrubCopy>, report: &mut Report) -> Result<ReadBatch, Error> {
        let mut batch = ReadBatch::default();
        let (large, small): (Vec<_>, Vec<_>) = copies.into_iter().partition(|copy| self.is_large(copy));
        batch.later.extend(large.iter().map(|copy| later(copy, Duration::ZERO, None)));
        report.count("later", large.len() as u64);
        let is_stopping = AtomicBool::new(false);
        let reads: Vec<_> = small.into_iter().map(|copy| self.boxed_read(copy, &is_stopping)).collect();
        let mut done = futures_util::stream::iter(reads).buffer_unordered(CONCURRENCY);
        let mut outcomes = Vec::new();
        while let Some((copy, outcome)) = done.next().await {
            let skipped = || ScrubOutcome::Unreadable("the scrubber stopped before".to_owned());
            outcomes.push((copy, outcome?.unwrap_or_else(skipped)));
        }
        drop(done);
        self.record(outcomes, &mut batch, report).await?;
        Ok(batch)
    }

    fn boxed_read<'a>(&'a self, copy: ScrubCopy, is_stopping: &'a AtomicBool) -> BoxFuture<'a, ReadCopy> {
        Box::pin(async move {
            if is_stopping.load(Ordering::Relaxed) {
                return (copy, Ok(None));
            }
            let mut read = CopyRead::new(copy.clone(), self.settings.slice_bytes);
            let until = Instant::now() + READ_TIME_MAX;
            let outcome = self.pace.write(self.engine.scrub_copy(&mut read, until)).await;
            if matches!(outcome, Ok(Some(ScrubOutcome::ReaderFault(_)))) {
                is_stopping.store(true, Ordering::Relaxed);
            }
            (copy, outcome)
        })
    }

    /// Records outcomes. Wrong digests come last: any of the others may accuse the reader.
    pub(super) async fn record(
        &self,
        outcomes: Vec<(ScrubCopy, ScrubOutcome)>,
        batch: &mut ReadBatch,
        report: &mut Report,
    ) -> Result<(), Error> {
        let mut wrong = Vec::new();
        for (copy, outcome) in outcomes {
            self.progress.with(|run| run.read += 1);
            match outcome {
                ScrubOutcome::Wrong(digest) => wrong.push((copy, digest)),
                ScrubOutcome::Right(sha256) => {
                    report.count("read", 1);
                    batch.read.push(copy.content);
                    if !copy.is_trusted {
                        self.catalog.prove_copy(&copy).await?;
                        report.count("proven", 1);
                    }
                    if let Some(sha256) = sha256 {
                        self.catalog.learn_sha256(copy.content, sha256).await?;
                    }
                }
                ScrubOutcome::Missing => {
                    report.count("missing", 1);
                    batch.read.push(copy.content);
                    self.replicator_wakeup.notify_one();
                }
                ScrubOutcome::Unreadable(why) => note_unread(&copy, why, batch, report),
                ScrubOutcome::ReaderFault(why) => {
                    batch.stop = Some(format!("{}: {why}", copy.location.backend));
                    note_unread(&copy, why, batch, report);
                }
            }
        }
        for (copy, digest) in wrong {
            self.accuse(&copy, &digest, batch, report).await?;
        }
        Ok(())
    }

    /// Records a wrong digest, unless the reader is accused.
    async fn accuse(
        &self,
        copy: &ScrubCopy,
        digest: &str,
        batch: &mut ReadBatch,
        report: &mut Report,
    ) -> Result<(), Error> {
        let (mismatches, read) = self.progress.with(|run| {
            run.mismatches += u64::from(!copy.has_wrong_digest);
            (run.mismatches, run.read)
        });
        if batch.stop.is_none() && accuses_too_many(mismatches, read) {
            batch.stop = Some(format!("{mismatches} of {read} copies had a wrong digest"));
        }
        if batch.stop.is_some() {
            note_unread(copy, "its digest is wrong, but the reader may be at fault".to_owned(), batch, report);
            return Ok(());
        }
        self.engine.forget_cached(copy.content);
        let accused = self.catalog.accuse_copy(copy).await?;
        batch.read.push(copy.content);
        let is_lost = match accused {
            Accused::Changed => return Ok(()),
            Accused::Suspect => false,
            Accused::Lost => true,
        };
        self.replicator_wakeup.notify_one();
        if copy.has_wrong_digest {
            report.count("still_wrong", 1);
            return Ok(());
        }
        report.count("mismatches", 1);
        report.count("lost", u64::from(is_lost));
        let Location { backend, physical_key } = &copy.location;
        tracing::error!(%backend, physical_key, content = %copy.content, is_lost, "copy has a wrong digest");
        let event = Event::new("scrub.mismatch").at(backend, physical_key, copy.size_bytes);
        let event = event.with("content", copy.content.to_string()).with("digest", digest.to_owned());
        report.events.push(event.with("lost", is_lost));
        Ok(())
    }
}

fn note_unread(copy: &ScrubCopy, why: String, batch: &mut ReadBatch, report: &mut Report) {
    report.count("unreadable", 1);
    let Location { backend, physical_key } = &copy.location;
    tracing::warn!(%backend, physical_key, reason = why, "copy not scrubbed, retrying later");
    batch.later.push(later(copy, RETRY.delay(copy.attempts.saturating_add(1), 1.0), Some(why)));
}
