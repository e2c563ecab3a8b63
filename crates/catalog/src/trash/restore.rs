//! Moves the newest version of each key from trash back to its key, never over an existing object.

use std::sync::LazyLock;

use s3o_model::ids::ClaimToken;

use super::{LOCK_INTENTS_OF_SPAN, PrefixOperation, SUPERSEDE_SPAN};
use crate::copies::note_work_of;
use crate::error::Verdict;
use crate::objects::BUCKET_STANDS;
use crate::params;
use crate::unit::{LockRank, Unit, Value};

/// The first key after the page that begins at `$2`; a key may have several versions in trash.
pub(super) const PAGE_END: &str = "SELECT DISTINCT key FROM trash_objects WHERE bucket_id = $1 AND key >= $2 \
     AND key < $3 ORDER BY key LIMIT 1 OFFSET $4";

/// Marks the newest version of each key. An older one never takes its place: neither while the newest has expired, nor
/// after it was purged.
const MARK: &str = "WITH chosen AS MATERIALIZED (SELECT id FROM trash_objects t WHERE t.bucket_id = $1 \
     AND t.key >= $2 AND t.key < $3 AND t.restorable = 1 AND NOT EXISTS (SELECT 1 FROM trash_objects n \
     WHERE n.bucket_id = t.bucket_id AND n.key = t.key AND n.id > t.id) ORDER BY t.id /*lock*/) \
     UPDATE trash_objects SET token = $4 WHERE id IN (SELECT id FROM chosen)";

/// A row in the way stays, also an expired one: its expiry is not undone by an older version.
const INSERT: &str = "INSERT INTO objects (bucket_id, key, content_id, version_id, size_bytes, etag, checksum, \
     headers, metadata, tags, last_modified, expires_at, committed_at) SELECT bucket_id, key, content_id, version_id, \
     size_bytes, etag, checksum, headers, metadata, tags, last_modified, expires_at, :now FROM trash_objects \
     WHERE token = $1 AND (expires_at IS NULL OR expires_at > :now) ORDER BY key \
     ON CONFLICT (bucket_id, key) DO NOTHING";

/// True for a marked row that was inserted as an object.
const RESTORED: &str = "EXISTS (SELECT 1 FROM objects o WHERE o.bucket_id = trash_objects.bucket_id \
     AND o.key = trash_objects.key AND o.version_id = trash_objects.version_id)";

static COUNT: LazyLock<String> = LazyLock::new(|| {
    format!(
        "UPDATE prefix_operations SET objects = objects + s.n, bytes = bytes + s.b, existing = existing + s.x, \
         expired = expired + s.e FROM (SELECT coalesce(sum(CASE WHEN what = 1 THEN 1 ELSE 0 END), 0) AS n, \
         coalesce(sum(CASE WHEN what = 1 THEN size_bytes ELSE 0 END), 0) AS b, \
         coalesce(sum(CASE WHEN what = 2 THEN 1 ELSE 0 END), 0) AS e, \
         coalesce(sum(CASE WHEN what = 3 THEN 1 ELSE 0 END), 0) AS x FROM (SELECT size_bytes, \
         CASE WHEN {RESTORED} THEN 1 WHEN expires_at <= :now THEN 2 ELSE 3 END AS what \
         FROM trash_objects WHERE token = $1) AS marked) s WHERE id = $2"
    )
});

/// The number of copies may have been left alone while only trash used the content.
static NOTE_WORK: LazyLock<String> =
    LazyLock::new(|| note_work_of("id IN (SELECT content_id FROM trash_objects WHERE token = $1)"));

/// Pieces of joined content are not noted here, since one object may have thousands of them.
const NOTE_JOINED: &str = "UPDATE prefix_operations SET joined = 1 WHERE id = $2 AND EXISTS (SELECT 1 \
     FROM trash_objects t JOIN contents c ON c.id = t.content_id WHERE t.token = $1 AND c.kind = 'joined')";

/// Starts the review that finds pieces with too few or too many copies; no other backend, no copies.
pub(super) const REVIEW_PIECES: &str = "INSERT INTO copy_review (only_row, position, pass) SELECT 1, '', 0 \
     FROM prefix_operations WHERE id = $1 AND joined = 1 AND (SELECT count(*) FROM backends) > 1 \
     ON CONFLICT (only_row) DO UPDATE SET position = '', pass = excluded.pass";

const LOCK_CONTENTS: &str =
    "SELECT id FROM contents WHERE id IN (SELECT content_id FROM trash_objects WHERE token = $1) ORDER BY id /*lock*/";

static DELETE_RESTORED: LazyLock<String> =
    LazyLock::new(|| format!("DELETE FROM trash_objects WHERE token = $1 AND {RESTORED}"));

/// Adds the statements of one step.
pub(super) fn add(unit: &mut Unit, operation: &PrefixOperation, span: Vec<Value>, token: ClaimToken) {
    unit.at(LockRank::Bucket).one(BUCKET_STANDS, params![operation.bucket], Verdict::NoSuchBucket);
    unit.at(LockRank::Trash).run(MARK, [span.clone(), params![token]].concat());
    unit.at(LockRank::Object).run(INSERT, params![token]);
    unit.lock(LockRank::Intent, LOCK_INTENTS_OF_SPAN, span.clone());
    unit.lock(LockRank::Content, LOCK_CONTENTS, params![token]);
    unit.run(&COUNT, params![token, operation.id]);
    unit.run(&NOTE_WORK, params![token]);
    unit.run(NOTE_JOINED, params![token, operation.id]);
    unit.run(&DELETE_RESTORED, params![token]);
    unit.run("UPDATE trash_objects SET token = NULL WHERE token = $1", params![token]);
    unit.run(SUPERSEDE_SPAN, span);
}
