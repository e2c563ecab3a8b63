//! The names that a listing has read from its folders and not returned yet.
//!
//! A folder cannot be read from the middle. So a listing keeps a window of its smallest names, and the next page
//! continues there: a folder is read once per window, not once per page.

use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::mem::size_of;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::root::FolderId;

/// Number of names in a window.
const NAMES_MAX: usize = 100_000;
/// Memory of the windows of one listing. Each folder below others may use `INNER_BYTES_MIN` more.
const BYTES_MAX: usize = 8 * 1024 * 1024;
const INNER_BYTES_MIN: usize = 1024 * 1024;
/// Pages with fewer keys read only the names that they need.
const PAGE_KEYS_MIN: usize = 100;
/// Overhead of the allocation of a name.
const ALLOCATION_BYTES: usize = 16;

/// Number of listings whose windows are kept.
const LISTINGS_MAX: usize = 4;
/// Windows are dropped if the listing does not continue in this time.
const KEPT_FOR: Duration = Duration::from_mins(1);

/// A name in a folder; the name of a folder ends in a slash, so that it sorts like its keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FolderEntry {
    pub(super) sort_name: String,
}

impl FolderEntry {
    pub(super) fn is_folder(&self) -> bool {
        self.sort_name.ends_with('/')
    }

    fn memory_bytes(&self) -> usize {
        self.sort_name.len() + size_of::<Self>() + ALLOCATION_BYTES
    }
}

/// The names of one folder that are listed next, in order.
#[derive(Debug, Default)]
pub(super) struct NameWindow {
    names: VecDeque<FolderEntry>,
    /// Where the next window begins; `None` if this one is the last.
    pub(super) ends_at: Option<String>,
    memory_bytes: usize,
}

impl NameWindow {
    pub(super) fn next(&mut self) -> Option<FolderEntry> {
        self.names.pop_front()
    }

    /// Returns a name that was not listed to its end.
    pub(super) fn put_back(&mut self, entry: FolderEntry) {
        self.names.push_front(entry);
    }
}

/// What one reading of a folder may hold: without a bound, a folder of millions of names would fill the memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct WindowLimits {
    names_max: usize,
    bytes_max: usize,
}

impl WindowLimits {
    /// For a listing with pages of so many keys.
    pub(super) fn of_page(wanted: usize) -> Self {
        let names_max = if wanted < PAGE_KEYS_MIN { wanted } else { NAMES_MAX };
        Self { names_max, bytes_max: BYTES_MAX }
    }

    /// For a folder inside the one with this window.
    pub(super) fn inside(self, outer: &NameWindow) -> Self {
        let bytes_max = self.bytes_max.saturating_sub(outer.memory_bytes).max(INNER_BYTES_MIN);
        Self { bytes_max, ..self }
    }
}

/// Collects the smallest names of a folder.
pub(super) struct SmallestNames {
    limits: WindowLimits,
    kept: BinaryHeap<FolderEntry>,
    memory_bytes: usize,
    /// The smallest name that was dropped: no greater one may be kept.
    cut: Option<FolderEntry>,
}

impl SmallestNames {
    pub(super) fn new(limits: WindowLimits) -> Self {
        Self { limits, kept: BinaryHeap::new(), memory_bytes: 0, cut: None }
    }

    pub(super) fn offer(&mut self, entry: FolderEntry) {
        if self.cut.as_ref().is_some_and(|cut| entry > *cut) {
            return;
        }
        self.memory_bytes += entry.memory_bytes();
        self.kept.push(entry);
        while self.kept.len() > 1 && self.is_too_large() {
            if let Some(largest) = self.kept.pop() {
                self.memory_bytes -= largest.memory_bytes();
                self.cut = Some(largest);
            }
        }
    }

    fn is_too_large(&self) -> bool {
        self.kept.len() > self.limits.names_max || self.memory_bytes > self.limits.bytes_max
    }

    pub(super) fn into_window(self) -> NameWindow {
        let names = self.kept.into_sorted_vec();
        let ends_at = self.cut.and(names.last().map(|last| last.sort_name.clone()));
        NameWindow { names: names.into(), ends_at, memory_bytes: self.memory_bytes }
    }
}

/// Windows by the path of their folder.
pub(super) type WindowsByFolder = HashMap<String, NameWindow>;

/// Which listing may continue with kept windows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListingPosition {
    pub(super) root: FolderId,
    pub(super) prefix: String,
    /// The last key that was returned.
    pub(super) after: String,
}

#[derive(Debug)]
struct KeptListing {
    position: ListingPosition,
    windows: WindowsByFolder,
    at: Instant,
}

/// The windows of the latest listings of one backend.
#[derive(Debug, Default)]
pub(super) struct ListWindows(Mutex<Vec<KeptListing>>);

impl ListWindows {
    /// Takes the windows of the listing that ended at this position; empty if there are none.
    pub(super) fn take(&self, position: &ListingPosition) -> WindowsByFolder {
        let mut kept = self.0.lock();
        kept.retain(|listing| listing.at.elapsed() < KEPT_FOR);
        let found = kept.iter().position(|listing| listing.position == *position);
        found.map(|found| kept.remove(found).windows).unwrap_or_default()
    }

    /// Keeps the windows of a listing until it continues.
    pub(super) fn keep(&self, position: ListingPosition, windows: WindowsByFolder) {
        let mut kept = self.0.lock();
        if kept.len() >= LISTINGS_MAX {
            kept.remove(0);
        }
        kept.push(KeptListing { position, windows, at: Instant::now() });
    }
}

#[cfg(test)]
mod tests {
    use super::{FolderEntry, NameWindow, SmallestNames, WindowLimits};

    fn window(names: &[&str], names_max: usize, bytes_max: usize) -> NameWindow {
        let mut smallest = SmallestNames::new(WindowLimits { names_max, bytes_max });
        for name in names {
            smallest.offer(FolderEntry { sort_name: (*name).to_owned() });
        }
        smallest.into_window()
    }

    fn names(mut window: NameWindow) -> (Vec<String>, Option<String>) {
        let names = std::iter::from_fn(|| window.next()).map(|entry| entry.sort_name).collect();
        (names, window.ends_at)
    }

    #[test]
    fn window_has_the_smallest_names_in_order() {
        let (kept, ends_at) = names(window(&["d", "a", "c", "b"], 2, 1000));
        assert_eq!((kept, ends_at.as_deref()), (vec!["a".to_owned(), "b".to_owned()], Some("b")));
        let (kept, ends_at) = names(window(&["b", "a"], 2, 1000));
        assert_eq!((kept.len(), ends_at), (2, None));
    }

    #[test]
    fn name_above_a_dropped_one_is_not_kept_although_it_would_fit() {
        let long = "b".repeat(100);
        let (kept, ends_at) = names(window(&["a", &long, "c"], 10, 170));
        assert_eq!((kept, ends_at.as_deref()), (vec!["a".to_owned()], Some("a")));
    }

    #[test]
    fn window_of_one_name_may_exceed_the_memory() {
        assert_eq!(names(window(&["a"], 1, 1)).0, ["a"]);
    }
}
