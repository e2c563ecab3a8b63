//! Backend errors, named by what a caller can do about them.

/// Why a body was not received completely.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BodyError {
    /// The producer failed: the client disconnected, or the source backend failed.
    #[error("the body was interrupted: {0}")]
    Broken(String),
    /// The receiver cancelled the write; the sender did nothing wrong and may send again.
    #[error("the write was cancelled: {0}")]
    Cancelled(&'static str),
    /// Fewer bytes arrived than announced.
    #[error("the body ended after {received} of {expected} bytes")]
    Short {
        /// Bytes announced.
        expected: u64,
        /// Bytes received.
        received: u64,
    },
    /// More bytes arrived than announced.
    #[error("the body is longer than the {expected} bytes announced")]
    Long {
        /// Bytes announced.
        expected: u64,
    },
    /// The bytes do not match a digest that the sender declared.
    #[error("the body does not match its {0}")]
    Mismatch(&'static str),
}

/// Why a backend call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The key is proven absent.
    #[error("no such key")]
    NotFound,
    /// The body was not received completely; the backend did nothing wrong.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// The store is full; another one may have free space.
    #[error("no space left: {0}")]
    NoSpace(String),
    /// The store is unreachable or throttles requests; a retry may succeed.
    #[error("unavailable: {0}")]
    Away(String),
    /// The request was not sent, because the circuit breaker of the store is open; nothing can arrive there later.
    #[error("not sent: {0}")]
    NotSent(&'static str),
    /// The store rejected the request; a retry does not help.
    #[error("refused: {0}")]
    Refused(String),
    /// The outcome of the request is unknown: no answer, or one that cannot be interpreted.
    #[error("unknown outcome: {0}")]
    Unknown(String),
    /// The backend does not implement the operation.
    #[error("not supported: {0}")]
    Unsupported(&'static str),
}
