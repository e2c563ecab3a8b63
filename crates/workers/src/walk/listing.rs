//! Lists the objects of a backend in pages that end at a key, whether it keeps versions or not.

use s3o_backend::{ListedVersion, VersionPosition};
use s3o_model::reconcile::{ListedTarget, PassFault, check_order, fingerprint};
use s3o_model::target::Target;

use super::{BackendWalk, PageError};

/// Number of keys in one page.
const PAGE_KEYS: usize = 1000;
/// Largest number of pages with versions of one key.
const PAGES_OF_A_KEY_MAX: usize = 100;

/// A page of objects, or of versions.
pub(super) struct KeyPage {
    pub entries: Vec<ListedTarget>,
    /// The last key of the page; `None` if no keys follow.
    pub end: Option<String>,
}

impl BackendWalk<'_> {
    /// Lists the keys after `after`. All versions of a key are in one page.
    pub(super) async fn list(&self, after: Option<&str>) -> Result<KeyPage, PageError> {
        if self.keeps_versions { self.list_versions(after).await } else { self.list_keys(after).await }
    }

    async fn list_keys(&self, after: Option<&str>) -> Result<KeyPage, PageError> {
        let page = self.backend.list("", after, PAGE_KEYS).await.map_err(|error| self.failed(error))?;
        check_order(after, page.items.iter().map(|item| item.key.as_str()))?;
        let end = match (page.truncated, page.items.last()) {
            (false, _) => None,
            (true, Some(last)) => Some(last.key.clone()),
            (true, None) => return Err(PassFault::EmptyPage.into()),
        };
        let entries = page.items.into_iter().map(|item| ListedTarget {
            fingerprint: fingerprint(item.etag.as_deref(), item.file.as_ref()),
            key: item.key,
            target: Target::Key,
            size_bytes: item.size_bytes,
            is_latest: true,
            is_delete_marker: false,
        });
        Ok(KeyPage { entries: entries.collect(), end })
    }

    async fn list_versions(&self, after: Option<&str>) -> Result<KeyPage, PageError> {
        let mut from = after.map(|key| VersionPosition { key: key.to_owned(), version_id: None });
        let mut entries: Vec<ListedTarget> = Vec::new();
        for _ in 0..PAGES_OF_A_KEY_MAX {
            let page = self.backend.list_versions("", from.as_ref(), PAGE_KEYS).await;
            let page = page.map_err(|error| self.failed(error))?;
            if page.items.is_empty() && page.next.is_some() {
                return Err(PassFault::EmptyPage.into());
            }
            entries.extend(page.items.into_iter().map(listed_version));
            check_order(after, keys_of(&entries))?;
            if page.next.is_none() {
                return Ok(KeyPage { entries, end: None });
            }
            // The versions of the last key may continue on the next page.
            let last = entries.last().map(|entry| entry.key.clone()).unwrap_or_default();
            if entries[0].key != last {
                entries.retain(|entry| entry.key != last);
                let end = entries.last().map(|entry| entry.key.clone());
                return Ok(KeyPage { entries, end });
            }
            from = page.next;
        }
        let many = format!("a key has more than {} versions", PAGES_OF_A_KEY_MAX * PAGE_KEYS);
        Err(self.failed(s3o_backend::Error::Unknown(many)))
    }
}

fn listed_version(version: ListedVersion) -> ListedTarget {
    ListedTarget {
        fingerprint: fingerprint(version.etag.as_deref(), None),
        key: version.key,
        target: Target::Version(version.version_id),
        size_bytes: version.size_bytes,
        is_latest: version.is_latest,
        is_delete_marker: version.is_delete_marker,
    }
}

/// The keys without repetitions that follow each other: a key is listed once for each version.
fn keys_of(entries: &[ListedTarget]) -> impl Iterator<Item = &str> {
    entries.chunk_by(|one, other| one.key == other.key).map(|versions| versions[0].key.as_str())
}
