//! A whole store in one place: real SQLite, a backend in memory behind the flaky layer, the
//! engine, the workers, a clock that tests move.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::unfold;
use s3o_backend::layers::Flaky;
use s3o_backend::{Fleet, Memory};
use s3o_catalog::Driver;
use s3o_catalog::unit::{Statement, Unit};
use s3o_catalog::{Catalog, Cleanups as _, Identities as _, Mode, Quotas as _, Sqlite, SqliteOptions};
use s3o_engine::multipart::{UploadRef, UploadsQuery};
use s3o_engine::{
    BodyError, ByteStream, Declared, Engine, EngineParts, Error, GetObject, IntentMetrics, PutObject, Settings, Wanted,
};
use s3o_model::backoff::Backoff;
use s3o_model::cleanup::Retries;
use s3o_model::clock::{ManualClock, Timestamp};
use s3o_model::conditions::{ReadConditions, WriteCondition};
use s3o_model::entropy::{Entropy, SeededEntropy};
use s3o_model::ids::{IdSource, InstanceId};
use s3o_model::names::{BackendName, BucketName, ObjectKey};
use s3o_model::object::Attributes;
use s3o_model::recovery::Recovery;
use s3o_workers::{
    Cleanup, CleanupSettings, DeadLetterOffice, Identity, IdentityParts, PendingReaper, ReaperSettings, Report,
    Verifier, VerifierParts, Worker,
};
use tempfile::TempDir;
use tokio::sync::Notify;

use crate::yielding::{Steps, Yielding};

const LEASE: Duration = Duration::from_mins(5);
const LATE: Duration = Duration::from_hours(1);

/// What every key may hold: nothing, or one of these bodies.
pub type Expected = BTreeMap<&'static str, Vec<Option<Vec<u8>>>>;

pub struct House {
    pub engine: Engine,
    pub memory: Arc<Memory>,
    pub flaky: Arc<Flaky>,
    pub catalog: Arc<Catalog>,
    pub verifier: Verifier,
    clock: Arc<ManualClock>,
    pub cleanup: Cleanup,
    reaper: PendingReaper,
    pub office: DeadLetterOffice,
    driver: Arc<dyn Driver>,
    pub steps: Steps,
    _folder: TempDir,
}

