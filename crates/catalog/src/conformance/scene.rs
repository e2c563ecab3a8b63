//! Where a fact plays: a fresh catalog, a clock that is moved by hand, fresh names, and shortcuts
//! for what most facts begin with.

mod audit;
mod cleanup;
mod left;
mod mortal;
mod multipart;
pub mod sharing;

pub use cleanup::AGE;
pub use left::unannounced;

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use s3o_model::claim::Claimant;
use s3o_model::clock::{Clock, ManualClock, Timestamp};
use s3o_model::conditions::WriteCondition;
use s3o_model::entropy::SystemEntropy;
use s3o_model::etag::{ETag, Md5};
use s3o_model::ids::{BucketId, ClaimToken, ContentId, IdSource, InstanceId, IntentId, VersionId, WriteId};
use s3o_model::intent::{Intent, IntentKind};
use s3o_model::names::{BackendName, BucketName, ObjectKey};
use s3o_model::object::Attributes;
use s3o_model::quota::Books;

use crate::unit::{Answer, Row, Statement, Unit, Value};
use crate::{
    Buckets, Catalog, CommitPut, Committed, Driver, Error, Identities, Intents, Landed, Objects, PutRow, Quotas,
    Resolved, Stage,
};

/// How long intents of the suite hold.
pub const LEASE: Duration = Duration::from_mins(5);

/// A fresh catalog and what a fact needs around it.
#[derive(Clone)]
pub struct Scene {
    /// The catalog under test.
    pub catalog: Catalog,
    /// Its clock.
    pub clock: Arc<ManualClock>,
    driver: Arc<dyn Driver>,
    ids: IdSource,
    _keep: Arc<dyn Any + Send + Sync>,
}

/// Where a content stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// So many rows are said to refer to it.
    Live(i64),
    /// Nothing refers to it any more.
    Condemned,
    /// There is no row of it.
    Forgotten,
}

/// The clock that a driver under test is opened with.
#[must_use]
pub fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::starting_at(Timestamp::from_millis(1_700_000_000_123)))
}

/// Any text as a key.
#[must_use]
pub fn key(text: &str) -> ObjectKey {
    text.parse().expect("a valid key")
}

/// Any text as a backend's name.
#[must_use]
pub fn backend(text: &str) -> BackendName {
    text.parse().expect("a valid backend name")
}

/// Any text as a bucket's name.
#[must_use]
pub fn bucket_name(text: &str) -> BucketName {
    text.parse().expect("a valid bucket name")
}

/// A digest that differs from content to content.
#[must_use]
pub fn md5_of(content: ContentId) -> Md5 {
    Md5(*content.uuid().as_bytes())
}

/// The bytes of a write whose writer holds its intents.
#[must_use]
pub fn announced(write: WriteId, copies: usize) -> Landed {
    Landed::Announced { write, copies, backend_versions: Vec::new() }
}

impl Scene {
    /// A scene over an empty catalog with that clock; `keep` lives as long as the scene.
    pub fn over(driver: Arc<dyn Driver>, clock: Arc<ManualClock>, keep: impl Any + Send + Sync) -> Self {
        let ids = IdSource::new(clock.clone(), Arc::new(SystemEntropy));
        Self { catalog: Catalog::new(Arc::clone(&driver)), clock, driver, ids, _keep: Arc::new(keep) }
    }

    /// A query in the common dialect.
    pub async fn rows(&self, sql: &'static str, params: Vec<Value>) -> Vec<Row> {
        self.driver.read(Statement::new(sql, params)).await.expect("a query")
    }

    /// The one number that a query gives.
    pub async fn number(&self, sql: &'static str) -> i64 {
        self.rows(sql, vec![]).await[0].int(0).expect("a number")
    }

    /// Changes rows behind the roles' back.
    pub async fn change(&self, sql: &'static str, params: Vec<Value>) -> Vec<Answer> {
        let mut unit = Unit::new("change");
        unit.run(sql, params);
        self.write(unit).await.expect("a change")
    }

    /// Runs a unit of the fact's own.
    pub async fn write(&self, unit: Unit) -> Result<Vec<Answer>, Error> {
        self.driver.write(unit).await
    }

    /// The present moment.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// A fresh content.
    #[must_use]
    pub fn content(&self) -> ContentId {
        ContentId::new(self.ids.fresh())
    }

    /// A fresh token.
    #[must_use]
    pub fn token(&self) -> ClaimToken {
        ClaimToken::new(self.ids.fresh())
    }

    /// A fresh claimant.
    #[must_use]
    pub fn claimant(&self) -> Claimant {
        Claimant { instance: InstanceId::new(self.ids.fresh()), token: self.token() }
    }

    /// A backend that takes writes, up to a limit.
    pub async fn attach(&self, name: &str, limit_bytes: Option<u64>) -> BackendName {
        let name = backend(name);
        self.catalog.known_backend(&name).await.expect("entered");
        self.catalog.set_limit(&name, limit_bytes).await.expect("books opened");
        name
    }

    /// The books of one backend.
    pub async fn books(&self, name: &str) -> Books {
        let all = self.catalog.books().await.expect("books");
        all.into_iter().find(|books| books.backend.as_str() == name).expect("that backend's books")
    }

    /// Used, orphan and reserved bytes of the backend `disk`.
    pub async fn booked(&self) -> (u64, u64, u64) {
        let books = self.books("disk").await;
        (books.used_bytes, books.orphan_bytes, books.reserved_bytes)
    }

