//! Listing objects in byte order. A group is skipped, not read through.

use s3o_model::ids::BucketId;
use s3o_model::listing::{Keyed, ListPage, ListQuery, Read, Scan};
use s3o_model::object::{Headers, ListedObject};

use super::moment;
use crate::error::Error;
use crate::unit::Row;
use crate::{Catalog, params};

struct Line(ListedObject);

impl Keyed for Line {
    fn key(&self) -> &str {
        self.0.key.as_str()
    }
}

macro_rules! page {
    ($bound:literal) => {
        concat!(
            "SELECT key, size_bytes, etag, last_modified, headers, checksum FROM objects ",
            "WHERE bucket_id = $1 AND key >= $2 ",
            $bound,
            "AND (expires_at IS NULL OR expires_at > :now) ORDER BY key LIMIT $3"
        )
    };
}

const BOUNDED: &str = page!("AND key < $4 ");
const UNBOUNDED: &str = page!("");

pub(super) async fn list(
    catalog: &Catalog,
    bucket: BucketId,
    query: ListQuery,
) -> Result<ListPage<ListedObject>, Error> {
    let mut scan = Scan::new(query);
    while let Some(read) = scan.next_read() {
        let lines = read_lines(catalog, bucket, &read).await?;
        scan.feed(lines, &read);
    }
    Ok(scan.into_page().map(|line| line.0))
}

async fn read_lines(catalog: &Catalog, bucket: BucketId, read: &Read) -> Result<Vec<Line>, Error> {
    let mut values = params![bucket, &read.from, read.limit];
    let sql = match &read.before {
        Some(before) => {
            values.extend(params![before]);
            BOUNDED
        }
        None => UNBOUNDED,
    };
    catalog.read(sql, values).await?.iter().map(line).collect()
}

fn line(row: &Row) -> Result<Line, Error> {
    let headers: Headers = row.json(4)?;
    Ok(Line(ListedObject {
        key: row.parse(0)?,
        size_bytes: row.size(1)?,
        etag: s3o_model::etag::ETag::from_text(row.text(2)?),
        last_modified: moment(row, 3)?,
        storage_class: headers.storage_class,
        checksum: row.opt_json(5)?,
    }))
}
