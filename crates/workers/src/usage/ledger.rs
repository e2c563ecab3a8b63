//! Records usage in the catalog and exchanges it through Redis.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::Mutex as Lock;
use s3o_backend::Fleet;
use s3o_backend::usage::{BackendUsage, CatalogTime, MonthCounters};
use s3o_cache::RedisUsage;
use s3o_catalog::{Catalog, MonthReading};
use s3o_model::clock::millis_of;
use s3o_model::ids::InstanceId;
use s3o_model::names::BackendName;
use s3o_model::shared::Shared;
use s3o_model::usage::{Month, ProcessUsage, UsageLimits, UsageRecord, UsageTotals};
use tokio::sync::{Mutex, Notify};

use super::known::{KnownUsage, records_of};
use crate::Error;

/// Months before the current one whose rows are kept, one folded row for each backend.
const MONTHS_KEPT: i32 = 24;
/// With an older exchange, Redis is unavailable.
const EXCHANGE_AGE_MAX: Duration = Duration::from_secs(3);
/// A lease lasts this many intervals, within the bounds below.
const LEASE_INTERVALS: u32 = 4;
const LEASE_MIN: Duration = Duration::from_mins(1);
const LEASE_MAX: Duration = Duration::from_mins(10);

/// Settings of the flush; a reload replaces them.
#[derive(Debug, Clone, Copy)]
pub struct UsageFlushSettings {
    /// Time between two flushes.
    pub interval: Duration,
    /// Interval while a backend is near a limit; `None` if the interval does not adapt.
    pub fast_interval: Option<Duration>,
}

impl UsageFlushSettings {
    /// How long the ceilings of this process hold without renewal.
    pub(super) fn lease(&self) -> Duration {
        self.interval.saturating_mul(LEASE_INTERVALS).clamp(LEASE_MIN, LEASE_MAX)
    }
}

/// Constructor arguments of [`UsageLedger`].
pub struct UsageLedgerParts {
    /// Stores totals and ceilings.
    pub catalog: Arc<Catalog>,
    /// The counted backends.
    pub fleet: Arc<Fleet>,
    /// Corrected by the answers of the catalog.
    pub time: Arc<CatalogTime>,
    /// Owner of the totals of this process.
    pub instance: InstanceId,
    /// Shares totals between flushes, if configured.
    pub redis: Option<RedisUsage>,
    /// Initial settings.
    pub settings: Shared<UsageFlushSettings>,
    /// Notified when a backend needs new ceilings.
    pub demand: Arc<Notify>,
    /// Wakes `usage_flush` before its interval ends.
    pub flush_wakeup: Arc<Notify>,
}

/// Usage of a backend in the current month, as operators see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendUsageView {
    /// The counted backend.
    pub backend: BackendName,
    /// By the catalog's clock.
    pub month: Month,
    /// Totals of all processes, as far as this one knows.
    pub totals: UsageTotals,
    /// As configured.
    pub limits: UsageLimits,
}

/// Usage of all backends.
pub struct UsageLedger {
    pub(super) parts: UsageLedgerParts,
    /// Held while the catalog is written: ceilings are obtained by one caller at a time.
    pub(super) state: Mutex<LedgerState>,
    pub(super) known: Lock<KnownUsage>,
    /// Time since boot of the last exchange through Redis.
    exchanged_at_ms: AtomicI64,
}

#[derive(Debug, Default)]
pub(super) struct LedgerState {
    /// The month since which earlier ones are folded.
    folded: Option<Month>,
}

impl UsageLedger {
    /// A ledger that knows nothing yet; see [`UsageLedger::start`].
    #[must_use]
    pub fn new(parts: UsageLedgerParts) -> Self {
        Self { parts, state: Mutex::default(), known: Lock::default(), exchanged_at_ms: AtomicI64::new(i64::MIN / 2) }
    }

    /// Reads the catalog's clock and registers this process, before it sends anything to a backend.
    pub async fn start(&self) -> Result<(), Error> {
        let month = self.parts.time.month();
        self.read().await?;
        // The wall clock of this machine may have been in another month.
        if self.parts.time.month() != month {
            self.read().await?;
        }
        if self.is_limited() {
            self.allot().await?;
        }
        Ok(())
    }

    /// Reads the current month from the catalog. Returns the month with the reading.
    pub(super) async fn read(&self) -> Result<(Month, MonthReading), Error> {
        let (month, asked) = (self.parts.time.month(), self.parts.time.since_boot());
        let reading = self.parts.catalog.usage_of_month(month).await?;
        self.parts.time.correct(reading.now, asked);
        let mut known = self.known.lock();
        known.add_recorded(&records_of(&reading, month));
        known.forget_before(month.plus(-1));
        drop(known);
        self.set_others();
        Ok((month, reading))
    }

    /// Passes the totals of the other processes to the backends.
    fn set_others(&self) {
        let (month, known) = (self.parts.time.month(), self.known.lock());
        for usage in self.parts.fleet.usages() {
            usage.set_others(month, known.others(month, usage.backend(), self.parts.instance));
        }
    }

    /// Totals of this process that the catalog has not recorded. Months before the last one are folded, and are not
    /// recorded any more.
    pub(super) fn unrecorded(&self) -> Vec<UsageRecord> {
        let (known, mut records) = (self.known.lock(), self.own_records());
        records.retain(|record| !known.is_recorded(record));
        records
    }

