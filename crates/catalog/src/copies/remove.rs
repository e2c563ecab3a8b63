//! Removal of copies that a content does not need.

use std::sync::LazyLock;
use std::time::Duration;

use s3o_model::cleanup::Reason;
use s3o_model::content::Location;
use s3o_model::ids::ContentId;

use super::COUNTS;
use super::replica::RELEASE_COPY;
use super::work::settle;
use crate::error::{Error, Verdict};
use crate::quotas::lock_quota_rows;
use crate::unit::{LockRank, Unit, json};
use crate::{Catalog, params};

/// A copy to remove, and the copies that were probed for it.
#[derive(Debug, Clone)]
pub struct RemoveCopy {
    /// Fails as `ResolveAgain` if it was condemned.
    pub content: ContentId,
    /// Named by its physical key: a copy that was moved away and back is another one.
    pub copy: Location,
    /// Copies that were found on their backends just now. Only these support the removal.
    pub kept: Vec<Location>,
    /// Why it is removed.
    pub reason: Reason,
    /// How long readers may still use it.
    pub grace: Duration,
}

/// SQL that is true if an instance finds another store than expected at this backend: its copies may be on the wrong
/// one.
pub(crate) fn disputed(backend: &str) -> String {
    format!(
        "EXISTS (SELECT 1 FROM identity_records WHERE identity_records.backend_name = {backend} \
         AND reason IS NOT NULL AND coalesce(dismissed_hash, '') <> hash AND lease_until > :now)"
    )
}

/// Returns a row if the kept copies in `$2` are as many as the factor of content `$1`.
static SUPPORTED: LazyLock<String> = LazyLock::new(|| {
    let disputed = disputed("l.backend_name");
    format!(
        "SELECT id FROM contents WHERE id = $1 AND factor <= (SELECT count(*) FROM object_locations l \
         JOIN json_each($2) t ON t.value ->> 0 = l.backend_name AND t.value ->> 1 = l.physical_key \
         WHERE l.content_id = $1 AND {COUNTS} AND NOT {disputed})"
    )
});

/// SQL that is true if the backend of location `l` is healthy and undisputed: nothing is removed from another one.
pub(super) static ON_REMOVABLE: LazyLock<String> = LazyLock::new(|| {
    let disputed = disputed("l.backend_name");
    format!(
        "EXISTS (SELECT 1 FROM backends k WHERE k.name = l.backend_name \
         AND k.unhealthy_since IS NULL AND k.frozen_reason IS NULL AND NOT {disputed})"
    )
});

/// Returns a row if the copy of content `$1` at `$2`, `$3` may be removed.
static REMOVABLE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT l.content_id FROM object_locations l \
         WHERE l.content_id = $1 AND l.backend_name = $2 AND l.physical_key = $3 AND {}",
        *ON_REMOVABLE
    )
});

static LOCK_QUOTAS: LazyLock<String> = LazyLock::new(|| lock_quota_rows("object_locations WHERE content_id = $1"));

impl Catalog {
    /// Turns a copy into a cleanup if the kept copies are as many as the factor of its content. Fails as `NotNeeded`
    /// otherwise, `ResolveAgain` if the content was condemned.
    pub async fn remove_copy(&self, remove: &RemoveCopy) -> Result<(), Error> {
        let RemoveCopy { content, copy, kept, reason, grace } = remove;
        let kept: Vec<(&str, &str)> = kept
            .iter()
            .filter(|kept| *kept != copy)
            .map(|kept| (kept.backend.as_str(), kept.physical_key.as_str()))
            .collect();
        let mut unit = Unit::new("remove_copy");
        unit.at(LockRank::Content).one(
            "SELECT id FROM contents WHERE id = $1 AND state = 'live' /*lock*/",
            params![*content],
            Verdict::ResolveAgain,
        );
        unit.one(&SUPPORTED, params![*content, json(&kept)], Verdict::NotNeeded);
        let place = params![*content, &copy.backend, copy.physical_key.as_str()];
        unit.one(&REMOVABLE, place, Verdict::NotNeeded);
        unit.lock(LockRank::Quota, &LOCK_QUOTAS, params![*content]);
        RELEASE_COPY.run(&mut unit, *content, copy, (*grace, *reason));
        settle(&mut unit, *content);
        self.write(unit).await.map(drop)
    }
}
