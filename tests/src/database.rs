//! Catalogs on the PostgreSQL server for tests.
//!
//! Simulations run in a paused clock, which tokio advances whenever the runtime waits for a socket. A catalog for them
//! therefore lives on a thread of its own, and the calling thread blocks until it has the answer.

use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use async_trait::async_trait;
use s3o_catalog::unit::{Answer, Row, Statement, Unit};
use s3o_catalog::{Driver, DriverLayer, Error, Postgres, PostgresOptions};
use s3o_model::clock::{Clock, ManualClock, SystemClock};
use s3o_model::entropy::SystemEntropy;
use s3o_model::ids::IdSource;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio_postgres::{Client, NoTls};

/// Builds the statements that empty every table, except those whose only row a migration inserted. Deleting a few
/// rows is faster than TRUNCATE, which creates new files.
const RESET: &str = "SELECT 'SET session_replication_role = replica; ' \
     || string_agg(format('DELETE FROM %I', tablename), '; ') \
     FROM pg_tables WHERE schemaname = 'public' AND tablename NOT IN ('s3o_schema', 'usage_ceilings', 'copy_epoch')";

/// A database on the PostgreSQL server for tests; commits do not wait for the disk.
pub struct TestDatabase {
    url: String,
}

impl TestDatabase {
    /// Creates an empty database.
    pub async fn fresh() -> Self {
        let server = std::env::var("S3O_TEST_POSTGRES_URL").expect("S3O_TEST_POSTGRES_URL is not set: run `make test`");
        let id = IdSource::new(Arc::new(SystemClock), Arc::new(SystemEntropy)).fresh();
        let name = format!("tests_{}", id.as_simple());
        let client = session(&server).await;
        client.batch_execute(&format!("CREATE DATABASE {name}")).await.expect("create a database");
        // No test crashes the server, and waiting for the disk would take most of the time.
        let no_sync = format!("ALTER DATABASE {name} SET synchronous_commit = off");
        client.batch_execute(&no_sync).await.expect("change a setting");
        let (host, _) = server.rsplit_once('/').expect("a URL with a database");
        Self { url: format!("{host}/{name}") }
    }

    /// Opens the catalog as a new process does.
    pub async fn open(&self, clock: Option<Arc<dyn Clock>>) -> Result<Postgres, Error> {
        let (url, wait_max) = (self.url.clone(), Duration::from_mins(1));
        Postgres::open(&PostgresOptions { url, connections: 8, wait_max, schema: None, clock }).await
    }

    /// Deletes every row.
    async fn reset(&self) {
        let client = session(&self.url).await;
        let emptying: String = client.query_one(RESET, &[]).await.expect("tables").get(0);
        client.batch_execute(&emptying).await.expect("emptied");
    }
}

async fn session(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a server");
    tokio::spawn(connection);
    client
}

/// A database that blocks the calling thread, for one environment after another.
#[derive(Clone)]
pub struct BlockingDatabase(Arc<TestDatabase>);

impl BlockingDatabase {
    /// Creates and migrates an empty database.
    #[must_use]
    pub fn fresh() -> Self {
        Self(wait_for(async {
            let database = TestDatabase::fresh().await;
            drop(database.open(None).await.expect("migrated"));
            Arc::new(database)
        }))
    }

    /// Deletes what the environment before left in it.
    #[must_use]
    pub fn emptied(self) -> Self {
        let database = Arc::clone(&self.0);
        wait_for(async move { database.reset().await });
        self
    }

    /// Opens the catalog as a new process does.
    pub fn open(&self, clock: Arc<dyn Clock>) -> Result<Arc<dyn Driver>, Error> {
        let copied_clock = Arc::new(ManualClock::starting_at(clock.now()));
        let (database, bound) = (Arc::clone(&self.0), Arc::clone(&copied_clock) as Arc<dyn Clock>);
        let inner = wait_for(async move { database.open(Some(bound)).await })?;
        Ok(Arc::new(BlockingDriver { inner: Arc::new(inner), clock, copied_clock }))
    }
}

/// A catalog that runs on another thread.
struct BlockingDriver {
    inner: Arc<Postgres>,
    clock: Arc<dyn Clock>,
    /// Copy of the clock for the other thread, which cannot read the paused clock of the caller's runtime.
    copied_clock: Arc<ManualClock>,
}

impl BlockingDriver {
    fn run<T, F>(&self, call: impl FnOnce(Arc<Postgres>) -> F) -> T
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        self.copied_clock.set(self.clock.now());
        wait_for(call(Arc::clone(&self.inner)))
    }
}

/// The thread that owns the connections; it ends with the process.
fn thread() -> &'static Handle {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME
        .get_or_init(|| Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime"))
        .handle()
}

/// Blocks the calling thread, so that its paused clock does not advance.
fn wait_for<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let (answer, answered) = mpsc::sync_channel(1);
    thread().spawn(async move { answer.send(work.await) });
    answered.recv().expect("an answer")
}

#[async_trait]
impl DriverLayer for BlockingDriver {
    fn inner(&self) -> &dyn Driver {
        self.inner.as_ref()
    }

    async fn on_write(&self, unit: Unit) -> Result<Vec<Answer>, Error> {
        self.run(|inner| async move { inner.write(unit).await })
    }

    async fn on_read(&self, query: Statement) -> Result<Vec<Row>, Error> {
        self.run(|inner| async move { inner.read(query).await })
    }

    async fn on_read_both_ways(&self, query: Statement, by_table: Statement) -> Result<(Vec<Row>, Vec<Row>), Error> {
        self.run(|inner| async move { inner.read_both_ways(query, by_table).await })
    }
}
