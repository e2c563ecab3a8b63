//! Bytes that have landed on their backends and are to become locations: under intents that their
//! writer holds, under intents that the reaper took over, or, in direct mode, under none.

use s3o_model::ids::{ClaimToken, ContentId, IntentId, WriteId};
use s3o_model::names::BackendName;

use crate::error::Verdict;
use crate::intents::RESERVE;
use crate::params;
use crate::quotas::share_anew;
use crate::unit::Unit;

/// Bytes that have landed.
#[derive(Debug, Clone)]
pub enum Landed {
    /// Announced, by a writer that still holds its intents.
    Announced {
        /// The write.
        write: WriteId,
        /// How many copies it has.
        copies: usize,
        /// The version ids that backends gave.
        backend_versions: Vec<(IntentId, String)>,
    },
    /// Announced, by a writer that is gone; the reaper holds the intents.
    Reaped {
        /// The write.
        write: WriteId,
        /// How many copies it has.
        copies: usize,
        /// The claim.
        token: ClaimToken,
    },
    /// Written without an intent: no row knows of them yet.
    Unannounced(Unannounced),
    /// Not written at all: they are those of content that the writer's intent pins.
    Pinned {
        /// The write.
        write: WriteId,
        /// The content.
        content: ContentId,
    },
}

/// Bytes of which no row knows yet.
#[derive(Debug, Clone)]
pub struct Unannounced {
    /// Where they lie.
    pub backend: BackendName,
    /// Under which physical key.
    pub physical_key: String,
    /// How many they are.
    pub size_bytes: u64,
    /// The version id that the backend gave.
    pub backend_version: Option<String>,
}

/// A backend with a limit is never booked above it.
const CHARGE: &str = "UPDATE backend_quotas SET used_bytes = used_bytes + $2 WHERE backend_name = $1 AND stripe = 0 \
     AND (share_bytes IS NULL OR used_bytes + orphan_bytes + reserved_bytes + $2 <= share_bytes)";

/// The bytes of a fresh content go from reserved to used.
const BOOK_RESERVED: &str = "UPDATE backend_quotas SET reserved_bytes = reserved_bytes - s.n, \
     used_bytes = used_bytes + s.n \
     FROM (SELECT backend_name AS b, stripe AS t, sum(size_bytes) AS n FROM object_locations \
     WHERE content_id = $1 GROUP BY backend_name, stripe) s \
     WHERE s.b = backend_quotas.backend_name AND s.t = backend_quotas.stripe";

const FORGET_INTENTS: &str = "DELETE FROM pending_objects WHERE write_id = $1";

/// An intent that lives no longer than its unit.
const ANNOUNCE: &str = "INSERT INTO pending_objects \
     (id, write_id, kind, backend_name, physical_key, backend_version, size_bytes, stripe, bucket_id, key, owner, \
      lease_until, created_at) \
     VALUES ($1, $1, 'object', $2, $3, $4, $5, 0, 0, '', '', :now, :now)";

impl Landed {
    /// Adds the statements that check that the bytes are still whose they seem, and note what the
    /// backends answered.
    pub(crate) fn hold(&self, unit: &mut Unit) {
        match self {
            Self::Announced { write, copies, backend_versions } => {
                unit.exactly(
                    *copies,
                    "SELECT id FROM pending_objects WHERE write_id = $1 AND state = 'open' ORDER BY id /*lock*/",
                    params![*write],
                    Verdict::Fenced,
                );
                for (intent, version) in backend_versions {
                    unit.run(
                        "UPDATE pending_objects SET backend_version = $2 WHERE id = $1",
                        params![*intent, version],
                    );
                }
            }
            Self::Reaped { write, copies, token } => hold_reaped(unit, *write, *copies, *token),
            Self::Unannounced(bytes) => {
                unit.one(
                    "SELECT name FROM backends WHERE name = $1 AND frozen_reason IS NULL AND draining = 0 /*share*/",
                    params![&bytes.backend],
                    Verdict::Closed,
                );
            }
            Self::Pinned { write, content } => {
                unit.one(
                    "SELECT id FROM pending_objects WHERE write_id = $1 AND pin_content_id = $2 AND state = 'open' /*lock*/",
                    params![*write, *content],
                    Verdict::Fenced,
                );
            }
        }
    }