impl House {
    /// A house whose backend takes bodies up to `put_bytes_max` in one go.
    pub async fn new(put_bytes_max: u64, mode: Mode) -> Self {
        // In memory where there is such a place: thousands of catalogs are made here, and none outlives its test.
        let shared_memory = std::path::Path::new("/dev/shm");
        let folder = tempfile::tempdir_in(shared_memory).or_else(|_| tempfile::tempdir()).expect("a folder");
        let steps = Steps::default();
        let clock = Arc::new(ManualClock::starting_at(Timestamp::from_millis(1_700_000_000_000)));
        let entropy: Arc<dyn Entropy> = Arc::new(SeededEntropy::new(7));
        let ids = IdSource::new(clock.clone(), entropy.clone());
        let options = SqliteOptions { path: folder.path().join("catalog.db"), mode, clock: clock.clone() };
        let driver: Arc<dyn Driver> = Arc::new(Sqlite::open(&options).expect("a catalog"));
        let catalog = Arc::new(Catalog::new(Arc::new(Yielding { inner: driver.clone(), steps: steps.clone() })));
        let name: BackendName = "memory".parse().expect("a name");
        catalog.set_limit(&name, None).await.expect("books");
        let memory = Arc::new(Memory::new(name).with_put_bytes_max(put_bytes_max));
        let flaky = Arc::new(Flaky::new(memory.clone()));
        let fleet = Arc::new(Fleet::new(vec![flaky.clone()]).expect("a fleet"));
        let bell: Arc<Notify> = Arc::default();
        let instance = InstanceId::new(ids.fresh());
        let identity = Arc::new(Identity::new(IdentityParts {
            identities: catalog.clone(),
            fleet: fleet.clone(),
            ids: ids.clone(),
            clock: clock.clone(),
            cluster: catalog.cluster_id("cluster").await.expect("a cluster"),
            alarm: Arc::new(()),
            max_age: HashMap::default(),
        }));
        assert!(identity.attach().await, "attached");
        let engine = Engine::new(EngineParts {
            catalog: catalog.clone(),
            fleet: fleet.clone(),
            ids: ids.clone(),
            clock: clock.clone(),
            instance,
            settings: Settings {
                lease: LEASE,
                late_write_window: LATE,
                object_bytes_max: 1 << 40,
                announce: true,
                recovery: Recovery::Promote,
            },
            cleanup_bell: bell.clone(),
            metrics: IntentMetrics::default(),
            alarm: Arc::new(()),
        });
        let office = DeadLetterOffice {
            letters: catalog.clone(),
            fleet: fleet.clone(),
            identity: identity.clone(),
            ids: ids.clone(),
            clock: clock.clone(),
            cleanup_bell: bell.clone(),
        };
        let verifier = Verifier::new(VerifierParts {
            verification: catalog.clone(),
            quotas: catalog.clone(),
            fleet: fleet.clone(),
            identity: identity.clone(),
        });
        let cleanup = Cleanup {
            cleanups: catalog.clone(),
            contents: catalog.clone(),
            fleet: fleet.clone(),
            identity: identity.clone(),
            ids: ids.clone(),
            instance,
            clock: clock.clone(),
            entropy,
            settings: CleanupSettings {
                batch_size: 1000,
                concurrency: 4,
                claim_grace_period: Duration::from_mins(5),
                reader_grace: Duration::from_mins(1),
                retries: Retries {
                    backoff: Backoff { min: Duration::from_mins(1), max: Duration::from_mins(10) },
                    max_attempts: 10,
                },
            },
        };
        let reaper = PendingReaper {
            intents: catalog.clone(),
            objects: catalog.clone(),
            fleet,
            identity,
            ids,
            metrics: IntentMetrics::default(),
            settings: ReaperSettings {
                batch_size: 100,
                concurrency: 4,
                hold: LEASE,
                rest_min: Duration::from_mins(1),
                late_write_window: LATE,
                recovery: Recovery::Promote,
            },
            cleanup_bell: bell,
        };
        engine.create_bucket(&bucket()).await.expect("a bucket");
        Self {
            engine,
            memory,
            flaky,
            catalog,
            verifier,
            clock,
            cleanup,
            reaper,
            office,
            driver,
            steps,
            _folder: folder,
        }
    }

    /// Lets time pass, and cleanup do one tick.
    pub async fn clean_after(&self, time: Duration) -> Report {
        self.clock.advance(time);
        let mut report = Report::default();
        self.cleanup.tick(&mut report).await.expect("a tick");
        report
    }

    /// Lets time pass and the workers run until nothing is owed any more.
    pub async fn settle(&self) {
        self.engine.tasks().drained().await;
        for _ in 0..40 {
            self.clock.advance(Duration::from_mins(10));
            // A tick that a fault ended is followed by another one.
            for worker in [&self.reaper as &dyn Worker, &self.cleanup] {
                if let Err(error) = worker.tick(&mut Report::default()).await {
                    assert!(!error.to_string().contains("fault:"), "{error}");
                }
            }
            if self.is_at_rest().await {
                return;
            }
        }
        panic!("work is left: {:?}", self.catalog.depths().await);
    }

    /// One tick of cleanup, at this moment.
    pub async fn clean_up(&self) {
        self.cleanup.tick(&mut Report::default()).await.expect("cleaned up");
    }

    async fn is_at_rest(&self) -> bool {
        let owed = "SELECT (SELECT count(*) FROM pending_objects) + (SELECT count(*) FROM cleanup_queue) \
             + (SELECT count(*) FROM cleanup_dlq) \
             + (SELECT count(*) FROM contents WHERE kind = 'joined' AND state = 'condemned') \
             + (SELECT count(*) FROM multipart_parts p JOIN multipart_uploads u ON u.id = p.upload_id \
                WHERE u.state <> 'open')";
        self.numbers(owed).await == [0]
    }

    /// Changes rows behind everybody's back.
    pub async fn change(&self, sql: &'static str) {
        let mut unit = Unit::new("change");
        unit.run(sql, vec![]);
        self.driver.write(unit).await.expect("a change");
    }

    async fn numbers(&self, sql: &'static str) -> Vec<i64> {
        let rows = self.driver.read(Statement { sql, params: vec![], guard: None }).await.expect("a query");
        rows.iter().map(|row| row.int(0).expect("a number")).collect()
    }

