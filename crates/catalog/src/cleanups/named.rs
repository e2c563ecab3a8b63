//! Claimed cleanups whose target a location or an open write names as well. These rows contradict each other, since a
//! physical key is named once. A cleanup of another version or of an upload of the key does not. The bytes stay, and a
//! finding reports them.

use std::collections::HashMap;
use std::sync::LazyLock;

use s3o_model::cleanup::Cleanup;
use s3o_model::ids::ClaimToken;
use s3o_model::names::BackendName;
use s3o_model::target::Target;

use super::{ClaimedCleanups, target};
use crate::error::Error;
use crate::quotas::{Counter, move_bytes};
use crate::unit::{Row, Unit, json};
use crate::{Catalog, params};

/// `by_intent` is 1 for open writes, which name everything under their key.
pub(crate) const NAMED: &str = "SELECT physical_key, coalesce('version:' || backend_version, '') AS target, \
     0 AS by_intent FROM object_locations WHERE backend_name = $1 AND physical_key IN TEXTS($2) \
     UNION ALL SELECT physical_key, '', 1 FROM pending_objects \
     WHERE backend_name = $1 AND physical_key IN TEXTS($2) AND state = 'open'";

const NOTE: &str = "INSERT INTO findings \
     (kind, backend_name, physical_key, target, size_bytes, stripe, detail, created_at) \
     SELECT 'still_named', backend_name, physical_key, target, size_bytes, stripe, \
     '{\"reason\":\"' || reason || '\"}', :now FROM cleanup_queue WHERE id IN NUMBERS($1) AND token = $2 \
     ON CONFLICT (backend_name, physical_key, target, kind) DO UPDATE SET detail = excluded.detail";

const MARKED: &str = "cleanup_queue WHERE id IN NUMBERS($1) AND token = $2";

static SUBTRACT_BYTES: LazyLock<String> = LazyLock::new(|| move_bytes(Counter::Orphan, None, MARKED));
static DELETE: LazyLock<String> = LazyLock::new(|| format!("DELETE FROM {MARKED}"));

/// A row that names a key of a claim.
struct NamedElsewhere {
    target: Target,
    by_intent: bool,
}

impl NamedElsewhere {
    fn names(&self, target: &Target) -> bool {
        self.by_intent || self.target.may_be(target)
    }
}

fn by_key(rows: &[Row]) -> Result<HashMap<&str, Vec<NamedElsewhere>>, Error> {
    let mut named: HashMap<&str, Vec<NamedElsewhere>> = HashMap::new();
    for row in rows {
        let by = NamedElsewhere { target: target(row)?, by_intent: row.int("by_intent")? == 1 };
        named.entry(row.text("physical_key")?).or_default().push(by);
    }
    Ok(named)
}

/// Removes the cleanups whose targets other rows name from a claim and from the queue. A row that names one of the
/// other keys cannot appear later: a physical key is used once.
pub(super) async fn withdraw_named(
    catalog: &Catalog,
    backend: &BackendName,
    token: ClaimToken,
    claimed: ClaimedCleanups,
) -> Result<ClaimedCleanups, Error> {
    if claimed.cleanups.is_empty() {
        return Ok(claimed);
    }
    let keys: Vec<&str> = claimed.cleanups.iter().map(|cleanup| cleanup.physical_key.as_str()).collect();
    let rows = catalog.read(NAMED, params![backend, json(&keys)]).await?;
    if rows.is_empty() {
        return Ok(claimed);
    }
    let named = by_key(&rows)?;
    let is_named = |cleanup: &Cleanup| {
        named.get(cleanup.physical_key.as_str()).is_some_and(|by| by.iter().any(|by| by.names(&cleanup.target)))
    };
    let (named, cleanups): (Vec<_>, Vec<_>) = claimed.cleanups.into_iter().partition(is_named);
    let ids: Vec<i64> = named.iter().map(|cleanup| cleanup.id.0).collect();
    let mut unit = Unit::new("set_aside_named");
    for sql in [NOTE, &SUBTRACT_BYTES, &DELETE] {
        unit.run(sql, params![json(&ids), token]);
    }
    catalog.write(unit).await?;
    Ok(ClaimedCleanups { cleanups, named, ..claimed })
}
