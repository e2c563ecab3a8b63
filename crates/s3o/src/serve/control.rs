//! What the admin door may ask of the rest.

use std::sync::Arc;

use async_trait::async_trait;
use s3o_backend::Fleet;
use s3o_cache::Cache;
use s3o_catalog::{Buckets as _, Catalog, Cleanups as _, DeadLetters as _, Integrity, Longest, OldestDue, Quotas as _};
use s3o_model::clock::Clock;
use s3o_model::ids::InstanceId;
use s3o_model::names::BackendName;
use s3o_model::quota::Books;
use s3o_model::shared::Shared;
use s3o_server::admin::{
    AcceptError, BackendControl, BackendStatus, BucketStatus, CacheStatus, ClockControl, ClockState, ClockStatus,
    OldestDueStatus, QueueStatus, Readiness, ReadyReport, SharedHealth, Status, StatusSource, VerifyControl,
    WorkerControl, WorkerError,
};
use s3o_workers::{
    AcceptAnswer, ClockGuard, DeadLetterOffice, Error, Identity, Runner, SharedRules, Verifier, VerifierParts,
    VerifyScope,
};
use serde_json::Value;

use super::health;
use crate::tally::{Counts, Tally};

/// The parts that the admin door acts upon.
pub struct Controls {
    /// The workers.
    pub runner: Arc<Runner>,
    /// The lifecycle rules of the configuration.
    pub lifecycle_rules: SharedRules,
    /// The identities of the backends.
    pub identity: Arc<Identity>,
    /// What is known.
    pub catalog: Arc<Catalog>,
    /// What is counted.
    pub tally: Arc<Tally>,
    /// The backends.
    pub fleet: Arc<Fleet>,
    /// Where dead letters are disposed of.
    pub office: DeadLetterOffice,
    /// How a damaged catalog is restored.
    pub restore: &'static str,
    /// What checks the invariants.
    pub verifier: Verifier,
    /// This process.
    pub instance: InstanceId,
    /// What keeps bodies at hand.
    pub cache: Option<Arc<Cache>>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// What watches the clock, where this process's clock counts.
    pub clock_guard: Option<Arc<ClockGuard>>,
}

/// What checks the invariants of this catalog and these backends.
pub fn verifier(
    catalog: &Arc<Catalog>,
    fleet: &Arc<Fleet>,
    identity: &Arc<Identity>,
    longest: &Shared<Longest>,
) -> Verifier {
    Verifier::new(VerifierParts {
        verification: catalog.clone(),
        quotas: catalog.clone(),
        fleet: Arc::clone(fleet),
        identity: Arc::clone(identity),
        ahead: catalog.clone(),
        longest: longest.clone(),
    })
}

impl Controls {
    fn backend(&self, books: &Books, written_off: &[(BackendName, u64)], counts: Option<&Counts>) -> BackendStatus {
        let health = health::of(&self.fleet, &books.backend, self.clock.now());
        BackendStatus {
            name: books.backend.to_string(),
            used: books.used_bytes,
            limit: books.limit_bytes,
            orphan: books.orphan_bytes,
            written_off: written_off.iter().find(|(name, _)| *name == books.backend).map_or(0, |(_, bytes)| *bytes),
            reserved: books.reserved_bytes,
            objects: counts.and_then(|counts| counts.locations(&books.backend)),
            draining: false,
            deletes_wait: self.identity.deletes_wait(&books.backend),
            ..health
        }
    }

    /// Sorts backends in the order in which writes fill them; those that are not configured come last, by name.
    fn in_fill_order(&self, mut books: Vec<Books>) -> Vec<Books> {
        let place = |books: &Books| self.fleet.backends().position(|backend| *backend.name() == books.backend);
        books.sort_by_key(|books| (place(books).unwrap_or(usize::MAX), books.backend.clone()));
        books
    }

    async fn views(&self) -> Result<Vec<Value>, Error> {
        let mut views = self.runner.list().await?;
        views.sort_by_key(|view| view.name);
        Ok(views.iter().map(|view| serde_json::to_value(view).expect("a view always serialises")).collect())
    }

    async fn look(&self) -> Result<Status, Error> {
        let books = self.in_fill_order(self.catalog.books().await?);
        let depths = self.catalog.depths().await?;
        let written_off = self.catalog.written_off().await?;
        let queues = QueueStatus {
            cleanup: depths.cleanups,
            dead_letters: depths.dead_letters,
            intents: depths.intents,
            uploads: depths.uploads,
            oldest_due_seconds: oldest_due(self.tally.oldest_due().await?),
        };
        let buckets = match self.catalog.buckets().await {
            // A damaged catalog lists nothing; everything else is still shown.
            Err(_) if self.catalog.condition().is_damaged() => Vec::new(),
            found => found?,
        };
        let counts = self.tally.counts().await;
        let counts = counts.as_deref();
        Ok(Status {
            instance: self.instance.to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            catalog: super::catalog::status(&self.catalog, self.restore),
            backends: books.iter().map(|books| self.backend(books, &written_off, counts)).collect(),
            buckets: buckets.iter().map(|found| bucket(found.name.as_str(), counts)).collect(),
            queues,
            cache: self.cache.as_deref().map(cache),
            clock: clock(self.clock_guard.as_deref()),
            workers: self.views().await?,
            warnings: health::unconfigured(&books, &self.fleet).map(|(_, warning)| warning).collect(),
        })
    }
}

