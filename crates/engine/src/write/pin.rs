//! Writes of bytes that are already stored: an intent pins the content, and the body is only read and compared.

use futures_util::StreamExt as _;
use s3o_backend::{ByteStream, Error as BackendError};
use s3o_catalog::{ContentPlan, Error as CatalogError, Pin, StoredBytes, Verdict};
use s3o_model::ids::{ContentId, IntentId, WriteId};
use s3o_model::write_outcome::WriteFailure;

use super::outcome::FailedWrite;
use super::{HeldBy, WriteTarget, WrittenBytes, verification};
use crate::body::{DigestedBody, digested};
use crate::digest::Digests;
use crate::leases::Lease;
use crate::put_object::Declared;
use crate::{Engine, Error};

/// A write that pins existing content instead of storing bytes.
pub(crate) struct PinnedWrite {
    write: WriteId,
    content: ContentId,
    /// Number of copies of the content that were checked.
    copies: usize,
    lease: Lease,
}

impl PinnedWrite {
    pub(super) const fn write(&self) -> WriteId {
        self.write
    }

    pub(super) fn failed(&self) -> FailedWrite<'_> {
        FailedWrite { write: self.write, leases: vec![&self.lease], copies: &[] }
    }

    /// The argument of the catalog's commit.
    pub(super) fn stored(&self) -> StoredBytes {
        StoredBytes::Pinned { write: self.write, content: self.content, copies: self.copies }
    }
}

impl Engine {
    /// Pins content with the declared SHA-256, if the bucket deduplicates and has such content with a good copy. Needs
    /// a digest that was declared before the body, and intents.
    pub(super) async fn pin(
        &self,
        target: &WriteTarget<'_>,
        declared: &Declared,
    ) -> Result<Option<PinnedWrite>, Error> {
        let can_pin = target.settings.dedup && self.settings().announce;
        let Some(sha256) = declared.digests.sha256.filter(|_| can_pin) else { return Ok(None) };
        let copies = self.write_copies(&target.settings).min;
        let content = self.sharing.content_to_pin(target.bucket, sha256, target.size_bytes, copies).await?;
        let Some(content) = content else { return Ok(None) };
        let id = self.ids.fresh();
        let pin = Pin {
            id: IntentId::new(id),
            write: WriteId::new(id),
            kind: target.kind,
            bucket: target.bucket,
            key: target.key.clone(),
            content,
            copies,
            size_bytes: target.size_bytes,
            owner: self.instance,
            lease: self.settings().lease,
        };
        let term = self.lease_term();
        let until = match self.counted(pin.write, self.catalog.pin(&pin).await) {
            // Meanwhile the content was condemned, or its copies were found bad.
            Err(CatalogError::Guard(Verdict::ResolveAgain)) => return Ok(None),
            until => until?,
        };
        let lease = self.leases.hold(pin.id, until, term);
        Ok(Some(PinnedWrite { write: pin.write, content, copies, lease }))
    }

    /// Reads the body and compares it with the declared digests and size. A body that differs is refused as in any
    /// other write.
    pub(super) async fn compare(
        &self,
        target: &WriteTarget<'_>,
        pinned: PinnedWrite,
        body: ByteStream,
        declared: Declared,
    ) -> Result<WrittenBytes, Error> {
        match read(target.size_bytes, &pinned, body, declared).await {
            Ok(digests) => {
                let plan = ContentPlan::Pinned(pinned.content);
                let (held_by, settings) = (HeldBy::Pinned(pinned), target.settings);
                Ok(WrittenBytes { held_by, digests, plan, settings })
            }
            Err(error) => {
                self.end_failed(&pinned.failed(), WriteFailure::NotCommitted).await;
                Err(error.into())
            }
        }
    }
}

async fn read(
    size_bytes: u64,
    pinned: &PinnedWrite,
    body: ByteStream,
    declared: Declared,
) -> Result<Digests, BackendError> {
    let algorithm = declared.algorithm();
    let body = digested(body, size_bytes, algorithm, verification(declared), pinned.lease.watch()).await?;
    let DigestedBody { mut stream, digests } = body;
    while let Some(chunk) = stream.next().await {
        chunk?;
    }
    digests.ready().await.map_err(|error| BackendError::Unknown(error.to_string()))
}
