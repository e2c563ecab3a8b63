//! Copies that are lost: their bytes are missing or of another size, and no other copy of the content may be good. A
//! lost copy stays, so that its content is reported and readable again if the bytes come back.

use std::sync::LazyLock;

use s3o_model::clock::Timestamp;
use s3o_model::content::Location;
use s3o_model::etag::{Md5, Sha256};
use s3o_model::ids::ContentId;
use s3o_model::names::BackendName;

use super::work;
use crate::error::Error;
use crate::quotas::lock_quota_rows;
use crate::unit::{LockRank, Row, Unit};
use crate::{Catalog, params};

/// A content, by one of its locations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocatedContent {
    /// May be condemned since.
    pub content: ContentId,
    /// The location.
    pub copy: Location,
    /// Length of the content.
    pub size_bytes: u64,
    /// Digest of its bytes; `None` if it is not known.
    pub md5: Option<Md5>,
    /// Digest of its bytes; `None` for content of old versions.
    pub sha256: Option<Sha256>,
}

fn located(row: &Row) -> Result<LocatedContent, Error> {
    let has = |column| row.opt_text(column).map(|text| text.is_some());
    Ok(LocatedContent {
        content: row.parse("content_id")?,
        copy: Location {
            backend: row.parse("backend_name")?,
            physical_key: row.string("physical_key")?,
            backend_version: row.opt_string("backend_version")?,
        },
        size_bytes: row.size("size_bytes")?,
        md5: has("md5")?.then(|| row.parse("md5")).transpose()?,
        sha256: has("sha256")?.then(|| row.parse("sha256")).transpose()?,
    })
}

/// The copy of content `$1` at `$2`, `$3`, if it is suspect and no other copy may be good: the others are lost, or a
/// pass of reconcile found that they are missing or of another size, too.
const LAST: &str = "object_locations WHERE content_id = $1 AND backend_name = $2 AND physical_key = $3 \
     AND state = 'suspect' AND NOT EXISTS (SELECT 1 FROM object_locations l WHERE l.content_id = $1 \
     AND l.backend_name <> $2 AND (l.state = 'present' OR (l.state = 'suspect' AND NOT EXISTS \
     (SELECT 1 FROM findings f WHERE f.backend_name = l.backend_name AND f.physical_key = l.physical_key \
     AND f.kind IN ('missing', 'wrong_size')))))";

const LOST: &str =
    "object_locations WHERE content_id = $1 AND backend_name = $2 AND physical_key = $3 AND state = 'lost'";

/// SQL that counts `size` bytes for the copy that `rows` selects, instead of those of its row.
fn resize_used(rows: &str, size: &str) -> String {
    format!(
        "UPDATE backend_quotas SET used_bytes = used_bytes + s.n FROM (SELECT backend_name AS b, stripe AS t, \
         CAST({size} AS BIGINT) - size_bytes AS n FROM {rows}) s \
         WHERE s.b = backend_quotas.backend_name AND s.t = backend_quotas.stripe"
    )
}

static LOCK_QUOTAS: LazyLock<String> = LazyLock::new(|| lock_quota_rows("object_locations WHERE content_id = $1"));

/// `$4` is the number of bytes that are still there.
static LOSE: LazyLock<[String; 2]> = LazyLock::new(|| {
    let (_, chosen) = LAST.split_once(" WHERE ").expect("a table and a condition");
    [
        resize_used(LAST, "$4"),
        format!("UPDATE object_locations SET state = 'lost', size_bytes = CAST($4 AS BIGINT) WHERE {chosen}"),
    ]
});

const CONTENT_BYTES: &str = "(SELECT c.size_bytes FROM contents c WHERE c.id = $1)";

static RECOVER: LazyLock<[String; 2]> = LazyLock::new(|| {
    let (_, chosen) = LOST.split_once(" WHERE ").expect("a table and a condition");
    [
        resize_used(LOST, CONTENT_BYTES),
        format!(
            "UPDATE object_locations SET state = 'present', size_bytes = {CONTENT_BYTES}, verified_at = $4 \
             WHERE {chosen}"
        ),
    ]
});

fn lock(unit: &mut Unit, content: ContentId) {
    unit.lock(LockRank::Content, "SELECT id FROM contents WHERE id = $1 /*lock*/", params![content]);
    unit.lock(LockRank::Quota, &LOCK_QUOTAS, params![content]);
}

impl Catalog {
    /// The content of the location with this key, in any state.
    pub async fn located_content(&self, backend: &BackendName, key: &str) -> Result<Option<LocatedContent>, Error> {
        const AT: &str = "SELECT l.content_id, l.backend_name, l.physical_key, l.backend_version, c.size_bytes, c.md5, \
             c.sha256 FROM object_locations l JOIN contents c ON c.id = l.content_id \
             WHERE l.backend_name = $1 AND l.physical_key = $2";
        self.read(AT, params![backend, key]).await?.first().map(located).transpose()
    }

    /// Marks a suspect copy as lost if no other copy of its content may be good. `found_bytes` are still on the
    /// backend, and stay there. False if nothing was changed.
    pub async fn lose_copy(&self, content: ContentId, copy: &Location, found_bytes: u64) -> Result<bool, Error> {
        let mut unit = Unit::new("lose_copy");
        lock(&mut unit, content);
        let values = params![content, &copy.backend, copy.physical_key.as_str(), found_bytes];
        unit.run(&LOSE[0], values.clone());
        let lost = unit.run(&LOSE[1], values);
        work::settle(&mut unit, content);
        Ok(self.write(unit).await?[lost].changed > 0)
    }

    /// Marks a lost copy as present, because all of its bytes were read and have the right digest. The read began at
    /// `since` or later. False if it is no longer lost.
    pub async fn recover_copy(&self, content: ContentId, copy: &Location, since: Timestamp) -> Result<bool, Error> {
        let mut unit = Unit::new("recover_copy");
        lock(&mut unit, content);
        let values = params![content, &copy.backend, copy.physical_key.as_str(), since.millis()];
        unit.run(&RECOVER[0], values.clone());
        let recovered = unit.run(&RECOVER[1], values);
        work::settle(&mut unit, content);
        Ok(self.write(unit).await?[recovered].changed > 0)
    }
}
