//! Listings: pages, however small, show together what a plain roll-up of all keys shows.

use std::collections::BTreeSet;

use s3o_model::listing::{Entry, Keyed, ListPage, ListQuery, Scan, group_of};
use s3o_model::names::ObjectKey;

struct Row(String);

impl Keyed for Row {
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
    let expected = rolled_up(&query, &keys);
    let mut shown = Vec::new();
    let mut next = query.clone();
    for _ in 0..=expected.len() {
        let page = page_of(next.clone(), &keys);
        assert!(page.entries.len() <= limit, "{query:?}");
        shown.extend(page.entries.into_iter().map(written));
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

/// What a listing shows, as a name and whether it is a common prefix.
fn written(entry: Entry<Row>) -> (String, bool) {
    match entry {
        Entry::Row(row) => (row.0, false),
        Entry::Prefix(prefix) => (prefix, true),
    }
}

fn rolled_up(query: &ListQuery, keys: &BTreeSet<String>) -> Vec<(String, bool)> {
    let after = query.after.as_deref();
    let mut shown: Vec<(String, bool)> = Vec::new();
    for key in keys.iter().filter(|key| key.starts_with(&query.prefix)) {
        if after.is_some_and(|after| key.as_str() <= after) {
            continue;
        }
        match group_of(query, key) {
            // The mark of the page before, or the line before.
            Some(group) if after == Some(group) || shown.last().is_some_and(|(name, _)| name == group) => {}
            Some(group) => shown.push((group.to_owned(), true)),
            None => shown.push((key.clone(), false)),
        }
    }
    shown
}

fn page_of(query: ListQuery, keys: &BTreeSet<String>) -> ListPage<Row> {
    let mut scan = Scan::new(query);
    let mut reads = 0;
    while let Some(read) = scan.next_read() {
        reads += 1;
        assert!(reads <= 2 * keys.len() + 4, "the scan does not come to an end");
        let within = |key: &&String| read.before.as_ref().is_none_or(|before| *key < before);
        let rows = keys.range(read.from.clone()..).take_while(within).take(read.limit);
        let rows = rows.map(|key| Row(key.clone())).collect();
        scan.feed(rows, &read);
    }
    scan.into_page()
}
