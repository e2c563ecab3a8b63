//! Tests of listings.

use std::collections::BTreeSet;

use bytes::Bytes;
use s3o_model::entropy::{Entropy, SeededEntropy, SystemEntropy};
use s3o_model::physical_key::RESERVED_PREFIX;

use super::{fresh_folder, list_all, pattern, put};
use crate::Backend;

/// In byte order, which differs from the order of folders and of any locale.
const NAMES: [&str; 12] = ["A", "B/x", "a", "a!", "a-b", "a.b", "a0/b/c/d", "a0/b/e", "a=2F", "b/z", "ba", "\u{e9}"];

async fn fill(backend: &dyn Backend) -> (String, Vec<String>) {
    let folder = fresh_folder();
    let keys: Vec<String> = NAMES.iter().map(|name| format!("{folder}/{name}")).collect();
    for key in keys.iter().rev() {
        put(backend, key, &pattern(3)).await;
    }
    (folder, keys)
}

/// The order of writes and of folders does not matter.
pub async fn keys_are_listed_in_byte_order(backend: &dyn Backend) {
    let (folder, keys) = fill(backend).await;
    let listed = list_all(backend, &format!("{folder}/"), 1000).await;
    assert_eq!(listed, keys);
    assert!(listed.is_sorted());
}

/// Tries every page size from 1 to the number of keys.
pub async fn pages_have_no_gaps_or_duplicates(backend: &dyn Backend) {
    let (folder, keys) = fill(backend).await;
    for limit in [1, 2, 3, 5, NAMES.len() - 1, NAMES.len()] {
        assert_eq!(list_all(backend, &folder, limit).await, keys, "pages of {limit}");
    }
}

/// A prefix is compared as text, with or without a final slash.
pub async fn prefix_may_end_within_a_name(backend: &dyn Backend) {
    let (folder, keys) = fill(backend).await;
    for prefix in ["a", "a0", "a0/", "a0/b", "a0/b/", "b", "b/z", "zz", "a0/b/c/d/e"] {
        let prefix = format!("{folder}/{prefix}");
        let expected: Vec<_> = keys.iter().filter(|key| key.starts_with(&prefix)).cloned().collect();
        assert_eq!(list_all(backend, &prefix, 2).await, expected, "{prefix}");
    }
}

/// `after` may be any text, such as a key that was deleted meanwhile.
pub async fn listing_may_start_after_missing_key(backend: &dyn Backend) {
    let (folder, keys) = fill(backend).await;
    for after in ["", "a", "a-", "a/", "a0", "a0/b", "a0/b/c/d", "a0/b/d", "b", "b/", "zz", "\u{ea}"] {
        let after = format!("{folder}/{after}");
        let page = backend.list(&folder, Some(&after), 1000).await.expect("list");
        let listed: Vec<_> = page.items.into_iter().map(|item| item.key).collect();
        let expected: Vec<_> = keys.iter().filter(|key| **key > after).cloned().collect();
        assert_eq!(listed, expected, "after {after}");
    }
}

/// A random name of characters that sort before and after the slash, in folders with common prefixes.
fn random_name(entropy: &SeededEntropy) -> String {
    let alphabet = ['a', 'b', '-', '!', '0', '/', '=', 'a'];
    let character = |_| alphabet[usize::try_from(entropy.next_u64() % 8).expect("below 8")];
    let length = 1 + entropy.next_u64() % 7;
    let text: String = (0..length).map(character).collect();
    let segments: Vec<_> = text.split('/').filter(|segment| !segment.is_empty()).collect();
    format!("{}~", segments.join("/"))
}

/// Tries random names, page sizes and start keys.
pub async fn random_names_are_listed_as_a_sorted_set(backend: &dyn Backend) {
    let seed = SystemEntropy.next_u64();
    let entropy = SeededEntropy::new(seed);
    let folder = fresh_folder();
    let keys: BTreeSet<String> = (0..80).map(|_| format!("{folder}/{}", random_name(&entropy))).collect();
    for key in &keys {
        put(backend, key, &pattern(1)).await;
    }
    let all: Vec<String> = keys.iter().cloned().collect();
    for limit in [1, 7, 1000] {
        assert_eq!(list_all(backend, &folder, limit).await, all, "seed {seed}, pages of {limit}");
    }
    for _ in 0..20 {
        let name = random_name(&entropy);
        let after = format!("{folder}/{}", name.trim_end_matches('~'));
        let page = backend.list(&folder, Some(&after), 5).await.expect("list");
        let listed: Vec<_> = page.items.into_iter().map(|item| item.key).collect();
        let expected: Vec<_> = all.iter().filter(|key| **key > after).take(5).cloned().collect();
        assert_eq!(listed, expected, "seed {seed}, after {after}");
    }
}

/// The listing has the size of every key, empty ones included.
pub async fn sizes_are_listed(backend: &dyn Backend) {
    let folder = fresh_folder();
    for size in [0, 1, 1000] {
        put(backend, &format!("{folder}/{size:04}"), &pattern(size)).await;
    }
    let page = backend.list(&folder, None, 10).await.expect("list");
    let sizes: Vec<_> = page.items.iter().map(|item| item.size_bytes).collect();
    assert_eq!(sizes, [0, 1, 1000]);
}

/// A prefix without keys is no error.
pub async fn empty_listing_is_not_truncated(backend: &dyn Backend) {
    let page = backend.list(&fresh_folder(), None, 10).await.expect("list");
    assert!(page.items.is_empty() && !page.truncated);
}

/// A listing has the objects of s3o itself only if its prefix starts with `.s3o/`.
pub async fn own_objects_are_not_listed(backend: &dyn Backend) {
    let folder = fresh_folder();
    let own = format!("{RESERVED_PREFIX}{folder}/own");
    backend.write_own(&own, Bytes::from("x")).await.expect("written");
    put(backend, &format!("{folder}/k"), &pattern(1)).await;
    assert_eq!(list_all(backend, &format!("{RESERVED_PREFIX}{folder}"), 10).await, [own]);
    for limit in [1, 1000] {
        let page = backend.list("", None, limit).await.expect("list");
        assert!(!page.items.is_empty());
        assert!(page.items.iter().all(|item| !item.key.starts_with(RESERVED_PREFIX)));
    }
}
