//! Bytes on backends that a commit turns into locations, and the statements that depend on how they are held: by the
//! intents of their writer, by intents that the reaper claimed, by no row (direct mode), or by a pin.

use std::sync::LazyLock;

use s3o_model::ids::{ClaimToken, ContentId, IntentId, WriteId};
use s3o_model::names::BackendName;

use crate::cleanups::unnamed::name_existing;
use crate::error::Verdict;
use crate::intents::{FailedCopy, OPEN_OF_WRITE, RESERVE, enqueue_failed};
use crate::params;
use crate::quotas::{Counter, move_bytes, share_anew};
use crate::unit::{LockRank, Unit};

/// Bytes that a commit makes content of, by what holds them until then.
#[derive(Debug, Clone)]
pub enum StoredBytes {
    /// Written under intents that the writer still holds.
    Announced {
        /// Selects the intents.
        write: WriteId,
        /// Number of stored copies, one intent each.
        copies: usize,
        /// Version IDs that the backends returned.
        backend_versions: Vec<(IntentId, String)>,
        /// The other intents of the write: their bytes become cleanups.
        failed: Vec<FailedCopy>,
    },
    /// Written under intents that the reaper claimed after their lease expired.
    Reaped {
        /// Selects the intents.
        write: WriteId,
        /// Number of copies that were read and match, one intent each.
        copies: usize,
        /// Version IDs of the bytes that were read.
        backend_versions: Vec<(IntentId, String)>,
        /// The other intents of the write: their bytes become cleanups.
        failed: Vec<FailedCopy>,
        /// Token of the reaper's claim.
        token: ClaimToken,
    },
    /// Written in direct mode: no row names them yet.
    Unannounced(Unannounced),
    /// Not written: the writer's intent pins existing content with the same bytes.
    Pinned {
        /// Selects the intent.
        write: WriteId,
        /// Fails as `Fenced` if the intent pins other content.
        content: ContentId,
        /// Number of copies of the content that the write relies on.
        copies: usize,
    },
}

/// Bytes that were written in direct mode.
#[derive(Debug, Clone)]
pub struct Unannounced {
    /// The backend that stores them.
    pub backend: BackendName,
    /// Key on the backend.
    pub physical_key: String,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Version ID that the backend returned.
    pub backend_version: Option<String>,
}

/// Never exceeds the share of a backend that has a limit.
const CHARGE: &str = "UPDATE backend_quotas SET used_bytes = used_bytes + $2 WHERE backend_name = $1 AND stripe = 0 \
     AND (share_bytes IS NULL OR used_bytes + orphan_bytes + reserved_bytes + $2 <= share_bytes)";

/// Moves the bytes of fresh content `$1` from reserved to used.
static CHARGE_RESERVED: LazyLock<String> =
    LazyLock::new(|| move_bytes(Counter::Reserved, Some(Counter::Used), "object_locations WHERE content_id = $1"));

/// Returns a row if backend `$1` takes writes, and keeps it so until the unit ends. An announced change is read without
/// a lock, so that the change does not wait behind the locks of new writers.
pub(crate) const TAKES_WRITES: &str = "SELECT name FROM backends WHERE name = $1 AND frozen_reason IS NULL \
     AND removing_since IS NULL AND removed_at IS NULL \
     AND NOT EXISTS (SELECT 1 FROM backend_changes WHERE backend_name = $1 AND until > :now) \
     AND draining = 0 /*share*/";

pub(crate) const DELETE_INTENTS: &str = "DELETE FROM pending_objects WHERE write_id = $1";

/// An intent that the same unit deletes again.
const ANNOUNCE: &str = "INSERT INTO pending_objects \
     (id, write_id, kind, backend_name, physical_key, backend_version, size_bytes, stripe, bucket_id, key, owner, \
      lease_until, created_at) \
     VALUES ($1, $1, 'object', $2, $3, $4, $5, 0, 0, '', '', :now, :now)";

const INSERT_LOCATION: &str = "INSERT INTO object_locations \
     (content_id, backend_name, physical_key, backend_version, size_bytes, stripe, state, verified_at) \
     VALUES ($1, $2, $3, $4, $5, 0, 'present', :now)";

const INSERT_LOCATIONS: &str = "INSERT INTO object_locations \
     (content_id, backend_name, physical_key, backend_version, size_bytes, stripe, state, verified_at) \
     SELECT $2, backend_name, physical_key, backend_version, size_bytes, stripe, 'present', created_at \
     FROM pending_objects WHERE write_id = $1";

impl StoredBytes {
    /// Locks the intents and fails as `Fenced` or `Superseded` if the bytes are no longer the caller's to commit.
    pub(crate) fn lock_intents(&self, unit: &mut Unit) {
        match self {
            Self::Announced { write, copies, backend_versions, failed } => {
                let all = *copies + failed.len();
                unit.at(LockRank::Intent).exactly(all, OPEN_OF_WRITE, params![*write], Verdict::Fenced);
                note_versions(unit, backend_versions);
            }
            Self::Reaped { write, copies, backend_versions, failed, token } => {
                lock_claimed(unit, *write, *copies + failed.len(), *token);
                note_versions(unit, backend_versions);
            }
            Self::Unannounced(bytes) => {
                unit.at(LockRank::Backend).one(TAKES_WRITES, params![&bytes.backend], Verdict::Closed);
                // A reconcile pass may have taken the bytes for those of no row, and queued them.
                name_existing(unit, &bytes.backend, &bytes.physical_key);
            }
            Self::Pinned { write, content, .. } => {
                unit.at(LockRank::Intent).one(
                    "SELECT id FROM pending_objects \
                     WHERE write_id = $1 AND pin_content_id = $2 AND state = 'open' /*lock*/",
                    params![*write, *content],
                    Verdict::Fenced,
                );
            }
        }
    }

