//! Facts about names that a store could read in its own way.

use s3o_model::entropy::{Entropy, SystemEntropy};
use s3o_model::ids::IdSource;
use s3o_model::physical_key::{NameStyle, physical_key};
use std::sync::Arc;

use super::{doomed, fresh_folder, list_all, pattern, put, read};
use crate::{Backend, DeleteAnswer, Probe};
use s3o_model::clock::SystemClock;

/// Keys that clients really use, and some that they should not.
fn awkward() -> Vec<String> {
    let plain = [
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
    let long = ["x".repeat(1024), "é".repeat(512), "a/".repeat(400), "y".repeat(255)];
    plain.into_iter().map(str::to_owned).chain(long).collect()
}

/// Every physical key is stored, found, listed and deleted under exactly its name.
pub async fn every_physical_key_survives(backend: &dyn Backend) {
    let ids = IdSource::new(Arc::new(SystemClock), Arc::new(SystemEntropy));
    let bucket = format!("awkward-{:016x}", SystemEntropy.next_u64());
    let bucket_name = bucket.parse().expect("a bucket name");
    let mut keys: Vec<String> = Vec::new();
    for key in awkward() {
        let physical = physical_key(&bucket_name, &key.parse().expect("a key"), ids.fresh(), NameStyle::Exact);
        put(backend, &physical, &pattern(key.len())).await;
        assert_eq!(read(backend, &physical, None).await.expect("read"), pattern(key.len()), "{key:?}");
        keys.push(physical);
    }
    keys.sort();
    assert_eq!(list_all(backend, &format!("{bucket}/"), 7).await, keys);
    let answers = backend.delete_batch(&doomed(keys.iter().map(String::as_str))).await;
    assert_eq!(answers, vec![DeleteAnswer::Deleted; keys.len()]);
    assert_eq!(list_all(backend, &format!("{bucket}/"), 100).await, Vec::<String>::new());
}

/// A key and a key below it are two keys, and so are two cases of one letter.
pub async fn keys_that_look_alike_stay_apart(backend: &dyn Backend) {
    let folder = fresh_folder();
    let names = ["a~1", "A~1", "a/b~1", "a/B~1", "a=20~1", "a=2520~1"];
    for (size, name) in names.iter().enumerate() {
        put(backend, &format!("{folder}/{name}"), &pattern(size)).await;
    }
    for (size, name) in names.iter().enumerate() {
        let key = format!("{folder}/{name}");
        assert_eq!(read(backend, &key, None).await.expect("read").len(), size, "{name}");
    }
    assert_eq!(backend.probe(&format!("{folder}/a")).await, Probe::Absent);
}