    /// A fresh bucket; the backend `disk` is attached too.
    pub async fn bucket(&self, name: &str) -> BucketId {
        self.attach("disk", None).await;
        let name = bucket_name(name);
        assert!(self.catalog.create_bucket(&name).await.expect("created"));
        self.catalog.bucket(&name).await.expect("a look").expect("the bucket").id
    }

    /// An intent to write an object to `disk`.
    #[must_use]
    pub fn intent(&self, bucket: BucketId, key: &str, size_bytes: u64) -> Intent {
        let id = self.ids.fresh();
        Intent {
            id: IntentId::new(id),
            write: WriteId::new(self.ids.fresh()),
            kind: IntentKind::Object,
            bucket,
            key: key.parse().expect("a valid key"),
            backend: backend("disk"),
            physical_key: format!("{key}~{}", id.as_simple()),
            size_bytes,
            draft: None,
        }
    }

    /// Announces a write.
    pub async fn try_stage(&self, intent: &Intent) -> Result<Timestamp, Error> {
        let owner = InstanceId::new(self.ids.fresh());
        self.catalog.stage(&Stage { intent: intent.clone(), owner, lease: LEASE }).await
    }

    /// An announced write of an object to `disk`.
    pub async fn staged(&self, bucket: BucketId, key: &str, size_bytes: u64) -> Intent {
        let intent = self.intent(bucket, key, size_bytes);
        self.try_stage(&intent).await.expect("staged");
        intent
    }

    /// The row of an object with that content.
    #[must_use]
    pub fn row(&self, bucket: BucketId, key: &str, content: ContentId, size_bytes: u64) -> PutRow {
        PutRow {
            bucket,
            key: key.parse().expect("a valid key"),
            version: VersionId::new(self.ids.fresh()),
            size_bytes,
            etag: ETag::of_whole(md5_of(content)),
            checksum: None,
            attributes: Attributes::default(),
            expiry: None,
        }
    }

    /// What a commit of that write says.
    #[must_use]
    pub fn put_of(&self, intent: &Intent, condition: WriteCondition) -> CommitPut {
        let content = self.content();
        CommitPut {
            landed: announced(intent.write, 1),
            content,
            md5: md5_of(content),
            sha256: None,
            dedup: None,
            row: self.row(intent.bucket, intent.key.as_str(), content, intent.size_bytes),
            condition,
            // A hint, right or wrong.
            is_first: true,
        }
    }

    /// Commits an announced write.
    pub async fn commit(&self, intent: &Intent, condition: WriteCondition) -> Result<Committed, Error> {
        self.catalog.commit_put(self.put_of(intent, condition)).await
    }

    /// Stores an object; its content is returned.
    pub async fn put(&self, bucket: BucketId, key: &str, size_bytes: u64) -> ContentId {
        let put = self.put_of(&self.staged(bucket, key, size_bytes).await, WriteCondition::None);
        let content = put.content;
        self.catalog.commit_put(put).await.expect("committed");
        content
    }

    /// Copies content under a key of a bucket.
    pub async fn copy(&self, source: (ContentId, u64), bucket: BucketId, key: &str) -> Result<Committed, Error> {
        let row = self.row(bucket, key, source.0, source.1);
        self.catalog.commit_copy(row, source.0, WriteCondition::None).await
    }

    /// Removes an object.
    pub async fn delete(&self, bucket: BucketId, key: &str) -> bool {
        self.catalog
            .delete_object(bucket, &key.parse().expect("a valid key"), None, self.token())
            .await
            .expect("deleted")
    }

    /// Looks a key up in a bucket that is there.
    pub async fn resolve(&self, bucket: &str, key: &str) -> Resolved {
        let found = self.catalog.resolve(&bucket_name(bucket), &key.parse().expect("a valid key")).await;
        found.expect("a look").expect("the bucket")
    }

    /// Where a content stands.
    pub async fn standing(&self, content: ContentId) -> Standing {
        let rows = self.rows("SELECT state, ref_count FROM contents WHERE id = $1", crate::params![content]).await;
        match rows.first() {
            None => Standing::Forgotten,
            Some(row) if row.text(0).expect("a state") == "condemned" => Standing::Condemned,
            Some(row) => Standing::Live(row.int(1).expect("a count")),
        }
    }

    /// Moves the clock to a millisecond before the end of this time.
    pub fn wait_almost(&self, duration: Duration) {
        self.clock.advance(duration.saturating_sub(Duration::from_millis(1)));
    }

    /// The physical keys that wait for cleanup, sorted.
    pub async fn queued(&self) -> Vec<String> {
        let rows = self.rows("SELECT physical_key FROM cleanup_queue ORDER BY physical_key", vec![]).await;
        rows.iter().map(|row| row.text(0).expect("a key").to_owned()).collect()
    }
}

/// Runs all of these at the same time; their results come in the order of the tasks.
pub async fn at_once<T: Send + 'static>(tasks: Vec<impl Future<Output = T> + Send + 'static>) -> Vec<T> {
    let running: Vec<_> = tasks.into_iter().map(tokio::task::spawn).collect();
    let mut results = Vec::with_capacity(running.len());
    for task in running {
        results.push(task.await.expect("the task ends"));
    }
    results
}
