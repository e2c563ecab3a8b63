//! Why a benchmark failed.

use std::fmt;

/// Why a benchmark failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An option is missing or unusable.
    #[error("{0}")]
    Usage(String),
    /// A request, a server or the machine failed.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    pub(crate) fn of(what: &str, why: impl fmt::Display) -> Self {
        Self::Failed(format!("{what}: {why}"))
    }
}
