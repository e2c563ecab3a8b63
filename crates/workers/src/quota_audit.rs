//! Compares redundant data in the catalog: quota counters with the rows that they sum up, reference
//! counts with the rows that refer. It repairs and audits every difference.
//!
//! An audit also lowers the factor of contents that no bucket with that factor refers to any more. Deletes do not: they
//! would have to read all other references.
//!
//! Quota counters come first, in one statement; then the reference counts, one page of contents per tick,
//! starting where the last tick ended. Unreferenced content must be found twice before its bytes are
//! deleted: the first audit only corrects the count, a later one condemns the content.
//!
//! Indexes show which counts are suspect. Before a repair, the audit reads the tables themselves, once for all
//! suspects: a damaged index shows fewer rows than there are. Many suspects at once indicate damage, and none of
//! them is repaired.

mod drift;

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use s3o_catalog::{AuditedStripe, Catalog, CondemnedPlace, Integrity, Recounted};
use s3o_model::ids::ContentId;
use tokio::sync::Notify;

use crate::{Error, Event, Report, Worker};

pub use drift::DriftGauge;

/// Number of contents in one tick.
const PAGE: usize = 5000;
/// With more suspects than this, an audit repairs none of them.
const SUSPECTS_MAX: usize = 1000;

/// Compares counters with their rows and repairs them; an audit takes one or more ticks.
pub struct QuotaAuditWorker {
    audits: Arc<Catalog>,
    drift: DriftGauge,
    cleanup_wakeup: Arc<Notify>,
    progress: Mutex<AuditProgress>,
    page: usize,
    suspects_max: usize,
}

/// Progress of an audit of reference counts.
#[derive(Debug, Clone, Default)]
struct AuditProgress {
    /// The last checked content; `None` between audits.
    cursor: Option<ContentId>,
    /// Contents whose count differs from the rows, or that no row refers to.
    suspects: Vec<ContentId>,
}

#[async_trait]
impl Worker for QuotaAuditWorker {
    fn name(&self) -> &'static str {
        "quota_audit"
    }

    async fn tick(&self, report: &mut Report) -> Result<(), Error> {
        let mut progress = self.progress.lock().clone();
        if progress.cursor.is_none() {
            progress.suspects.clear();
            self.audit_quotas(report).await?;
        }
        let page = self.audits.audit_counts(progress.cursor, self.page).await?;
        if let Some(last) = page.last {
            report.count("lowered", self.audits.lower_factors(progress.cursor, last).await?);
        }
        progress.suspects.extend(page.miscounted.into_iter().chain(page.unreferenced));
        progress.cursor = page.last.filter(|_| page.seen >= self.page as u64);
        report.more = progress.cursor.is_some();
        let suspects = if report.more { Vec::new() } else { std::mem::take(&mut progress.suspects) };
        *self.progress.lock() = progress;
        if report.more { Ok(()) } else { self.judge(&suspects, report).await }
    }
}

impl QuotaAuditWorker {
    /// An audit that shows the drift in `drift` and notifies `cleanup_wakeup` when it condemned content.
    #[must_use]
    pub fn new(audits: Arc<Catalog>, drift: DriftGauge, cleanup_wakeup: Arc<Notify>) -> Self {
        Self { audits, drift, cleanup_wakeup, progress: Mutex::default(), page: PAGE, suspects_max: SUSPECTS_MAX }
    }

    async fn audit_quotas(&self, report: &mut Report) -> Result<(), Error> {
        let quotas = self.audits.audit_quotas().await?;
        self.drift.show(&quotas);
        for booked in quotas.iter().filter(|booked| booked.drift_bytes() > 0) {
            if self.audits.repair_quotas(booked).await? {
                report_repair(booked, report);
            } else {
                report.count("unrepaired", 1);
                tracing::warn!(
                    backend = %booked.backend,
                    stripe = booked.stripe,
                    "quota drift not repaired, another instance repaired these counters"
                );
            }
        }
        Ok(())
    }

    /// Handles the suspects of a complete audit.
    async fn judge(&self, suspects: &[ContentId], report: &mut Report) -> Result<(), Error> {
        let many = suspects.len() > self.suspects_max;
        self.audits.note_suspects(if many { suspects.len() as u64 } else { 0 }).await?;
        if many {
            report.count("suspects", suspects.len() as u64);
            tracing::error!(
                suspects = suspects.len(),
                "too many wrong reference counts, none repaired, run s3o verify"
            );
            return Ok(());
        }
        match self.audits.condition().integrity() {
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
            report_recount(recounted, report);
        }
        let condemned = self.audits.condemn_unreferenced(&agreed).await?;
        if !condemned.is_empty() {
            self.cleanup_wakeup.notify_one();
        }
        for content in &condemned {
            report_condemned(content, report);
        }
        Ok(())
    }
}

fn repaired(counter: &'static str) -> Event {
    Event::new("quota_audit.repaired").with("counter", counter)
}

fn report_repair(booked: &AuditedStripe, report: &mut Report) {
    for (counter, (from, to)) in booked.counters() {
        if from == to {
            continue;
        }
        report.count_at("repaired", &booked.backend);
        let event = repaired(counter).with("backend", booked.backend.to_string()).with("stripe", booked.stripe);
        report.events.push(event.with("from", from).with("to", to).with("delta", to - from));
    }
}

fn report_recount(found: Recounted, report: &mut Report) {
    let Recounted { content, from, to } = found;
    report.count("recounted", 1);
    let event = repaired("ref_count").with("content", content.to_string());
    report.events.push(event.with("from", from).with("to", to).with("delta", to - from));
}

fn report_condemned(condemned: &CondemnedPlace, report: &mut Report) {
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
