//! Resolving a key to locations: one read for an object, pages of pieces for joined content.

use std::sync::LazyLock;

use s3o_model::content::{CopyTrust, Location, Piece, ReadableCopy};
use s3o_model::etag::ETag;
use s3o_model::ids::{BucketId, ContentId};
use s3o_model::names::{BucketName, ObjectKey};
use s3o_model::object::{Attributes, Object};

use super::{Numbered, Resolved, WholeContent};
use crate::error::Error;
use crate::unit::Row;
use crate::{Catalog, params};

static RESOLVE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT b.id AS bucket_id, o.version_id, o.content_id, o.size_bytes, o.etag, o.checksum, o.headers, \
         o.metadata, o.tags, o.last_modified, o.expires_at, c.kind, c.md5, l.backend_name, l.physical_key, \
         l.backend_version, \
         {TRUST} AS trust, :now AS now, \
         CASE WHEN b.lifecycle IS NULL THEN NULL ELSE b.lifecycle_revision END AS rules FROM buckets b \
         LEFT JOIN objects o ON o.bucket_id = b.id AND o.key = $2 AND (o.expires_at IS NULL OR o.expires_at > :now) \
         LEFT JOIN contents c ON c.id = o.content_id \
         LEFT JOIN object_locations l ON l.content_id = o.content_id AND l.state <> 'lost' \
         WHERE b.name = $1 ORDER BY trust, l.backend_name"
    )
});

/// SQL for the trust in a location `l` that is not lost, in the order of [`CopyTrust`].
pub(crate) const TRUST: &str = "CASE WHEN l.state <> 'present' THEN 2 \
     WHEN coalesce(l.verified_at, 0) < coalesce((SELECT t.trust_from FROM backends t \
     WHERE t.name = l.backend_name), 0) THEN 1 ELSE 0 END";

pub(super) async fn resolve(
    catalog: &Catalog,
    bucket: &BucketName,
    key: &ObjectKey,
) -> Result<Option<Resolved>, Error> {
    let rows = catalog.find(&RESOLVE, params![bucket, key], has_object).await?;
    let Some(first) = rows.first() else { return Ok(None) };
    let (bucket, now, rules) = (BucketId(first.int("bucket_id")?), first.time("now")?, first.opt_int("rules")?);
    if first.opt_text("version_id")?.is_none() {
        return Ok(Some(Resolved { bucket, now, rules, object: None, whole: None }));
    }
    let whole = match first.text("kind")? {
        "whole" => {
            let copies = rows.iter().filter_map(|row| readable_copy(row).transpose()).collect::<Result<_, _>>()?;
            Some(WholeContent { md5: first.parse("md5")?, copies })
        }
        _ => None,
    };
    Ok(Some(Resolved { bucket, now, rules, object: Some(object(bucket, key, first)?), whole }))
}

/// True if the rows contain an object, not only its bucket.
fn has_object(rows: &[Row]) -> bool {
    rows.first().is_some_and(|row| row.opt_text("version_id").is_ok_and(|version| version.is_some()))
}

fn object(bucket: BucketId, key: &ObjectKey, row: &Row) -> Result<Object, Error> {
    Ok(Object {
        bucket,
        key: key.clone(),
        version: row.parse("version_id")?,
        content: row.parse("content_id")?,
        size_bytes: row.size("size_bytes")?,
        etag: ETag::from_text(row.text("etag")?),
        checksum: row.opt_json("checksum")?,
        attributes: attributes(row)?,
        last_modified: row.time("last_modified")?,
        expires_at: row.opt_time("expires_at")?,
    })
}

pub(crate) fn attributes(row: &Row) -> Result<Attributes, Error> {
    Ok(Attributes { headers: row.json("headers")?, metadata: row.json("metadata")?, tags: row.json("tags")? })
}

/// The location of a row; `None` if an outer join found none.
pub(crate) fn location(row: &Row) -> Result<Option<Location>, Error> {
    if row.opt_text("backend_name")?.is_none() {
        return Ok(None);
    }
    Ok(Some(Location {
        backend: row.parse("backend_name")?,
        physical_key: row.string("physical_key")?,
        backend_version: row.opt_string("backend_version")?,
    }))
}

