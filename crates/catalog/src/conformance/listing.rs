//! Tests of listings.

use s3o_model::ids::BucketId;
use s3o_model::listing::{Entry, ListQuery};

use super::fixture::Fixture;
use crate::params;

/// Keys in the order of their bytes: case, punctuation around `/`, beyond ASCII, beyond the BMP.
const ORDERED: [&str; 14] =
    ["\u{1}", "A", "Z", "a", "a-b", "a/", "a/b", "a/c", "a0", "ab", "z", "ä", "\u{FFFF}", "\u{10000}"];

/// Stores one content under these keys, the last one first.
async fn fill(fixture: &Fixture, bucket: BucketId, keys: &[&str]) {
    let content = fixture.put(bucket, keys[keys.len() - 1], 1).await;
    for name in &keys[..keys.len() - 1] {
        fixture.copy((content, 1), bucket, name).await.expect("copied");
    }
}

/// Entries of one page, common prefixes in brackets, and the start of the next page.
async fn page(fixture: &Fixture, bucket: BucketId, query: ListQuery) -> (Vec<String>, Option<String>) {
    let page = fixture.catalog.list_objects(bucket, query).await.expect("listed");
    let names = page.entries.iter().map(|entry| match entry {
        Entry::Row(row) => row.key.as_str().to_owned(),
        Entry::Prefix(prefix) => format!("[{prefix}]"),
    });
    (names.collect(), page.next_after)
}

fn query(prefix: &str, delimiter: Option<&str>, after: Option<&str>, limit: usize) -> ListQuery {
    let owned = |text: Option<&str>| text.map(str::to_owned);
    ListQuery { prefix: prefix.to_owned(), delimiter: owned(delimiter), after: owned(after), limit }
}

/// Pages of any size have neither gaps nor overlaps.
pub async fn keys_are_listed_in_byte_order(fixture: &Fixture) {
    let bucket = fixture.bucket("order").await;
    fill(fixture, bucket, &ORDERED).await;
    fill(fixture, fixture.bucket("other").await, &["a", "b"]).await;
    for limit in [1, 3, 1000] {
        let (mut names, mut after) = (Vec::new(), None);
        loop {
            let (found, next) = page(fixture, bucket, query("", None, after.as_deref(), limit)).await;
            assert!(found.len() <= limit);
            names.extend(found);
            after = next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(names, ORDERED, "pages of {limit}");
    }
}

/// A page that ends with a common prefix continues behind all keys of the group.
pub async fn delimiter_groups_keys(fixture: &Fixture) {
    let bucket = fixture.bucket("groups").await;
    fill(fixture, bucket, &ORDERED).await;
    let (names, _) = page(fixture, bucket, query("a", Some("/"), None, 10)).await;
    assert_eq!(names, ["a", "a-b", "[a/]", "a0", "ab"]);
    let (names, next) = page(fixture, bucket, query("a", Some("/"), None, 3)).await;
    assert_eq!((names.len(), next.as_deref()), (3, Some("a/")));
    let (names, next) = page(fixture, bucket, query("a", Some("/"), Some("a/"), 3)).await;
    assert_eq!((names, next), (vec!["a0".to_owned(), "ab".to_owned()], None));
    let (names, _) = page(fixture, bucket, query("a/", Some("/"), None, 10)).await;
    assert_eq!(names, ["a/", "a/b", "a/c"]);
}

/// Adds this many rows in one statement, evenly spread over 200 folders.
async fn grow_by(fixture: &Fixture, bucket: BucketId, rows: i64) {
    const MORE: &str = "INSERT INTO objects \
         (bucket_id, key, content_id, version_id, size_bytes, etag, headers, metadata, tags, last_modified) \
         WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < $2 - 1) \
         SELECT bucket_id, 'f' || (100 + n / ($2 / 200)) || '/' || $2 || '-' || (1000000 + n), content_id, version_id, \
         size_bytes, etag, headers, metadata, tags, last_modified FROM numbers CROSS JOIN objects \
         WHERE bucket_id = $1 AND key = 'seed'";
    fixture.change(MORE, params![bucket, rows]).await;
    let recount = "UPDATE contents SET ref_count = (SELECT count(*) FROM objects WHERE content_id = contents.id)";
    fixture.change(recount, vec![]).await;
}

/// Compared between a thousand and a million keys.
pub async fn page_of_prefixes_reads_the_same_rows_at_any_size(fixture: &Fixture) {
    let bucket = fixture.bucket("large").await;
    fixture.put(bucket, "seed", 1).await;
    let mut costs = Vec::new();
    for rows in [1_000, 1_000_000] {
        grow_by(fixture, bucket, rows).await;
        let mut cost = Vec::new();
        for (prefix, after) in [("", None), ("", Some("f150/")), ("f2", Some("f250/"))] {
            let before = fixture.catalog.effort().rows_read;
            let (names, _) = page(fixture, bucket, query(prefix, Some("/"), after, 100)).await;
            cost.push((names.len(), fixture.catalog.effort().rows_read - before));
        }
        costs.push(cost);
    }
    assert_eq!(costs[0], costs[1]);
    assert_eq!(costs[0].iter().map(|(names, _)| *names).collect::<Vec<_>>(), [100, 100, 49]);
    assert!(costs[0].iter().all(|(names, rows)| *rows <= *names as u64 + 2), "{costs:?}");
}

/// Uploads of one key are ordered by age. The prefix bounds the listing on both sides.
pub async fn open_uploads_are_listed_by_key(fixture: &Fixture) {
    let bucket = fixture.bucket("uploads").await;
    for name in ["b", "a/2", "a/1", "A", "a/1", "ä"] {
        fixture.upload(bucket, name).await;
        fixture.clock.advance(std::time::Duration::from_millis(5));
    }
    fixture.upload(fixture.bucket("other").await, "a/1").await;
    let all = fixture.catalog.open_uploads(bucket, "", ("", ""), 10).await.expect("listed");
    let names: Vec<&str> = all.iter().map(|upload| upload.key.as_str()).collect();
    assert_eq!(names, ["A", "a/1", "a/1", "a/2", "b", "ä"]);
    assert!(all[1].id < all[2].id);
    let (first, id) = (all[1].key.as_str(), all[1].id.to_string());
    let below = fixture.catalog.open_uploads(bucket, "a/", (first, &id), 10).await.expect("listed");
    assert_eq!(below, all[2..4]);
    let paged = fixture.catalog.open_uploads(bucket, "a/", ("", ""), 1).await.expect("listed");
    assert_eq!(paged, all[1..2]);
    fixture.catalog.abort_upload(all[0].id).await.expect("aborted");
    assert_eq!(fixture.catalog.open_uploads(bucket, "A", ("", ""), 10).await.expect("listed"), []);
}
