//! Several processes on one catalog, each with a clock that the test advances.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use s3o_backend::usage::{BackendUsage, CatalogTime, UsageContext};
use s3o_backend::{Fleet, Memory};
use s3o_catalog::unit::{Answer, Row, Statement, Unit};
use s3o_catalog::{Catalog, Driver, DriverLayer, Error as CatalogError, Mode, Sqlite, SqliteOptions};
use s3o_model::clock::{ManualClock, Timestamp};
use s3o_model::entropy::SeededEntropy;
use s3o_model::ids::{IdSource, InstanceId};
use s3o_model::shared::Shared;
use s3o_model::usage::{Month, Permille, UsageLimits, UsagePolicy, UsagePurpose, UsageTotals};

use crate::usage::{UsageFlushSettings, UsageLedger, UsageLedgerParts};

/// An hour before 2026-12-01T00:00:00Z.
pub const NEARLY_DECEMBER: i64 = 1_796_079_600_000;
pub const INTERVAL: Duration = Duration::from_secs(30);

/// Counts the statements that reach the catalog.
pub struct Counting {
    driver: Sqlite,
    statements: AtomicUsize,
}

#[async_trait]
impl DriverLayer for Counting {
    fn inner(&self) -> &dyn Driver {
        &self.driver
    }

    async fn on_write(&self, unit: Unit) -> Result<Vec<Answer>, CatalogError> {
        self.statements.fetch_add(unit.statements.len(), Ordering::Relaxed);
        self.driver.write(unit).await
    }

    async fn on_read(&self, query: Statement) -> Result<Vec<Row>, CatalogError> {
        self.statements.fetch_add(1, Ordering::Relaxed);
        self.driver.read(query).await
    }
}

/// The catalog that all processes share.
pub struct Cluster {
    clock: Arc<ManualClock>,
    pub driver: Arc<Counting>,
    catalog: Arc<Catalog>,
    pub ids: IdSource,
    _folder: tempfile::TempDir,
}

/// One process with one backend.
pub struct Instance {
    pub ledger: UsageLedger,
    pub usage: Arc<BackendUsage>,
    clock: Arc<ManualClock>,
}

impl Cluster {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let clock = Arc::new(ManualClock::starting_at(Timestamp::from_millis(NEARLY_DECEMBER)));
        let path = folder.path().join("catalog.db");
        let driver =
            Sqlite::open(&SqliteOptions { path, mode: Mode::Inline, clock: clock.clone() }).expect("a catalog");
        let driver = Arc::new(Counting { driver, statements: AtomicUsize::new(0) });
        let ids = IdSource::new(clock.clone(), Arc::new(SeededEntropy::new(7)));
        Self { clock, catalog: Arc::new(Catalog::new(driver.clone())), driver, ids, _folder: folder }
    }

    /// A process whose wall clock differs from the catalog's.
    pub async fn process_with_clock(&self, request_limit: u64, wall: i64) -> Instance {
        let clock = Arc::new(ManualClock::starting_at(Timestamp::from_millis(wall)));
        let time = Arc::new(CatalogTime::new(clock.clone()));
        let name: s3o_model::names::BackendName = "b2".parse().expect("valid");
        let context = UsageContext { time: time.clone(), demand: Arc::default(), resume_delay: Duration::ZERO };
        let limits = UsageLimits::new(UsageTotals { requests: request_limit, ..UsageTotals::default() });
        let policy = UsagePolicy { limits, threshold: Permille(800) };
        let usage = Arc::new(BackendUsage::new(name.clone(), policy, context.clone()));
        let fleet = Fleet::new(vec![Arc::new(Memory::new(name))]).expect("one name").with_usage([usage.clone()]);
        let ledger = UsageLedger::new(UsageLedgerParts {
            catalog: self.catalog.clone(),
            fleet: Arc::new(fleet),
            time,
            instance: InstanceId::new(self.ids.fresh()),
            redis: None,
            settings: Shared::new(UsageFlushSettings { interval: INTERVAL, fast_interval: None }),
            demand: context.demand,
            flush_wakeup: Arc::default(),
        });
        ledger.start().await.expect("started");
        Instance { ledger, usage, clock }
    }

    pub async fn process(&self, request_limit: u64) -> Instance {
        self.process_with_clock(request_limit, NEARLY_DECEMBER).await
    }

    /// Advances the clocks of the catalog and of these processes.
    pub fn advance(&self, processes: &[&Instance], duration: Duration) {
        self.clock.advance(duration);
        for process in processes {
            process.clock.advance(duration);
        }
    }

    /// Recorded requests of a month.
    pub async fn recorded(&self, month: &str) -> u64 {
        let month: Month = month.parse().expect("valid");
        let reading = self.catalog.usage_of_month(month).await.expect("a query");
        reading.rows.iter().map(|row| row.usage.totals.requests).sum()
    }

    pub fn statements(&self) -> usize {
        self.driver.statements.swap(0, Ordering::Relaxed)
    }
}

impl Instance {
    /// Sends up to this many requests, as long as the limit permits them.
    pub fn send(&self, requests: u64) -> u64 {
        let mut sent = 0;
        while sent < requests && self.usage.reached(UsagePurpose::Read).is_none() {
            self.usage.count_request();
            sent += 1;
        }
        sent
    }

    pub async fn obtain_ceilings(&self) {
        if self.usage.is_demanded() {
            self.ledger.allot().await.expect("ceilings");
        }
    }

    pub async fn flush(&self) -> u64 {
        self.ledger.flush().await.expect("flushed")
    }

    pub fn shown(&self) -> u64 {
        self.ledger.views()[0].totals.requests
    }
}
