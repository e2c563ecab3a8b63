//! The folder that everything lies in, held by a handle.
//!
//! Every batch of work first enters the root, which proves that the configured path still leads
//! to the folder that was opened: a disk that was unmounted leaves an empty folder at the same
//! path, and that must read as "away", never as "nothing there". Another folder at the path is
//! opened only on request, once nothing is written there before its identity was compared.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::failure::{failure, io_failure};
use crate::Error;

#[derive(Debug)]
pub(super) struct Root {
    path: PathBuf,
    create: bool,
    held: Mutex<Option<Held>>,
}

/// An open folder.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) folder: Arc<OwnedFd>,
    pub(super) place: Place,
}

/// The device and the inode: which folder this is, whatever it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    device: u64,
    inode: u64,
}

impl Root {
    pub(super) fn new(path: PathBuf, create: bool) -> Self {
        Self { path, create, held: Mutex::new(None) }
    }

    /// The handle of the root, proven to be what the path leads to at this moment.
    pub(super) fn enter(&self) -> Result<Arc<OwnedFd>, Error> {
        let mut held = self.held.lock();
        let entered = match held.as_ref() {
            None => open(&self.path, self.create)?,
            Some(held) if place_of(&self.path)? == held.place => return Ok(Arc::clone(&held.folder)),
            Some(_) => {
                return Err(Error::Away(format!(
                    "root {} is no longer the folder that was opened",
                    self.path.display()
                )));
            }
        };
        Ok(Arc::clone(&held.insert(entered).folder))
    }

    /// The folder that the path leads to now, whether it is the one that was opened or not.
    pub(super) fn at_path(&self) -> Result<Held, Error> {
        let held = self.held.lock().clone();
        match held {
            Some(held) if place_of(&self.path)? == held.place => Ok(held),
            Some(_) => open(&self.path, false),
            None => {
                self.enter()?;
                open(&self.path, false)
            }
        }
    }

    /// Whether the path leads to another folder than the one that was opened.
    pub(super) fn has_changed(&self) -> bool {
        let held = self.held.lock().as_ref().map(|held| held.place);
        held.is_some_and(|held| place_of(&self.path).is_ok_and(|place| place != held))
    }

    /// Opens the folder that the path leads to now, whatever was there before.
    pub(super) fn reopen(&self) -> Result<(), Error> {
        if self.held.lock().is_none() || self.has_changed() {
            let opened = open(&self.path, self.create)?;
            *self.held.lock() = Some(opened);
        }
        self.enter().map(drop)
    }
}

fn place_of(path: &Path) -> Result<Place, Error> {
    let stat = rustix::fs::stat(path).map_err(|errno| away(path, errno))?;
    Ok(Place { device: stat.st_dev, inode: stat.st_ino })
}

/// Whatever is wrong with the root itself may be put right by mounting it.
fn away(path: &Path, errno: Errno) -> Error {
    Error::Away(format!("root {}: {errno}", path.display()))
}

fn open(path: &Path, create: bool) -> Result<Held, Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(Errno::NOENT) if create => {
            make(path)?;
            rustix::fs::open(path, flags, Mode::empty())
        }
        other => other,
    };
    let folder = folder.map_err(|errno| away(path, errno))?;
    let stat = rustix::fs::fstat(&folder).map_err(|errno| away(path, errno))?;
    Ok(Held { folder: Arc::new(folder), place: Place { device: stat.st_dev, inode: stat.st_ino } })
}

/// Makes the root and its missing ancestors for their owner alone, each durable in its parent.
fn make(path: &Path) -> Result<(), Error> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !parent.exists() {
        make(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(io_failure("making the root", &error));
        }
        Ok(()) | Err(_) => {}
    }
    let parent = rustix::fs::open(parent, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    parent.and_then(rustix::fs::fsync).map_err(|errno| failure("making the root durable", errno))
}
