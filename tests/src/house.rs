//! A whole store in one place: real SQLite, a backend in memory behind the flaky layer, the
//! engine, the workers, a clock that tests move.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::unfold;
use s3o_backend::Memory;
use s3o_backend::layers::Flaky;
use s3o_cache::CacheSettings;
use s3o_catalog::unit::{Row, Statement, Unit};
use s3o_catalog::{Catalog, Cleanups, Driver, Mode};
use s3o_engine::multipart::{UploadRef, UploadsQuery};
use s3o_engine::{
    BodyError, ByteStream, CopyObject, CopySource, Declared, Engine, Error, GetObject, OrphanAlarm, PutObject, Wanted,
};
use s3o_model::clock::{Clock, ManualClock, Timestamp};
use s3o_model::conditions::{ReadConditions, WriteCondition};
use s3o_model::entropy::SeededEntropy;
use s3o_model::names::{BucketName, ObjectKey};
use s3o_model::object::Attributes;
use s3o_workers::{Report, VerifyScope, Worker as _};

use crate::database::StillDatabase;
use crate::points::{Pointed, Points};
use crate::process::Process;
use crate::rest::{broken_at_rest, broken_now, is_at_rest, tick_all};
use crate::world::{Site, World};

/// What every key may hold: nothing, or one of these bodies.
pub type Expected = BTreeMap<&'static str, Vec<Option<Vec<u8>>>>;

/// A whole store: a process in a world of its own.
pub struct House {
    /// What does requests.
    pub engine: Engine,
    /// What makes the backend fail.
    pub flaky: Arc<Flaky>,
    /// The catalog.
    pub catalog: Arc<Catalog>,
    /// Every call to the catalog and to the backend.
    pub points: Points,
    /// The clock, moved by hand.
    pub clock: Arc<ManualClock>,
    /// What holds the bytes.
    pub memory: Arc<Memory>,
    /// The process.
    pub process: Process,
    driver: Arc<dyn Driver>,
    world: Arc<World>,
}

/// What outlives the process of a house.
#[derive(Clone)]
pub struct Ground {
    clock: Arc<ManualClock>,
    world: Arc<World>,
}

impl Ground {
    /// An empty world with one backend that takes bodies up to `put_bytes_max` in one go.
    #[must_use]
    pub fn new(put_bytes_max: u64) -> Self {
        let clock = Arc::new(ManualClock::starting_at(Timestamp::from_millis(1_700_000_000_000)));
        let shared: Arc<dyn Clock> = clock.clone();
        let site = Site::new("memory", put_bytes_max, None, &shared);
        let world = World::new(shared, Arc::new(SeededEntropy::new(7)), vec![site]);
        Self { clock, world: Arc::new(world) }
    }

    /// The same, with its catalog in this database, where there is one.
    #[must_use]
    pub fn on(self, database: Option<&StillDatabase>) -> Self {
        let world = Arc::into_inner(self.world).expect("nobody lives there yet").on(database);
        Self { world: Arc::new(world), ..self }
    }

    /// The same, with a bucket that keeps equal content once, or not.
    #[must_use]
    pub fn with_dedup(self, dedup: bool) -> Self {
        self.world.keep_once(bucket(), dedup);
        self
    }

    /// The same world, whose processes inform this of bytes that no row may name.
    #[must_use]
    pub fn with_alarm(mut self, alarm: Arc<dyn OrphanAlarm>) -> Self {
        let world = Arc::get_mut(&mut self.world).expect("nobody lives there yet");
        world.alarm = alarm;
        self
    }

    /// The same, with another backend behind the first.
    #[must_use]
    pub fn with_second_backend(mut self) -> Self {
        let shared: Arc<dyn Clock> = self.clock.clone();
        let world = Arc::get_mut(&mut self.world).expect("nobody lives there yet");
        world.sites.push(Site::new("second", 1 << 20, None, &shared));
        self
    }

    /// What holds the bytes of a backend, by its position in the fleet.
    #[must_use]
    pub fn memory(&self, position: usize) -> Arc<Memory> {
        self.world.sites[position].memory.clone()
    }

    /// The same world, whose processes keep bodies at hand.
    #[must_use]
    pub fn with_cache(mut self, settings: CacheSettings) -> Self {
        let world = Arc::get_mut(&mut self.world).expect("nobody lives there yet");
        world.cache = Some(settings);
        self
    }
}

impl House {
    /// A house whose backend takes bodies up to `put_bytes_max` in one go.
    pub async fn new(put_bytes_max: u64, mode: Mode) -> Self {
        Self::with_bucket(&Ground::new(put_bytes_max), mode).await
    }

    /// A house on empty ground.
    pub async fn with_bucket(ground: &Ground, mode: Mode) -> Self {
        let house = Self::on(ground, mode, Points::default()).await;
        house.engine.create_bucket(&bucket()).await.expect("a bucket");
        house
    }

