//! Statements that passes of reconcile send to the catalog.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use s3o_catalog::unit::{Answer, Row, Statement, Unit};
use s3o_catalog::{Driver, DriverLayer, Error as CatalogError};
use s3o_tests::environment::{Environment, ON_REQUEST};
use s3o_tests::harness::Harness;
use s3o_workers::ReconcileSettings;

use crate::reconcile::{HOUR, hourly, pass, ticks};

/// Counts the statements of reads and units.
struct CountingCatalog(Arc<dyn Driver>, Arc<AtomicUsize>);

#[async_trait]
impl DriverLayer for CountingCatalog {
    fn inner(&self) -> &dyn Driver {
        self.0.as_ref()
    }

    async fn on_read(&self, query: Statement) -> Result<Vec<Row>, CatalogError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.read(query).await
    }

    async fn on_write(&self, unit: Unit) -> Result<Vec<Answer>, CatalogError> {
        self.1.fetch_add(unit.statements.len(), Ordering::Relaxed);
        self.0.write(unit).await
    }
}

/// The statements of a pass over this number of foreign objects, beside one object of s3o's.
async fn statements_of_a_pass(foreign: usize) -> usize {
    let environment = Arc::new(Environment::new(u64::MAX).with_settings(hourly()));
    let statements = Arc::new(AtomicUsize::new(0));
    let harness = Harness::builder(&environment)
        .catalog_layer(|inner| Arc::new(CountingCatalog(inner, statements.clone())))
        .start_with_bucket()
        .await;
    harness.store("a", b"five!").await.expect("stored");
    for number in 0..foreign {
        harness.memory.plant(&format!("theirs/{number:05}"), Bytes::new());
    }
    pass(&harness).await;
    harness.clock.advance(HOUR);
    statements.store(0, Ordering::Relaxed);
    ticks(&harness).await;
    statements.load(Ordering::Relaxed)
}

#[tokio::test]
async fn a_page_of_keys_costs_three_statements() {
    let (few, many) = (statements_of_a_pass(2_000).await, statements_of_a_pass(6_000).await);
    assert!(many - few <= 3 * 4, "{few} statements for 2 pages, {many} for 6");
}

#[tokio::test]
async fn idle_tick_is_one_statement() {
    let environment = Arc::new(Environment::new(u64::MAX));
    let statements = Arc::new(AtomicUsize::new(0));
    let harness = Harness::builder(&environment)
        .catalog_layer(|inner| Arc::new(CountingCatalog(inner, statements.clone())))
        .start_with_bucket()
        .await;
    for settings in [ON_REQUEST, ReconcileSettings { enabled: true, ..ON_REQUEST }] {
        harness.process.set_reconcile(settings);
        ticks(&harness).await;
        statements.store(0, Ordering::Relaxed);
        ticks(&harness).await;
        assert_eq!(statements.load(Ordering::Relaxed), 1, "enabled: {}", settings.enabled);
    }
}
