//! The PostgreSQL driver. It sends all statements of a unit in one round trip, checks every guard, and sends COMMIT in
//! a second one: COMMIT in the first round trip would commit despite a failed guard.

mod dialect;
mod integrity;
mod migrate;
mod reason;
mod run;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod tls;
mod value;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use s3o_model::clock::{Clock, Timestamp};

use super::{Driver, Effort};
use crate::condition::Condition;
use crate::error::Error;
use crate::unit::{Answer, Row, Statement, Unit};

use dialect::{Dialect, Now};
use run::UnitFailure;
pub use tls::{InvalidPostgresUrl, check_url};

/// Maximum number of runs of a unit that deadlocks or serialization conflicts abort.
const ATTEMPTS_MAX: usize = 20;
/// Number of quota rows of a backend. A writer locks one until its commit is on disk, so there are several for each
/// connection: with as many stripes as connections, writers mostly waited for each other.
const STRIPES: u32 = 128;
/// Session settings, so that an instance that hangs does not block others.
const SESSION: &str = "-c idle_in_transaction_session_timeout=10s -c lock_timeout=10s";

/// How to reach a PostgreSQL catalog.
#[derive(Clone)]
pub struct PostgresOptions {
    /// `postgres://user:password@host/database?sslmode=verify-full&sslrootcert=FILE`; see [`check_url`].
    pub url: String,
    /// Size of the pool.
    pub connections: usize,
    /// How long a unit or a query waits for a connection.
    pub wait_max: Duration,
    /// The schema that holds the tables; `None` uses the `search_path` of the user.
    pub schema: Option<String>,
    /// Replaces the database's clock, for tests.
    pub clock: Option<Arc<dyn Clock>>,
}

/// An open PostgreSQL catalog.
pub struct Postgres {
    pool: Pool,
    /// Host and database, for messages.
    place: String,
    dialect: Dialect,
    clock: Option<Arc<dyn Clock>>,
    units: AtomicU64,
    commits: AtomicU64,
    rows_read: AtomicU64,
    condition: Condition,
}

impl Postgres {
    /// Connects and migrates the schema. Several instances may do so concurrently.
    pub async fn open(options: &PostgresOptions) -> Result<Self, Error> {
        let (pool, place) = (pool(options)?, reason::place(&options.url));
        let mut client = pool.get().await.map_err(|error| reason::no_connection(&place, &error))?;
        migrate::migrate(&mut client).await?;
        warn_without_checksums(&client, &place).await;
        drop(client);
        let (units, commits, rows_read) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let clock = options.clock.clone();
        let dialect = Dialect::new(if clock.is_some() { Now::Bound } else { Now::Database });
        Ok(Self { pool, place, dialect, clock, units, commits, rows_read, condition: Condition::default() })
    }

    /// Connects and runs `SELECT 1`; does not migrate.
    pub async fn try_connection(options: &PostgresOptions) -> Result<(), Error> {
        let (pool, place) = (pool(options)?, reason::place(&options.url));
        let client = pool.get().await.map_err(|error| reason::no_connection(&place, &error))?;
        let answered = client.simple_query("SELECT 1").await.map(drop);
        answered.map_err(|error| Error::Away(format!("{place}: {}", reason::chain(&error))))
    }

    /// The time of the clock that replaces the database's; not used if there is none.
    fn now(&self) -> Timestamp {
        self.clock.as_ref().map_or(Timestamp::from_millis(0), |clock| clock.now())
    }

    async fn connection(&self) -> Result<Object, Error> {
        self.pool.get().await.map_err(|error| reason::no_connection(&self.place, &error))
    }
}

fn pool(options: &PostgresOptions) -> Result<Pool, Error> {
    let (mut config, tls) = tls::read_url(&options.url).map_err(|error| Error::Internal(error.to_string()))?;
    let schema = options.schema.as_ref().map(|schema| format!(" -c search_path={schema}")).unwrap_or_default();
    config.options(format!("{SESSION}{schema}")).application_name("s3o").connect_timeout(options.wait_max);
    config.keepalives_idle(Duration::from_secs(10)).tcp_user_timeout(Duration::from_secs(15));
    let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    Pool::builder(Manager::from_config(config, tls, recycling))
        .max_size(options.connections)
        .wait_timeout(Some(options.wait_max))
        .create_timeout(Some(options.wait_max))
        .runtime(Runtime::Tokio1)
        .build()
        .map_err(|error| Error::Internal(error.to_string()))
}

/// A server without data checksums returns damaged pages without an error.
async fn warn_without_checksums(client: &Object, place: &str) {
    if let Ok(row) = client.query_one("SHOW data_checksums", &[]).await
        && row.try_get::<_, &str>(0).is_ok_and(|state| state == "off")
    {
        tracing::warn!(place, "PostgreSQL cannot detect damaged pages, enable data checksums with pg_checksums");
    }
}

#[async_trait]
impl Driver for Postgres {
    async fn write(&self, unit: Unit) -> Result<Vec<Answer>, Error> {
        self.units.fetch_add(1, Ordering::Relaxed);
        for _ in 0..ATTEMPTS_MAX {
            match run::unit(self.connection().await?, &self.dialect, &unit, self.now()).await {
                Ok(answers) => {
                    self.commits.fetch_add(1, Ordering::Relaxed);
                    return Ok(answers);
                }
                Err(UnitFailure::RunAgain(why)) => tracing::debug!(unit = unit.name, why, "retrying unit"),
                Err(UnitFailure::Final(error)) => return Err(error),
            }
        }
        Err(Error::Away(format!("unit {} failed {ATTEMPTS_MAX} times by deadlocks or conflicts", unit.name)))
    }

    async fn read(&self, query: Statement) -> Result<Vec<Row>, Error> {
        let rows = run::query(&self.connection().await?, &self.dialect, &query, self.now()).await?;
        self.rows_read.fetch_add(rows.len() as u64, Ordering::Relaxed);
        Ok(rows)
    }

    async fn read_both_ways(&self, query: Statement, by_table: Statement) -> Result<(Vec<Row>, Vec<Row>), Error> {
        let queries = [&query, &by_table];
        let (first, second) = run::both_ways(self.connection().await?, &self.dialect, queries, self.now()).await?;
        self.rows_read.fetch_add((first.len() + second.len()) as u64, Ordering::Relaxed);
        Ok((first, second))
    }

    async fn check_integrity(&self) -> Result<Vec<String>, Error> {
        integrity::check(&self.connection().await?).await
    }

    fn condition(&self) -> Condition {
        self.condition.clone()
    }

    fn stripes(&self) -> u32 {
        STRIPES
    }

    fn moved_rows_max(&self) -> usize {
        1000
    }

    fn effort(&self) -> Effort {
        Effort {
            units: self.units.load(Ordering::Relaxed),
            commits: self.commits.load(Ordering::Relaxed),
            rows_read: self.rows_read.load(Ordering::Relaxed),
        }
    }
}
