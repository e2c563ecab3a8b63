//! Writing an object's row, under each condition. The row keeps the content it replaced, so the unit knows what to
//! release even when two first writes of one key race.

use std::sync::LazyLock;

use s3o_model::checksum::Checksum;
use s3o_model::clock::{Timestamp, millis_of};
use s3o_model::conditions::WriteCondition;
use s3o_model::etag::ETag;
use s3o_model::expiry::Expiry;
use s3o_model::ids::{BucketId, ContentId, VersionId};
use s3o_model::names::ObjectKey;
use s3o_model::object::Attributes;

use crate::error::Verdict;
use crate::params;
use crate::unit::{LockRank, Unit, Value, json};

/// The row of an object, without the times that the commit sets.
#[derive(Debug, Clone)]
pub struct PutRow {
    /// The commit fails as `NoSuchBucket` if it was deleted.
    pub bucket: BucketId,
    /// Key of the object.
    pub key: ObjectKey,
    /// New for every write.
    pub version: VersionId,
    /// Length of the body.
    pub size_bytes: u64,
    /// As S3 returns it.
    pub etag: ETag,
    /// Checksum that the client declared or asked for.
    pub checksum: Option<Checksum>,
    /// Headers, metadata and tags from the client.
    pub attributes: Attributes,
    /// `None` if the object does not expire.
    pub expiry: Option<Expiry>,
}

fn insert(on_conflict: &str) -> String {
    format!(
        "INSERT INTO objects (bucket_id, key, content_id, version_id, size_bytes, etag, checksum, headers, \
         metadata, tags, \
         last_modified, expires_at, committed_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, \
         :now / 1000 * 1000, coalesce($11, :now + $12), :now) ON CONFLICT (bucket_id, key) DO {on_conflict} \
         RETURNING last_modified, prev_content_id, expires_at"
    )
}

const REPLACE: &str = "UPDATE SET prev_content_id = objects.content_id, content_id = excluded.content_id, \
     version_id = excluded.version_id, size_bytes = excluded.size_bytes, etag = excluded.etag, \
     checksum = excluded.checksum, headers = excluded.headers, metadata = excluded.metadata, tags = excluded.tags, \
     last_modified = excluded.last_modified, expires_at = excluded.expires_at, deletion_status = 'NOT_EXPIRED', \
     deletion_initiated_at = NULL, token = NULL, committed_at = excluded.committed_at";

static INSERT: LazyLock<String> = LazyLock::new(|| insert("NOTHING"));
static UPSERT: LazyLock<String> = LazyLock::new(|| insert(REPLACE));
/// An expired row counts as absent.
static IF_ABSENT: LazyLock<String> =
    LazyLock::new(|| insert(&format!("{REPLACE} WHERE objects.expires_at IS NOT NULL AND objects.expires_at <= :now")));
const IF_MATCH: &str = "UPDATE objects SET prev_content_id = content_id, content_id = $3, version_id = $4, \
     size_bytes = $5, etag = $6, checksum = $7, headers = $8, metadata = $9, tags = $10, \
     last_modified = :now / 1000 * 1000, expires_at = coalesce($11, :now + $12), deletion_status = 'NOT_EXPIRED', \
     deletion_initiated_at = NULL, token = NULL, committed_at = :now \
     WHERE bucket_id = $1 AND key = $2 AND (CAST($13 AS TEXT) IS NULL OR etag = $13) \
     AND (expires_at IS NULL OR expires_at > :now) RETURNING last_modified, prev_content_id, expires_at";

/// Fails a commit whose object would already be expired: the client would get 200 for an object that does not exist.
const AHEAD: &str = "SELECT 1 WHERE $1 > :now";

/// Adds the statement that inserts the row of a free key; fails as `RunAgain` if the key has a row.
pub(crate) fn insert_object(unit: &mut Unit, row: &PutRow, content: ContentId) -> usize {
    check_expiry(unit, row);
    unit.at(LockRank::Object).one(&INSERT, values(row, content), Verdict::RunAgain)
}

/// Adds the statement that writes the row; its answer has `last_modified`, `expires_at` and the replaced content.
pub(crate) fn upsert_object(unit: &mut Unit, row: &PutRow, content: ContentId, condition: &WriteCondition) -> usize {
    check_expiry(unit, row);
    let mut values = values(row, content);
    let sql: &'static str = match condition {
        WriteCondition::None => &UPSERT,
        WriteCondition::IfAbsent => &IF_ABSENT,
        WriteCondition::IfMatch(etag) => {
            values.extend(params![etag.as_ref()]);
            IF_MATCH
        }
    };
    unit.at(LockRank::Object).one(sql, values, Verdict::PreconditionFailed)
}

fn check_expiry(unit: &mut Unit, row: &PutRow) {
    if let Some(moment) = row.expiry.and_then(Expiry::moment) {
        unit.one(AHEAD, params![moment.millis()], Verdict::Past);
    }
}

fn values(row: &PutRow, content: ContentId) -> Vec<Value> {
    let attributes = &row.attributes;
    params![
        row.bucket,
        &row.key,
        content,
        row.version,
        row.size_bytes,
        &row.etag,
        row.checksum.as_ref().map(json),
        json(&attributes.headers),
        json(&attributes.metadata),
        json(&attributes.tags),
        row.expiry.and_then(Expiry::moment).map(Timestamp::millis),
        row.expiry.and_then(Expiry::live).map(millis_of),
    ]
}
