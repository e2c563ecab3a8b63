//! Facts about listings.

use s3o_model::ids::BucketId;
use s3o_model::listing::{Entry, ListQuery};

use super::scene::Scene;
use crate::{Objects, Uploads, params};

/// Keys in the order of their bytes: case, punctuation around `/`, beyond ASCII, beyond the BMP.
const ORDERED: [&str; 14] =
    ["\u{1}", "A", "Z", "a", "a-b", "a/", "a/b", "a/c", "a0", "ab", "z", "ä", "\u{FFFF}", "\u{10000}"];

/// Stores one content under many keys, in an order of their own.
async fn fill(scene: &Scene, bucket: BucketId, keys: &[&str]) {
    let content = scene.put(bucket, keys[keys.len() - 1], 1).await;
    for name in &keys[..keys.len() - 1] {
        scene.copy((content, 1), bucket, name).await.expect("copied");
    }
}

/// The names of one page, common prefixes in brackets, and where the next one starts.
async fn page(scene: &Scene, bucket: BucketId, query: ListQuery) -> (Vec<String>, Option<String>) {
    let page = scene.catalog.list_objects(bucket, query).await.expect("listed");
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

/// In the order of bytes, whatever the order of writing, page by page without gap or overlap.
pub async fn keys_come_in_the_order_of_their_bytes(scene: &Scene) {
    let bucket = scene.bucket("order").await;
    fill(scene, bucket, &ORDERED).await;
    fill(scene, scene.bucket("other").await, &["a", "b"]).await;
    for limit in [1, 3, 1000] {
        let (mut names, mut after) = (Vec::new(), None);
        loop {
            let (found, next) = page(scene, bucket, query("", None, after.as_deref(), limit)).await;
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

/// A prefix and a delimiter group as S3 groups; a page goes on behind a group.
pub async fn a_delimiter_groups(scene: &Scene) {
    let bucket = scene.bucket("groups").await;
    fill(scene, bucket, &ORDERED).await;
    let (names, _) = page(scene, bucket, query("a", Some("/"), None, 10)).await;
    assert_eq!(names, ["a", "a-b", "[a/]", "a0", "ab"]);
    let (names, next) = page(scene, bucket, query("a", Some("/"), None, 3)).await;
    assert_eq!((names.len(), next.as_deref()), (3, Some("a/")));
    let (names, next) = page(scene, bucket, query("a", Some("/"), Some("a/"), 3)).await;
    assert_eq!((names, next), (vec!["a0".to_owned(), "ab".to_owned()], None));
    let (names, _) = page(scene, bucket, query("a/", Some("/"), None, 10)).await;
    assert_eq!(names, ["a/", "a/b", "a/c"]);
}

/// Adds this many rows in one statement, the same number to each of 200 folders.
async fn grow_by(scene: &Scene, bucket: BucketId, rows: i64) {
    const MORE: &str = "INSERT INTO objects \
         (bucket_id, key, content_id, version_id, size_bytes, etag, headers, metadata, tags, last_modified) \
         WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < $2 - 1) \
         SELECT bucket_id, 'f' || (100 + n / ($2 / 200)) || '/' || $2 || '-' || (1000000 + n), content_id, version_id, \
         size_bytes, etag, headers, metadata, tags, last_modified FROM numbers CROSS JOIN objects \
         WHERE bucket_id = $1 AND key = 'seed'";
    scene.change(MORE, params![bucket, rows]).await;
    let recount = "UPDATE contents SET ref_count = (SELECT count(*) FROM objects WHERE content_id = contents.id)";
    scene.change(recount, vec![]).await;
}

/// A page of common prefixes costs as much in a bucket of a thousand keys as in one of a million.
pub async fn a_page_costs_the_same_at_any_size(scene: &Scene) {
    let bucket = scene.bucket("large").await;
    scene.put(bucket, "seed", 1).await;
    let mut costs = Vec::new();
    for rows in [1_000, 1_000_000] {
        grow_by(scene, bucket, rows).await;
        let mut cost = Vec::new();
        for (prefix, after) in [("", None), ("", Some("f150/")), ("f2", Some("f250/"))] {
            let before = scene.catalog.effort().rows_read;
            let (names, _) = page(scene, bucket, query(prefix, Some("/"), after, 100)).await;
            cost.push((names.len(), scene.catalog.effort().rows_read - before));
        }
        costs.push(cost);
    }
    assert_eq!(costs[0], costs[1]);
    assert_eq!(costs[0].iter().map(|(names, _)| *names).collect::<Vec<_>>(), [100, 100, 49]);
    assert!(costs[0].iter().all(|(names, rows)| *rows <= *names as u64 + 2), "{costs:?}");
}

/// Open uploads come by key, then by age; a prefix bounds them on both sides.
pub async fn open_uploads_come_by_key(scene: &Scene) {
    let bucket = scene.bucket("uploads").await;
    for name in ["b", "a/2", "a/1", "A", "a/1", "ä"] {
        scene.upload(bucket, name).await;
        scene.clock.advance(std::time::Duration::from_millis(5));
    }
    scene.upload(scene.bucket("other").await, "a/1").await;
    let all = scene.catalog.open_uploads(bucket, "", ("", ""), 10).await.expect("listed");
    let names: Vec<&str> = all.iter().map(|upload| upload.key.as_str()).collect();
    assert_eq!(names, ["A", "a/1", "a/1", "a/2", "b", "ä"]);
    assert!(all[1].id < all[2].id);
    let (first, id) = (all[1].key.as_str(), all[1].id.to_string());
    let below = scene.catalog.open_uploads(bucket, "a/", (first, &id), 10).await.expect("listed");
    assert_eq!(below, all[2..4]);
    let paged = scene.catalog.open_uploads(bucket, "a/", ("", ""), 1).await.expect("listed");
    assert_eq!(paged, all[1..2]);
    scene.catalog.abort_upload(all[0].id).await.expect("aborted");
    assert_eq!(scene.catalog.open_uploads(bucket, "A", ("", ""), 10).await.expect("listed"), []);
}
