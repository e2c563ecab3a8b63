//! The fixture of the suite: an empty catalog with a clock that the test advances, and methods for common steps.

mod audit;
mod cleanup;
mod expiring;
mod multipart;
pub mod reconcile;
mod recovery;
pub mod replicas;
pub mod sharing;
mod writes;

pub use cleanup::AGE;
pub use recovery::unannounced;
pub use writes::announced;

use std::any::Any;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use s3o_model::claim::Claimant;
use s3o_model::clock::{Clock, ManualClock, Timestamp};
use s3o_model::entropy::SystemEntropy;
use s3o_model::etag::Md5;
use s3o_model::ids::{BucketId, ClaimToken, ContentId, IdSource, InstanceId};
use s3o_model::names::{BackendName, BucketName, ObjectKey};
use s3o_model::quota::QuotaUsage;

use crate::unit::{Answer, Row, Statement, Unit, Value};
use crate::{Catalog, Driver, Error};

/// Lease of the intents that the suite stages.
pub const LEASE: Duration = Duration::from_mins(5);

/// An empty catalog, with direct access to its tables.
#[derive(Clone)]
pub struct Fixture {
    /// The catalog under test.
    pub catalog: Catalog,
    /// The clock of the catalog; only tests advance it.
    pub clock: Arc<ManualClock>,
    driver: Arc<dyn Driver>,
    pub(super) ids: IdSource,
    copy_check: Arc<OnceLock<Arc<dyn sharing::CopyCheck>>>,
    _keep: Arc<dyn Any + Send + Sync>,
}

/// State of a row in `contents`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentStanding {
    /// Live, with this reference count.
    Live(i64),
    /// Condemned: its bytes are queued for deletion.
    Condemned,
    /// The row is deleted.
    Deleted,
}

/// A manual clock for the driver under test. It starts at a time with milliseconds, to find values that are cut to
/// seconds.
#[must_use]
pub fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::starting_at(Timestamp::from_millis(1_700_000_000_123)))
}

/// Parses an object key; panics if it is invalid.
#[must_use]
pub fn key(text: &str) -> ObjectKey {
    text.parse().expect("a valid key")
}

/// Parses the name of a backend; panics if it is invalid.
#[must_use]
pub fn backend(text: &str) -> BackendName {
    text.parse().expect("a valid backend name")
}

/// Parses the name of a bucket; panics if it is invalid.
#[must_use]
pub fn bucket_name(text: &str) -> BucketName {
    text.parse().expect("a valid bucket name")
}

/// A digest that is different for every content.
#[must_use]
pub fn md5_of(content: ContentId) -> Md5 {
    Md5(*content.uuid().as_bytes())
}

/// The first column of a row of a query in a test.
#[must_use]
pub fn first_text(row: &Row) -> String {
    match &row.values[0] {
        Value::Text(text) => text.clone(),
        other => panic!("{other:?} is no text"),
    }
}

impl Fixture {
    /// A fixture over the empty database of `driver`. `keep` is dropped with the fixture.
    pub fn over(driver: Arc<dyn Driver>, clock: Arc<ManualClock>, keep: impl Any + Send + Sync) -> Self {
        let ids = IdSource::new(clock.clone(), Arc::new(SystemEntropy));
        Self {
            catalog: Catalog::new(Arc::clone(&driver)),
            clock,
            driver,
            ids,
            copy_check: Arc::default(),
            _keep: Arc::new(keep),
        }
    }

    /// A clone whose catalog uses the driver that `wrap` returns. The fixture's own reads and writes bypass it.
    #[must_use]
    pub fn with_driver(&self, wrap: impl FnOnce(Arc<dyn Driver>) -> Arc<dyn Driver>) -> Self {
        let mut fixture = self.clone();
        fixture.catalog.driver = wrap(Arc::clone(&fixture.catalog.driver));
        fixture
    }

    /// Runs a query in the SQL that all drivers accept.
    pub async fn rows(&self, sql: &'static str, params: Vec<Value>) -> Vec<Row> {
        self.driver.read(Statement::new(sql, params)).await.expect("a query")
    }

    /// Runs a query that returns one integer.
    pub async fn number(&self, sql: &'static str) -> i64 {
        match self.rows(sql, vec![]).await[0].values[0] {
            Value::Int(number) => number,
            ref other => panic!("{other:?} is no number"),
        }
    }