    /// How many copies there are.
    pub(crate) fn copies(&self) -> usize {
        match self {
            Self::Announced { copies, .. } | Self::Reaped { copies, .. } => *copies,
            Self::Unannounced(_) => 1,
            Self::Pinned { .. } => 0,
        }
    }

    /// The write that the bytes belong to. Those that were not announced are, for the rest of the unit: then all bytes
    /// become locations or cleanups in one way.
    pub(crate) fn announce(&self, unit: &mut Unit, fresh: ContentId) -> WriteId {
        let bytes = match self {
            Self::Announced { write, .. } | Self::Reaped { write, .. } | Self::Pinned { write, .. } => return *write,
            Self::Unannounced(bytes) => bytes,
        };
        let write = WriteId::new(fresh.uuid());
        unit.run(
            ANNOUNCE,
            params![write, &bytes.backend, &bytes.physical_key, bytes.backend_version.as_deref(), bytes.size_bytes],
        );
        write
    }

    /// Reserves room for bytes that were not announced.
    pub(crate) fn reserve(&self, unit: &mut Unit) {
        if let Self::Unannounced(bytes) = self {
            share_anew(unit, &bytes.backend, 0, bytes.size_bytes);
            unit.one(RESERVE, params![&bytes.backend, bytes.size_bytes, 0], Verdict::NoRoom);
        }
    }

    /// Adds the statements that make the bytes locations of `content`.
    pub(crate) fn settle(&self, unit: &mut Unit, content: ContentId) {
        match self {
            Self::Announced { write, .. } | Self::Reaped { write, .. } => settle_intents(unit, *write, content),
            // The reference goes from the intent to the new row: no count changes.
            Self::Pinned { write, .. } => drop(unit.run(FORGET_INTENTS, params![*write])),
            Self::Unannounced(bytes) => {
                unit.run(
                    "INSERT INTO object_locations \
                     (content_id, backend_name, physical_key, backend_version, size_bytes, stripe, state, verified_at) \
                     VALUES ($1, $2, $3, $4, $5, 0, 'present', :now)",
                    params![
                        content,
                        &bytes.backend,
                        &bytes.physical_key,
                        bytes.backend_version.as_deref(),
                        bytes.size_bytes
                    ],
                );
            }
        }
    }

    /// Adds the statements that book the bytes as used. They end a unit: from here on, writers of
    /// the same stripe wait for it.
    pub(crate) fn book(&self, unit: &mut Unit, content: ContentId) {
        match self {
            Self::Announced { .. } | Self::Reaped { .. } => drop(unit.run(BOOK_RESERVED, params![content])),
            Self::Unannounced(bytes) => {
                share_anew(unit, &bytes.backend, 0, bytes.size_bytes);
                unit.one(CHARGE, params![&bytes.backend, bytes.size_bytes], Verdict::NoRoom);
            }
            Self::Pinned { .. } => {}
        }
    }
}

fn hold_reaped(unit: &mut Unit, write: WriteId, copies: usize, token: ClaimToken) {
    unit.exactly(
        copies,
        "SELECT id FROM pending_objects WHERE write_id = $1 AND token = $2 ORDER BY id /*lock*/",
        params![write, token],
        Verdict::Fenced,
    );
    unit.exactly(
        0,
        "SELECT id FROM pending_objects WHERE write_id = $1 AND superseded = 1",
        params![write],
        Verdict::Superseded,
    );
}

/// A write's intents become locations.
fn settle_intents(unit: &mut Unit, write: WriteId, content: ContentId) {
    let key = || params![write, content];
    unit.run(
        "INSERT INTO object_locations \
         (content_id, backend_name, physical_key, backend_version, size_bytes, stripe, state, verified_at) \
         SELECT $2, backend_name, physical_key, backend_version, size_bytes, stripe, 'present', :now \
         FROM pending_objects WHERE write_id = $1",
        key(),
    );
    unit.run(FORGET_INTENTS, key());
}
