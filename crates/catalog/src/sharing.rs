//! Deduplicated content: found by digest and size, and referred to by later writes of the same bytes in the bucket.
//!
//! The caller checks the copies of known content on their backends, between transactions, and commits with a
//! [`ContentPlan`](crate::ContentPlan). Condemned content is never found and never becomes live again.

use std::sync::LazyLock;

use s3o_model::content::Location;
use s3o_model::etag::Sha256;
use s3o_model::ids::{BucketId, ContentId, WriteId};

use crate::cleanups::enqueue::enqueue_cleanups;
use crate::commits::NewBytes;
use crate::copies::{MAY_EXIST, missing_copies};
use crate::error::{Error, Verdict};
use crate::objects::location;
use crate::quotas::{Counter, move_bytes};
use crate::stored_bytes::DELETE_INTENTS;
use crate::unit::Unit;
use crate::{Catalog, params};

/// Live content of a deduplicating bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownContent {
    /// Condemned content is never returned.
    pub content: ContentId,
    /// Copies in state `present`, ordered by backend.
    pub copies: Vec<Location>,
}

const KNOWN: &str = "SELECT c.id, l.backend_name, l.physical_key, l.backend_version FROM contents c \
     LEFT JOIN object_locations l ON l.content_id = c.id AND l.state = 'present' \
     WHERE c.dedup_bucket = $1 AND c.sha256 = $2 AND c.size_bytes = $3 AND c.state = 'live' ORDER BY l.backend_name";

/// Inserts nothing if the factor of bucket `$5` is above `$6`: this unit notes no missing copies up to there. The
/// configuration of the writer may be older than the factor.
const INSERT: &str = "INSERT INTO contents (id, kind, sha256, md5, size_bytes, ref_count, factor) \
     SELECT CAST($1 AS TEXT), 'whole', CAST($2 AS TEXT), CAST($3 AS TEXT), CAST($4 AS BIGINT), 1, s.f \
     FROM (SELECT coalesce(max(factor), 1) AS f FROM buckets WHERE id = $5) s WHERE s.f <= $6";

/// Waits for a unit that is about to create or condemn the same content. This unit holds no row lock yet that others
/// wait for.
const INSERT_ONCE: &str = "INSERT INTO contents (id, kind, sha256, md5, size_bytes, ref_count, factor, dedup_bucket) \
     SELECT CAST($1 AS TEXT), 'whole', CAST($2 AS TEXT), CAST($3 AS TEXT), CAST($4 AS BIGINT), 1, s.f, \
     CAST($5 AS BIGINT) FROM (SELECT coalesce(max(factor), 1) AS f FROM buckets WHERE id = $5) s WHERE s.f <= $6 \
     ON CONFLICT (dedup_bucket, sha256, size_bytes) WHERE state = 'live' AND dedup_bucket IS NOT NULL DO NOTHING";

/// Returns a row if content `$1` is live; locks nothing.
pub(crate) const IS_LIVE: &str = "SELECT id FROM contents WHERE id = $1 AND state = 'live'";

/// Counts one more reference to content `$1`, which the unit has locked.
pub(crate) const ADD_REFERENCE: &str = "UPDATE contents SET ref_count = ref_count + 1 WHERE id = $1 AND state = 'live'";

/// The same for a row of bucket `$2`: the content needs at least as many copies as the factor of that bucket.
pub(crate) const ADD_REFERENCE_OF_BUCKET: &str = "UPDATE contents SET ref_count = ref_count + 1, \
     factor = CASE WHEN factor < coalesce(s.f, 1) THEN s.f ELSE factor END \
     FROM (SELECT max(factor) AS f FROM buckets WHERE id = $2) s WHERE id = $1 AND state = 'live'";

/// Returns up to `$2` copies of content `$1` that are present and were verified since their backend was accepted.
pub(crate) const GOOD_COPIES: &str = "SELECT l.content_id FROM object_locations l \
     JOIN backends k ON k.name = l.backend_name AND coalesce(l.verified_at, 0) >= coalesce(k.trust_from, 0) \
     WHERE l.content_id = $1 AND l.state = 'present' LIMIT $2";

/// True for an intent `q` whose bytes a location names.
const IS_LOCATED: &str = "EXISTS (SELECT 1 FROM object_locations l \
     WHERE l.backend_name = q.backend_name AND l.physical_key = q.physical_key)";

