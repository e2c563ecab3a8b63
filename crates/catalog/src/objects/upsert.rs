//! Writing an object's row, under each condition. The row keeps what it displaced, so the unit
//! that wrote it knows what to release even when two first writes of one key meet.

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
use crate::unit::{Unit, Value, json};

/// Everything that S3 shows of an object, except when it was written.
#[derive(Debug, Clone)]
pub struct PutRow {
    /// The bucket.
    pub bucket: BucketId,
    /// The key.
    pub key: ObjectKey,
    /// Fresh for every write.
    pub version: VersionId,
    /// The length.
    pub size_bytes: u64,
    /// The `ETag`.
    pub etag: ETag,
    /// The checksum.
    pub checksum: Option<Checksum>,
    /// What the client attached.
    pub attributes: Attributes,
    /// When it ceases to exist.
    pub expiry: Option<Expiry>,
}

macro_rules! insert {
    ($tail:expr) => {
        concat!(
            "INSERT INTO objects (bucket_id, key, content_id, version_id, size_bytes, etag, checksum, headers, ",
            "metadata, tags, last_modified, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, ",
            ":now / 1000 * 1000, coalesce($11, :now + $12)) ON CONFLICT (bucket_id, key) DO ",
            $tail,
            " RETURNING last_modified, prev_content_id, expires_at"
        )
    };
}

macro_rules! replace {
    ($tail:literal) => {
        insert!(concat!(
            "UPDATE SET prev_content_id = objects.content_id, ",
            "content_id = excluded.content_id, version_id = excluded.version_id, size_bytes = excluded.size_bytes, ",
            "etag = excluded.etag, checksum = excluded.checksum, headers = excluded.headers, ",
            "metadata = excluded.metadata, tags = excluded.tags, last_modified = excluded.last_modified, ",
            "expires_at = excluded.expires_at, deletion_status = 'NOT_EXPIRED', deletion_initiated_at = NULL, token = NULL ",
            $tail
        ))
    };
}

const WHERE_NOTHING_IS: &str = insert!("NOTHING");

const ALWAYS: &str = replace!("");
/// An expired row counts as absent.
const IF_ABSENT: &str = replace!("WHERE objects.expires_at IS NOT NULL AND objects.expires_at <= :now");
const IF_MATCH: &str = "UPDATE objects SET prev_content_id = content_id, content_id = $3, version_id = $4, \
     size_bytes = $5, etag = $6, checksum = $7, headers = $8, metadata = $9, tags = $10, \
     last_modified = :now / 1000 * 1000, expires_at = coalesce($11, :now + $12), deletion_status = 'NOT_EXPIRED', \
     deletion_initiated_at = NULL, token = NULL \
     WHERE bucket_id = $1 AND key = $2 AND (CAST($13 AS TEXT) IS NULL OR etag = $13) \
     AND (expires_at IS NULL OR expires_at > :now) RETURNING last_modified, prev_content_id, expires_at";

/// Nothing appears that has already ceased to exist: whoever wrote it was told that it is there.
const AHEAD: &str = "SELECT 1 WHERE $1 > :now";

/// Adds the statement that writes a row where none is; its answer is that of [`upsert_object`].
pub(super) fn insert_object(unit: &mut Unit, row: &PutRow, content: ContentId) -> usize {
    check_expiry(unit, row);
    unit.one(WHERE_NOTHING_IS, values(row, content), Verdict::RunAgain)
}

/// Adds the statement; its answer holds the moment of the write and what it displaced.
pub(crate) fn upsert_object(unit: &mut Unit, row: &PutRow, content: ContentId, condition: &WriteCondition) -> usize {
    check_expiry(unit, row);
    let mut values = values(row, content);
    let sql = match condition {
        WriteCondition::None => ALWAYS,
        WriteCondition::IfAbsent => IF_ABSENT,
        WriteCondition::IfMatch(etag) => {
            values.extend(params![etag.as_ref()]);
            IF_MATCH
        }
    };
    unit.one(sql, values, Verdict::PreconditionFailed)
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