    /// A house on what another one left.
    pub async fn on(ground: &Ground, mode: Mode, points: Points) -> Self {
        let Ground { clock, world } = ground.clone();
        let driver = world.open_catalog(mode).expect("a catalog");
        let flaky = world.sites[0].flaky.clone();
        flaky.set_weather(Some(Arc::new(points.clone())));
        let pointed = Arc::new(Pointed { inner: driver.clone(), points: points.clone() });
        let process = Process::start(&world, pointed, world.backends()).await.expect("a start");
        // An attach raises the mark, so a blow may strike it: the program tries again, and the dead wait.
        let attached = process.identity.attach().await || points.has_struck() && process.identity.attach().await;
        assert!(attached, "attached");
        let (engine, catalog) = (process.engine.clone(), process.catalog.clone());
        let memory = world.sites[0].memory.clone();
        Self { engine, flaky, catalog, points, clock, memory, process, driver, world }
    }

    /// Lets time pass, and cleanup do one tick.
    pub async fn clean_after(&self, time: Duration) -> Report {
        self.clean_over(self.catalog.clone(), time).await
    }

    /// The same, over another queue.
    pub async fn clean_over(&self, cleanups: Arc<dyn Cleanups>, time: Duration) -> Report {
        self.clock.advance(time);
        let mut report = Report::default();
        self.process.cleanup_over(cleanups).tick(&mut report).await.expect("a tick");
        report
    }

    /// Rows of the catalog.
    pub async fn rows(&self, sql: &'static str) -> Vec<Row> {
        self.driver.read(Statement::new(sql, vec![])).await.expect("rows")
    }

    /// Changes rows behind everybody's back.
    pub async fn change(&self, sql: &'static str) {
        let mut unit = Unit::new("change");
        unit.run(sql, vec![]);
        self.driver.write(unit).await.expect("a change");
    }

    /// How many bytes lie under keys that are not the program's own.
    #[must_use]
    pub fn bytes_stored(&self) -> u64 {
        self.memory.total_bytes()
    }

    /// Lets time pass and the workers run until nothing is owed any more.
    pub async fn settle(&self) {
        self.engine.tasks().drained().await;
        for _ in 0..40 {
            self.clock.advance(Duration::from_mins(10));
            self.engine.finish_leftovers().await;
            tick_all(&self.process.workers).await;
            if is_at_rest(self.driver.as_ref()).await {
                return;
            }
        }
        panic!("work is left: {:?}", self.catalog.depths().await);
    }

    /// What holds at every moment, right after a crash too: counts and books are exact, every byte has a row.
    pub async fn check_now(&self) {
        let broken = broken_now(&self.driver, &self.world).await;
        assert!(broken.is_empty(), "{broken:#?}");
    }

    /// The state at rest: the backend holds exactly what the catalog locates, the books agree, and
    /// every key holds one of the bodies it may hold.
    pub async fn check(&self, expected: &Expected) {
        self.settle().await;
        // What follows only looks.
        self.flaky.clear();
        let broken = broken_at_rest(&self.driver, &self.world).await;
        assert!(broken.is_empty(), "{broken:#?}");
        let verified = self.process.verifier.verify(VerifyScope::DEEP).await;
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

/// The one bucket.
#[must_use]
pub fn bucket() -> BucketName {
    "bucket".parse().expect("a name")
}

/// Any text as a key.
#[must_use]
pub fn key(text: &str) -> ObjectKey {
    text.parse().expect("a key")
}

/// A request to read all of an object.
#[must_use]
pub fn get(name: &str) -> GetObject {
    GetObject { bucket: bucket(), key: key(name), wanted: Wanted::Whole, conditions: ReadConditions::default() }
}

/// A request to copy an object as it is.
#[must_use]
pub fn copy(from: &str, to: &str) -> CopyObject {
    CopyObject {
        source: CopySource { bucket: bucket(), key: key(from), conditions: ReadConditions::default() },
        bucket: bucket(),
        key: key(to),
        replace_metadata: None,
        storage_class: None,
        replace_tags: None,
        condition: WriteCondition::None,
        checksum: None,
        expiry: None,
    }
}

impl House {
    /// A client's body: two chunks with a step before each, broken off when the client is gone.
    #[must_use]
    pub fn body(&self, bytes: &[u8], client: &Arc<()>) -> ByteStream {
        let half = bytes.len() / 2;
        let chunks = [Bytes::copy_from_slice(&bytes[..half]), Bytes::copy_from_slice(&bytes[half..])].into_iter();
        let state = (chunks, Arc::downgrade(client), self.points.clone());
        Box::pin(unfold(state, |(mut chunks, client, points)| async move {
            points.step().await;
            let chunk = chunks.next()?;
            let item = match client.upgrade() {
                Some(_) => Ok(chunk),
                None => Err(BodyError::Broken("the client hung up".to_owned())),
            };
            Some((item, (chunks, client, points)))
        }))
    }

    /// A request to store a body, from a client that lives as long as its token.
    #[must_use]
    pub fn put(&self, name: &str, bytes: &[u8], client: &Arc<()>) -> PutObject {
        PutObject {
            bucket: bucket(),
            key: key(name),
            size_bytes: bytes.len() as u64,
            body: self.body(bytes, client),
            declared: Declared::default(),
            attributes: Attributes::default(),
            condition: WriteCondition::None,
            expiry: None,
        }
    }
}
