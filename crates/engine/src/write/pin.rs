//! Bytes that are there already: the intent holds them, the body is read and compared, and no backend is asked.

use futures_util::StreamExt as _;
use s3o_backend::{ByteStream, Error as BackendError};
use s3o_catalog::{Error as CatalogError, Landed, Late, Pin, Verdict};
use s3o_model::ids::{ContentId, IntentId, WriteId};
use s3o_model::intent::lease_holds;

use super::{Fate, Held, Target, WrittenBytes, verification};
use crate::body::{DigestedBody, digested};
use crate::digest::Digests;
use crate::leases::Lease;
use crate::put_object::Declared;
use crate::{Engine, Error};

/// Content that is held for a write.
pub(super) struct Pinned {
    write: WriteId,
    content: ContentId,
    lease: Lease,
}

impl Pinned {
    /// The ID under which the write was announced.
    pub(super) const fn write(&self) -> WriteId {
        self.write
    }

    /// The bytes as the catalog commits them.
    pub(super) fn landed(&self) -> Landed {
        Landed::Pinned { write: self.write, content: self.content }
    }
}

impl Engine {
    /// Holds the content that was announced, where the bucket keeps equal content once and has it. A digest that comes
    /// behind the body comes too late, and without intents nothing can be held.
    pub(super) async fn pin(&self, target: &Target<'_>, declared: &Declared) -> Result<Option<Pinned>, Error> {
        let Some(sha256) = declared.digests.sha256.filter(|_| target.dedup && self.settings().announce) else {
            return Ok(None);
        };
        let id = self.ids.fresh();
        let pin = Pin {
            id: IntentId::new(id),
            write: WriteId::new(id),
            kind: target.kind,
            bucket: target.bucket,
            key: target.key.clone(),
            sha256,
            size_bytes: target.size_bytes,
            owner: self.instance,
            lease: self.settings().lease,
        };
        let term = self.lease_term();
        let held = match self.intents.pin(&pin).await {
            Ok(None) => return Ok(None),
            Ok(Some(held)) => self.counted(pin.write, Ok(held))?,
            Err(error) => self.counted(pin.write, Err(error))?,
        };
        let lease = self.leases.hold(pin.id, held.until, term);
        Ok(Some(Pinned { write: pin.write, content: held.content, lease }))
    }

    /// Reads the body of a write whose bytes are held. What is not what was announced is refused like any other.
    pub(super) async fn compare(
        &self,
        target: &Target<'_>,
        pinned: Pinned,
        body: ByteStream,
        declared: Declared,
    ) -> Result<WrittenBytes, Error> {
        match read(target.size_bytes, &pinned, body, declared).await {
            Ok(digests) => {
                let (held, dedup) = (Held::Pinned(pinned), target.dedup_bucket());
                Ok(WrittenBytes { held, digests, backend_version: None, dedup })
            }
            Err(error) => {
                self.let_go(&pinned).await;
                Err(error.into())
            }
        }
    }

    /// What to do when the commit of held bytes failed; an answer that was lost is looked up.
    pub(super) async fn pin_not_committed(&self, pinned: &Pinned, error: &CatalogError) -> Fate {
        match error {
            CatalogError::Guard(Verdict::Fenced) => {
                self.metrics.fenced(pinned.write);
                Fate::Fenced
            }
            CatalogError::Unknown(_) => self.look_up_pin(pinned).await,
            CatalogError::Guard(Verdict::ResolveAgain) => {
                self.let_go(pinned).await;
                Fate::Stale
            }
            _ => {
                self.let_go(pinned).await;
                Fate::NotCommitted
            }
        }
    }

    /// Lets go of what was held. If even that fails, the lease runs out and the reaper does it.
    async fn let_go(&self, pinned: &Pinned) {
        match self.intents.drop_write(pinned.write, Late::No).await {
            Ok(dropped) if dropped.was_open => self.metrics.ended(pinned.write, "dropped"),
            Ok(_) => self.metrics.fenced(pinned.write),
            Err(error) => {
                self.metrics.in_doubt(pinned.write, "dropped");
                tracing::warn!(%error, write = %pinned.write, "pin not released, leaving it to pending_reaper");
            }
        }
        // The last object may have gone meanwhile.
        self.ring_for_cleanup();
    }

    /// A pin that is gone before its lease ended can only have been committed; later, the reaper may have taken it.
    async fn look_up_pin(&self, pinned: &Pinned) -> Fate {
        match self.intents.drop_write(pinned.write, Late::No).await {
            Ok(dropped) if dropped.was_open => {
                self.metrics.ended(pinned.write, "dropped");
                self.ring_for_cleanup();
                Fate::NotCommitted
            }
            Ok(dropped) if lease_holds(pinned.lease.until(), self.settings().lease, dropped.now) => {
                self.metrics.ended(pinned.write, "committed");
                Fate::Committed
            }
            Ok(_) => {
                self.metrics.in_doubt(pinned.write, "committed");
                Fate::Fenced
            }
            Err(error) => {
                self.metrics.in_doubt(pinned.write, "committed");
                tracing::warn!(%error, write = %pinned.write, "commit outcome unknown, leaving it to pending_reaper");
                Fate::NotCommitted
            }
        }
    }
}

/// Reads a body to its end for its digests.
async fn read(size_bytes: u64, pinned: &Pinned, body: ByteStream, declared: Declared) -> Result<Digests, BackendError> {
    let algorithm = declared.algorithm();
    let body = digested(body, size_bytes, algorithm, verification(declared), pinned.lease.watch()).await?;
    let DigestedBody { mut stream, digests } = body;
    while let Some(chunk) = stream.next().await {
        chunk?;
    }
    digests.ready().await.map_err(|error| BackendError::Unknown(error.to_string()))
}
