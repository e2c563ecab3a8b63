//! Listing by the bytes of the whole key, with bounded memory however large a folder is.
//!
//! A folder sorts as its name with a slash, so `a-b` comes before everything in `a/`. Of each
//! folder only as many names are kept as the page can still take; if they turn out to be empty
//! folders, the folder is read again from where it stopped.

use std::collections::BinaryHeap;

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, DirEntry, FileType, Stat};
use rustix::io::Errno;
use s3o_model::clock::Timestamp;
use s3o_model::physical_key::RESERVED_PREFIX;

use super::Shared;
use super::failure::{failure, leads_nowhere};
use super::folders::{Location, open_folder, open_parent};
use super::read::{is_file, size_of};
use crate::{Error, Listed, Page};

/// Deeper than any key of ours; a stranger's tree that goes further is not walked.
const PATH_BYTES_MAX: usize = 2048;

pub(super) fn list(shared: &Shared, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, Error> {
    let root = shared.root.enter()?;
    let (base, name_prefix) = prefix.rsplit_once('/').map_or(("", prefix), |(base, name)| (base, name));
    let location = Location { folders: base.split_terminator('/').collect(), name: name_prefix };
    let odd = |name: &&str| matches!(*name, "" | "." | "..");
    let opened = if location.folders.iter().any(odd) { Err(Errno::NOENT) } else { open_parent(&root, &location) };
    let folder = match opened {
        Ok(folder) => folder,
        Err(errno) if leads_nowhere(errno) => return shared.root.enter().map(|_| Page::default()),
        Err(errno) => return Err(failure("opening a folder", errno)),
    };
    let base = if base.is_empty() { String::new() } else { format!("{base}/") };
    let own_too = prefix.starts_with(RESERVED_PREFIX);
    let mut walk = Walk { after, own_too, wanted: limit.saturating_add(1), found: Vec::new() };
    walk.folder(&folder, &base, name_prefix)?;
    // An unmounted disk looks like empty folders; only a root that is still there proves them.
    shared.root.enter()?;
    let truncated = walk.found.len() > limit;
    walk.found.truncate(limit);
    Ok(Page { items: walk.found, truncated })
}

struct Walk<'a> {
    after: Option<&'a str>,
    own_too: bool,
    wanted: usize,
    found: Vec<Listed>,
}

/// A name in a folder; a folder's name ends in a slash, and so it sorts where its keys sort.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    sort_name: String,
}

impl Entry {
    fn is_folder(&self) -> bool {
        self.sort_name.ends_with('/')
    }
}

/// Which part of a folder is still wanted.
enum From {
    Start,
    /// Keys after this one, relative to the folder.
    After(String),
    /// Names after this one, which was seen with all that lies in it.
    Past(String),
    Nothing,
}

impl Walk<'_> {
    fn folder(&mut self, folder: &OwnedFd, base: &str, name_prefix: &str) -> Result<(), Error> {
        if base.len() > PATH_BYTES_MAX {
            return Err(Error::Unknown(format!("folders nest too deeply: {base}")));
        }
        let mut from = self.start_in(base);
        loop {
            let window = self.wanted - self.found.len();
            let (entries, more) = self.smallest(folder, base, name_prefix, &from, window)?;
            for entry in &entries {
                self.visit(folder, base, entry)?;
                if self.found.len() >= self.wanted {
                    return Ok(());
                }
            }
            match entries.last() {
                Some(last) if more => from = From::Past(last.sort_name.clone()),
                Some(_) | None => return Ok(()),
            }
        }
    }

    fn start_in(&self, base: &str) -> From {
        match self.after {
            Some(after) => match after.strip_prefix(base) {
                Some(tail) => From::After(tail.to_owned()),
                None if base > after => From::Start,
                None => From::Nothing,
            },
            None => From::Start,
        }
    }

    /// The smallest names of a folder that are still wanted, in order, and whether there are more.
    fn smallest(
        &self,
        folder: &OwnedFd,
        base: &str,
        name_prefix: &str,
        from: &From,
        window: usize,
    ) -> Result<(Vec<Entry>, bool), Error> {
        let mut kept: BinaryHeap<Entry> = BinaryHeap::new();
        let mut more = false;
        for entry in Dir::read_from(folder).map_err(|errno| failure("reading a folder", errno))? {
            let entry = entry.map_err(|errno| failure("reading a folder", errno))?;
            let Some(entry) = sorted_as(folder, &entry)? else { continue };
            let own = base.is_empty() && entry.sort_name == RESERVED_PREFIX && !self.own_too;
            if own || !entry.sort_name.starts_with(name_prefix) || !wanted(&entry, from) {
                continue;
            }
            if kept.len() < window {
                kept.push(entry);
            } else {
                more = true;
                if kept.peek().is_some_and(|largest| entry < *largest) {
                    kept.pop();
                    kept.push(entry);
                }
            }
        }
        Ok((kept.into_sorted_vec(), more))
    }

    fn visit(&mut self, folder: &OwnedFd, base: &str, entry: &Entry) -> Result<(), Error> {
        let path = format!("{base}{}", entry.sort_name);
        if entry.is_folder() {
            return match open_folder(folder, entry.sort_name.trim_end_matches('/')) {
                Ok(inner) => self.folder(&inner, &path, ""),
                Err(errno) if leads_nowhere(errno) => Ok(()),
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
                });
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(errno) if leads_nowhere(errno) => Ok(()),
            Err(errno) => Err(failure("looking at a file", errno)),
        }
    }
}

/// Files and folders with names that can be part of a key; anything else is not ours to see.
fn sorted_as(folder: &OwnedFd, entry: &DirEntry) -> Result<Option<Entry>, Error> {
    let Ok(name) = entry.file_name().to_str() else { return Ok(None) };
    if matches!(name, "." | "..") {
        return Ok(None);
    }
    let kind = match entry.file_type() {
        FileType::Unknown => match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => FileType::from_raw_mode(stat.st_mode),
            Err(errno) if leads_nowhere(errno) => return Ok(None),
            Err(errno) => return Err(failure("looking at a name", errno)),
        },
        known => known,
    };
    Ok(match kind {
        FileType::Directory => Some(Entry { sort_name: format!("{name}/") }),
        FileType::RegularFile => Some(Entry { sort_name: name.to_owned() }),
        _ => None,
    })
}

fn wanted(entry: &Entry, from: &From) -> bool {
    match from {
        From::Start => true,
        From::Nothing => false,
        From::After(tail) => entry.sort_name > *tail || (entry.is_folder() && tail.starts_with(&entry.sort_name)),
        From::Past(name) => entry.sort_name > *name,
    }
}

fn modified(stat: &Stat) -> Timestamp {
    let millis = i64::try_from(stat.st_mtime_nsec).unwrap_or(0) / 1_000_000;
    Timestamp::from_millis(stat.st_mtime.saturating_mul(1000).saturating_add(millis))
}
