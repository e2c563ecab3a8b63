//! Compares a page of objects with the rows of the same range of keys.

use std::collections::{BTreeMap, HashMap};

use s3o_catalog::FolderCount;
use s3o_model::reconcile::{FindingKind, FirstCheck, ListedTarget, PassCounts, is_dismissed, should_be_listed};
use s3o_model::verify::{NamedBy, NamingRow};

use super::doubts::Doubt;
use super::{BackendWalk, Difference, PageError, PagePosition, WalkedPage};

/// Number of rows in one query.
const ROWS_MAX: usize = 4000;
/// Largest number of folders of foreign keys that are counted separately.
const FOLDERS_MAX: u64 = 1000;
/// Foreign keys in no folder.
const NO_FOLDER: &str = "/";
/// Foreign keys in folders beyond the bound.
const OTHER_FOLDERS: &str = "other";

/// The rows of one range of keys, by key.
type RowsByKey = HashMap<String, Vec<NamingRow>>;

/// Groups rows by the key that they name.
pub(super) fn by_key(rows: Vec<NamingRow>) -> RowsByKey {
    let mut found = RowsByKey::new();
    for row in rows {
        found.entry(row.physical_key.clone()).or_default().push(row);
    }
    found
}

impl BackendWalk<'_> {
    pub(super) async fn keys(&self, after: Option<&str>, mut page: WalkedPage) -> Result<WalkedPage, PageError> {
        let listed = self.list(after).await?;
        page.entries = listed.entries.len();
        let (mut from, mut rest) = (after.unwrap_or_default().to_owned(), listed.entries.as_slice());
        loop {
            let (rows, end) = self.rows_between(&from, listed.end.as_deref()).await?;
            let upto = |entry: &ListedTarget| end.as_deref().is_none_or(|end| entry.key.as_str() <= end);
            let (chunk, later) = rest.split_at(rest.partition_point(upto));
            self.compare(chunk, &rows, &mut page).await?;
            rest = later;
            match end {
                Some(end) if Some(&end) != listed.end.as_ref() => from = end,
                Some(_) | None => break,
            }
        }
        page.next = match listed.end {
            Some(end) => PagePosition::Keys(Some(end)),
            None => PagePosition::Drafts(None),
        };
        Ok(page)
    }

    /// The rows of keys after `from`, and where they end: at `upto`, or before if there are many.
    async fn rows_between(&self, from: &str, upto: Option<&str>) -> Result<(RowsByKey, Option<String>), PageError> {
        let mut rows = self.catalog.rows_between(self.backend.name(), (from, upto), ROWS_MAX).await?;
        if rows.len() < ROWS_MAX {
            return Ok((by_key(rows), upto.map(str::to_owned)));
        }
        // Further rows may name the last key.
        let last = rows.last().map(|row| row.physical_key.clone()).unwrap_or_default();
        rows.retain(|row| row.physical_key != last);
        let Some(end) = rows.last().map(|row| row.physical_key.clone()) else {
            let of_one_key = self.catalog.naming_rows(self.backend.name(), &[&last]).await?;
            return Ok((by_key(of_one_key), Some(last)));
        };
        Ok((by_key(rows), Some(end)))
    }

    /// Compares the entries of a range with its rows, in both directions.
    async fn compare(
        &self,
        entries: &[ListedTarget],
        rows: &RowsByKey,
        page: &mut WalkedPage,
    ) -> Result<(), PageError> {
        let mut folders = BTreeMap::new();
        let mut unnamed = Vec::new();
        for entry in entries {
            let naming = rows.get(&entry.key).map(Vec::as_slice).unwrap_or_default();
            let check = entry.first_check(naming);
            if check == FirstCheck::Foreign {
                page.add_foreign(entry, &mut folders);
                continue;
            }
            page.counts.keys += 1;
            page.counts.bytes += entry.size_bytes;
            match check {
                FirstCheck::Agrees | FirstCheck::Foreign => {}
                FirstCheck::Recovered => page.recovered.push(entry.key.clone()),
                FirstCheck::Known(kind) => page.add_known(kind, entry, naming),
                FirstCheck::Unnamed => unnamed.push(Doubt::Unnamed(entry.clone())),
                FirstCheck::WrongSize => unnamed.extend(wrong_size(entry, naming)),
            }
        }
        let folders = folders.into_iter().map(|(folder, (keys, bytes))| FolderCount { folder, keys, bytes });
        page.folders.extend(folders);
        self.check_again(unnamed, page).await?;
        self.check_unlisted(self.unlisted(entries, rows), page).await
    }

    /// What rows say is there and the backend does not list, in the order of the keys.
    fn unlisted(&self, entries: &[ListedTarget], rows: &RowsByKey) -> Vec<Doubt> {
        let mut listed: HashMap<&str, Vec<&ListedTarget>> = HashMap::new();
        for entry in entries {
            listed.entry(&entry.key).or_default().push(entry);
        }
        let is_listed = |row: &&NamingRow| {
            let entries = listed.get(row.physical_key.as_str());
            let names = |entry: &&ListedTarget| row.by == NamedBy::WrittenOff && row.names(&entry.target);
            entries.is_some_and(|entries| entries.iter().any(|entry| entry.lists(row) || names(entry)))
        };
        let mut doubts: Vec<Doubt> = rows
            .values()
            .flatten()
            .filter(|row| !is_listed(row))
            .filter_map(|row| match row.by {
                NamedBy::Location { .. } => should_be_listed(row, self.cut_off).then(|| Doubt::unlisted(row)),
                NamedBy::WrittenOff if row.target.is_object() => {
                    Some(Doubt::WrittenOff { key: row.physical_key.clone(), target: row.target.clone() })
                }
                _ => None,
            })
            .collect();
        doubts.sort_by(|one, other| one.key().cmp(other.key()));
        doubts
    }
}

