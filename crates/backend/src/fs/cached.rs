//! Small reads of what the kernel has in memory, on the calling thread. To hand a read to a thread of the disk costs
//! more than the read itself.
//!
//! Nothing here waits for a disk: the kernel refuses a lookup or a read that would. It cannot guarantee that for
//! file systems that ask a server or another process, so those are never read this way.

use std::io::IoSliceMut;

use bytes::Bytes;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};

use super::FsState;
use super::folders::KeyPath;
use super::root::{FolderId, OpenRoot};
use crate::Span;

/// Larger reads are copied on a thread of the disk, so that they delay no other request.
const SIZE_MAX: u64 = 64 * 1024;
/// Types of file systems that read from their disk or from memory: ext2 to ext4, XFS, Btrfs and tmpfs.
const LOCAL: [u64; 4] = [0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994];
/// The kernel must find every name in memory, below the root, on the root's own file system, and through no link.
const RESOLVE: ResolveFlags =
    ResolveFlags::CACHED.union(ResolveFlags::BENEATH).union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_XDEV);
const FILE: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// True if an open folder is on a file system that needs no server and no other process.
pub(super) fn is_local(folder: &OwnedFd) -> bool {
    let kind = rustix::fs::fstatfs(folder).ok().and_then(|found| u64::try_from(found.f_type).ok());
    kind.is_some_and(|kind| LOCAL.contains(&kind))
}

/// The bytes of a small span. `None` if anything is not in memory or is wrong: the read on a thread of the disk then
/// returns the bytes or the error.
pub(super) fn read(state: &FsState, key: &str, span: Option<Span>) -> Option<Bytes> {
    if span.is_some_and(|span| span.length > SIZE_MAX) {
        return None;
    }
    KeyPath::parse(key).ok()?;
    let root = state.root.opened().filter(|root| root.is_local && is_at_path(state, root))?;
    let file = rustix::fs::openat2(&root.folder, key, FILE, Mode::empty(), RESOLVE).ok()?;
    let size_bytes = size_of_file(&file)?;
    let Span { offset, length } = span.unwrap_or(Span { offset: 0, length: size_bytes });
    let is_inside = offset.checked_add(length).is_some_and(|end| end <= size_bytes);
    if is_inside && length <= SIZE_MAX { read_span(&file, offset, usize::try_from(length).ok()?) } else { None }
}

/// True if the configured path still leads to the opened root.
fn is_at_path(state: &FsState, root: &OpenRoot) -> bool {
    let id = || -> Result<FolderId, Errno> {
        let folder = rustix::fs::openat2(CWD, state.root.path(), FOLDER, Mode::empty(), ResolveFlags::CACHED)?;
        Ok(FolderId::of_known(&known(&folder)?))
    };
    id().is_ok_and(|id| id == root.id)
}

fn size_of_file(file: &OwnedFd) -> Option<u64> {
    let found = known(file).ok()?;
    let is_file = FileType::from_raw_mode(found.stx_mode.into()) == FileType::RegularFile;
    is_file.then_some(found.stx_size)
}

/// The metadata as the kernel knows it.
fn known(open: impl AsFd) -> Result<Statx, Errno> {
    rustix::fs::statx(open, "", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::BASIC_STATS)
}

fn read_span(file: &OwnedFd, offset: u64, length: usize) -> Option<Bytes> {
    let mut buffer = vec![0; length];
    let read = rustix::io::preadv2(file, &mut [IoSliceMut::new(&mut buffer)], offset, ReadWriteFlags::NOWAIT);
    (length == 0 || read == Ok(length)).then(|| Bytes::from(buffer))
}

#[cfg(test)]
mod tests;
