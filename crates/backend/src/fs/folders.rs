//! From a key to the folder it lies in, one handle at a time and never through a symbolic link.
//!
//! A folder that was made but is not yet durable in its parent is marked as fresh. Whoever walks
//! through a fresh folder makes it durable too before answering, since its maker may be slower.

use std::collections::HashMap;

use parking_lot::Mutex;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::failure::failure;
use crate::Error;

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// How often a folder may vanish under our feet, removed as empty, before we give up.
pub(super) const VANISHED_MAX: usize = 64;

/// A key, split into the folders that lead to it and its last name.
#[derive(Debug)]
pub(super) struct Location<'k> {
    pub(super) folders: Vec<&'k str>,
    pub(super) name: &'k str,
}

impl<'k> Location<'k> {
    /// Splits a key; one that a file system would read in its own way is refused.
    pub(super) fn parse(key: &'k str) -> Result<Self, Error> {
        let mut folders: Vec<&str> = key.split('/').collect();
        let odd = |segment: &&str| matches!(*segment, "" | "." | "..") || segment.contains('\0');
        if folders.iter().any(odd) {
            return Err(Error::Refused(format!("{key:?} cannot be the name of a file")));
        }
        let name = folders.pop().expect("splitting gives at least one segment");
        Ok(Self { folders, name })
    }
}

/// Opens a folder inside another one.
pub(super) fn open_folder(parent: impl AsFd, name: &str) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(parent, name, FOLDER, Mode::empty())
}

/// Opens the folder that a key lies in, if it is there.
pub(super) fn open_parent(root: impl AsFd, location: &Location<'_>) -> Result<OwnedFd, Errno> {
    let mut folder = open_folder(root, ".")?;
    for name in &location.folders {
        folder = open_folder(&folder, name)?;
    }
    Ok(folder)
}

/// The folders of one root that are not yet durable in their parents, by path, with how many
/// makers are still at work.
#[derive(Debug, Default)]
pub(super) struct Fresh(Mutex<HashMap<String, u32>>);

impl Fresh {
    fn mark(&self, path: &str) {
        *self.0.lock().entry(path.to_owned()).or_default() += 1;
    }

    fn holds(&self, path: &str) -> bool {
        self.0.lock().contains_key(path)
    }

    fn unmark(&self, path: &str) {
        let mut marks = self.0.lock();
        if let Some(makers) = marks.get_mut(path) {
            *makers -= 1;
            if *makers == 0 {
                marks.remove(path);
            }
        }
    }
}

/// The folder that a new key goes into, and what must still be made durable.
#[derive(Debug)]
pub(super) struct Parent {
    pub(super) folder: OwnedFd,
    unsynced: Vec<OwnedFd>,
    marked: Vec<String>,
}

impl Parent {
    /// Opens the folder that a key goes into and makes what is missing on the way. `Ok(None)`
    /// when a folder vanished meanwhile: try again.
    pub(super) fn make(root: impl AsFd, location: &Location<'_>, fresh: &Fresh) -> Result<Option<Self>, Error> {
        let opened = open_folder(root, ".").map_err(|errno| failure("opening the root", errno))?;
        let mut parent = Self { folder: opened, unsynced: Vec::new(), marked: Vec::new() };
        let mut path = String::new();
        for name in &location.folders {
            path.push('/');
            path.push_str(name);
            match parent.descend(name, &path, fresh) {
                Ok(()) => {}
                Err(Errno::NOENT) => return Ok(None),
                Err(errno) => return Err(failure("making a folder", errno)),
            }
        }
        Ok(Some(parent))
    }

    fn descend(&mut self, name: &str, path: &str, fresh: &Fresh) -> Result<(), Errno> {
        let (next, durable) = match open_folder(&self.folder, name) {
            Ok(next) => (next, !fresh.holds(path)),
            Err(Errno::NOENT) => {
                // Marked before it exists, so that nobody can find it unmarked. After a failure
                // the mark stays, which costs later writers an fsync and nothing else.
                fresh.mark(path);
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

    /// Whether there is more to make durable than the folder's own names.
    pub(super) fn is_fresh(&self) -> bool {
        !self.unsynced.is_empty()
    }

    /// Makes the names in the folder, the folder itself and its fresh ancestors survive a power
    /// cut.
    pub(super) fn sync(&self, fresh: &Fresh) -> Result<(), Error> {
        for folder in std::iter::once(&self.folder).chain(&self.unsynced) {
            rustix::fs::fsync(folder).map_err(|errno| failure("making a name durable", errno))?;
        }
        for path in &self.marked {
            fresh.unmark(path);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Fresh, Location};

    #[test]
    fn keys_that_leave_their_folder_are_refused() {
        for bad in ["", "/a", "a/", "a//b", "a/../b", ".", "a\0b"] {
            assert!(Location::parse(bad).is_err(), "{bad:?}");
        }
        let location = Location::parse("a/b/c").expect("plain");
        assert_eq!((location.folders, location.name), (vec!["a", "b"], "c"));
    }

    #[test]
    fn a_folder_stays_fresh_until_its_last_maker_is_done() {
        let fresh = Fresh::default();
        fresh.mark("/a");
        fresh.mark("/a");
        fresh.unmark("/a");
        assert!(fresh.holds("/a"));
        fresh.unmark("/a");
        assert!(!fresh.holds("/a"));
    }
}
