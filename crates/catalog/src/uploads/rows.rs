//! The rows of uploads and parts, and the statements that read and join them.

use std::sync::LazyLock;

use s3o_model::ids::BucketId;
use s3o_model::multipart::{Part, Upload, UploadState};

use crate::error::Error;
use crate::objects::attributes;
use crate::unit::Row;

fn select(condition: &str) -> String {
    format!(
        "SELECT id, bucket_id, key, headers, metadata, tags, checksum, created_at, state, answer, expiry \
         FROM multipart_uploads WHERE {condition}"
    )
}

pub(super) static ONE_UPLOAD: LazyLock<String> = LazyLock::new(|| select("id = $1"));

pub(super) static OPEN_UPLOADS: LazyLock<String> =
    LazyLock::new(|| select("bucket_id = $1 AND state = 'open' AND (key, id) > ($2, $3) ORDER BY key, id LIMIT $4"));

/// The upper bound keeps a page from reading keys after its prefix.
pub(super) static OPEN_UPLOADS_BEFORE: LazyLock<String> = LazyLock::new(|| {
    select("bucket_id = $1 AND state = 'open' AND (key, id) > ($2, $3) AND key < $5 ORDER BY key, id LIMIT $4")
});

pub(super) const PARTS: &str = "SELECT number, content_id, length, md5, checksum, last_modified \
     FROM multipart_parts WHERE upload_id = $1 AND number > $2 ORDER BY number LIMIT $3";

/// Copies the listed parts (`$3`: number and content) of upload `$1` to the pieces of joined content `$2`. A join with
/// the list would search all of it for every part.
pub(super) const JOIN_PARTS: &str = "INSERT INTO content_parts \
     (joined_id, number, start, whole_id, byte_offset, length, checksum) \
     SELECT $2, p.number, sum(p.length) OVER (ORDER BY p.number) - p.length, p.content_id, p.byte_offset, p.length, \
     p.checksum FROM multipart_parts p WHERE p.upload_id = $1 \
     AND (p.number, p.content_id) IN (SELECT CAST(t.value ->> 0 AS BIGINT), t.value ->> 1 FROM json_each($3) t)";

pub(super) const TAKE_PARTS: &str = "DELETE FROM multipart_parts WHERE upload_id = $1 AND number IN \
     (SELECT CAST(t.value ->> 0 AS BIGINT) FROM json_each($2) t)";

/// Marks the closed upload `$1` for cleanup if it still has parts.
pub(super) const NOTE_LEFTOVER: &str = "UPDATE multipart_uploads SET leftover = 1 WHERE id = $1 \
     AND EXISTS (SELECT 1 FROM multipart_parts WHERE upload_id = $1)";

pub(super) fn upload(row: &Row) -> Result<Upload, Error> {
    Ok(Upload {
        id: row.parse("id")?,
        bucket: BucketId(row.int("bucket_id")?),
        key: row.parse("key")?,
        attributes: attributes(row)?,
        checksum: row.opt_json("checksum")?,
        expiry: row.opt_json("expiry")?,
        created_at: row.time("created_at")?,
        state: state(row)?,
    })
}

fn state(row: &Row) -> Result<UploadState, Error> {
    match row.text("state")? {
        "open" => Ok(UploadState::Open),
        "aborted" => Ok(UploadState::Aborted),
        "completed" => Ok(UploadState::Completed(row.json("answer")?)),
        other => Err(Error::Corrupt(format!("unknown upload state {other:?}"))),
    }
}

pub(super) fn part(row: &Row) -> Result<Part, Error> {
    Ok(Part {
        number: u32::try_from(row.int("number")?).map_err(|_| Error::Corrupt("part number".to_owned()))?,
        content: row.parse("content_id")?,
        length: row.size("length")?,
        md5: row.parse("md5")?,
        checksum: row.opt_json("checksum")?,
        last_modified: row.time("last_modified")?,
    })
}