/// The location whose bytes have another size than the entry.
fn wrong_size(entry: &ListedTarget, rows: &[NamingRow]) -> Option<Doubt> {
    let row = rows.iter().find(|row| entry.lists(row) && matches!(row.by, NamedBy::Location { .. }))?;
    let (key, fingerprint) = (entry.key.clone(), entry.fingerprint.clone());
    Some(Doubt::Located { key, target: row.target.clone(), fingerprint, is_unlisted: false })
}

impl WalkedPage {
    fn add_known(&mut self, kind: FindingKind, entry: &ListedTarget, rows: &[NamingRow]) {
        let same = (entry.size_bytes, entry.fingerprint.as_str());
        let dismissed = is_dismissed(&entry.target, kind, same, rows);
        self.add(Difference { is_known: true, ..Difference::of_entry(kind, entry) }, dismissed);
    }

    fn add_foreign(&mut self, entry: &ListedTarget, folders: &mut BTreeMap<String, (u64, u64)>) {
        let PassCounts { foreign_keys, foreign_bytes, folders: known, last_folder, .. } = &mut self.counts;
        *foreign_keys += 1;
        *foreign_bytes += entry.size_bytes;
        let folder = entry.key.split_once('/').map(|(folder, _)| format!("{folder}/"));
        let folder = match folder {
            None => NO_FOLDER.to_owned(),
            // Keys of one folder follow each other.
            Some(folder) if folder == *last_folder => folder,
            Some(_) if *known >= FOLDERS_MAX => OTHER_FOLDERS.to_owned(),
            Some(folder) => {
                *known += 1;
                last_folder.clone_from(&folder);
                folder
            }
        };
        let counted = folders.entry(folder).or_default();
        *counted = (counted.0 + 1, counted.1 + entry.size_bytes);
        self.add(Difference::of_entry(FindingKind::Foreign, entry), false);
    }
}

impl Difference {
    pub(super) fn of_entry(kind: FindingKind, entry: &ListedTarget) -> Self {
        Self {
            kind,
            physical_key: entry.key.clone(),
            target: entry.target.clone(),
            size_bytes: entry.size_bytes,
            fingerprint: entry.fingerprint.clone(),
            expected_bytes: None,
            is_lost: false,
            is_known: false,
            is_stored: true,
        }
    }
}
