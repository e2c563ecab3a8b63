//! Listing objects in byte order. The keys of a common prefix are skipped, not read.

use s3o_model::ids::BucketId;
use s3o_model::listing::{Keyed, ListPage, ListQuery, Read, Scan};
use s3o_model::object::{Headers, ListedObject};

use crate::error::Error;
use crate::unit::Row;
use crate::{Catalog, params};

struct Line(ListedObject);

impl Keyed for Line {
    fn key(&self) -> &str {
        self.0.key.as_str()
    }
}

const UNBOUNDED: &str = "SELECT key, size_bytes, etag, last_modified, headers, checksum FROM objects \
     WHERE bucket_id = $1 AND key >= $2 AND (expires_at IS NULL OR expires_at > :now) ORDER BY key LIMIT $3";

const BOUNDED: &str = "SELECT key, size_bytes, etag, last_modified, headers, checksum FROM objects \
     WHERE bucket_id = $1 AND key >= $2 AND key < $4 AND (expires_at IS NULL OR expires_at > :now) ORDER BY key \
     LIMIT $3";

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
    let headers: Headers = row.json("headers")?;
    Ok(Line(ListedObject {
        key: row.parse("key")?,
        size_bytes: row.size("size_bytes")?,
        etag: s3o_model::etag::ETag::from_text(row.text("etag")?),
        last_modified: row.time("last_modified")?,
        storage_class: headers.storage_class,
        checksum: row.opt_json("checksum")?,
    }))
}