fn bucket(name: &str, counts: Option<&Counts>) -> BucketStatus {
    let count = counts.and_then(|counts| counts.bucket(name));
    BucketStatus {
        name: name.to_owned(),
        objects: count.map(|count| count.objects),
        bytes: count.map(|count| count.bytes),
        saved: count.map(|count| count.saved),
    }
}

fn cache(cache: &Cache) -> CacheStatus {
    let standing = cache.standing();
    CacheStatus {
        entries: standing.entries,
        bytes: standing.bytes,
        limit: standing.max_bytes,
        hits: standing.hits,
        misses: standing.misses,
        shared_hits: standing.shared_hits,
        shared: match standing.shared_reachable {
            None => SharedHealth::None,
            Some(true) => SharedHealth::Ok,
            Some(false) => SharedHealth::Away,
        },
    }
}

fn clock(guard: Option<&ClockGuard>) -> ClockStatus {
    let Some(guard) = guard else { return ClockStatus { state: ClockState::Database, ..ClockStatus::default() } };
    match guard.held() {
        None => ClockStatus::default(),
        Some(hold) => {
            ClockStatus { state: ClockState::Held, reason: Some(hold.reason), since: Some(hold.since.to_string()) }
        }
    }
}

fn oldest_due(due: OldestDue) -> OldestDueStatus {
    OldestDueStatus {
        cleanup: due.cleanup.as_secs_f64(),
        pending_intents: due.pending_intents.as_secs_f64(),
        stale_multipart: due.stale_multipart.as_secs_f64(),
        expiry: due.expiry.as_secs_f64(),
    }
}

#[async_trait]
impl Readiness for Controls {
    /// Ready means that the catalog answers and is not damaged, and that some backend was readable within the last half
    /// minute. A backend that is away is an error of the requests that need it; the others go on.
    async fn ready(&self) -> ReadyReport {
        let catalog = match self.catalog.condition().integrity() {
            damaged @ Integrity::Damaged(_) => Some(damaged.as_str()),
            _ => self.catalog.books().await.is_err().then_some("unavailable"),
        };
        health::readiness(&self.fleet, catalog, self.clock.now())
    }
}

#[async_trait]
impl StatusSource for Controls {
    async fn status(&self) -> Result<Status, String> {
        self.look().await.map_err(|error| error.to_string())
    }
}

#[async_trait]
impl WorkerControl for Controls {
    async fn list(&self) -> Result<Vec<Value>, WorkerError> {
        self.views().await.map_err(|error| WorkerError::Away(error.to_string()))
    }

    async fn run(&self, name: &str) -> Option<Value> {
        let report = self.runner.run_now(name).await?;
        Some(serde_json::to_value(report).expect("a report always serialises"))
    }

    async fn rehearse(&self, name: &str) -> Result<Option<Value>, WorkerError> {
        match name {
            "lifecycle" => self.rehearse_lifecycle().await.map(Some).map_err(WorkerError::Away),
            _ if self.views().await.is_ok_and(|views| views.iter().all(|view| view["name"] != name)) => {
                Err(WorkerError::NotFound)
            }
            _ => Ok(None),
        }
    }

    async fn set_paused(&self, name: &str, paused: bool) -> Result<(), WorkerError> {
        let set = if paused { self.runner.pause(name).await } else { self.runner.resume(name).await };
        match set {
            Ok(true) => Ok(()),
            Ok(false) => Err(WorkerError::NotFound),
            Err(error) => Err(WorkerError::Away(error.to_string())),
        }
    }
}

#[async_trait]
impl ClockControl for Controls {
    async fn accept(&self) -> Result<Option<String>, String> {
        let Some(guard) = &self.clock_guard else { return Ok(None) };
        let held = guard.accept().await.map_err(|error| error.to_string())?;
        Ok(held.map(|hold| hold.reason))
    }
}

#[async_trait]
impl VerifyControl for Controls {
    async fn verify(&self, scope: VerifyScope) -> Value {
        serde_json::to_value(self.verifier.verify(scope).await).expect("a report always serialises")
    }

    fn progress(&self) -> Value {
        serde_json::to_value(self.verifier.progress()).expect("progress always serialises")
    }
}

fn not_accepted(error: &Error) -> AcceptError {
    match error {
        Error::NoSuchBackend(_) => AcceptError::NotFound,
        Error::Backend { .. } | Error::Catalog(_) => AcceptError::Away(error.to_string()),
    }
}

#[async_trait]
impl BackendControl for Controls {
    async fn accept(&self, name: &str, found: Option<&str>) -> Result<(), AcceptError> {
        match self.identity.accept(name, found).await.map_err(|error| not_accepted(&error))? {
            AcceptAnswer::Accepted => Ok(()),
            AcceptAnswer::Refused { why, shown } => {
                let shown = serde_json::to_value(shown).expect("a view always serialises");
                Err(AcceptError::Refused { why, shown })
            }
        }
    }

    async fn dismiss(&self, name: &str, host: &str) -> Result<(), AcceptError> {
        let dismissed = self.identity.dismiss(name, host).await.map_err(|error| not_accepted(&error))?;
        if dismissed { Ok(()) } else { Err(AcceptError::NoRecord) }
    }
}
