//! A whole store whose backend can be bent and whose driver can be misled.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use s3o_backend::Fleet;
use s3o_catalog::unit::Statement;
use s3o_catalog::{Catalog, Identities as _, Mode, Quotas as _, Sqlite, SqliteOptions};
use s3o_engine::{Declared, DeleteObject, Engine, EngineParts, Error, IntentMetrics, PutObject, Settings};
use s3o_model::backoff::Backoff;
use s3o_model::cleanup::Retries;
use s3o_model::clock::{ManualClock, Timestamp};
use s3o_model::conditions::WriteCondition;
use s3o_model::entropy::{Entropy, SeededEntropy};
use s3o_model::ids::{IdSource, InstanceId};
use s3o_model::names::{BackendName, BucketName};
use s3o_model::object::Attributes;
use s3o_model::recovery::Recovery;
use s3o_workers::{
    Budget, Cleanup, CleanupSettings, Identity, IdentityParts, IdentitySettings, Pace, PendingReaper, ReaperSettings,
    Report, Worker,
};
use tempfile::TempDir;
use tokio::sync::Notify;

use crate::bent::{Bend, Bent};
use crate::misled::Misled;
use crate::{LEAKED, LOST};

pub const LEASE: Duration = Duration::from_mins(5);
pub const LATE: Duration = Duration::from_hours(1);

/// How a house is built.
pub struct Plan {
    pub bend: Bend,
    pub announce: bool,
    /// The largest body that the backend takes in one go.
    pub put_bytes_max: u64,
    pub late_write_window: Duration,
    /// How long a comparison of identities is good for.
    pub identity_age: Duration,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            bend: Bend::default(),
            announce: true,
            put_bytes_max: u64::MAX,
            late_write_window: LATE,
            identity_age: Duration::ZERO,
        }
    }
}

pub struct House {
    pub engine: Engine,
    pub bent: Arc<Bent>,
    pub misled: Arc<Misled>,
    pub catalog: Arc<Catalog>,
    pub clock: Arc<ManualClock>,
    pub identity: Arc<Identity>,
    cleanup: Cleanup,
    reaper: PendingReaper,
    _folder: TempDir,
}

/// What the engine and the workers share.
struct Shared {
    plan: Plan,
    catalog: Arc<Catalog>,
    fleet: Arc<Fleet>,
    identity: Arc<Identity>,
    ids: IdSource,
    entropy: Arc<dyn Entropy>,
    clock: Arc<ManualClock>,
    instance: InstanceId,
    bell: Arc<Notify>,
}

impl Shared {
    fn engine(&self) -> Engine {
        Engine::new(EngineParts {
            catalog: self.catalog.clone(),
            fleet: self.fleet.clone(),
            ids: self.ids.clone(),
            clock: self.clock.clone(),
            instance: self.instance,
            settings: Settings {
                lease: LEASE,
                late_write_window: self.plan.late_write_window,
                object_bytes_max: 1 << 40,
                announce: self.plan.announce,
                recovery: Recovery::Promote,
            },
            configured: s3o_model::shared::Shared::default(),
            configured_rules: s3o_model::shared::Shared::default(),
            cleanup_bell: self.bell.clone(),
            metrics: IntentMetrics::default(),
            alarm: Arc::new(()),
            cache: None,
        })
    }

    fn cleanup(&self) -> Cleanup {
        let backoff = Backoff { min: Duration::from_mins(1), max: Duration::from_mins(10) };
        Cleanup {
            cleanups: self.catalog.clone(),
            contents: self.catalog.clone(),
            fleet: self.fleet.clone(),
            identity: self.identity.clone(),
            ids: self.ids.clone(),
            instance: self.instance,
            entropy: self.entropy.clone(),
            settings: CleanupSettings {
                batch_size: 100,
                concurrency: 4,
                claim_grace_period: Duration::from_mins(5),
                reader_grace: Duration::from_mins(1),
                retries: Retries { backoff, max_attempts: 10 },
            },
            budget: Budget::new(1),
            pace: Pace::default(),
            clock_guard: None,
        }
    }

    fn reaper(&self) -> PendingReaper {
        PendingReaper {
            intents: self.catalog.clone(),
            objects: self.catalog.clone(),
            fleet: self.fleet.clone(),
            identity: self.identity.clone(),
            configured: s3o_model::bucket::ConfiguredBuckets::default(),
            ids: self.ids.clone(),
            metrics: IntentMetrics::default(),
            settings: ReaperSettings {
                batch_size: 100,
                concurrency: 4,
                hold: LEASE,
                rest_min: Duration::from_mins(1),
                late_write_window: self.plan.late_write_window,
                recovery: Recovery::Promote,
            },
            cleanup_bell: self.bell.clone(),
        }
    }
}

