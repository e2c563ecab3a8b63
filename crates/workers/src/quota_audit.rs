//! Compares what the catalog says twice: books with the rows they sum up, counts with the rows that
//! refer. What differs is put right and told.
//!
//! Books first, in one statement; then the counts, one page of contents a tick, from where the last
//! tick ended. Content that nothing refers to is found twice before its bytes go: the audit that
//! finds its count wrong only puts the count right, a later one finds count and rows agree.

mod drift;

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use s3o_catalog::{Audits, Booked, CondemnedPlace, Recounted};
use s3o_model::ids::ContentId;
use tokio::sync::Notify;

use crate::{Error, Event, Report, Worker};

pub use drift::DriftGauge;

/// How many contents one tick looks at.
const PAGE: usize = 5000;
/// How many of them are put right at a time.
const UNIT_ITEMS_MAX: usize = 1000;

/// Compares books and counts with their rows.
pub struct QuotaAudit {
    audits: Arc<dyn Audits>,
    drift: DriftGauge,
    cleanup_bell: Arc<Notify>,
    /// The last content that was looked at, while an audit is under way.
    cursor: Mutex<Option<ContentId>>,
    page: usize,
}

#[async_trait]
impl Worker for QuotaAudit {
    fn name(&self) -> &'static str {
        "quota_audit"
    }

    async fn tick(&self, report: &mut Report) -> Result<(), Error> {
        let after = *self.cursor.lock().unwrap_or_else(PoisonError::into_inner);
        if after.is_none() {
            self.audit_books(report).await?;
        }
        let last = self.audit_counts(after, report).await?;
        report.more = last.is_some();
        *self.cursor.lock().unwrap_or_else(PoisonError::into_inner) = last;
        Ok(())
    }
}

impl QuotaAudit {
    /// An audit whose findings are shown by that gauge; the bell is rung when bytes are to go.
    #[must_use]
    pub fn new(audits: Arc<dyn Audits>, drift: DriftGauge, cleanup_bell: Arc<Notify>) -> Self {
        Self { audits, drift, cleanup_bell, cursor: Mutex::default(), page: PAGE }
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

    /// One page of counts; where the next one begins, if there is one.
    async fn audit_counts(&self, after: Option<ContentId>, report: &mut Report) -> Result<Option<ContentId>, Error> {
        let page = self.audits.audit_counts(after, self.page).await?;
        for miscounted in page.miscounted.chunks(UNIT_ITEMS_MAX) {
            for recounted in self.audits.recount(miscounted).await? {
                tell_recount(recounted, report);
            }
        }
        for unreferenced in page.unreferenced.chunks(UNIT_ITEMS_MAX) {
            for condemned in self.audits.condemn_unreferenced(unreferenced).await? {
                tell_condemned(&condemned, report);
            }
            self.cleanup_bell.notify_one();
        }
        Ok(page.last.filter(|_| page.seen >= self.page as u64))
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
