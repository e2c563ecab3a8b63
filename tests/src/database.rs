//! Catalogs on the PostgreSQL server for tests.
//!
//! Simulations run in a clock that stands still while anything is under way. Waiting for a socket would let it run, so a
//! catalog for them is asked from a thread of its own, and the one that asks stands still meanwhile.

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

/// Makes the statements that empty every table; migrations leave no rows of their own. A few rows are deleted faster than
/// the files of a table are truncated.
const RESET: &str = "SELECT 'SET session_replication_role = replica; ' \
     || string_agg(format('DELETE FROM %I', tablename), '; ') \
     FROM pg_tables WHERE schemaname = 'public' AND tablename <> 's3o_schema'";

/// A database of its own on the server for tests; nothing is awaited on its disk.
pub struct Database {
    url: String,
}

impl Database {
    /// An empty one.
    pub async fn fresh() -> Self {
        let server = std::env::var("S3O_TEST_POSTGRES_URL")
            .expect("S3O_TEST_POSTGRES_URL names no server: run through make test");
        let id = IdSource::new(Arc::new(SystemClock), Arc::new(SystemEntropy)).fresh();
        let name = format!("tests_{}", id.as_simple());
        let client = session(&server).await;
        client.batch_execute(&format!("CREATE DATABASE {name}")).await.expect("a database");
        // No crash of the server is survived here, and waiting for the disk would take most of the time.
        let quick = format!("ALTER DATABASE {name} SET synchronous_commit = off");
        client.batch_execute(&quick).await.expect("a setting");
        let (host, _) = server.rsplit_once('/').expect("a URL with a database");
        Self { url: format!("{host}/{name}") }
    }

    /// Opens it as a process does.
    pub async fn open(&self, clock: Option<Arc<dyn Clock>>) -> Result<Postgres, Error> {
        let (url, wait_max) = (self.url.clone(), Duration::from_mins(1));
        Postgres::open(&PostgresOptions { url, connections: 8, wait_max, schema: None, clock }).await
    }

    /// Forgets every row.
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

/// A database for one world after another, each with a clock that stands still.
#[derive(Clone)]
pub struct StillDatabase(Arc<Database>);

impl StillDatabase {
    /// An empty one.
    #[must_use]
    pub fn fresh() -> Self {
        Self(wait_for(async {
            let database = Database::fresh().await;
            drop(database.open(None).await.expect("migrated"));
            Arc::new(database)
        }))
    }

    /// The same, without what the world before left in it.
    #[must_use]
    pub fn emptied(self) -> Self {
        let database = Arc::clone(&self.0);
        wait_for(async move { database.reset().await });
        self
    }

    /// Opens it as a process does.
    pub fn open(&self, clock: Arc<dyn Clock>) -> Result<Arc<dyn Driver>, Error> {
        let shown = Arc::new(ManualClock::starting_at(clock.now()));
        let (database, bound) = (Arc::clone(&self.0), Arc::clone(&shown) as Arc<dyn Clock>);
        let inner = wait_for(async move { database.open(Some(bound)).await })?;
        Ok(Arc::new(Still { inner: Arc::new(inner), clock, shown }))
    }
}

/// A catalog that is asked from another thread.
struct Still {
    inner: Arc<Postgres>,
    clock: Arc<dyn Clock>,
    /// What the clock shows to the other thread, which cannot read a clock of the caller's runtime.
    shown: Arc<ManualClock>,
}

impl Still {
    fn ask<T, F>(&self, question: impl FnOnce(Arc<Postgres>) -> F) -> T
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        self.shown.set(self.clock.now());
        wait_for(question(Arc::clone(&self.inner)))
    }
}

/// The thread on which connections live; it ends with the process.
fn thread() -> &'static Handle {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME
        .get_or_init(|| Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime"))
        .handle()
}

/// Waits without letting the caller's clock run.
fn wait_for<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let (answer, answered) = mpsc::sync_channel(1);
    thread().spawn(async move { answer.send(work.await) });
    answered.recv().expect("an answer")
}

#[async_trait]
impl DriverLayer for Still {
    fn inner(&self) -> &dyn Driver {
        self.inner.as_ref()
    }

    async fn on_write(&self, unit: Unit) -> Result<Vec<Answer>, Error> {
        self.ask(|inner| async move { inner.write(unit).await })
    }

    async fn on_read(&self, query: Statement) -> Result<Vec<Row>, Error> {
        self.ask(|inner| async move { inner.read(query).await })
    }

    async fn on_read_both_ways(&self, query: Statement, by_table: Statement) -> Result<(Vec<Row>, Vec<Row>), Error> {
        self.ask(|inner| async move { inner.read_both_ways(query, by_table).await })
    }
}
