//! Listing: which keys a page shows and which roll up into common prefixes.
//!
//! A [`Scan`] says what to read next and is fed the rows. It never reads through a group that it
//! has rolled up: it seeks past it, so a page costs the same however many keys a group holds.

/// What a client asks a listing for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// Only keys that start with this.
    pub prefix: String,
    /// Keys that share everything up to this text become one common prefix.
    pub delimiter: Option<String>,
    /// Only what comes after this key or common prefix.
    pub after: Option<String>,
    /// At most this many keys and common prefixes together.
    pub limit: usize,
}

/// Something that is listed by its key.
pub trait Keyed {
    /// The key.
    fn key(&self) -> &str;
}

/// One line of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry<T> {
    /// A row shown as itself.
    Row(T),
    /// A common prefix.
    Prefix(String),
}

impl<T: Keyed> Entry<T> {
    fn name(&self) -> &str {
        match self {
            Self::Row(row) => row.key(),
            Self::Prefix(prefix) => prefix,
        }
    }
}

/// One page of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListPage<T> {
    /// Keys and common prefixes in byte order.
    pub entries: Vec<Entry<T>>,
    /// Where the next page starts, if there is one.
    pub next_after: Option<String>,
}

impl<T> ListPage<T> {
    /// The same page with other rows.
    #[must_use]
    pub fn map<U>(self, mut change: impl FnMut(T) -> U) -> ListPage<U> {
        let entries = self.entries.into_iter().map(|entry| match entry {
            Entry::Row(row) => Entry::Row(change(row)),
            Entry::Prefix(prefix) => Entry::Prefix(prefix),
        });
        ListPage { entries: entries.collect(), next_after: self.next_after }
    }
}

/// The next rows that a scan needs: keys in `from..before`, in byte order, at most `limit`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// The first key that may be returned.
    pub from: String,
    /// The first key that may not be returned; `None` means no bound.
    pub before: Option<String>,
    /// How many rows to return at most.
    pub limit: usize,
}

/// Builds one page from the rows it asks for.
#[derive(Debug)]
pub struct Scan<T> {
    query: ListQuery,
    entries: Vec<Entry<T>>,
    from: String,
    before: Option<String>,
    read_limit: usize,
    ended: bool,
}

impl<T: Keyed> Scan<T> {
    /// A scan for this query.
    #[must_use]
    pub fn new(query: ListQuery) -> Self {
        let start = query.after.as_deref().map(|after| just_after(before_nul(after))).unwrap_or_default();
        let from = start.max(query.prefix.clone());
        let before = successor(&query.prefix);
        let read_limit = if query.delimiter.is_some() { 1 } else { query.limit.saturating_add(1) };
        let ended = query.limit == 0 || query.prefix.contains('\0');
        Self { query, entries: Vec::new(), from, before, read_limit, ended }
    }

    /// What to read next; `None` when the page is complete.
    #[must_use]
    pub fn next_read(&self) -> Option<Read> {
        let wanted = (self.query.limit + 1).saturating_sub(self.entries.len());
        if self.ended || wanted == 0 {
            return None;
        }
        Some(Read { from: self.from.clone(), before: self.before.clone(), limit: self.read_limit.min(wanted) })
    }

    /// Takes the rows that the last read gave.
    pub fn feed(&mut self, rows: Vec<T>, read: &Read) {
        let short = rows.len() < read.limit;
        // Doubling while nothing rolls up keeps flat listings cheap; a group starts over, because
        // the rows behind its first one are likely to be its own.
        self.read_limit = self.read_limit.saturating_mul(2);
        for row in rows {
            if let Some(group) = group_of(&self.query, row.key()) {
                let group = group.to_owned();
                self.roll_up(group);
                return;
            }
            self.from = just_after(row.key());
            self.entries.push(Entry::Row(row));
        }
        self.ended = short;
    }

    fn roll_up(&mut self, group: String) {
        self.read_limit = 1;
        match successor(&group) {
            Some(next) => self.from = next,
            None => self.ended = true,
        }
        // A page that ended with this group named it as its mark: it was shown already.
        if self.query.after.as_deref() != Some(group.as_str()) {
            self.entries.push(Entry::Prefix(group));
        }
    }

    /// The page.
    #[must_use]
    pub fn into_page(mut self) -> ListPage<T> {
        let truncated = self.entries.len() > self.query.limit;
        self.entries.truncate(self.query.limit);
        let next_after = truncated.then(|| self.entries.last().map(|entry| entry.name().to_owned())).flatten();
        ListPage { entries: self.entries, next_after }
    }
}

/// The common prefix that a key rolls up into.
#[must_use]
pub fn group_of<'key>(query: &ListQuery, key: &'key str) -> Option<&'key str> {
    let delimiter = query.delimiter.as_deref().filter(|d| !d.is_empty())?;
    let rest = key.strip_prefix(query.prefix.as_str())?;
    let position = rest.find(delimiter)?;
    Some(&key[..query.prefix.len() + position + delimiter.len()])
}

