//! Compares what the catalog says twice: books with the rows they sum up, counts with the rows that
//! refer. What differs is put right and told.
//!
//! Books first, in one statement; then the counts, one page of contents a tick, from where the last
//! tick ended. Content that nothing refers to is found twice before its bytes go: the audit that
//! finds its count wrong only puts the count right, a later one finds count and rows agree.
//!
//! Indexes show which counts are suspect. Before one is repaired, the tables themselves are read, once for all suspects
//! of an audit: an index that is damaged shows fewer rows than there are. Many suspects at once are a sign of damage,
//! and none of them is repaired.

mod drift;

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use s3o_catalog::{Audits, Booked, CondemnedPlace, Integrity, Recounted};
use s3o_model::ids::ContentId;
use tokio::sync::Notify;

use crate::{Error, Event, Report, Worker};

pub use drift::DriftGauge;

/// How many contents one tick looks at.
const PAGE: usize = 5000;
/// With more suspects than this, an audit repairs none of them.
const SUSPECTS_MAX: usize = 1000;

/// Compares books and counts with their rows.
pub struct QuotaAudit {
    audits: Arc<dyn Audits>,
    drift: DriftGauge,
    cleanup_bell: Arc<Notify>,
    progress: Mutex<Progress>,
    page: usize,
    suspects_max: usize,
}

/// Where an audit of counts stands.
#[derive(Debug, Clone, Default)]
struct Progress {
    /// The last content that was looked at, while an audit is under way.
    cursor: Option<ContentId>,
    /// Contents whose count differs from the rows, or that nothing refers to.
    suspects: Vec<ContentId>,
}

#[async_trait]
impl Worker for QuotaAudit {
    fn name(&self) -> &'static str {
        "quota_audit"
    }

    async fn tick(&self, report: &mut Report) -> Result<(), Error> {
        let mut progress = self.progress.lock().clone();
        if progress.cursor.is_none() {
            progress.suspects.clear();
            self.audit_books(report).await?;
        }
        let page = self.audits.audit_counts(progress.cursor, self.page).await?;
        progress.suspects.extend(page.miscounted.into_iter().chain(page.unreferenced));
        progress.cursor = page.last.filter(|_| page.seen >= self.page as u64);
        report.more = progress.cursor.is_some();
        let suspects = if report.more { Vec::new() } else { std::mem::take(&mut progress.suspects) };
        *self.progress.lock() = progress;
        if report.more { Ok(()) } else { self.judge(&suspects, report).await }
    }
}

impl QuotaAudit {
    /// An audit whose findings are shown by that gauge; the bell is rung when bytes are to go.
    #[must_use]
    pub fn new(audits: Arc<dyn Audits>, drift: DriftGauge, cleanup_bell: Arc<Notify>) -> Self {
        Self { audits, drift, cleanup_bell, progress: Mutex::default(), page: PAGE, suspects_max: SUSPECTS_MAX }
    }

    async fn audit_books(&self, report: &mut Report) -> Result<(), Error> {
        let books = self.audits.audit_books().await?;
        self.drift.show(&books);
        for booked in books.iter().filter(|booked| booked.drift_bytes() > 0) {
            if self.audits.repair_books(booked).await? {
                tell_repair(booked, report);
            } else {
                report.count("unrepaired", 1);
                tracing::warn!(backend = %booked.backend, stripe = booked.stripe, "drift in the books not repaired");
            }
        }
        Ok(())
    }

    /// What follows from the suspects of a whole audit.
    async fn judge(&self, suspects: &[ContentId], report: &mut Report) -> Result<(), Error> {
        let many = suspects.len() > self.suspects_max;
        self.audits.note_suspects(if many { suspects.len() as u64 } else { 0 }).await?;
        if many {
            report.count("suspects", suspects.len() as u64);
            tracing::error!(
                suspects = suspects.len(),
                "too many reference counts differ from the rows: none is repaired"
            );
            return Ok(());
        }
        match self.audits.integrity() {
            Integrity::Sound if !suspects.is_empty() => self.repair(suspects, report).await,
            Integrity::Sound => Ok(()),
            Integrity::Checking | Integrity::Doubtful(_) | Integrity::Damaged(_) => {
                report.count("unconfirmed", suspects.len() as u64);
                Ok(())
            }
        }
    }

    async fn repair(&self, suspects: &[ContentId], report: &mut Report) -> Result<(), Error> {
        let confirmed = self.audits.confirm_suspects(suspects).await?;
        let (miscounted, agreed): (Vec<_>, Vec<_>) =
            confirmed.into_iter().partition(|suspect| suspect.counted != suspect.found);
        for recounted in self.audits.recount(&miscounted).await? {
            tell_recount(recounted, report);
        }
        let condemned = self.audits.condemn_unreferenced(&agreed).await?;
        if !condemned.is_empty() {
            self.cleanup_bell.notify_one();
        }
        for content in &condemned {
            tell_condemned(content, report);
        }
        Ok(())
    }
}

fn repaired(counter: &'static str) -> Event {
    Event::new("quota_audit.repaired").with("counter", counter)
}

fn tell_repair(booked: &Booked, report: &mut Report) {
    for (counter, (from, to)) in booked.counters() {
        if from == to {
            continue;
        }
        report.count_at("repaired", &booked.backend);
        let event = repaired(counter).with("backend", booked.backend.to_string()).with("stripe", booked.stripe);
        report.events.push(event.with("from", from).with("to", to).with("delta", to - from));
    }
}

fn tell_recount(found: Recounted, report: &mut Report) {
    let Recounted { content, from, to } = found;
    report.count("recounted", 1);
    let event = repaired("ref_count").with("content", content.to_string());
    report.events.push(event.with("from", from).with("to", to).with("delta", to - from));
}

fn tell_condemned(condemned: &CondemnedPlace, report: &mut Report) {
    report.count("condemned", 1);
    let event = repaired("content").with("content", condemned.content.to_string());
    let event = event.with("from", "live").with("to", "condemned");
    report.events.push(match &condemned.place {
        Some((backend, physical_key, size_bytes)) => event.at(backend, physical_key, *size_bytes),
        None => event,
    });
}

#[cfg(test)]
mod tests;