    /// Runs a statement that no method of the catalog runs, to set up or damage rows.
    pub async fn change(&self, sql: &'static str, params: Vec<Value>) -> Vec<Answer> {
        let mut unit = Unit::new("change");
        unit.run(sql, params);
        self.write(unit).await.expect("a change")
    }

    /// Runs a unit that the test built.
    pub async fn write(&self, unit: Unit) -> Result<Vec<Answer>, Error> {
        self.driver.write(unit).await
    }

    /// Time of the catalog's clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// A new content ID. No row exists for it.
    #[must_use]
    pub fn content(&self) -> ContentId {
        ContentId::new(self.ids.fresh())
    }

    /// A new claim token.
    #[must_use]
    pub fn token(&self) -> ClaimToken {
        ClaimToken::new(self.ids.fresh())
    }

    /// A claimant with a new instance ID and a new token.
    #[must_use]
    pub fn claimant(&self) -> Claimant {
        Claimant { instance: self.instance(), token: self.token() }
    }

    /// Creates a backend that accepts writes up to the limit, or changes the limit of an existing one.
    pub async fn attach(&self, name: &str, limit_bytes: Option<u64>) -> BackendName {
        let name = backend(name);
        self.catalog.known_backend(&name).await.expect("entered");
        self.catalog.set_limit(&name, limit_bytes).await.expect("quota row created");
        name
    }

    /// A new instance.
    #[must_use]
    pub fn instance(&self) -> InstanceId {
        InstanceId::new(self.ids.fresh())
    }

    /// Freezes a backend for all instances, or unfreezes it without a reason.
    pub async fn set_frozen(&self, name: &BackendName, reason: Option<&str>) {
        self.change("UPDATE backends SET frozen_reason = $2 WHERE name = $1", crate::params![name, reason]).await;
    }

    /// Sums of all quota rows of this backend; panics if it has none.
    pub async fn quota_usage(&self, name: &str) -> QuotaUsage {
        let all = self.catalog.quota_usage().await.expect("quota usage");
        all.into_iter().find(|usage| usage.backend.as_str() == name).expect("the usage of that backend")
    }

    /// Used, orphan and reserved bytes of the backend `disk`.
    pub async fn usage(&self) -> (u64, u64, u64) {
        let usage = self.quota_usage("disk").await;
        (usage.used_bytes, usage.orphan_bytes, usage.reserved_bytes)
    }

    /// Creates a bucket, and the backend `disk` without a limit.
    pub async fn bucket(&self, name: &str) -> BucketId {
        self.attach("disk", None).await;
        let name = bucket_name(name);
        assert!(self.catalog.create_bucket(&name, None).await.expect("created"));
        self.catalog.bucket(&name).await.expect("a query").expect("the bucket").id
    }

    /// State of the content's row.
    pub async fn standing(&self, content: ContentId) -> ContentStanding {
        let rows = self.rows("SELECT state, ref_count FROM contents WHERE id = $1", crate::params![content]).await;
        match rows.first() {
            None => ContentStanding::Deleted,
            Some(row) if row.text("state").expect("a state") == "condemned" => ContentStanding::Condemned,
            Some(row) => ContentStanding::Live(row.int("ref_count").expect("a count")),
        }
    }

    /// Advances the clock by a millisecond less than this.
    pub fn wait_almost(&self, duration: Duration) {
        self.clock.advance(duration.saturating_sub(Duration::from_millis(1)));
    }

    /// The physical keys in the cleanup queue, sorted.
    pub async fn queued(&self) -> Vec<String> {
        let rows = self.rows("SELECT physical_key FROM cleanup_queue ORDER BY physical_key", vec![]).await;
        rows.iter().map(|row| row.string("physical_key").expect("a key")).collect()
    }
}

/// Spawns all tasks; returns their results in the order of the tasks.
pub async fn at_once<T: Send + 'static>(tasks: Vec<impl Future<Output = T> + Send + 'static>) -> Vec<T> {
    let running: Vec<_> = tasks.into_iter().map(tokio::task::spawn).collect();
    let mut results = Vec::with_capacity(running.len());
    for task in running {
        results.push(task.await.expect("the task ends"));
    }
    results
}
