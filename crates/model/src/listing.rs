//! Listing: which keys a page shows and which keys it groups into common prefixes.
//!
//! A [`Scan`] returns what to read next and receives the rows. It skips the rest of a group after its
//! first key, so the cost of a page does not depend on the size of its groups.

/// Parameters of a listing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// Only keys that start with this prefix.
    pub prefix: String,
    /// Keys with the same text up to this delimiter are grouped into one common prefix.
    pub delimiter: Option<String>,
    /// Only keys and common prefixes after this one.
    pub after: Option<String>,
    /// Largest number of keys and common prefixes together.
    pub limit: usize,
}

/// A row that is listed by its key.
pub trait Keyed {
    /// The key that the listing sorts and groups by.
    fn key(&self) -> &str;
}

/// One entry of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry<T> {
    /// A single row.
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

/// The result of a [`Scan`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListPage<T> {
    /// Keys and common prefixes in byte order.
    pub entries: Vec<Entry<T>>,
    /// `after` of the next page; `None` on the last page.
    pub next_after: Option<String>,
}

impl<T> ListPage<T> {
    /// Converts the rows of the page.
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
    /// Lower bound, inclusive.
    pub from: String,
    /// Upper bound, exclusive; `None` means no bound.
    pub before: Option<String>,
    /// Largest number of rows.
    pub limit: usize,
}

/// Builds one page from the rows that it requests.
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
    /// A scan at the start of the page.
    #[must_use]
    pub fn new(query: ListQuery) -> Self {
        let start = query.after.as_deref().map(|after| just_after(before_nul(after))).unwrap_or_default();
        let from = start.max(query.prefix.clone());
        let before = successor(&query.prefix);
        let read_limit = if query.delimiter.is_some() { 1 } else { query.limit.saturating_add(1) };
        let ended = query.limit == 0 || query.prefix.contains('\0');
        Self { query, entries: Vec::new(), from, before, read_limit, ended }
    }

    /// The next rows to read; `None` if the page is complete.
    #[must_use]
    pub fn next_read(&self) -> Option<Read> {
        let wanted = (self.query.limit + 1).saturating_sub(self.entries.len());
        if self.ended || wanted == 0 {
            return None;
        }
        Some(Read { from: self.from.clone(), before: self.before.clone(), limit: self.read_limit.min(wanted) })
    }

    /// Adds the rows of the last read.
    pub fn feed(&mut self, rows: Vec<T>, read: &Read) {
        let short = rows.len() < read.limit;
        // Doubling while no keys are grouped keeps flat listings cheap. A group resets the limit,
        // because the rows after its first one probably belong to it.
        self.read_limit = self.read_limit.saturating_mul(2);
        for row in rows {
            if let Some(group) = group_of(&self.query, row.key()) {
                let group = group.to_owned();
                self.add_group(group);
                return;
            }
            self.from = just_after(row.key());
            self.entries.push(Entry::Row(row));
        }
        self.ended = short;
    }

    fn add_group(&mut self, group: String) {
        self.read_limit = 1;
        match successor(&group) {
            Some(next) => self.from = next,
            None => self.ended = true,
        }
        // If the query starts after this group, the previous page has already shown it.
        if self.query.after.as_deref() != Some(group.as_str()) {
            self.entries.push(Entry::Prefix(group));
        }
    }

    /// The page, cut to the limit of the query.
    #[must_use]
    pub fn into_page(mut self) -> ListPage<T> {
        let truncated = self.entries.len() > self.query.limit;
        self.entries.truncate(self.query.limit);
        let next_after = truncated.then(|| self.entries.last().map(|entry| entry.name().to_owned())).flatten();
        ListPage { entries: self.entries, next_after }
    }
}

/// The common prefix of a key; `None` if the key is listed itself.
#[must_use]
pub fn group_of<'key>(query: &ListQuery, key: &'key str) -> Option<&'key str> {
    let delimiter = query.delimiter.as_deref().filter(|d| !d.is_empty())?;
    let rest = key.strip_prefix(query.prefix.as_str())?;
    let position = rest.find(delimiter)?;
    Some(&key[..query.prefix.len() + position + delimiter.len()])
}

/// The smallest valid key after this one, since keys contain no NUL.
#[must_use]
pub fn just_after(key: &str) -> String {
    format!("{key}\u{1}")
}

/// The part of a marker before its first NUL: no key lies between the two, since keys contain no NUL.
#[must_use]
pub fn before_nul(mark: &str) -> &str {
    mark.split('\0').next().unwrap_or_default()
}

/// The smallest text greater than every text that starts with `prefix`; `None` if there is none.
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

/// UTF-8 sorts like code points, so the next scalar value is also the next in byte order.
fn next_char(character: char) -> Option<char> {
    match character {
        '\u{D7FF}' => Some('\u{E000}'),
        other => char::from_u32(u32::from(other) + 1),
    }
}

#[cfg(test)]
mod tests;