/// The smallest valid key after this one: keys hold no NUL, so nothing lies between.
#[must_use]
pub fn just_after(key: &str) -> String {
    format!("{key}\u{1}")
}

/// What a mark means among keys that hold no NUL: the text before it, since nothing lies between.
#[must_use]
pub fn before_nul(mark: &str) -> &str {
    mark.split('\0').next().unwrap_or_default()
}

/// The smallest text greater than every text that starts with `prefix`.
#[must_use]
pub fn successor(prefix: &str) -> Option<String> {
    let mut text = prefix.to_owned();
    while let Some(last) = text.pop() {
        if let Some(next) = next_char(last) {
            text.push(next);
            return Some(text);
        }
    }
    None
}

/// UTF-8 sorts like code points, so the next scalar value is the next in byte order too.
fn next_char(character: char) -> Option<char> {
    match character {
        '\u{D7FF}' => Some('\u{E000}'),
        other => char::from_u32(u32::from(other) + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::{Entry, Keyed, ListPage, ListQuery, Scan, successor};
    use proptest::prelude::{ProptestConfig, prop, prop_assert_eq, proptest};
    use std::collections::BTreeSet;

    impl Keyed for String {
        fn key(&self) -> &str {
            self
        }
    }

    struct Store {
        keys: BTreeSet<String>,
        rows_read: usize,
    }

    impl Store {
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

    fn store(keys: impl IntoIterator<Item = String>) -> Store {
        Store { keys: keys.into_iter().collect(), rows_read: 0 }
    }

    fn query(prefix: &str, delimiter: Option<&str>, limit: usize) -> ListQuery {
        ListQuery { prefix: prefix.into(), delimiter: delimiter.map(Into::into), after: None, limit }
    }

    fn names(page: &ListPage<String>) -> Vec<String> {
        page.entries.iter().map(|entry| entry.name().to_owned()).collect()
    }

    #[test]
    fn a_delimiter_rolls_keys_up() {
        let mut store = store(["a", "a/b", "a/c/d", "b/x", "c"].map(String::from));
        assert_eq!(names(&store.page(query("", Some("/"), 10))), ["a", "a/", "b/", "c"]);
        assert_eq!(names(&store.page(query("a/", Some("/"), 10))), ["a/b", "a/c/"]);
    }

    #[test]
    fn a_group_costs_the_same_whatever_it_holds() {
        let read_with = |per_folder: usize| {
            let keys = (0..10).flat_map(|f| (0..per_folder).map(move |k| format!("{f:02}/{k:06}")));
            let mut store = store(keys);
            store.page(query("", Some("/"), 1000));
            store.rows_read
        };
        assert_eq!(read_with(100), read_with(10_000));
    }

    #[test]
    fn a_page_that_ends_in_a_group_does_not_show_it_again() {
        let mut store = store(["a/1", "a/2", "b/1"].map(String::from));
        let first = store.page(query("", Some("/"), 1));
        assert_eq!((names(&first), first.next_after.as_deref()), (vec!["a/".to_owned()], Some("a/")));
        let second = store.page(ListQuery { after: first.next_after, ..query("", Some("/"), 1) });
        assert_eq!((names(&second), second.next_after), (vec!["b/".to_owned()], None));
    }

    #[test]
    fn a_full_page_without_a_successor_is_not_truncated() {
        let mut store = store(["a", "b"].map(String::from));
        assert_eq!(store.page(query("", None, 2)).next_after, None);
        assert_eq!(store.page(query("", None, 1)).next_after.as_deref(), Some("a"));
        assert!(store.page(query("", None, 0)).entries.is_empty());
    }

    #[test]
    fn a_nul_in_a_query_meets_no_key_and_asks_for_none() {
        let mut store = store(["a", "ab", "b"].map(String::from));
        assert!(store.page(query("a\0", None, 10)).entries.is_empty());
        let after = ListQuery { after: Some("a\0z".into()), ..query("", None, 10) };
        assert!(Scan::<String>::new(after.clone()).next_read().is_some_and(|read| !read.from.contains('\0')));
        assert_eq!(names(&store.page(after)), ["ab", "b"]);
    }

    #[test]
    fn successors_skip_what_is_no_character() {
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
            let mut store = store(keys.clone());
            let base = query(&prefix, delimited.then_some("/"), limit);
            let mut paged = Vec::new();
            let mut after = None;
            loop {
                let page = store.page(ListQuery { after: after.clone(), ..base.clone() });
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
    fn entries_keep_their_rows() {
        let mut store = store(["a".to_owned()]);
        assert_eq!(store.page(query("", None, 1)).entries, vec![Entry::Row("a".to_owned())]);
    }
}