/// The copy of a row; `None` if an outer join found none.
pub(crate) fn readable_copy(row: &Row) -> Result<Option<ReadableCopy>, Error> {
    let Some(location) = location(row)? else { return Ok(None) };
    let trust = match row.int("trust")? {
        0 => CopyTrust::Verified,
        1 => CopyTrust::OlderThanAccept,
        _ => CopyTrust::Suspect,
    };
    Ok(Some(ReadableCopy { location, trust }))
}

/// Pieces of joined content `$1` with their contents and locations; `chosen` is a condition with order and limit.
fn select_pieces(chosen: &str) -> String {
    format!(
        "SELECT p.number, p.start, p.whole_id, p.byte_offset, p.length, c.size_bytes, c.md5, \
         l.backend_name, l.physical_key, l.backend_version, {TRUST} AS trust, p.checksum \
         FROM (SELECT * FROM content_parts WHERE joined_id = $1 AND {chosen}) p JOIN contents c ON c.id = p.whole_id \
         LEFT JOIN object_locations l ON l.content_id = p.whole_id AND l.state <> 'lost' \
         ORDER BY p.number, trust, l.backend_name"
    )
}

pub(super) async fn pieces(
    catalog: &Catalog,
    content: ContentId,
    from: u64,
    before: u64,
    limit: usize,
) -> Result<Vec<Piece>, Error> {
    static SQL: LazyLock<String> = LazyLock::new(|| {
        select_pieces(
            "start >= (SELECT max(start) FROM content_parts WHERE joined_id = $1 AND start <= $2) \
             AND start < $3 ORDER BY start LIMIT $4",
        )
    });
    let rows = catalog.find(&SQL, params![content, from, before, limit], |rows| !rows.is_empty()).await?;
    Ok(gather(&rows)?.0)
}

pub(super) async fn numbered_pieces(
    catalog: &Catalog,
    content: ContentId,
    after: u32,
    limit: usize,
) -> Result<Numbered, Error> {
    const COUNT: &str = "SELECT count(*) AS n FROM content_parts WHERE joined_id = $1";
    static SQL: LazyLock<String> = LazyLock::new(|| select_pieces("number > $2 ORDER BY number LIMIT $3"));
    let rows = catalog.find(&SQL, params![content, after, limit], |rows| !rows.is_empty()).await?;
    let (pieces, checksums) = gather(&rows)?;
    let count = catalog.survey(COUNT, params![content]).await?;
    let count = u32::try_from(count[0].int("n")?).map_err(|_| Error::Corrupt("too many pieces".to_owned()))?;
    Ok(Numbered { pieces, checksums, count })
}

type Gathered = (Vec<Piece>, Vec<Option<s3o_model::checksum::Checksum>>);

/// One piece per number; rows of one number differ only in their location.
fn gather(rows: &[Row]) -> Result<Gathered, Error> {
    let mut pieces: Vec<Piece> = Vec::with_capacity(rows.len());
    let mut checksums = Vec::with_capacity(rows.len());
    for row in rows {
        let number = u32::try_from(row.int("number")?).map_err(|_| Error::Corrupt("piece number".to_owned()))?;
        if pieces.last().is_none_or(|piece| piece.number != number) {
            pieces.push(piece(number, row)?);
            checksums.push(row.opt_json("checksum")?);
        }
        if let (Some(piece), Some(copy)) = (pieces.last_mut(), readable_copy(row)?) {
            piece.copies.push(copy);
        }
    }
    Ok((pieces, checksums))
}

fn piece(number: u32, row: &Row) -> Result<Piece, Error> {
    Ok(Piece {
        number,
        start: row.size("start")?,
        whole: row.parse("whole_id")?,
        offset: row.size("byte_offset")?,
        length: row.size("length")?,
        whole_bytes: row.size("size_bytes")?,
        whole_md5: row.parse("md5")?,
        copies: Vec::new(),
    })
}
