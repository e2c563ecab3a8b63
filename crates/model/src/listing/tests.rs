//! Tests of scans and pages.

use super::{Entry, Keyed, ListPage, ListQuery, Scan, successor};
use proptest::prelude::{ProptestConfig, prop, prop_assert_eq, proptest};
use std::collections::BTreeSet;

impl Keyed for String {
    fn key(&self) -> &str {
        self
    }
}

struct KeySet {
    keys: BTreeSet<String>,
    rows_read: usize,
}

impl KeySet {
    fn page(&mut self, query: ListQuery) -> ListPage<String> {
        let mut scan = Scan::new(query);
        while let Some(read) = scan.next_read() {
            let below = |key: &&String| read.before.as_ref().is_none_or(|before| *key < before);
            let rows: Vec<String> =
                self.keys.range(read.from.clone()..).take_while(below).take(read.limit).cloned().collect();
            self.rows_read += rows.len();
            scan.feed(rows, &read);
        }
        scan.into_page()
    }
}

fn key_set(keys: impl IntoIterator<Item = String>) -> KeySet {
    KeySet { keys: keys.into_iter().collect(), rows_read: 0 }
}

fn query(prefix: &str, delimiter: Option<&str>, limit: usize) -> ListQuery {
    ListQuery { prefix: prefix.into(), delimiter: delimiter.map(Into::into), after: None, limit }
}

fn names(page: &ListPage<String>) -> Vec<String> {
    page.entries.iter().map(|entry| entry.name().to_owned()).collect()
}

#[test]
fn delimiter_groups_keys() {
    let mut key_set = key_set(["a", "a/b", "a/c/d", "b/x", "c"].map(String::from));
    assert_eq!(names(&key_set.page(query("", Some("/"), 10))), ["a", "a/", "b/", "c"]);
    assert_eq!(names(&key_set.page(query("a/", Some("/"), 10))), ["a/b", "a/c/"]);
}

#[test]
fn cost_of_a_group_does_not_depend_on_its_size() {
    let read_with = |per_folder: usize| {
        let keys = (0..10).flat_map(|f| (0..per_folder).map(move |k| format!("{f:02}/{k:06}")));
        let mut key_set = key_set(keys);
        key_set.page(query("", Some("/"), 1000));
        key_set.rows_read
    };
    assert_eq!(read_with(100), read_with(10_000));
}

#[test]
fn page_after_a_group_does_not_repeat_it() {
    let mut key_set = key_set(["a/1", "a/2", "b/1"].map(String::from));
    let first = key_set.page(query("", Some("/"), 1));
    assert_eq!((names(&first), first.next_after.as_deref()), (vec!["a/".to_owned()], Some("a/")));
    let second = key_set.page(ListQuery { after: first.next_after, ..query("", Some("/"), 1) });
    assert_eq!((names(&second), second.next_after), (vec!["b/".to_owned()], None));
}

#[test]
fn full_last_page_is_not_truncated() {
    let mut key_set = key_set(["a", "b"].map(String::from));
    assert_eq!(key_set.page(query("", None, 2)).next_after, None);
    assert_eq!(key_set.page(query("", None, 1)).next_after.as_deref(), Some("a"));
    assert!(key_set.page(query("", None, 0)).entries.is_empty());
}

#[test]
fn nul_in_a_query_matches_no_key_and_is_never_read() {
    let mut key_set = key_set(["a", "ab", "b"].map(String::from));
    assert!(key_set.page(query("a\0", None, 10)).entries.is_empty());
    let after = ListQuery { after: Some("a\0z".into()), ..query("", None, 10) };
    assert!(Scan::<String>::new(after.clone()).next_read().is_some_and(|read| !read.from.contains('\0')));
    assert_eq!(names(&key_set.page(after)), ["ab", "b"]);
}

#[test]
fn successor_skips_surrogates() {
    assert_eq!(successor("a/").as_deref(), Some("a0"));
    assert_eq!(successor("a\u{D7FF}").as_deref(), Some("a\u{E000}"));
    assert_eq!(successor("a\u{10FFFF}").as_deref(), Some("b"));
    assert_eq!(successor("\u{10FFFF}"), None);
    assert_eq!(successor(""), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn pages_together_equal_one_listing(
        keys in prop::collection::btree_set("[ab/\u{10FFFF}]{1,5}", 0..40),
        prefix in "[ab/]{0,2}",
        limit in 1_usize..5,
        delimited in prop::bool::ANY,
    ) {
        let mut key_set = key_set(keys.clone());
        let base = query(&prefix, delimited.then_some("/"), limit);
        let mut paged = Vec::new();
        let mut after = None;
        loop {
            let page = key_set.page(ListQuery { after: after.clone(), ..base.clone() });
            paged.extend(names(&page));
            after = page.next_after;
            if after.is_none() { break; }
        }
        let mut expected: Vec<String> = Vec::new();
        for key in keys.iter().filter(|key| key.starts_with(&prefix)) {
            let shown = super::group_of(&base, key).unwrap_or(key).to_owned();
            if expected.last() != Some(&shown) { expected.push(shown); }
        }
        prop_assert_eq!(paged, expected);
    }
}

#[test]
fn entries_contain_their_rows() {
    let mut key_set = key_set(["a".to_owned()]);
    assert_eq!(key_set.page(query("", None, 1)).entries, vec![Entry::Row("a".to_owned())]);
}
