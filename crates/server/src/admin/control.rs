//! What the admin door needs from the rest of the program.

use async_trait::async_trait;
use s3o_model::cleanup::Selection;
use s3o_model::ids::DeadLetterId;
use s3o_workers::{Bounds, Disposal, Disposed, FindingSelection, VerifyScope};
use serde_json::Value;

use super::status::Status;

/// Tells whether requests can be served.
#[async_trait]
pub trait Readiness: Send + Sync {
    /// Whether they can, and what is unavailable.
    async fn ready(&self) -> ReadyReport;
}

/// Whether requests can be served.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadyReport {
    /// Whether they can.
    pub ready: bool,
    /// Names of what is unavailable, such as `backend disk: away`. Shown without a token: no causes.
    pub unavailable: Vec<String>,
}

/// Tells how the whole is.
#[async_trait]
pub trait StatusSource: Send + Sync {
    /// How it is now, or why that cannot be told.
    async fn status(&self) -> Result<Status, String>;
}

/// Changes how far the clock is trusted.
#[async_trait]
pub trait ClockControl: Send + Sync {
    /// Trusts the clock; returns why it was not trusted, if it was not, or why the catalog did not answer.
    async fn accept(&self) -> Result<Option<String>, String>;
}

/// Why a worker was not paused or resumed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkerError {
    /// No worker has that name.
    #[error("there is no such worker")]
    NotFound,
    /// The catalog is away; try again later.
    #[error("away: {0}")]
    Away(String),
}

/// Shows and steers the workers.
#[async_trait]
pub trait WorkerControl: Send + Sync {
    /// Every worker as an object with its `name`, in the order of the names.
    async fn list(&self) -> Result<Vec<Value>, WorkerError>;

    /// Runs a worker until its backlog is done or its budget spent; `None` where none has that name.
    async fn run(&self, name: &str) -> Option<Value>;

    /// What a run would do, told as the report of one; `None` where the worker cannot tell beforehand.
    async fn rehearse(&self, name: &str) -> Result<Option<Value>, WorkerError>;

    /// Keeps a worker from running on its own, or lets it again.
    async fn set_paused(&self, name: &str, paused: bool) -> Result<(), WorkerError>;
}

/// Why a backend was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AcceptError {
    /// No backend has that name.
    #[error("no such backend")]
    NotFound,
    /// Nothing was changed; here is what would be accepted.
    #[error("{why}")]
    Refused {
        /// Why nothing was changed.
        why: String,
        /// What would be accepted.
        shown: Value,
    },
    /// No host of that name has a record of this backend.
    #[error("no such record")]
    NoRecord,
    /// The backend or the catalog is away; try again later.
    #[error("away: {0}")]
    Away(String),
}

/// Changes backends on request.
#[async_trait]
pub trait BackendControl: Send + Sync {
    /// Accepts a backend as it was found, if what was found has this hash.
    async fn accept(&self, name: &str, found: Option<&str>) -> Result<(), AcceptError>;

    /// Dismisses what a host found at a backend.
    async fn dismiss(&self, name: &str, host: &str) -> Result<(), AcceptError>;
}

/// Shows the cleanup queue and the dead letters, and disposes of these. Errors say why the catalog
/// did not answer.
#[async_trait]
pub trait QueueControl: Send + Sync {
    /// Rows of the queue behind a number, in their order, as objects with their `id`.
    async fn cleanups(&self, which: &Selection, after: i64, limit: usize) -> Result<Vec<Value>, String>;

    /// Dead letters behind a number, in their order, as objects with their `id`.
    async fn dead_letters(&self, which: &Selection, after: i64, limit: usize) -> Result<Vec<Value>, String>;

    /// Findings with numbers above `after`, in ascending order, as objects with their `id`.
    async fn findings(&self, which: &FindingSelection, after: i64, limit: usize) -> Result<Vec<Value>, String>;

    /// Disposes of one dead letter; `None` where there is none of that number.
    async fn dispose_one(&self, disposal: Disposal, id: DeadLetterId) -> Result<Option<Disposed>, String>;

    /// Everything that is a dead letter now; `None` where nothing is.
    async fn bounds(&self) -> Result<Option<Bounds>, String>;

    /// Disposes of some of those that are selected, and tells what is left.
    async fn dispose_step(
        &self,
        disposal: Disposal,
        which: &Selection,
        bounds: Bounds,
    ) -> Result<(Disposed, Option<Bounds>), String>;
}

/// Shows what lifecycle rules would do.
#[async_trait]
pub trait LifecycleControl: Send + Sync {
    /// What every rule in force would remove now, or why that cannot be told.
    async fn preview(&self) -> Result<Value, String>;
}

/// Verifies the invariants on request.
#[async_trait]
pub trait VerifyControl: Send + Sync {
    /// Checks everything that can be checked now; `deep` lists the backends too.
    async fn verify(&self, scope: VerifyScope) -> Value;

    /// How far a verification has come.
    fn progress(&self) -> Value;
}

/// A log level that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a log level such as info, or a list such as info,s3o_workers=debug")]
pub struct InvalidLevel(pub String);

/// What is logged.
pub trait LogLevel: Send + Sync {
    /// The level in force.
    fn level(&self) -> String;

    /// Another level from now on.
    fn set_level(&self, level: &str) -> Result<(), InvalidLevel>;
}
