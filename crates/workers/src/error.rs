//! Why a worker's tick came to nothing.

/// Why a worker's tick came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The catalog did not do its part.
    #[error(transparent)]
    Catalog(#[from] s3o_catalog::Error),
    /// A backend did not do its part.
    #[error("backend {backend}: {source}")]
    Backend {
        /// Which one.
        backend: s3o_model::names::BackendName,
        /// Why.
        source: s3o_backend::Error,
    },
    /// There is no backend of that name.
    #[error("no backend is named {0}")]
    NoSuchBackend(String),
}
