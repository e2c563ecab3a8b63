//! The test harness of all suites: an [`Environment`] and one process of the real engine and workers over it.
//!
//! [`Harness::new`] is enough for most tests. [`Harness::builder`] adds layers between the process and its catalog or
//! backends, or starts a further process over an environment that another one left.

mod builder;
mod requests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use s3o_backend::Memory;
use s3o_backend::layers::Flaky;
use s3o_catalog::conformance::fixture::first_text;
use s3o_catalog::unit::{Row, Statement, Unit};
use s3o_catalog::{Catalog, Driver, Mode};
use s3o_engine::multipart::{UploadRef, UploadsQuery};
use s3o_engine::{Engine, Error};
use s3o_model::clock::{Clock, ManualClock};
use s3o_workers::{Report, VerifyScope, Worker};

use crate::call_points::CallPoints;
use crate::environment::Environment;
use crate::invariants::{is_settled, tick_all, violations, violations_when_settled};
use crate::process::Process;

pub use builder::HarnessBuilder;
pub use requests::{bucket, copy, delete, get, key};

/// For each key the bodies that a read may return; None is a missing object.
pub type Expected = BTreeMap<&'static str, Vec<Option<Vec<u8>>>>;

/// One process over an environment.
pub struct Harness<C = ManualClock> {
    /// The engine of the process.
    pub engine: Engine,
    /// The catalog as the process sees it, through all layers.
    pub catalog: Arc<Catalog>,
    /// The catalog without layers, for checks.
    pub driver: Arc<dyn Driver>,
    /// The stored bytes of the first backend.
    pub memory: Arc<Memory>,
    /// The fault layer of the first backend.
    pub flaky: Arc<Flaky>,
    /// Counts calls to the catalog and the first backend, if the builder was given it.
    pub points: CallPoints,
    /// The clock of the environment.
    pub clock: Arc<C>,
    /// Engine, workers, verifier.
    pub process: Process,
    /// Survives this process.
    pub environment: Arc<Environment<C>>,
}

impl Harness {
    /// One backend that takes up to `put_bytes_max` in one call, and an empty bucket.
    pub async fn new(put_bytes_max: u64, mode: Mode) -> Self {
        Self::with_bucket(Environment::new(put_bytes_max), mode).await
    }

    /// An empty bucket in a new environment.
    pub async fn with_bucket(environment: Environment, mode: Mode) -> Self {
        let builder = Self::builder(&Arc::new(environment)).mode(mode).points(CallPoints::default());
        builder.start_with_bucket().await
    }

    /// A process over what another one left, with its calls counted.
    pub async fn restart(environment: &Arc<Environment>, points: CallPoints) -> Self {
        Self::builder(environment).points(points).start().await
    }

    /// Advances the clock and runs one tick of cleanup.
    pub async fn clean_after(&self, time: Duration) -> Report {
        self.clean_over(self.catalog.clone(), time).await
    }

    /// Like [`Self::clean_after`], with another queue.
    pub async fn clean_over(&self, cleanups: Arc<Catalog>, time: Duration) -> Report {
        self.tick_after(&self.process.cleanup_over(cleanups), time).await
    }

    /// Advances the clock and runs one tick of `pending_reaper`.
    pub async fn reap_after(&self, time: Duration) -> Report {
        self.tick_after(&self.process.pending_reaper(), time).await
    }

    /// Advances the clock and runs one tick of a worker.
    pub async fn tick_after(&self, worker: &dyn Worker, time: Duration) -> Report {
        self.clock.advance(time);
        let mut report = Report::default();
        worker.tick(&mut report).await.expect("a tick without an error");
        report
    }

    /// Advances the clock and runs all workers until no row is waiting for work.
    pub async fn settle(&self) {
        self.engine.tasks().drained().await;
        for _ in 0..40 {
            self.clock.advance(Duration::from_mins(10));
            self.engine.retry_unanswered().await;
            tick_all(&self.process.workers).await;
            if is_settled(self.driver.as_ref()).await {
                return;
            }
        }
        panic!("work is left: {:?}", self.catalog.depths().await);
    }

    /// Settles, and asserts that backends hold exactly the bytes the catalog locates, that quotas add up, and that
    /// every key holds one of its expected bodies.
    pub async fn check(&self, expected: &Expected) {
        self.settle().await;
        // The checks below only read; faults would hide what they read.
        self.flaky.clear();
        self.check_settled().await;
        for (key, bodies) in expected {
            let found = self.read(key).await;
            assert!(bodies.contains(&found), "{key} holds {found:?}, expected one of {bodies:?}");
        }
    }
}

impl<C: Clock + 'static> Harness<C> {
    /// Starts a process over an environment.
    #[must_use]
    pub fn builder<'a>(environment: &Arc<Environment<C>>) -> HarnessBuilder<'a, C> {
        HarnessBuilder::new(environment)
    }

    /// Rows of the catalog, read without layers.
    pub async fn rows(&self, sql: &'static str) -> Vec<Row> {
        self.driver.read(Statement::new(sql, vec![])).await.expect("a query")
    }

    /// The first column of every row.
    pub async fn texts(&self, sql: &'static str) -> Vec<String> {
        self.rows(sql).await.iter().map(first_text).collect()
    }

    /// Changes rows without the process noticing.
    pub async fn change(&self, sql: &'static str) {
        let mut unit = Unit::new("change");
        unit.run(sql, vec![]);
        self.driver.write(unit).await.expect("a committed unit");
    }

    /// Bytes on the first backend outside of s3o's own prefix.
    #[must_use]
    pub fn bytes_stored(&self) -> u64 {
        self.memory.total_bytes()
    }

    /// Asserts what holds between any two calls, right after a crash too.
    pub async fn check_now(&self) {
        let broken = violations(&self.driver, &self.environment.backends).await;
        assert!(broken.is_empty(), "{broken:#?}");
    }

    /// Asserts what holds when no row is waiting for work, by SQL and by the product's own verifier.
    pub async fn check_settled(&self) {
        let broken = violations_when_settled(&self.driver, &self.environment.backends).await;
        assert!(broken.is_empty(), "{broken:#?}");
        let verified = self.process.verifier.verify(VerifyScope::DEEP).await;
        assert!(verified.holds, "{verified:#?}");
    }

    /// Aborts the multipart uploads that clients left open.
    pub async fn abort_open_uploads(&self) {
        self.engine.tasks().drained().await;
        let query = UploadsQuery { limit: 1000, ..UploadsQuery::default() };
        for upload in self.engine.list_uploads(&bucket(), query).await.expect("a list").uploads {
            let target = UploadRef { bucket: bucket(), key: upload.key, upload: upload.id };
            self.engine.abort_upload(&target).await.expect("aborted");
        }
    }

    /// The body of an object; None if there is no such key.
    pub async fn read(&self, key: &str) -> Option<Vec<u8>> {
        match self.engine.get_object(get(key)).await {
            Ok(mut opened) => {
                let mut bytes = Vec::new();
                while let Some(chunk) = opened.body.next().await {
                    bytes.extend_from_slice(&chunk.expect("a chunk"));
                }
                Some(bytes)
            }
            Err(Error::NoSuchKey) => None,
            Err(error) => panic!("{key}: {error}"),
        }
    }

    /// Stores a body from a client that stays connected.
    pub async fn store(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        self.engine.put_object(self.put(name, bytes, &Arc::new(()))).await.map(drop)
    }

    /// Deletes an object; panics if that fails.
    pub async fn delete(&self, name: &str) {
        self.engine.delete_object(delete(name)).await.unwrap_or_else(|error| panic!("delete {name}: {error}"));
    }
}
