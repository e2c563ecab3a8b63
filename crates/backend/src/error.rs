//! Backend errors, named by what a caller can do about them.

/// Why a body did not arrive whole.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BodyError {
    /// The producer gave up: a client hung up, a source broke.
    #[error("the body broke off: {0}")]
    Broken(String),
    /// The receiving side gave the write up; the sender is not to blame and may send again.
    #[error("the write was given up: {0}")]
    GivenUp(&'static str),
    /// Fewer bytes came than were announced.
    #[error("the body ended after {received} of {expected} bytes")]
    Short {
        /// Bytes announced.
        expected: u64,
        /// Bytes received.
        received: u64,
    },
    /// More bytes came than were announced.
    #[error("the body is longer than the {expected} bytes announced")]
    Long {
        /// Bytes announced.
        expected: u64,
    },
    /// The bytes do not match a digest that the sender declared.
    #[error("the body does not match its {0}")]
    Mismatch(&'static str),
}

/// Why a backend did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The key is proven absent.
    #[error("no such key")]
    NotFound,
    /// The body did not arrive whole; the backend is not to blame.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// The store is full; another one may have room.
    #[error("no room left: {0}")]
    NoRoom(String),
    /// The store cannot be reached, or asks us to slow down; try again later.
    #[error("away: {0}")]
    Away(String),
    /// The store understood and refuses: trying again does not help.
    #[error("refused: {0}")]
    Refused(String),
    /// The store answered something that does not tell what happened.
    #[error("unknown outcome: {0}")]
    Unknown(String),
    /// This backend has no such ability.
    #[error("not supported: {0}")]
    Unsupported(&'static str),
}
