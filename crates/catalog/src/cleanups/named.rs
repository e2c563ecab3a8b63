//! Claimed cleanups whose key a location or an open write names as well. A physical key is named once, so rows
//! contradict each other there; the bytes stay, and a finding reports them.

use std::collections::HashSet;

use s3o_model::cleanup::Cleanup;
use s3o_model::ids::ClaimToken;
use s3o_model::names::BackendName;

use super::ClaimedCleanups;
use crate::error::Error;
use crate::unit::{Unit, json};
use crate::{Catalog, params};

pub(crate) const NAMED: &str = "SELECT physical_key FROM object_locations \
     WHERE backend_name = $1 AND physical_key IN TEXTS($2) \
     UNION ALL SELECT physical_key FROM pending_objects \
     WHERE backend_name = $1 AND physical_key IN TEXTS($2) AND state = 'open'";

const NOTE: &str = "INSERT INTO findings (kind, backend_name, physical_key, size_bytes, stripe, detail, created_at) \
     SELECT 'still_named', backend_name, physical_key, size_bytes, stripe, \
     '{\"reason\":\"' || reason || '\"}', :now FROM cleanup_queue WHERE id IN NUMBERS($1) AND token = $2 \
     ON CONFLICT (backend_name, physical_key, kind) DO UPDATE SET detail = excluded.detail";

const UNBOOK: &str = "UPDATE backend_quotas SET orphan_bytes = orphan_bytes - s.n \
     FROM (SELECT backend_name AS b, stripe AS t, sum(size_bytes) AS n FROM cleanup_queue \
     WHERE id IN NUMBERS($1) AND token = $2 GROUP BY backend_name, stripe) s \
     WHERE s.b = backend_quotas.backend_name AND s.t = backend_quotas.stripe";

const REMOVE: &str = "DELETE FROM cleanup_queue WHERE id IN NUMBERS($1) AND token = $2";

/// Takes the cleanups out of a claim whose keys other rows name. No new row can name one later: a physical key is used
/// once, so what is not named now never is.
pub(super) async fn set_aside(
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
    let named = rows.iter().map(|row| row.text(0)).collect::<Result<HashSet<_>, _>>()?;
    let is_named = |cleanup: &Cleanup| named.contains(cleanup.physical_key.as_str());
    let (named, cleanups): (Vec<_>, Vec<_>) = claimed.cleanups.into_iter().partition(is_named);
    let ids: Vec<i64> = named.iter().map(|cleanup| cleanup.id.0).collect();
    let mut unit = Unit::new("set_aside_named");
    for sql in [NOTE, UNBOOK, REMOVE] {
        unit.run(sql, params![json(&ids), token]);
    }
    catalog.write(unit).await?;
    Ok(ClaimedCleanups { cleanups, named, ..claimed })
}
