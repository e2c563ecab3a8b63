//! What becomes of a write once its bytes are written or given up.

use s3o_catalog::{Ended, Error as CatalogError, Late, Verdict};
use s3o_model::intent::lease_holds;

use super::{Held, Staged, WrittenBytes};
use crate::{Engine, Error};

/// What became of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It happened.
    Committed,
    /// It did not happen, or its outcome is unknown and the client must repeat the request.
    NotCommitted,
    /// It did not, and whatever else was wrong with it: the reaper has taken the write, or may
    /// have, and may have finished it.
    Fenced,
    /// It did not: the bytes that were there are not known to be good any more.
    Stale,
}

impl Fate {
    /// The answer to the client of a commit that failed with this error.
    pub(crate) fn of<T>(self, done: T, error: CatalogError) -> Result<T, Error> {
        match self {
            Self::Committed => Ok(done),
            Self::NotCommitted => Err(error.into()),
            Self::Fenced => Err(CatalogError::Guard(Verdict::Fenced).into()),
            Self::Stale => Err(Error::Away("the stored copy is no longer readable, send the body again".to_owned())),
        }
    }
}

impl Engine {
    /// Turns the intents of an abandoned write into cleanups. If even that fails, the
    /// lease runs out and the reaper does it.
    pub(super) async fn give_up(&self, staged: &Staged, ended: Ended) -> Fate {
        if !staged.announced {
            self.requeue(staged, ended).await;
            return Fate::NotCommitted;
        }
        match self.intents.drop_write(staged.intent.write, ended.late).await {
            Ok(dropped) if dropped.was_open => {
                self.metrics.ended(staged.intent.write, "dropped");
                self.ring_for_cleanup();
                Fate::NotCommitted
            }
            Ok(_) => {
                self.metrics.fenced(staged.intent.write);
                self.requeue(staged, ended).await;
                Fate::Fenced
            }
            // Whether the reaper has fenced the write is unknown: it may be why the commit failed.
            Err(error) => {
                self.metrics.in_doubt(staged.intent.write, "dropped");
                tracing::warn!(%error, intent = %staged.intent.id, "intent not dropped, leaving it to pending_reaper");
                Fate::Fenced
            }
        }
    }

    /// What to do when a commit of written bytes failed; an answer that was lost is looked up.
    pub(crate) async fn not_committed(&self, written: &WrittenBytes, error: &CatalogError) -> Fate {
        let staged = match &written.held {
            Held::Staged(staged) => staged,
            Held::Pinned(pinned) => return self.pin_not_committed(pinned, error).await,
        };
        let ended = Ended { backend_version: written.backend_version.clone(), ..Ended::default() };
        if !staged.announced {
            self.unannounced_not_committed(staged, error, ended).await;
            return Fate::NotCommitted;
        }
        let fate = match error {
            CatalogError::Guard(Verdict::Fenced) => {
                self.metrics.fenced(staged.intent.write);
                self.requeue(staged, ended).await;
                Fate::Fenced
            }
            CatalogError::Unknown(_) => self.look_up(staged, ended).await,
            _ => self.give_up(staged, ended).await,
        };
        self.ring_for_cleanup();
        fate
    }

    /// Counts a write that was committed.
    pub(crate) fn settled(&self, written: &WrittenBytes) {
        match &written.held {
            Held::Staged(staged) if !staged.announced => {}
            Held::Staged(staged) => self.metrics.ended(staged.intent.write, "committed"),
            Held::Pinned(pinned) => self.metrics.ended(pinned.write(), "committed"),
        }
    }

    /// Whether a commit whose answer was lost happened. Intents that are gone before their lease
    /// ended can only have been committed; later, the reaper may have taken them.
    async fn look_up(&self, staged: &Staged, ended: Ended) -> Fate {
        match self.intents.drop_write(staged.intent.write, Late::No).await {
            Ok(dropped) if dropped.was_open => {
                self.metrics.ended(staged.intent.write, "dropped");
                Fate::NotCommitted
            }
            Ok(dropped) if lease_holds(staged.lease.until(), self.settings().lease, dropped.now) => {
                self.metrics.ended(staged.intent.write, "committed");
                Fate::Committed
            }
            Ok(_) => {
                self.metrics.in_doubt(staged.intent.write, "committed");
                self.requeue(staged, ended).await;
                Fate::Fenced
            }
            Err(error) => {
                self.metrics.in_doubt(staged.intent.write, "committed");
                tracing::warn!(%error, intent = %staged.intent.id, "commit outcome unknown, leaving it to pending_reaper");
                Fate::NotCommitted
            }
        }
    }
}
