//! Listing in byte order of the whole key, with bounded memory for any folder size.
//!
//! A folder sorts as its name with a slash, so `a-b` comes before every key in `a/`. Of each folder a window of names
//! is held, which the next pages use up before the folder is read again from the last name. A name that is created
//! inside a window that was read already is not listed; one that was deleted is skipped.

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, DirEntry, FileType, Stat};
use rustix::io::Errno;
use s3o_model::clock::Timestamp;
use s3o_model::physical_key::RESERVED_PREFIX;

use super::FsState;
use super::failure::{failure, is_missing};
use super::folders::{KeyPath, open_folder, open_parent};
use super::list_windows::{FolderEntry, ListingPosition, NameWindow, SmallestNames, WindowLimits, WindowsByFolder};
use super::read::{is_file, size_of, stamp};
use super::root::FolderId;
use crate::{Error, Listed, Page};

/// Longer than any key that s3o writes; a deeper tree of other files is an error.
const PATH_BYTES_MAX: usize = 2048;

pub(super) fn list(state: &FsState, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, Error> {
    let root = state.root.enter()?;
    let (base, name_prefix) = prefix.rsplit_once('/').map_or(("", prefix), |(base, name)| (base, name));
    let path = KeyPath { folders: base.split_terminator('/').collect(), name: name_prefix };
    let is_special = |name: &&str| matches!(*name, "" | "." | "..");
    let opened = if path.folders.iter().any(is_special) { Err(Errno::NOENT) } else { open_parent(&root, &path) };
    let folder = match opened {
        Ok(folder) => folder,
        Err(errno) if is_missing(errno) => return state.root.enter().map(|_| Page::default()),
        Err(errno) => return Err(failure("opening a folder", errno)),
    };
    let base = if base.is_empty() { String::new() } else { format!("{base}/") };
    let includes_own = prefix.starts_with(RESERVED_PREFIX);
    let position = |after: &str| -> Result<ListingPosition, Error> {
        let root = FolderId::of(&root).map_err(|errno| failure("identifying the root", errno))?;
        Ok(ListingPosition { root, prefix: prefix.to_owned(), after: after.to_owned() })
    };
    let unlisted = after.map(|after| position(after).map(|at| state.list_windows.take(&at))).transpose()?;
    let wanted = limit.saturating_add(1);
    let mut walk =
        FolderWalk { after, includes_own, wanted, unlisted: unlisted.unwrap_or_default(), found: Vec::new() };
    walk.folder(&folder, &base, (name_prefix, WindowLimits::of_page(wanted)))?;
    // An unmounted disk looks like empty folders; the root must still be the opened one.
    state.root.enter()?;
    let truncated = walk.found.len() > limit;
    walk.found.truncate(limit);
    if let Some(last) = walk.found.last().filter(|_| truncated) {
        state.list_windows.keep(position(&last.key)?, std::mem::take(&mut walk.unlisted));
    }
    Ok(Page { items: walk.found, truncated })
}

struct FolderWalk<'a> {
    after: Option<&'a str>,
    includes_own: bool,
    wanted: usize,
    /// Windows that were read and not listed to their end.
    unlisted: WindowsByFolder,
    found: Vec<Listed>,
}

/// Which names of a folder are still to be listed.
enum ListFrom {
    Start,
    /// Keys after this one, relative to the folder.
    After(String),
    /// Names after this one, which was listed with everything below it.
    Past(String),
    Nothing,
}

