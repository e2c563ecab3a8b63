//! What the admin door needs from the rest of the program.

use async_trait::async_trait;

/// Tells whether requests can be served.
#[async_trait]
pub trait Readiness: Send + Sync {
    /// Whether they can.
    async fn ready(&self) -> bool;
}

/// Runs workers on request.
#[async_trait]
pub trait WorkerControl: Send + Sync {
    /// Runs a worker until its backlog is done or its budget spent; `None` where none has that name.
    async fn run(&self, name: &str) -> Option<serde_json::Value>;
}

/// Why a backend was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AcceptError {
    /// No backend has that name.
    #[error("no such backend")]
    NotFound,
    /// The backend is not in a state to be accepted.
    #[error("{0}")]
    Refused(String),
    /// The backend or the catalog is away; try again later.
    #[error("away: {0}")]
    Away(String),
}

/// Changes backends on request.
#[async_trait]
pub trait BackendControl: Send + Sync {
    /// Takes a backend's present identity as its own.
    async fn accept(&self, name: &str) -> Result<(), AcceptError>;
}