    /// The write, if it has intents on several backends: their quota rows must be locked in order before one changes.
    pub(crate) fn several(&self) -> Option<WriteId> {
        match self {
            Self::Announced { write, copies, failed, .. } | Self::Reaped { write, copies, failed, .. } => {
                (*copies + failed.len() > 1).then_some(*write)
            }
            Self::Unannounced(_) | Self::Pinned { .. } => None,
        }
    }

    /// Number of copies that the write stored.
    pub(crate) fn copies(&self) -> usize {
        match self {
            Self::Announced { copies, .. } | Self::Reaped { copies, .. } => *copies,
            Self::Unannounced(_) => 1,
            Self::Pinned { .. } => 0,
        }
    }

    /// Number of copies of existing content that must be good.
    pub(crate) fn copies_relied_on(&self) -> usize {
        match self {
            Self::Pinned { copies, .. } => *copies,
            Self::Announced { .. } | Self::Reaped { .. } | Self::Unannounced(_) => 1,
        }
    }

    /// Turns the intents of failed copies into cleanups; the other intents of the write stay.
    pub(crate) fn enqueue_failed(&self, unit: &mut Unit) {
        if let Self::Announced { failed, .. } | Self::Reaped { failed, .. } = self {
            for copy in failed {
                enqueue_failed(unit, copy);
            }
        }
    }

    /// The write whose intents name the bytes. Direct mode gets an intent and a reservation for the rest of the unit,
    /// so that joining has one set of statements for all writes.
    pub(crate) fn announce(&self, unit: &mut Unit, fresh: ContentId) -> WriteId {
        let bytes = match self {
            Self::Announced { write, .. } | Self::Reaped { write, .. } | Self::Pinned { write, .. } => return *write,
            Self::Unannounced(bytes) => bytes,
        };
        let (write, version) = (WriteId::new(fresh.uuid()), bytes.backend_version.as_deref());
        unit.run(ANNOUNCE, params![write, &bytes.backend, &bytes.physical_key, version, bytes.size_bytes]);
        share_anew(unit, &bytes.backend, 0, bytes.size_bytes);
        unit.one(RESERVE, params![&bytes.backend, bytes.size_bytes, 0], Verdict::NoSpace);
        write
    }

    /// Makes the bytes locations of `content` and deletes their intents.
    pub(crate) fn insert_locations(&self, unit: &mut Unit, content: ContentId) {
        match self {
            Self::Announced { write, .. } | Self::Reaped { write, .. } => {
                unit.run(INSERT_LOCATIONS, params![*write, content]);
            }
            Self::Unannounced(Unannounced { backend, physical_key, size_bytes, backend_version }) => {
                let version = backend_version.as_deref();
                unit.run(INSERT_LOCATION, params![content, backend, physical_key, version, *size_bytes]);
            }
            Self::Pinned { .. } => {}
        }
        self.delete_intents(unit);
    }

    /// Deletes the intents. A pin's reference moves to the new row: `ref_count` stays.
    pub(crate) fn delete_intents(&self, unit: &mut Unit) {
        match self {
            Self::Announced { write, .. } | Self::Reaped { write, .. } | Self::Pinned { write, .. } => {
                unit.run(DELETE_INTENTS, params![*write]);
            }
            Self::Unannounced(_) => {}
        }
    }

    /// Counts the bytes of fresh content as used. Last in a unit: from here on, writers of the same stripe wait for it.
    pub(crate) fn charge(&self, unit: &mut Unit, content: ContentId) {
        match self {
            Self::Announced { .. } | Self::Reaped { .. } => drop(unit.run(&CHARGE_RESERVED, params![content])),
            Self::Unannounced(bytes) => {
                share_anew(unit, &bytes.backend, 0, bytes.size_bytes);
                unit.one(CHARGE, params![&bytes.backend, bytes.size_bytes], Verdict::NoSpace);
            }
            Self::Pinned { .. } => {}
        }
    }
}

fn note_versions(unit: &mut Unit, backend_versions: &[(IntentId, String)]) {
    for (intent, version) in backend_versions {
        unit.run("UPDATE pending_objects SET backend_version = $2 WHERE id = $1", params![*intent, version]);
    }
}

/// Locks the intents that the reaper claimed. The writer may have added an intent while they were fenced: the commit
/// would take it for a copy that was read.
fn lock_claimed(unit: &mut Unit, write: WriteId, copies: usize, token: ClaimToken) {
    unit.at(LockRank::Intent).exactly(
        copies,
        "SELECT id FROM pending_objects WHERE write_id = $1 AND token = $2 ORDER BY id /*lock*/",
        params![write, token],
        Verdict::Fenced,
    );
    unit.exactly(
        0,
        "SELECT id FROM pending_objects WHERE write_id = $1 AND token IS NULL",
        params![write],
        Verdict::Fenced,
    );
    unit.exactly(
        0,
        "SELECT id FROM pending_objects WHERE write_id = $1 AND superseded = 1",
        params![write],
        Verdict::Superseded,
    );
}
