//! The rows of uploads and parts, and the statements that read and join them.

use s3o_model::ids::BucketId;
use s3o_model::multipart::{Part, Upload, UploadState};
use s3o_model::object::Attributes;

use crate::error::Error;
use crate::objects::moment;
use crate::unit::Row;

macro_rules! uploads {
    ($tail:literal) => {
        concat!(
            "SELECT id, bucket_id, key, headers, metadata, tags, checksum, created_at, state, answer, expiry ",
            "FROM multipart_uploads ",
            $tail
        )
    };
}

pub(super) const ONE_UPLOAD: &str = uploads!("WHERE id = $1");

pub(super) const OPEN_UPLOADS: &str =
    uploads!("WHERE bucket_id = $1 AND state = 'open' AND (key, id) > ($2, $3) ORDER BY key, id LIMIT $4");

/// With a bound of its own, so that a page does not read on behind its prefix.
pub(super) const OPEN_UPLOADS_BEFORE: &str =
    uploads!("WHERE bucket_id = $1 AND state = 'open' AND (key, id) > ($2, $3) AND key < $5 ORDER BY key, id LIMIT $4");

pub(super) const PARTS: &str = "SELECT number, content_id, length, md5, checksum, last_modified \
     FROM multipart_parts WHERE upload_id = $1 AND number > $2 ORDER BY number LIMIT $3";

/// Moves the listed parts (`$3`: number and content) of upload `$1` into joined content `$2`. A join
/// with the list instead would search all of it for every part.
pub(super) const JOIN_PARTS: &str = "INSERT INTO content_parts \
     (joined_id, number, start, whole_id, byte_offset, length, checksum) \
     SELECT $2, p.number, sum(p.length) OVER (ORDER BY p.number) - p.length, p.content_id, p.byte_offset, p.length, \
     p.checksum FROM multipart_parts p WHERE p.upload_id = $1 \
     AND (p.number, p.content_id) IN (SELECT CAST(t.value ->> 0 AS BIGINT), t.value ->> 1 FROM json_each($3) t)";

pub(super) const TAKE_PARTS: &str = "DELETE FROM multipart_parts WHERE upload_id = $1 AND number IN \
     (SELECT CAST(t.value ->> 0 AS BIGINT) FROM json_each($2) t)";

/// Tells cleanup that upload `$1`, now closed, still holds parts.
pub(super) const NOTE_LEFTOVER: &str = "UPDATE multipart_uploads SET leftover = 1 WHERE id = $1 \
     AND EXISTS (SELECT 1 FROM multipart_parts WHERE upload_id = $1)";

pub(super) fn upload(row: &Row) -> Result<Upload, Error> {
    Ok(Upload {
        id: row.parse(0)?,
        bucket: BucketId(row.int(1)?),
        key: row.parse(2)?,
        attributes: Attributes { headers: row.json(3)?, metadata: row.json(4)?, tags: row.json(5)? },
        checksum: row.opt_json(6)?,
        expiry: row.opt_json(10)?,
        created_at: moment(row, 7)?,
        state: state(row)?,
    })
}

fn state(row: &Row) -> Result<UploadState, Error> {
    match row.text(8)? {
        "open" => Ok(UploadState::Open),
        "aborted" => Ok(UploadState::Aborted),
        "completed" => Ok(UploadState::Completed(row.json(9)?)),
        other => Err(Error::Corrupt(format!("upload state {other:?}"))),
    }
}

pub(super) fn part(row: &Row) -> Result<Part, Error> {
    Ok(Part {
        number: u32::try_from(row.int(0)?).map_err(|_| Error::Corrupt("part number".to_owned()))?,
        content: row.parse(1)?,
        length: row.size(2)?,
        md5: row.parse(3)?,
        checksum: row.opt_json(4)?,
        last_modified: moment(row, 5)?,
    })
}