impl FolderWalk<'_> {
    fn folder(
        &mut self,
        folder: &OwnedFd,
        base: &str,
        (name_prefix, limits): (&str, WindowLimits),
    ) -> Result<(), Error> {
        if base.len() > PATH_BYTES_MAX {
            return Err(Error::Unknown(format!("path {base} is longer than {PATH_BYTES_MAX} bytes")));
        }
        let read = |walk: &Self, from| walk.read_window(folder, (base, name_prefix), &from, limits);
        let mut window = match self.unlisted.remove(base) {
            Some(window) => window,
            None => read(self, self.start_in(base))?,
        };
        loop {
            while let Some(entry) = window.next() {
                self.visit(folder, base, &entry, limits.inside(&window))?;
                if self.found.len() >= self.wanted {
                    // The last key that was found belongs to the next page.
                    window.put_back(entry);
                    self.unlisted.insert(base.to_owned(), window);
                    return Ok(());
                }
            }
            let Some(last) = window.ends_at.take() else { return Ok(()) };
            window = read(self, ListFrom::Past(last))?;
        }
    }

    fn start_in(&self, base: &str) -> ListFrom {
        match self.after {
            Some(after) => match after.strip_prefix(base) {
                Some(tail) => ListFrom::After(tail.to_owned()),
                None if base > after => ListFrom::Start,
                None => ListFrom::Nothing,
            },
            None => ListFrom::Start,
        }
    }

    /// The smallest names of a folder that are still to be listed.
    fn read_window(
        &self,
        folder: &OwnedFd,
        (base, name_prefix): (&str, &str),
        from: &ListFrom,
        limits: WindowLimits,
    ) -> Result<NameWindow, Error> {
        let mut smallest = SmallestNames::new(limits);
        for entry in Dir::read_from(folder).map_err(|errno| failure("reading a folder", errno))? {
            let entry = entry.map_err(|errno| failure("reading a folder", errno))?;
            let Some(entry) = sort_entry(folder, &entry)? else { continue };
            let own = base.is_empty() && entry.sort_name == RESERVED_PREFIX && !self.includes_own;
            if !own && entry.sort_name.starts_with(name_prefix) && wanted(&entry, from) {
                smallest.offer(entry);
            }
        }
        Ok(smallest.into_window())
    }

    fn visit(&mut self, folder: &OwnedFd, base: &str, entry: &FolderEntry, inside: WindowLimits) -> Result<(), Error> {
        let path = format!("{base}{}", entry.sort_name);
        if entry.is_folder() {
            return match open_folder(folder, entry.sort_name.trim_end_matches('/')) {
                Ok(inner) => self.folder(&inner, &path, ("", inside)),
                Err(errno) if is_missing(errno) => Ok(()),
                Err(errno) => Err(failure("opening a folder", errno)),
            };
        }
        match rustix::fs::statat(folder, entry.sort_name.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if is_file(&stat) => {
                self.found.push(Listed {
                    key: path,
                    size_bytes: size_of(&stat),
                    etag: None,
                    modified: Some(modified(&stat)),
                    file: Some(stamp(&stat)),
                });
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(errno) if is_missing(errno) => Ok(()),
            Err(errno) => Err(failure("reading the metadata of a file", errno)),
        }
    }
}

/// Files and folders whose names can be part of a key; `None` for anything else.
fn sort_entry(folder: &OwnedFd, entry: &DirEntry) -> Result<Option<FolderEntry>, Error> {
    let Ok(name) = entry.file_name().to_str() else { return Ok(None) };
    if matches!(name, "." | "..") {
        return Ok(None);
    }
    let kind = match entry.file_type() {
        FileType::Unknown => match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => FileType::from_raw_mode(stat.st_mode),
            Err(errno) if is_missing(errno) => return Ok(None),
            Err(errno) => return Err(failure("reading the metadata of a file", errno)),
        },
        known => known,
    };
    Ok(match kind {
        FileType::Directory => Some(FolderEntry { sort_name: format!("{name}/") }),
        FileType::RegularFile => Some(FolderEntry { sort_name: name.to_owned() }),
        _ => None,
    })
}

fn wanted(entry: &FolderEntry, from: &ListFrom) -> bool {
    match from {
        ListFrom::Start => true,
        ListFrom::Nothing => false,
        ListFrom::After(tail) => entry.sort_name > *tail || (entry.is_folder() && tail.starts_with(&entry.sort_name)),
        ListFrom::Past(name) => entry.sort_name > *name,
    }
}

fn modified(stat: &Stat) -> Timestamp {
    let millis = i64::try_from(stat.st_mtime_nsec).unwrap_or(0) / 1_000_000;
    Timestamp::from_millis(stat.st_mtime.saturating_mul(1000).saturating_add(millis))
}
