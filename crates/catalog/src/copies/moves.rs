//! When a new copy of a content may replace another one: for a drain, and for a rebalance.

use std::sync::LazyLock;
use std::time::Duration;

use s3o_model::cleanup::Reason;
use s3o_model::content::Location;
use s3o_model::ids::ContentId;
use s3o_model::names::BackendName;
use s3o_model::quota::QuotaUsage;

use super::missing_copies;
use super::remove::disputed;
use crate::error::{Error, Verdict};
use crate::quotas::{SUMS, quota_usage};
use crate::unit::Unit;
use crate::{Catalog, params};

/// Which copy a new one replaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplicaSource {
    /// None: the content lacks a copy.
    Nothing,
    /// A copy on a draining backend.
    Drained(ReplacedCopy),
    /// A copy on a backend that is fuller than the target, or that fills later.
    Rebalanced(ReplacedCopy),
}

/// A copy whose bytes are deleted after `grace`, once another copy has replaced it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplacedCopy {
    /// Named by its physical key: a copy that was moved away and back is another one.
    pub copy: Location,
    /// How long readers may still use it.
    pub grace: Duration,
}

/// True for the row of backend `$2` if a new copy of content `$1` there would count and replaces no present one.
pub(super) const TARGET_COUNTS: &str = "name = $2 AND draining = 0 AND unhealthy_since IS NULL \
     AND removing_since IS NULL AND removed_at IS NULL AND NOT EXISTS (SELECT 1 FROM object_locations p \
     WHERE p.content_id = $1 AND p.backend_name = $2 AND p.state = 'present')";

/// The same for a copy that supports the release of another one: every instance sees the same store there.
static TARGET_SUPPORTS: LazyLock<String> =
    LazyLock::new(|| format!("{TARGET_COUNTS} AND frozen_reason IS NULL AND NOT {}", disputed("backends.name")));

/// Returns a row if a copy of content `$1` on backend `$2` may replace the one at `$3`, `$4`, whose backend drains.
static MAY_DRAIN: LazyLock<String> = LazyLock::new(|| {
    let (target, missing) = (&*TARGET_SUPPORTS, missing_copies("$1"));
    format!(
        "SELECT name FROM backends WHERE {target} AND {missing} > 0 AND EXISTS (SELECT 1 FROM backends d \
         JOIN object_locations o ON o.backend_name = d.name WHERE d.name = $3 AND d.draining = 1 \
         AND o.content_id = $1 AND o.physical_key = $4)"
    )
});

/// True for the row `s` of a backend whose copies may be moved to balance the backends.
static GIVES: LazyLock<String> = LazyLock::new(|| {
    format!(
        "s.draining = 0 AND s.unhealthy_since IS NULL AND s.removing_since IS NULL AND s.removed_at IS NULL \
         AND s.frozen_reason IS NULL AND NOT {}",
        disputed("s.name")
    )
});

/// Returns a row if a copy of content `$1` on backend `$2` may replace the one at `$3`, `$4`: both backends are still
/// in the state in which the move was planned.
static MAY_REBALANCE: LazyLock<String> = LazyLock::new(|| {
    let (target, gives) = (&*TARGET_SUPPORTS, &*GIVES);
    format!(
        "SELECT name FROM backends WHERE {target} AND EXISTS (SELECT 1 FROM backends s \
         JOIN object_locations o ON o.backend_name = s.name WHERE s.name = $3 AND {gives} \
         AND o.content_id = $1 AND o.physical_key = $4)"
    )
});

static MOVABLE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {SUMS}, CASE WHEN EXISTS (SELECT 1 FROM backends s WHERE s.name = backend_quotas.backend_name AND {}) \
         THEN 1 ELSE 0 END AS movable FROM backend_quotas GROUP BY backend_name ORDER BY backend_name",
        *GIVES
    )
});

impl ReplicaSource {
    /// Why the copy is written; also the reason of its cleanup if it is not finished.
    #[must_use]
    pub const fn reason(&self) -> Reason {
        match self {
            Self::Nothing => Reason::Replication,
            Self::Drained(_) => Reason::Drain,
            Self::Rebalanced(_) => Reason::Rebalance,
        }
    }

    /// The copy that is released; `None` for a plain copy.
    #[must_use]
    pub const fn replaced(&self) -> Option<&ReplacedCopy> {
        match self {
            Self::Nothing => None,
            Self::Drained(replaced) | Self::Rebalanced(replaced) => Some(replaced),
        }
    }

    /// Adds the guard of a move. Fails as `NotNeeded` if its reason no longer holds.
    pub(super) fn guard_move(&self, unit: &mut Unit, content: ContentId, target: &BackendName) {
        let (sql, replaced) = match self {
            Self::Nothing => return,
            Self::Drained(replaced) => (&*MAY_DRAIN, replaced),
            Self::Rebalanced(replaced) => (&*MAY_REBALANCE, replaced),
        };
        let Location { backend, physical_key, .. } = &replaced.copy;
        unit.one(sql, params![content, target, backend, physical_key.as_str()], Verdict::NotNeeded);
    }
}

impl Catalog {
    /// The counters of every backend, and whether copies may be moved from and to it to balance the backends.
    pub async fn movable_backends(&self) -> Result<Vec<(QuotaUsage, bool)>, Error> {
        let rows = self.survey(&MOVABLE, vec![]).await?;
        rows.iter().map(|row| Ok((quota_usage(row)?, row.int("movable")? == 1))).collect()
    }
}