/// Turns copies of content `$1` that are not good into cleanups, where copies are missing.
static REPLACE_BAD_COPIES: LazyLock<[String; 3]> = LazyLock::new(|| {
    let missing = missing_copies("$1");
    let replaced = format!("object_locations WHERE content_id = $1 AND state <> 'present' AND {missing} > 0");
    [
        enqueue_cleanups(&format!("{replaced} AND {MAY_EXIST}"), "'dedup'", None),
        move_bytes(Counter::Used, Some(Counter::Orphan), &replaced),
        format!("DELETE FROM {replaced}"),
    ]
});

/// Makes bytes of write `$2` copies of content `$1`, as many as are missing, where they count.
static ADD_COPIES: LazyLock<String> = LazyLock::new(|| {
    format!(
        "INSERT INTO object_locations \
         (content_id, backend_name, physical_key, backend_version, size_bytes, stripe, state, verified_at) \
         SELECT $1, backend_name, physical_key, backend_version, size_bytes, stripe, 'present', created_at \
         FROM pending_objects WHERE write_id = $2 \
         AND backend_name NOT IN (SELECT backend_name FROM object_locations WHERE content_id = $1) \
         AND backend_name IN (SELECT name FROM backends WHERE draining = 0) ORDER BY id LIMIT {}",
        missing_copies("$1")
    )
});

/// Turns the other bytes of write `$1` into cleanups, moves all its bytes out of reserved, and deletes its intents.
static ENQUEUE_REST: LazyLock<[String; 3]> = LazyLock::new(|| {
    [
        enqueue_cleanups(&format!("pending_objects q WHERE write_id = $1 AND NOT {IS_LOCATED}"), "'dedup'", None),
        format!(
            "UPDATE backend_quotas SET reserved_bytes = reserved_bytes - s.n, used_bytes = used_bytes + s.located, \
             orphan_bytes = orphan_bytes + s.n - s.located \
             FROM (SELECT q.backend_name AS b, q.stripe AS t, sum(q.size_bytes) AS n, \
             sum(CASE WHEN {IS_LOCATED} THEN q.size_bytes ELSE 0 END) AS located FROM pending_objects q \
             WHERE q.write_id = $1 GROUP BY q.backend_name, q.stripe) s \
             WHERE s.b = backend_quotas.backend_name AND s.t = backend_quotas.stripe"
        ),
        DELETE_INTENTS.to_owned(),
    ]
});

/// Creates the content before a row refers to it. Fails as `ResolveAgain` if the factor of its bucket is higher than
/// the hint and the number of copies; with a bucket, also if the bucket has it.
pub(crate) fn insert_content(unit: &mut Unit, bytes: &NewBytes<'_>, bucket: Option<BucketId>) {
    let sha256 = bytes.sha256.map(|digest| digest.to_string());
    let mut values = params![bytes.content, sha256, bytes.md5.to_string(), bytes.size_bytes];
    let factor_max = if bytes.notes_work() { usize::MAX } else { bytes.stored.copies() };
    values.extend(params![bucket.unwrap_or(bytes.bucket), i64::try_from(factor_max).unwrap_or(i64::MAX)]);
    unit.one(bucket.map_or(INSERT, |_| INSERT_ONCE), values, Verdict::ResolveAgain);
}

/// Makes bytes of a write locations of existing content, as many as it has copies less than its factor; all others
/// become cleanups.
pub(crate) fn place_copies(unit: &mut Unit, content: ContentId, write: WriteId) {
    for sql in REPLACE_BAD_COPIES.iter() {
        unit.run(sql, params![content]);
    }
    unit.run(&ADD_COPIES, params![content, write]);
    for sql in ENQUEUE_REST.iter() {
        unit.run(sql, params![write]);
    }
}

impl Catalog {
    /// Live content of a bucket with this digest and size.
    pub async fn known_content(
        &self,
        bucket: BucketId,
        sha256: Sha256,
        size_bytes: u64,
    ) -> Result<Option<KnownContent>, Error> {
        let rows = self.read(KNOWN, params![bucket, sha256.to_string(), size_bytes]).await?;
        let Some(first) = rows.first() else { return Ok(None) };
        let copies = rows.iter().filter_map(|row| location(row).transpose()).collect::<Result<_, _>>()?;
        Ok(Some(KnownContent { content: first.parse("id")?, copies }))
    }
}