impl House {
    pub async fn new(plan: Plan) -> Self {
        let shared_memory = std::path::Path::new("/dev/shm");
        let folder = tempfile::tempdir_in(shared_memory).or_else(|_| tempfile::tempdir()).expect("a folder");
        let clock = Arc::new(ManualClock::starting_at(Timestamp::from_millis(1_700_000_000_000)));
        let entropy: Arc<dyn Entropy> = Arc::new(SeededEntropy::new(7));
        let ids = IdSource::new(clock.clone(), entropy.clone());
        let options =
            SqliteOptions { path: folder.path().join("catalog.db"), mode: Mode::Inline, clock: clock.clone() };
        let misled = Arc::new(Misled::new(Arc::new(Sqlite::open(&options).expect("a catalog"))));
        let catalog = Arc::new(Catalog::new(misled.clone()));
        let name: BackendName = "memory".parse().expect("a name");
        catalog.set_limit(&name, None).await.expect("books");
        let bent = Arc::new(Bent::new(&name, plan.bend, plan.put_bytes_max));
        let fleet = Arc::new(Fleet::new(vec![bent.clone()]).expect("a fleet"));
        let identity = Arc::new(Identity::new(IdentityParts {
            identities: catalog.clone(),
            records: catalog.clone(),
            fleet: fleet.clone(),
            ids: ids.clone(),
            clock: clock.clone(),
            cluster: catalog.cluster_id("cluster").await.expect("a cluster"),
            host: "host:9000".to_owned(),
            alarm: Arc::new(()),
            settings: IdentitySettings {
                max_age: HashMap::from([(name, plan.identity_age)]),
                ..IdentitySettings::default()
            },
        }));
        assert!(identity.attach().await, "attached");
        let instance = InstanceId::new(ids.fresh());
        let shared = Shared { plan, catalog, fleet, identity, ids, entropy, clock, instance, bell: Arc::default() };
        let (engine, cleanup, reaper) = (shared.engine(), shared.cleanup(), shared.reaper());
        engine.create_bucket(&bucket()).await.expect("a bucket");
        let Shared { catalog, clock, identity, .. } = shared;
        Self { engine, bent, misled, catalog, clock, identity, cleanup, reaper, _folder: folder }
    }

    /// Stores a body, and says what the client is told.
    pub async fn put(&self, key: &str, body: &'static str) -> Result<(), Error> {
        self.put_declared(key, body, Declared::default()).await
    }

    pub async fn put_declared(&self, key: &str, body: &'static str, declared: Declared) -> Result<(), Error> {
        let put = PutObject {
            bucket: bucket(),
            key: key.parse().expect("a key"),
            size_bytes: body.len() as u64,
            body: Box::pin(futures_util::stream::iter([Ok(Bytes::from_static(body.as_bytes()))])),
            declared,
            attributes: Attributes::default(),
            condition: WriteCondition::None,
            expiry: None,
        };
        self.engine.put_object(put).await.map(drop)
    }

    pub async fn delete(&self, key: &str) {
        let key = key.parse().expect("a key");
        let delete = DeleteObject { bucket: bucket(), key, condition: WriteCondition::None };
        self.engine.delete_object(delete).await.expect("deleted");
    }

    /// Lets time pass, and cleanup do one tick.
    pub async fn clean_after(&self, time: Duration) {
        self.clock.advance(time);
        self.cleanup.tick(&mut Report::default()).await.expect("a tick");
    }

    /// Lets time pass, and the reaper do one tick.
    pub async fn reap_after(&self, time: Duration) {
        self.clock.advance(time);
        self.reaper.tick(&mut Report::default()).await.expect("a tick");
    }

    pub async fn texts(&self, sql: &'static str) -> Vec<String> {
        let rows = self.misled.inner.read(Statement::new(sql, vec![])).await.expect("a query");
        rows.iter().map(|row| row.text(0).expect("text").to_owned()).collect()
    }

    /// What is wrong once nothing goes wrong any more and the workers had a day.
    pub async fn damage(&self) -> Vec<&'static str> {
        self.bent.flaky.clear();
        for _ in 0..24 * 6 {
            self.reap_after(Duration::from_mins(10)).await;
            self.clean_after(Duration::ZERO).await;
        }
        let place = |key: &String| self.bent.place(key).to_owned();
        let stored = self.bent.memory.keys().into_iter().filter(|key| !key.starts_with(".s3o/"));
        let stored: BTreeSet<String> = stored.collect();
        let located = self.texts("SELECT physical_key FROM object_locations").await;
        let located: BTreeSet<String> = located.iter().map(place).collect();
        let owed = "SELECT physical_key FROM cleanup_queue UNION ALL SELECT physical_key FROM cleanup_dlq \
             UNION ALL SELECT physical_key FROM pending_objects";
        let owed: BTreeSet<String> = self.texts(owed).await.iter().map(place).collect();
        let mut damage = Vec::new();
        let unnamed = stored.iter().any(|key| !located.contains(key) && !owed.contains(key));
        if unnamed || self.bent.memory.uploads() > 0 {
            damage.push(LEAKED);
        }
        if located.iter().any(|key| !stored.contains(key)) {
            damage.push(LOST);
        }
        damage
    }
}

pub fn bucket() -> BucketName {
    "bucket".parse().expect("a name")
}
