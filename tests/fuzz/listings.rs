//! Listings: all pages together equal a plain grouping of all keys, whatever the page size.

use std::collections::BTreeSet;

use s3o_model::listing::{Entry, Keyed, ListPage, ListQuery, Scan, group_of};
use s3o_model::names::ObjectKey;

struct ListedKey(String);

impl Keyed for ListedKey {
    fn key(&self) -> &str {
        &self.0
    }
}

pub fn target(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let mut lines = text.split('\n').map(str::to_owned);
    let prefix = lines.next().unwrap_or_default();
    let delimiter = lines.next().filter(|text| !text.is_empty());
    let after = lines.next().filter(|text| !text.is_empty());
    let limit = lines.next().and_then(|text| text.parse::<usize>().ok()).unwrap_or(3) % 7;
    let keys: BTreeSet<String> = lines.filter(|key| key.parse::<ObjectKey>().is_ok()).collect();
    let query = ListQuery { prefix, delimiter, after, limit };
    let expected = grouped(&query, &keys);
    let mut shown = Vec::new();
    let mut next = query.clone();
    for _ in 0..=expected.len() {
        let page = page_of(next.clone(), &keys);
        assert!(page.entries.len() <= limit, "{query:?}");
        shown.extend(page.entries.into_iter().map(named));
        match page.next_after {
            Some(after) => {
                assert_eq!(shown.last().map(|(name, _)| name), Some(&after), "{query:?}");
                next.after = Some(after);
            }
            None => break,
        }
    }
    if limit == 0 {
        assert!(shown.is_empty());
    } else {
        assert_eq!(shown, expected, "{query:?} of {keys:?}");
    }
}

/// The name of an entry, and whether it is a common prefix.
fn named(entry: Entry<ListedKey>) -> (String, bool) {
    match entry {
        Entry::Row(row) => (row.0, false),
        Entry::Prefix(prefix) => (prefix, true),
    }
}

fn grouped(query: &ListQuery, keys: &BTreeSet<String>) -> Vec<(String, bool)> {
    let after = query.after.as_deref();
    let mut shown: Vec<(String, bool)> = Vec::new();
    for key in keys.iter().filter(|key| key.starts_with(&query.prefix)) {
        if after.is_some_and(|after| key.as_str() <= after) {
            continue;
        }
        match group_of(query, key) {
            // Already on this page or the page before.
            Some(group) if after == Some(group) || shown.last().is_some_and(|(name, _)| name == group) => {}
            Some(group) => shown.push((group.to_owned(), true)),
            None => shown.push((key.clone(), false)),
        }
    }
    shown
}

fn page_of(query: ListQuery, keys: &BTreeSet<String>) -> ListPage<ListedKey> {
    let mut scan = Scan::new(query);
    let mut reads = 0;
    while let Some(read) = scan.next_read() {
        reads += 1;
        assert!(reads <= 2 * keys.len() + 4, "the scan does not end");
        let within = |key: &&String| read.before.as_ref().is_none_or(|before| *key < before);
        let rows = keys.range(read.from.clone()..).take_while(within).take(read.limit);
        let rows = rows.map(|key| ListedKey(key.clone())).collect();
        scan.feed(rows, &read);
    }
    scan.into_page()
}
