//! Tests of names that a store could interpret.

use s3o_model::entropy::{Entropy, SystemEntropy};
use s3o_model::ids::IdSource;
use s3o_model::physical_key::{NameStyle, physical_key};
use std::sync::Arc;

use super::{fresh_folder, list_all, pattern, put, read, targets};
use crate::{Backend, DeleteAnswer, Probe};
use s3o_model::clock::SystemClock;

/// Keys with characters and segments that file systems, URLs or XML treat specially.
const AWKWARD_KEYS: [&str; 36] = [
    "a b",
    "a+b",
    "a%20b",
    "a%2Fb",
    "a//b",
    "/a",
    "a/",
    ".",
    "..",
    "../../etc/passwd",
    "./a",
    "a/./b",
    "a~b",
    "a=b",
    "a?b=c&d",
    "a#b",
    "a\\b",
    "a\"b'c",
    "a<b>&c;",
    "a\tb\nc",
    "\u{1}",
    "é",
    "e\u{301}",
    "日本語/キー",
    "🦀",
    "(a)!@,$*",
    ".s3o/identity.json",
    "a:b|c",
    "con",
    "nul.txt",
    "trailing.",
    "trailing ",
    "-rf",
    "~",
    "=_",
    "=h",
];

fn awkward_keys() -> Vec<String> {
    let long = ["x".repeat(1024), "é".repeat(512), "a/".repeat(400), "y".repeat(255)];
    AWKWARD_KEYS.into_iter().map(str::to_owned).chain(long).collect()
}

/// Stores, reads, lists and deletes the physical key of every awkward key.
pub async fn awkward_keys_are_stored_under_their_names(backend: &dyn Backend) {
    let ids = IdSource::new(Arc::new(SystemClock), Arc::new(SystemEntropy));
    let bucket = format!("awkward-{:016x}", SystemEntropy.next_u64());
    let bucket_name = bucket.parse().expect("a bucket name");
    let mut keys: Vec<String> = Vec::new();
    for key in awkward_keys() {
        let physical = physical_key(&bucket_name, &key.parse().expect("a key"), ids.fresh(), NameStyle::Exact);
        put(backend, &physical, &pattern(key.len())).await;
        assert_eq!(read(backend, &physical, None).await.expect("read"), pattern(key.len()), "{key:?}");
        keys.push(physical);
    }
    keys.sort();
    assert_eq!(list_all(backend, &format!("{bucket}/"), 7).await, keys);
    let answers = backend.delete_batch(&targets(keys.iter().map(String::as_str))).await;
    assert_eq!(answers, vec![DeleteAnswer::Deleted; keys.len()]);
    assert_eq!(list_all(backend, &format!("{bucket}/"), 100).await, Vec::<String>::new());
}

/// Keys that differ in case, in escaping or by a folder do not overwrite each other.
pub async fn similar_keys_are_different_keys(backend: &dyn Backend) {
    let folder = fresh_folder();
    let names = ["a~1", "A~1", "a/b~1", "a/B~1", "a=20~1", "a=2520~1"];
    for (size, name) in names.iter().enumerate() {
        put(backend, &format!("{folder}/{name}"), &pattern(size)).await;
    }
    for (size, name) in names.iter().enumerate() {
        let key = format!("{folder}/{name}");
        assert_eq!(read(backend, &key, None).await.expect("read").len(), size, "{name}");
    }
    assert_eq!(backend.probe((&format!("{folder}/a")).into()).await, Probe::Absent);
}
