//! Reads stored bytes back from a backend to compute their digests.

use futures_util::StreamExt as _;
use s3o_backend::{Backend, BodyError, Error as BackendError};
use s3o_model::checksum::Algorithm;
use s3o_model::target::KeyVersion;

use crate::body::{DigestedBody, digested};
use crate::digest::Digests;
use crate::leases::LeaseWatch;

/// Reads all bytes of a physical key or of a version of it, and computes their digests. A length other than
/// `size_bytes` is `Error::Body`.
pub async fn reread(
    backend: &dyn Backend,
    at: KeyVersion<'_>,
    size_bytes: u64,
    checksum: Option<Algorithm>,
) -> Result<Digests, BackendError> {
    let bytes = backend.get(at, None).await?;
    let DigestedBody { mut stream, digests } =
        digested(bytes, size_bytes, checksum, Box::new(|_| Ok(())), LeaseWatch::default()).await?;
    while let Some(chunk) = stream.next().await {
        drop(chunk?);
    }
    let incomplete = |_| BackendError::Body(BodyError::Broken("not read to its end".to_owned()));
    digests.ready().await.map_err(incomplete)
}
