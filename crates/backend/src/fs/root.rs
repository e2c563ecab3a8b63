//! The folder that everything lies in, held by a handle.
//!
//! Every batch of work first enters the root, which proves that the configured path still leads
//! to the folder that was opened: a disk that was unmounted leaves an empty folder at the same
//! path, and that must read as "away", never as "nothing there".

use std::fs::{DirBuilder, File};
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::failure::{failure, io_failure};
use super::folders;
use crate::Error;
use crate::identity::{IDENTITY_KEY, Identity};

/// The identity object is three short strings; anything longer is none.
const IDENTITY_BYTES_MAX: u64 = 64 * 1024;

#[derive(Debug)]
pub(super) struct Root {
    path: PathBuf,
    create: bool,
    held: Mutex<Option<Held>>,
}

#[derive(Debug, Clone)]
struct Held {
    folder: Arc<OwnedFd>,
    place: Place,
    owner: Option<Identity>,
}

/// The device and the inode: which folder this is, whatever it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    device: u64,
    inode: u64,
}

impl Root {
    pub(super) fn new(path: PathBuf, create: bool) -> Self {
        Self { path, create, held: Mutex::new(None) }
    }

    /// The handle of the root, proven to be what the path leads to at this moment.
    pub(super) fn enter(&self) -> Result<Arc<OwnedFd>, Error> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let entered = match held.as_ref() {
            None => open(&self.path, self.create)?,
            Some(held) if place_of(&self.path)? == held.place => return Ok(Arc::clone(&held.folder)),
            Some(held) => reopen(&self.path, held)?,
        };
        Ok(Arc::clone(&held.insert(entered).folder))
    }

    /// Takes the folder that the path leads to now for the root, whatever was there before. Only for
    /// who is about to write the identity there, and so says whose it is.
    pub(super) fn claim(&self) -> Result<(), Error> {
        let claimed = open(&self.path, self.create)?;
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(claimed);
        Ok(())
    }

    /// Remembers whose root this is, so that it is recognised after it was mounted again.
    pub(super) fn remember(&self, identity: &Identity) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = held.as_mut() {
            held.owner = Some(identity.clone());
        }
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
    let owner = owner_of(&folder);
    Ok(Held { folder: Arc::new(folder), place: Place { device: stat.st_dev, inode: stat.st_ino }, owner })
}

/// Accepts another folder at the path only if it says that it is the one we had: the same disk,
/// mounted again. The bare mount point says nothing.
fn reopen(path: &Path, held: &Held) -> Result<Held, Error> {
    let candidate = open(path, false)?;
    let recognised = match (&held.owner, &candidate.owner) {
        (Some(ours), Some(theirs)) => ours.cluster == theirs.cluster && ours.backend == theirs.backend,
        (None, Some(_)) => true,
        (_, None) => false,
    };
    if recognised {
        Ok(candidate)
    } else {
        Err(Error::Away(format!("root {} is no longer the folder that was opened", path.display())))
    }
}

fn owner_of(folder: &OwnedFd) -> Option<Identity> {
    let location = folders::Location::parse(IDENTITY_KEY).ok()?;
    let parent = folders::open_parent(folder, &location).ok()?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&parent, location.name, flags, Mode::empty()).ok()?;
    let mut bytes = Vec::new();
    File::from(file).take(IDENTITY_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Identity::decode(&bytes).ok()
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
