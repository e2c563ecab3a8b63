//! What this process knows of the totals of all processes, from the catalog and from Redis.

use std::collections::HashMap;

use s3o_catalog::MonthReading;
use s3o_model::ids::InstanceId;
use s3o_model::names::BackendName;
use s3o_model::usage::{Month, UsageRecord, UsageTotals};

/// Totals of one process, backend and month.
#[derive(Debug, Clone, Copy, Default)]
struct KnownTotals {
    /// As recorded in the catalog.
    recorded: UsageTotals,
    /// The larger of catalog and Redis.
    merged: UsageTotals,
}

/// Totals of all processes that were ever read. They are kept in memory, so that a Redis that was emptied takes nothing
/// away.
#[derive(Debug, Default)]
pub(super) struct KnownUsage(HashMap<(Month, BackendName, InstanceId), KnownTotals>);

impl KnownUsage {
    fn grown(&mut self, record: &UsageRecord) -> &mut KnownTotals {
        let known = self.0.entry((record.month, record.backend.clone(), record.instance)).or_default();
        known.merged = known.merged.merged(&record.totals);
        known
    }

    /// Adds what the catalog has recorded.
    pub(super) fn add_recorded(&mut self, records: &[UsageRecord]) {
        for record in records {
            let known = self.grown(record);
            known.recorded = known.recorded.merged(&record.totals);
        }
    }

    /// Adds what was read from Redis.
    pub(super) fn add_shared(&mut self, records: &[UsageRecord]) {
        for record in records {
            self.grown(record);
        }
    }

    /// Forgets months before this one.
    pub(super) fn forget_before(&mut self, month: Month) {
        self.0.retain(|(kept, _, _), _| *kept >= month);
    }

    /// True if the catalog has recorded these totals.
    pub(super) fn is_recorded(&self, record: &UsageRecord) -> bool {
        let known = self.0.get(&(record.month, record.backend.clone(), record.instance));
        !record.totals.exceeds(&known.copied().unwrap_or_default().recorded)
    }

    /// Totals that the catalog has not recorded. Their process may have ended, and Redis may lose them.
    pub(super) fn unrecorded(&self) -> Vec<UsageRecord> {
        let all = self.0.iter().filter(|(_, known)| known.merged.exceeds(&known.recorded));
        let record = |((month, backend, instance), known): (&(Month, BackendName, InstanceId), &KnownTotals)| {
            UsageRecord { backend: backend.clone(), month: *month, instance: *instance, totals: known.merged }
        };
        all.map(record).collect()
    }

    /// Totals of all processes but this one.
    pub(super) fn others(&self, month: Month, backend: &BackendName, own: InstanceId) -> UsageTotals {
        let of_others = self
            .0
            .iter()
            .filter(|((counted, name, instance), _)| *counted == month && name == backend && *instance != own);
        of_others.fold(UsageTotals::default(), |sum, (_, known)| sum.plus(&known.merged))
    }

    /// The larger of catalog and Redis for one process.
    pub(super) fn merged(&self, month: Month, backend: &BackendName, instance: InstanceId) -> UsageTotals {
        let known = self.0.get(&(month, backend.clone(), instance));
        known.copied().unwrap_or_default().merged
    }
}

/// The totals of a reading.
pub(super) fn records_of(reading: &MonthReading, month: Month) -> Vec<UsageRecord> {
    let record = |row: &s3o_catalog::ProcessRow| UsageRecord {
        backend: row.backend.clone(),
        month,
        instance: row.instance,
        totals: row.usage.totals,
    };
    reading.rows.iter().map(record).collect()
}

#[cfg(test)]
mod tests {
    use super::KnownUsage;
    use s3o_model::entropy::SeededEntropy;
    use s3o_model::ids::{IdSource, InstanceId};
    use s3o_model::usage::{Month, UsageRecord, UsageTotals};
    use std::sync::Arc;

    fn record(instance: InstanceId, requests: u64) -> UsageRecord {
        let totals = UsageTotals { requests, ..UsageTotals::default() };
        UsageRecord { backend: "b".parse().expect("valid"), month: month(), instance, totals }
    }

    fn month() -> Month {
        "2026-11".parse().expect("valid")
    }

    fn instances() -> [InstanceId; 2] {
        let ids = IdSource::new(Arc::new(s3o_model::clock::SystemClock), Arc::new(SeededEntropy::new(1)));
        [InstanceId::new(ids.fresh()), InstanceId::new(ids.fresh())]
    }

    #[test]
    fn emptied_redis_takes_nothing_away() {
        let ([own, other], mut known) = (instances(), KnownUsage::default());
        known.add_shared(&[record(other, 7)]);
        known.add_shared(&[]);
        known.add_recorded(&[record(other, 5)]);
        assert_eq!(known.others(month(), &"b".parse().expect("valid"), own).requests, 7);
        assert!(known.is_recorded(&record(other, 5)) && !known.is_recorded(&record(other, 6)));
    }

    #[test]
    fn totals_that_only_redis_knows_are_unrecorded() {
        let ([_, ended], mut known) = (instances(), KnownUsage::default());
        known.add_recorded(&[record(ended, 5)]);
        known.add_shared(&[record(ended, 7)]);
        assert_eq!(known.unrecorded(), [record(ended, 7)]);
        known.add_recorded(&[record(ended, 7)]);
        assert_eq!(known.unrecorded(), []);
        known.forget_before(month().plus(1));
        assert!(known.0.is_empty());
    }
}
