//! The state that the handlers of all operations share. [`super::operations`] maps operations to handlers.

use std::sync::Arc;

use s3o_engine::Engine;
use s3s::{S3Response, S3Result};

use super::access::SharedKeys;
use super::reserved_share::ReservedShare;
use crate::audit::Audit;

/// Answers S3 operations from the engine.
#[derive(Clone)]
pub struct S3Handler {
    /// Executes the operations.
    pub engine: Arc<Engine>,
    /// The access keys; a key sees only the buckets that it has a grant on.
    pub keys: SharedKeys,
    /// The region of all buckets.
    pub region: String,
    /// Limits the capacity that one access key may reserve.
    pub reserved_share: ReservedShare,
    /// Records expired objects that the deletion of a bucket removes.
    pub audit: Arc<Audit>,
}

/// The answer to an operation.
pub type S3Answer<T> = S3Result<S3Response<T>>;
