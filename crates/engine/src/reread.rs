//! Reading bytes back from their backend, for those who must know what is really there.

use futures_util::StreamExt as _;
use s3o_backend::{Backend, BodyError, Error as BackendError};
use s3o_model::checksum::Algorithm;

use crate::body::{DigestedBody, digested};
use crate::digest::Digests;
use crate::leases::Watch;

/// Reads all bytes under a key and digests them. Bytes that are more or fewer than `size_bytes`
/// are `Error::Body`.
pub async fn reread(
    backend: &dyn Backend,
    physical_key: &str,
    size_bytes: u64,
    checksum: Option<Algorithm>,
) -> Result<Digests, BackendError> {
    let bytes = backend.get(physical_key, None).await?;
    let DigestedBody { mut stream, digests } =
        digested(bytes, size_bytes, checksum, Box::new(|_| Ok(())), Watch::default()).await?;
    while let Some(chunk) = stream.next().await {
        drop(chunk?);
    }
    let unread = |_| BackendError::Body(BodyError::Broken("it was not read to its end".to_owned()));
    digests.ready().await.map_err(unread)
}
