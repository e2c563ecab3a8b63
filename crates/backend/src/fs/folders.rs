//! Opens the parent folder of a key, one handle at a time and never through a symbolic link.
//!
//! A folder that was created but is not yet durable in its parent is recorded as unsynced. Every
//! writer that passes through it syncs it before answering, since its creator may be slower.

use std::collections::HashMap;

use parking_lot::Mutex;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::failure::failure;
use super::syncs::FolderSyncs;
use crate::Error;

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Number of retries when another thread removes the folder as empty.
pub(super) const RETRIES_MAX: usize = 64;

/// A key, split into its folders and its file name.
#[derive(Debug)]
pub(super) struct KeyPath<'k> {
    pub(super) folders: Vec<&'k str>,
    pub(super) name: &'k str,
}

impl<'k> KeyPath<'k> {
    /// Splits a key; refuses one with an empty, `.` or `..` segment or a NUL.
    pub(super) fn parse(key: &'k str) -> Result<Self, Error> {
        let mut folders: Vec<&str> = key.split('/').collect();
        let is_invalid = |segment: &&str| matches!(*segment, "" | "." | "..") || segment.contains('\0');
        if folders.iter().any(is_invalid) {
            return Err(Error::Refused(format!(
                "key {key:?} cannot be a file name: it has an empty, \".\" or \"..\" segment or a NUL character"
            )));
        }
        let name = folders.pop().expect("splitting gives at least one segment");
        Ok(Self { folders, name })
    }
}

/// Opens a folder inside another one.
pub(super) fn open_folder(parent: impl AsFd, name: &str) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(parent, name, FOLDER, Mode::empty())
}

/// Opens the parent folder of a key, if it exists.
pub(super) fn open_parent(root: impl AsFd, location: &KeyPath<'_>) -> Result<OwnedFd, Errno> {
    let mut folder = open_folder(root, ".")?;
    for name in &location.folders {
        folder = open_folder(&folder, name)?;
    }
    Ok(folder)
}

/// Folders of one root that are not yet durable in their parents, and the syncs that make them so.
#[derive(Debug, Default)]
pub(super) struct UnsyncedFolders {
    /// By path, with the number of creators that have not synced them.
    creators: Mutex<HashMap<String, u32>>,
    syncs: FolderSyncs,
}

impl UnsyncedFolders {
    fn mark(&self, path: &str) {
        *self.creators.lock().entry(path.to_owned()).or_default() += 1;
    }

    fn contains(&self, path: &str) -> bool {
        self.creators.lock().contains_key(path)
    }

    fn unmark(&self, path: &str) {
        let mut marks = self.creators.lock();
        if let Some(creators) = marks.get_mut(path) {
            *creators -= 1;
            if *creators == 0 {
                marks.remove(path);
            }
        }
    }
}

/// The parent folder of a new key, and the folders that must still be synced.
#[derive(Debug)]
pub(super) struct ParentFolder {
    pub(super) folder: OwnedFd,
    unsynced: Vec<OwnedFd>,
    marked: Vec<String>,
    /// Number of failed syncs before the first folder was opened.
    failures_before: u64,
}

impl ParentFolder {
    /// Opens the parent folder of a key and creates missing folders. `Ok(None)` if another thread removed
    /// a folder in between; the caller retries.
    pub(super) fn create(
        root: impl AsFd,
        location: &KeyPath<'_>,
        unsynced_folders: &UnsyncedFolders,
    ) -> Result<Option<Self>, Error> {
        let failures_before = unsynced_folders.syncs.failures();
        let folder = open_folder(root, ".").map_err(|errno| failure("opening the root", errno))?;
        let mut parent = Self { folder, unsynced: Vec::new(), marked: Vec::new(), failures_before };
        let mut path = String::new();
        for name in &location.folders {
            path.push('/');
            path.push_str(name);
            match parent.descend(name, &path, unsynced_folders) {
                Ok(()) => {}
                Err(Errno::NOENT) => return Ok(None),
                Err(errno) => return Err(failure("creating a folder", errno)),
            }
        }
        Ok(Some(parent))
    }

    fn descend(&mut self, name: &str, path: &str, unsynced_folders: &UnsyncedFolders) -> Result<(), Errno> {
        let (next, durable) = match open_folder(&self.folder, name) {
            Ok(next) => (next, !unsynced_folders.contains(path)),
            Err(Errno::NOENT) => {
                // Recorded before it exists, so that no writer finds it unrecorded. After a failure
                // the record stays, which costs later writers an fsync and nothing else.
                unsynced_folders.mark(path);
                self.marked.push(path.to_owned());
                match rustix::fs::mkdirat(&self.folder, name, Mode::from_raw_mode(0o700)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(errno),
                }
                (open_folder(&self.folder, name)?, false)
            }
            Err(errno) => return Err(errno),
        };
        let above = std::mem::replace(&mut self.folder, next);
        if !durable {
            self.unsynced.push(above);
        }
        Ok(())
    }

    /// True if folders above this one must be synced, too.
    pub(super) fn has_unsynced(&self) -> bool {
        !self.unsynced.is_empty()
    }

    /// Syncs the folder and its unsynced ancestors, so that the names in them survive a power cut.
    pub(super) fn sync(&self, unsynced_folders: &UnsyncedFolders) -> Result<(), Error> {
        for folder in std::iter::once(&self.folder).chain(&self.unsynced) {
            let synced = unsynced_folders.syncs.sync(folder, self.failures_before);
            synced.map_err(|errno| failure("syncing a folder", errno))?;
        }
        for path in &self.marked {
            unsynced_folders.unmark(path);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{KeyPath, UnsyncedFolders};

    #[test]
    fn keys_with_special_segments_are_refused() {
        for bad in ["", "/a", "a/", "a//b", "a/../b", ".", "a\0b"] {
            assert!(KeyPath::parse(bad).is_err(), "{bad:?}");
        }
        let location = KeyPath::parse("a/b/c").expect("plain");
        assert_eq!((location.folders, location.name), (vec!["a", "b"], "c"));
    }

    #[test]
    fn folder_stays_unsynced_until_its_last_creator_synced_it() {
        let unsynced_folders = UnsyncedFolders::default();
        unsynced_folders.mark("/a");
        unsynced_folders.mark("/a");
        unsynced_folders.unmark("/a");
        assert!(unsynced_folders.contains("/a"));
        unsynced_folders.unmark("/a");
        assert!(!unsynced_folders.contains("/a"));
    }
}
