//! The error type of this crate.

/// Why a worker's tick failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A catalog call failed.
    #[error(transparent)]
    Catalog(#[from] s3o_catalog::Error),
    /// A backend call failed.
    #[error("backend {backend}: {source}")]
    Backend {
        /// Name of the backend.
        backend: s3o_model::names::BackendName,
        /// The backend's error.
        source: s3o_backend::Error,
    },
    /// The listing of a backend cannot be relied on.
    #[error("backend {backend}: {fault}")]
    Listing {
        /// Name of the backend.
        backend: s3o_model::names::BackendName,
        /// What is wrong with it.
        fault: s3o_model::reconcile::PassFault,
    },
    /// No configured backend has this name.
    #[error("backend {0} is not configured")]
    NoSuchBackend(String),
}

impl Error {
    pub(crate) fn of(backend: &s3o_backend::SharedBackend, source: s3o_backend::Error) -> Self {
        Self::Backend { backend: backend.name().clone(), source }
    }
}
