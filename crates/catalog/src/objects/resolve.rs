//! From a name to bytes: one read for an object, pages of pieces for joined content.

use s3o_model::content::{Location, Piece};
use s3o_model::etag::ETag;
use s3o_model::ids::{BucketId, ContentId};
use s3o_model::names::{BucketName, ObjectKey};
use s3o_model::object::{Attributes, Object};

use super::{Numbered, Resolved, WholeContent, moment, rules_of};
use crate::error::Error;
use crate::unit::Row;
use crate::{Catalog, params};

const RESOLVE: &str = concat!(
    "SELECT b.id, o.version_id, o.content_id, o.size_bytes, o.etag, o.checksum, o.headers, o.metadata, o.tags, ",
    "o.last_modified, o.expires_at, c.kind, c.md5, l.backend_name, l.physical_key, :now, ",
    rules_of!("b"),
    " FROM buckets b ",
    "LEFT JOIN objects o ON o.bucket_id = b.id AND o.key = $2 AND (o.expires_at IS NULL OR o.expires_at > :now) ",
    "LEFT JOIN contents c ON c.id = o.content_id ",
    "LEFT JOIN object_locations l ON l.content_id = o.content_id AND l.state <> 'lost' ",
    "WHERE b.name = $1 ORDER BY l.state, l.backend_name"
);

pub(super) async fn resolve(
    catalog: &Catalog,
    bucket: &BucketName,
    key: &ObjectKey,
) -> Result<Option<Resolved>, Error> {
    let rows = catalog.find(RESOLVE, params![bucket, key], has_object).await?;
    let Some(first) = rows.first() else { return Ok(None) };
    let (bucket, now, rules) = (BucketId(first.int(0)?), moment(first, 15)?, first.opt_int(16)?);
    if first.opt_text(1)?.is_none() {
        return Ok(Some(Resolved { bucket, now, rules, object: None, whole: None }));
    }
    let whole = match first.text(11)? {
        "whole" => {
            let locations = rows.iter().filter_map(|row| location(row, 13).transpose()).collect::<Result<_, _>>()?;
            Some(WholeContent { md5: first.parse(12)?, locations })
        }
        _ => None,
    };
    Ok(Some(Resolved { bucket, now, rules, object: Some(object(bucket, key, first)?), whole }))
}

/// Whether rows show an object, and not only its bucket.
fn has_object(rows: &[Row]) -> bool {
    rows.first().is_some_and(|row| row.opt_text(1).is_ok_and(|version| version.is_some()))
}

fn object(bucket: BucketId, key: &ObjectKey, row: &Row) -> Result<Object, Error> {
    Ok(Object {
        bucket,
        key: key.clone(),
        version: row.parse(1)?,
        content: row.parse(2)?,
        size_bytes: row.size(3)?,
        etag: ETag::from_text(row.text(4)?),
        checksum: row.opt_json(5)?,
        attributes: Attributes { headers: row.json(6)?, metadata: row.json(7)?, tags: row.json(8)? },
        last_modified: moment(row, 9)?,
        expires_at: row.opt_int(10)?.map(s3o_model::clock::Timestamp::from_millis),
    })
}

/// The location in two columns, where there is one.
pub(crate) fn location(row: &Row, column: usize) -> Result<Option<Location>, Error> {
    if row.opt_text(column)?.is_none() {
        return Ok(None);
    }
    Ok(Some(Location { backend: row.parse(column)?, physical_key: row.text(column + 1)?.to_owned() }))
}

macro_rules! pieces {
    ($chosen:literal) => {
        concat!(
            "SELECT p.number, p.start, p.whole_id, p.byte_offset, p.length, c.size_bytes, c.md5, ",
            "l.backend_name, l.physical_key, p.checksum FROM (SELECT * FROM content_parts WHERE joined_id = $1 ",
            $chosen,
            ") p JOIN contents c ON c.id = p.whole_id ",
            "LEFT JOIN object_locations l ON l.content_id = p.whole_id AND l.state <> 'lost' ",
            "ORDER BY p.number, l.state, l.backend_name"
        )
    };
}

pub(super) async fn pieces(
    catalog: &Catalog,
    content: ContentId,
    from: u64,
    before: u64,
    limit: usize,
) -> Result<Vec<Piece>, Error> {
    const SQL: &str = pieces!(
        "AND start >= (SELECT max(start) FROM content_parts WHERE joined_id = $1 AND start <= $2) \
         AND start < $3 ORDER BY start LIMIT $4"
    );
    let rows = catalog.find(SQL, params![content, from, before, limit], |rows| !rows.is_empty()).await?;
    Ok(gather(&rows)?.0)
}

pub(super) async fn numbered_pieces(
    catalog: &Catalog,
    content: ContentId,
    after: u32,
    limit: usize,
) -> Result<Numbered, Error> {
    const SQL: &str = pieces!("AND number > $2 ORDER BY number LIMIT $3");
    const COUNT: &str = "SELECT count(*) FROM content_parts WHERE joined_id = $1";
    let rows = catalog.find(SQL, params![content, after, limit], |rows| !rows.is_empty()).await?;
    let (pieces, checksums) = gather(&rows)?;
    let count = catalog.survey(COUNT, params![content]).await?;
    let count = u32::try_from(count[0].int(0)?).map_err(|_| Error::Corrupt("too many pieces".to_owned()))?;
    Ok(Numbered { pieces, checksums, count })
}

type Gathered = (Vec<Piece>, Vec<Option<s3o_model::checksum::Checksum>>);

/// One piece per number; rows of one number differ only in their location.
fn gather(rows: &[Row]) -> Result<Gathered, Error> {
    let mut pieces: Vec<Piece> = Vec::with_capacity(rows.len());
    let mut checksums = Vec::with_capacity(rows.len());
    for row in rows {
        let number = u32::try_from(row.int(0)?).map_err(|_| Error::Corrupt("piece number".to_owned()))?;
        if pieces.last().is_none_or(|piece| piece.number != number) {
            pieces.push(piece(number, row)?);
            checksums.push(row.opt_json(9)?);
        }
        if let (Some(piece), Some(location)) = (pieces.last_mut(), location(row, 7)?) {
            piece.locations.push(location);
        }
    }
    Ok((pieces, checksums))
}

fn piece(number: u32, row: &Row) -> Result<Piece, Error> {
    Ok(Piece {
        number,
        start: row.size(1)?,
        whole: row.parse(2)?,
        offset: row.size(3)?,
        length: row.size(4)?,
        whole_bytes: row.size(5)?,
        whole_md5: row.parse(6)?,
        locations: Vec::new(),
    })
}