    /// The state at rest: the backend holds exactly what the catalog locates, the books agree, and
    /// every key holds one of the bodies it may hold.
    pub async fn check(&self, expected: &Expected) {
        self.settle().await;
        // What follows only looks.
        self.flaky.clear();
        let located = self.driver.read(Statement {
            sql: "SELECT physical_key FROM object_locations ORDER BY physical_key",
            params: vec![],
            guard: None,
        });
        let located: BTreeSet<String> =
            located.await.expect("locations").iter().map(|row| row.text(0).expect("a key").to_owned()).collect();
        let stored: BTreeSet<String> = self.memory.keys().into_iter().filter(|key| !key.starts_with(".s3o/")).collect();
        assert_eq!(stored, located, "stored is not what is located");
        assert!(self.memory.violations().is_empty(), "{:?}", self.memory.violations());
        assert_eq!(self.memory.uploads(), 0, "unfinished backend uploads");
        assert_eq!(self.numbers(DRIFT).await, [0, 0, 0, 0], "the books drifted");
        let verified = self.verifier.verify(true).await;
        assert!(verified.holds, "{verified:#?}");
        for (key, bodies) in expected {
            let found = self.read(key).await;
            assert!(bodies.contains(&found), "{key} holds {found:?}, may hold {bodies:?}");
        }
    }

    /// Gives up the uploads that a client left open.
    pub async fn abort_open_uploads(&self) {
        self.engine.tasks().drained().await;
        let query = UploadsQuery { limit: 1000, ..UploadsQuery::default() };
        for upload in self.engine.list_uploads(&bucket(), query).await.expect("uploads").uploads {
            let target = UploadRef { bucket: bucket(), key: upload.key, upload: upload.id };
            self.engine.abort_upload(&target).await.expect("aborted");
        }
    }

    /// What a key holds.
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
}

/// Used, orphan and reserved bytes against their rows, and reference counts against referrers.
const DRIFT: &str = "\
    SELECT coalesce(sum(used_bytes), 0) - (SELECT coalesce(sum(size_bytes), 0) FROM object_locations) \
        FROM backend_quotas \
    UNION ALL SELECT coalesce(sum(orphan_bytes), 0) - (SELECT coalesce(sum(size_bytes), 0) FROM cleanup_queue) \
        - (SELECT coalesce(sum(size_bytes), 0) FROM cleanup_dlq) FROM backend_quotas \
    UNION ALL SELECT coalesce(sum(reserved_bytes), 0) - (SELECT coalesce(sum(size_bytes), 0) FROM pending_objects) \
        FROM backend_quotas \
    UNION ALL SELECT count(*) FROM contents c WHERE c.ref_count <> \
        (SELECT count(*) FROM objects o WHERE o.content_id = c.id) \
        + (SELECT count(*) FROM content_parts p WHERE p.whole_id = c.id) \
        + (SELECT count(*) FROM multipart_parts m WHERE m.content_id = c.id)";

pub fn bucket() -> BucketName {
    "bucket".parse().expect("a name")
}

pub fn key(text: &str) -> ObjectKey {
    text.parse().expect("a key")
}

pub fn get(name: &str) -> GetObject {
    GetObject { bucket: bucket(), key: key(name), wanted: Wanted::Whole, conditions: ReadConditions::default() }
}

impl House {
    /// A client's body: two chunks with a step before each, broken off when the client is gone.
    pub fn body(&self, bytes: &[u8], client: &Arc<()>) -> ByteStream {
        let half = bytes.len() / 2;
        let chunks = [Bytes::copy_from_slice(&bytes[..half]), Bytes::copy_from_slice(&bytes[half..])].into_iter();
        let state = (chunks, Arc::downgrade(client), self.steps.clone());
        Box::pin(unfold(state, |(mut chunks, client, steps)| async move {
            steps.step().await;
            let chunk = chunks.next()?;
            let item = match client.upgrade() {
                Some(_) => Ok(chunk),
                None => Err(BodyError::Broken("the client hung up".to_owned())),
            };
            Some((item, (chunks, client, steps)))
        }))
    }

    /// A request to store a body, from a client that lives as long as its token.
    pub fn put(&self, name: &str, bytes: &[u8], client: &Arc<()>) -> PutObject {
        PutObject {
            bucket: bucket(),
            key: key(name),
            size_bytes: bytes.len() as u64,
            body: self.body(bytes, client),
            declared: Declared::default(),
            attributes: Attributes::default(),
            condition: WriteCondition::None,
        }
    }
}
