//! Obtains the ceilings of this process: totals up to which it may count on limited backends.

use std::sync::Arc;
use std::time::Duration;

use s3o_backend::usage::BackendUsage;
use s3o_catalog::{Error as CatalogError, UsageAllotment, Verdict};
use s3o_model::usage::{Allotment, UsageRecord, UsageTotals, allotted_ceilings};

use super::UsageLedger;
use crate::Error;

/// How often ceilings are computed again after another process stored some.
const ALLOT_ATTEMPTS_MAX: u32 = 5;

impl UsageLedger {
    /// True if a backend has a limit.
    pub(super) fn is_limited(&self) -> bool {
        self.limited().next().is_some()
    }

    pub(super) fn limited(&self) -> impl Iterator<Item = &Arc<BackendUsage>> {
        self.parts.fleet.usages().filter(|usage| usage.policy().limits.is_limited())
    }

    /// One statement: extends the leases if half of their time is over, or reads what the others have counted. A share
    /// that is much larger than that of the others is returned.
    pub(super) async fn renew_or_read(&self) -> Result<(), Error> {
        if self.lease_left() <= self.parts.settings.current().lease() / 2 {
            return self.renew().await;
        }
        let (month, reading) = self.read().await?;
        let is_excessive = |usage: &Arc<BackendUsage>| {
            let (limits, used) = (usage.policy().limits, usage.counters().totals());
            let fair = allotted_ceilings(&limits, &used, &self.others_in(&reading, usage), &usage.wanted());
            usage.allotment().is_some_and(|held| held.month == month && held.is_excessive(&used, &fair, &limits))
        };
        if self.limited().any(is_excessive) { self.allot_locked().await } else { Ok(()) }
    }

    /// Time until the first lease ends; zero without ceilings in the current month.
    pub(super) fn lease_left(&self) -> Duration {
        let (now, month) = (self.parts.time.since_boot(), self.parts.time.month());
        let left = |usage: &Arc<BackendUsage>| {
            let held = usage.allotment().filter(|held| held.month == month);
            held.map_or(Duration::ZERO, |held| held.ends.saturating_sub(now))
        };
        self.limited().map(left).min().unwrap_or(Duration::MAX)
    }

    async fn renew(&self) -> Result<(), Error> {
        let (month, asked) = (self.parts.time.month(), self.parts.time.since_boot());
        let lease = self.parts.settings.current().lease();
        let (held, owner) = (self.limited().count(), (month, self.parts.instance));
        match self.parts.catalog.extend_usage_leases(owner, held, lease).await {
            Ok(now) => {
                if let Some(now) = now {
                    self.parts.time.correct(now, asked);
                }
                self.limited().for_each(|usage| usage.extend_lease(asked + lease));
                Ok(())
            }
            Err(CatalogError::Guard(Verdict::Fenced)) => self.allot_locked().await,
            Err(error) => Err(error.into()),
        }
    }

    /// Records the totals of this process and obtains new ceilings.
    pub(super) async fn allot(&self) -> Result<(), Error> {
        let _state = self.state.lock().await;
        self.allot_locked().await
    }

    pub(super) async fn allot_locked(&self) -> Result<(), Error> {
        for _ in 1..ALLOT_ATTEMPTS_MAX {
            match self.try_allot().await {
                // Another process has stored ceilings since they were read.
                Err(Error::Catalog(CatalogError::Guard(Verdict::RunAgain))) => {}
                done => return done,
            }
        }
        self.try_allot().await
    }

    async fn try_allot(&self) -> Result<(), Error> {
        if self.parts.catalog.condition().is_damaged() {
            self.allot_unrecorded();
            return Ok(());
        }
        let asked = self.parts.time.since_boot();
        let (month, reading) = self.read().await?;
        let lease = self.parts.settings.current().lease();
        let mut ceilings = Vec::new();
        let mut allotments = Vec::new();
        for usage in self.limited() {
            let counters = usage.counters();
            if counters.month() != month {
                return Err(Error::Catalog(CatalogError::Guard(Verdict::RunAgain)));
            }
            let (limits, own, others) = (usage.policy().limits, counters.totals(), self.others_in(&reading, usage));
            let granted = allotted_ceilings(&limits, &own, &others, &usage.wanted());
            let (backend, instance) = (usage.backend().clone(), self.parts.instance);
            ceilings.push((UsageRecord { backend, month, instance, totals: own }, granted));
            let others = others.iter().filter(|other| other.is_live).count() as u64;
            let allotment = Allotment { month, since: own, ceilings: granted, ends: asked + lease, others };
            allotments.push((usage, limits, allotment));
        }
        let allotment = UsageAllotment { revision: reading.revision, lease, ceilings };
        let records = records_without(self.unrecorded(), &allotment);
        self.parts.catalog.allot_usage(&allotment, &records).await?;
        let own = allotment.ceilings.into_iter().map(|(own, _)| own);
        self.note_recorded(&own.chain(records).collect::<Vec<_>>());
        for (usage, limits, allotment) in allotments {
            // A reload may have changed the limits meanwhile, and has requested new ceilings.
            if usage.policy().limits == limits {
                usage.allot(allotment);
            }
        }
        Ok(())
    }

    /// A damaged catalog is read only: this process counts up to the whole limits.
    pub(super) fn allot_unrecorded(&self) {
        let ends = self.parts.time.since_boot() + self.parts.settings.current().lease();
        for usage in self.limited() {
            let (counters, limits) = (usage.counters(), usage.policy().limits);
            let ceilings = UsageTotals::each(|kind| limits.of(kind).unwrap_or(u64::MAX));
            usage.allot(Allotment { month: counters.month(), since: counters.totals(), ceilings, ends, others: 0 });
        }
    }
}

/// Records that the allotment does not contain: a statement must not insert a row twice.
fn records_without(mut records: Vec<UsageRecord>, allotment: &UsageAllotment) -> Vec<UsageRecord> {
    let is_contained = |record: &UsageRecord| {
        allotment.ceilings.iter().any(|(own, _)| own.backend == record.backend && own.month == record.month)
    };
    records.retain(|record| !is_contained(record));
    records
}
