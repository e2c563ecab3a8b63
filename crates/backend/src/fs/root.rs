//! The root folder of the backend, held open by a handle.
//!
//! Every call first enters the root, which checks that the configured path still leads to the opened
//! folder: an unmounted disk leaves an empty folder at the same path, which must be reported as
//! "away", never as "absent". Another folder at the path is opened only on request. It takes no writes
//! and no deletes until the caller has compared its identity.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, Statx};
use rustix::io::Errno;

use super::cached;
use super::failure::{failure, io_failure};
use crate::Error;

#[derive(Debug)]
pub(super) struct RootFolder {
    path: PathBuf,
    create: bool,
    opened: Mutex<Option<OpenRoot>>,
}

#[derive(Debug, Clone)]
pub(super) struct OpenRoot {
    pub(super) folder: Arc<OwnedFd>,
    pub(super) id: FolderId,
    /// True if reads of what is in memory need neither a server nor another process.
    pub(super) is_local: bool,
    /// False while another folder was opened before and the identity of this one was not compared.
    trusted: bool,
}

/// Identifies a folder independently of its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FolderId {
    device: u64,
    inode: u64,
}

impl FolderId {
    /// The identity of an open folder.
    pub(super) fn of(folder: &OwnedFd) -> Result<Self, Errno> {
        let stat = rustix::fs::fstat(folder)?;
        Ok(Self { device: stat.st_dev, inode: stat.st_ino })
    }

    pub(super) fn of_known(known: &Statx) -> Self {
        let device = rustix::fs::makedev(known.stx_dev_major, known.stx_dev_minor);
        Self { device, inode: known.stx_ino }
    }
}

impl RootFolder {
    pub(super) fn new(path: PathBuf, create: bool) -> Self {
        Self { path, create, opened: Mutex::new(None) }
    }

    /// The same as `enter`, for writes and deletes, which only a trusted folder takes.
    pub(super) fn enter_trusted(&self) -> Result<Arc<OwnedFd>, Error> {
        let folder = self.enter()?;
        match self.opened.lock().as_ref() {
            Some(opened) if opened.trusted && Arc::ptr_eq(&opened.folder, &folder) => Ok(folder),
            Some(_) | None => Err(Error::Away(format!(
                "root {} leads to another folder, its identity is not compared yet",
                self.path.display()
            ))),
        }
    }

    /// Permits writes and deletes in the opened folder.
    pub(super) fn trust(&self) {
        if let Some(opened) = self.opened.lock().as_mut() {
            opened.trusted = true;
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The opened root, unless another thread is opening it.
    pub(super) fn opened(&self) -> Option<OpenRoot> {
        self.opened.try_lock()?.clone()
    }

    /// The handle of the root, after a check that the path leads to it. The check may wait for a disk, so the lock is
    /// not held meanwhile.
    pub(super) fn enter(&self) -> Result<Arc<OwnedFd>, Error> {
        let opened = self.opened.lock().clone();
        match opened {
            None => self.open_first(),
            Some(opened) if folder_id(&self.path)? == opened.id => Ok(opened.folder),
            Some(_) => {
                Err(Error::Away(format!("root {} is no longer the folder that was opened", self.path.display())))
            }
        }
    }

    fn open_first(&self) -> Result<Arc<OwnedFd>, Error> {
        let mut held = self.opened.lock();
        let root = match held.take() {
            Some(opened) => opened,
            None => open(&self.path, self.create)?,
        };
        Ok(Arc::clone(&held.insert(root).folder))
    }

    /// The folder that the path leads to now, which may not be the opened one.
    pub(super) fn at_path(&self) -> Result<OpenRoot, Error> {
        let opened = self.opened.lock().clone();
        match opened {
            Some(opened) if folder_id(&self.path)? == opened.id => Ok(opened),
            Some(_) => open(&self.path, false),
            None => {
                self.enter()?;
                open(&self.path, false)
            }
        }
    }

    /// True if the path leads to another folder than the opened one.
    pub(super) fn has_changed(&self) -> bool {
        let opened = self.opened.lock().as_ref().map(|opened| opened.id);
        opened.is_some_and(|opened| folder_id(&self.path).is_ok_and(|current| current != opened))
    }

    /// Opens the folder that the path leads to now, if it is not the opened one.
    pub(super) fn reopen(&self) -> Result<(), Error> {
        if self.has_changed() {
            let opened = open(&self.path, self.create)?;
            *self.opened.lock() = Some(OpenRoot { trusted: false, ..opened });
        }
        self.enter().map(drop)
    }
}

fn folder_id(path: &Path) -> Result<FolderId, Error> {
    let stat = rustix::fs::stat(path).map_err(|errno| away(path, errno))?;
    Ok(FolderId { device: stat.st_dev, inode: stat.st_ino })
}

/// Every error of the root itself may end when the disk is mounted.
fn away(path: &Path, errno: Errno) -> Error {
    Error::Away(format!("root {}: {errno}", path.display()))
}

fn open(path: &Path, create: bool) -> Result<OpenRoot, Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(Errno::NOENT) if create => {
            create_root(path)?;
            rustix::fs::open(path, flags, Mode::empty())
        }
        other => other,
    };
    let folder = folder.map_err(|errno| away(path, errno))?;
    let stat = rustix::fs::fstat(&folder).map_err(|errno| away(path, errno))?;
    let id = FolderId { device: stat.st_dev, inode: stat.st_ino };
    let is_local = cached::is_local(&folder);
    Ok(OpenRoot { folder: Arc::new(folder), id, is_local, trusted: true })
}

/// Creates the root and its missing ancestors with mode 0700, each durable in its parent.
fn create_root(path: &Path) -> Result<(), Error> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !parent.exists() {
        create_root(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(io_failure("creating the root", &error));
        }
        Ok(()) | Err(_) => {}
    }
    let parent = rustix::fs::open(parent, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    parent.and_then(rustix::fs::fsync).map_err(|errno| failure("syncing the parent of the root", errno))
}
