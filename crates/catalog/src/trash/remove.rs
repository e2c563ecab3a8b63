//! Moves objects to trash. The reference moves with the row, so no count changes and no content is locked.

use s3o_model::ids::ClaimToken;

use super::{LOCK_INTENTS_OF_SPAN, PrefixOperation, SUPERSEDE_SPAN};
use crate::error::Verdict;
use crate::objects::{BUCKET_STANDS, ROWS_NOT_DUE};
use crate::params;
use crate::unit::{LockRank, Unit, Value};

/// The first key after the page that begins at `$2`.
pub(super) const PAGE_END: &str = "SELECT key FROM objects WHERE bucket_id = $1 AND key >= $2 AND key < $3 \
     ORDER BY key LIMIT 1 OFFSET $4";

/// Expired objects are moved, too: otherwise an older version in trash would become the newest one of its key. A claim
/// of the expiry worker ends, since the token changes.
const MARK: &str = "WITH chosen AS MATERIALIZED (SELECT key FROM objects WHERE bucket_id = $1 AND key >= $2 \
     AND key < $3 AND committed_at <= $5 ORDER BY key /*lock*/) \
     UPDATE objects SET token = $4 WHERE bucket_id = $1 AND key IN (SELECT key FROM chosen)";

const MOVE: &str = "INSERT INTO trash_objects (bucket_id, key, content_id, version_id, size_bytes, etag, checksum, \
     headers, metadata, tags, last_modified, expires_at, deleted_at, purge_at) \
     SELECT bucket_id, key, content_id, version_id, size_bytes, etag, checksum, headers, metadata, tags, \
     last_modified, expires_at, :now, :now + $2 FROM objects WHERE token = $1 ORDER BY key";

const COUNT: &str = "UPDATE prefix_operations SET objects = objects + s.n, bytes = bytes + s.b, \
     expired = expired + s.e FROM (SELECT coalesce(sum(alive), 0) AS n, coalesce(sum(alive * size_bytes), 0) AS b, \
     coalesce(sum(1 - alive), 0) AS e FROM (SELECT size_bytes, \
     CASE WHEN expires_at IS NULL OR expires_at > :now THEN 1 ELSE 0 END AS alive FROM objects WHERE token = $1) \
     AS marked) s WHERE id = $2";

/// Adds the statements of one step.
pub(super) fn add(unit: &mut Unit, operation: &PrefixOperation, span: Vec<Value>, token: ClaimToken) {
    unit.at(LockRank::Bucket).one(BUCKET_STANDS, params![operation.bucket], Verdict::NoSuchBucket);
    let marked = [span.clone(), params![token, operation.cutoff]].concat();
    unit.at(LockRank::Object).run(MARK, marked);
    unit.exactly(0, ROWS_NOT_DUE, params![token], Verdict::Damaged);
    unit.lock(LockRank::Intent, LOCK_INTENTS_OF_SPAN, span.clone());
    unit.run(MOVE, params![token, operation.retention]);
    unit.run(COUNT, params![token, operation.id]);
    unit.run("DELETE FROM objects WHERE token = $1", params![token]);
    unit.run(SUPERSEDE_SPAN, span);
}
