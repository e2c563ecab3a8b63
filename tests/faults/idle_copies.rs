//! Ticks of the workers of copies without work, on SQLite: each sends at most one query, and calls no backend.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use s3o_catalog::unit::{Answer, Row, Statement, Unit};
use s3o_catalog::{Driver, DriverLayer, Error};
use s3o_tests::environment::Environment;
use s3o_tests::harness::Harness;
use s3o_workers::Report;

const OBJECTS: usize = 50;
/// Ticks of each worker.
const TICKS: usize = 5;

/// The SQL of all queries and units, in order.
type StatementLog = Arc<Mutex<Vec<String>>>;

struct LoggedStatements {
    inner: Arc<dyn Driver>,
    log: StatementLog,
}

#[async_trait]
impl DriverLayer for LoggedStatements {
    fn inner(&self) -> &dyn Driver {
        self.inner.as_ref()
    }

    async fn on_write(&self, unit: Unit) -> Result<Vec<Answer>, Error> {
        self.log.lock().extend(unit.statements.iter().map(|statement| format!("{}: {}", unit.name, statement.sql)));
        self.inner.write(unit).await
    }

    async fn on_read(&self, query: Statement) -> Result<Vec<Row>, Error> {
        self.log.lock().push(query.sql.to_owned());
        self.inner.read(query).await
    }
}

async fn settled(log: &StatementLog) -> Harness {
    let environment = Arc::new(Environment::new(1 << 20).with_copies(2, 1 << 20));
    let logged = |inner: Arc<dyn Driver>| Arc::new(LoggedStatements { inner, log: Arc::clone(log) }) as Arc<dyn Driver>;
    let harness = Harness::builder(&environment).catalog_layer(logged).start_with_bucket().await;
    for number in 0..OBJECTS {
        harness.store(&number.to_string(), b"a body").await.expect("stored");
    }
    harness.settle().await;
    harness
}

fn backend_calls(harness: &Harness) -> u64 {
    harness.environment.backends.iter().map(|backend| backend.flaky.calls()).sum()
}

#[tokio::test]
async fn idle_workers_of_copies_read_one_row_and_call_no_backend() {
    let log = StatementLog::default();
    let harness = settled(&log).await;
    let calls = backend_calls(&harness);
    for name in ["replicator", "over_replication", "drain", "rebalancer", "usage_flush"] {
        let worker = harness.process.worker(name);
        worker.begin_run();
        worker.tick(&mut Report::default()).await.expect("a tick");
        log.lock().clear();
        for _ in 0..TICKS {
            let mut report = Report::default();
            worker.tick(&mut report).await.expect("a tick");
            assert!(report.items.is_empty(), "{name}: {:?}", report.items);
        }
        let sent = std::mem::take(&mut *log.lock());
        assert!(sent.len() <= TICKS, "{name}: {sent:#?}");
        assert!(!sent.iter().any(|sql| sql.contains("FROM objects")), "{name} reads objects: {sent:#?}");
    }
    assert_eq!(backend_calls(&harness), calls);
}