    /// Totals of this process in the current and the last month.
    pub(super) fn own_records(&self) -> Vec<UsageRecord> {
        let first = self.parts.time.month().plus(-1);
        let counters = self
            .parts
            .fleet
            .usages()
            .flat_map(|usage| usage.all_counters().into_iter().map(|counters| (usage.backend().clone(), counters)));
        let record = |(backend, counters): (BackendName, Arc<MonthCounters>)| UsageRecord {
            backend,
            month: counters.month(),
            instance: self.parts.instance,
            totals: counters.totals(),
        };
        counters.map(record).filter(|record| record.month >= first).collect()
    }

    /// Records these totals, if there are any.
    async fn record(&self, records: &[UsageRecord]) -> Result<(), Error> {
        let asked = self.parts.time.since_boot();
        if let Some(now) = self.parts.catalog.record_usage(records).await? {
            self.parts.time.correct(now, asked);
        }
        self.note_recorded(records);
        Ok(())
    }

    /// Remembers what the catalog has recorded.
    pub(super) fn note_recorded(&self, records: &[UsageRecord]) {
        self.known.lock().add_recorded(records);
    }

    /// One flush; returns the number of imported rows. While nothing changes it runs at most one statement.
    pub(super) async fn flush(&self) -> Result<u64, Error> {
        let mut state = self.state.lock().await;
        if self.parts.catalog.condition().is_damaged() {
            self.allot_unrecorded();
            return Ok(0);
        }
        let month = self.parts.time.month();
        if state.folded != Some(month) {
            self.parts.catalog.fold_usage(month.plus(-1), month.plus(-MONTHS_KEPT)).await?;
            state.folded = Some(month);
        }
        let imported = self.import().await?;
        self.flush_own().await?;
        Ok(imported)
    }

    /// Records the totals of this process only. Instances that do not hold the lock of `usage_flush` call it.
    pub(super) async fn flush_unlocked(&self) -> Result<(), Error> {
        let _state = self.state.lock().await;
        self.flush_own().await
    }

    async fn flush_own(&self) -> Result<(), Error> {
        let own = self.unrecorded();
        if !self.is_limited() {
            self.record(&own).await
        } else if own.is_empty() {
            self.renew_or_read().await
        } else {
            self.allot_locked().await
        }
    }

    /// Records totals that were read from Redis; returns their number.
    async fn import(&self) -> Result<u64, Error> {
        // Months before the last one are folded.
        let (own, first) = (self.parts.instance, self.parts.time.month().plus(-1));
        let mut records = self.known.lock().unrecorded();
        records.retain(|record| record.instance != own && record.month >= first);
        self.record(&records).await?;
        Ok(records.len() as u64)
    }

    /// True if totals were exchanged through Redis recently.
    pub(super) fn is_exchanging(&self) -> bool {
        let age = millis_of(self.parts.time.since_boot()) - self.exchanged_at_ms.load(Ordering::Relaxed);
        age <= millis_of(EXCHANGE_AGE_MAX)
    }

    /// The other processes that count on a backend, with what Redis knows of them.
    pub(super) fn others_in(&self, reading: &MonthReading, usage: &BackendUsage) -> Vec<ProcessUsage> {
        let (month, known) = (self.parts.time.month(), self.known.lock());
        let others =
            reading.rows.iter().filter(|row| row.backend == *usage.backend() && row.instance != self.parts.instance);
        others
            .map(|row| ProcessUsage { totals: known.merged(month, &row.backend, row.instance), ..row.usage })
            .collect()
    }

    /// Exchanges totals with the other processes through Redis.
    pub(super) async fn exchange(&self, redis: &RedisUsage) {
        let month = self.parts.time.month();
        match redis.exchange(&self.own_records(), &[month.plus(-1), month]).await {
            Ok(records) => {
                self.known.lock().add_shared(&records);
                self.exchanged_at_ms.store(millis_of(self.parts.time.since_boot()), Ordering::Relaxed);
                self.set_others();
            }
            Err(error) => tracing::debug!(%error, "cannot exchange usage through redis"),
        }
    }

    /// Reads the catalog again, and returns the usage of every counted backend.
    pub async fn refreshed(&self) -> Result<Vec<BackendUsageView>, Error> {
        self.read().await?;
        Ok(self.views())
    }

    /// Usage of every counted backend as last read.
    #[must_use]
    pub fn views(&self) -> Vec<BackendUsageView> {
        let view = |usage: &Arc<BackendUsage>| {
            let counters = usage.counters();
            BackendUsageView {
                backend: usage.backend().clone(),
                month: counters.month(),
                totals: usage.cluster_totals(&counters),
                limits: usage.policy().limits,
            }
        };
        self.parts.fleet.usages().map(view).collect()
    }

    /// Records the last totals at a shutdown, and returns the shares of this process.
    pub async fn end(&self) -> Result<(), Error> {
        let _state = self.state.lock().await;
        let (month, records) = (self.parts.time.month(), self.unrecorded());
        self.parts.catalog.end_usage(month, self.parts.instance, &records).await?;
        self.note_recorded(&records);
        Ok(())
    }
}
