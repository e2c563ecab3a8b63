//! Reads: exact spans by position; the first chunk is read together with the open. Small ones that are in memory need
//! no thread of the disk.
//!
//! `NotFound` is returned only if the root is still the opened one after the lookup.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use rustix::buffer::spare_capacity;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use s3o_model::target::FileStamp;

use super::failure::{failure, is_missing};
use super::folders::{KeyPath, open_parent};
use super::{DiskThreads, FsState, cached};
use crate::{BodyError, ByteStream, Error, Present, Probe, Span, body};

/// Size of one chunk.
const CHUNK_BYTES: u64 = 256 * 1024;

pub(super) async fn get(state: Arc<FsState>, key: String, span: Option<Span>) -> Result<ByteStream, Error> {
    if let Some(bytes) = cached::read(&state, &key, span) {
        return Ok(body::whole(bytes));
    }
    let threads = state.threads.clone();
    let (first, rest) = threads.run(move || open_at(&state, &key, span)).await?;
    if rest.remaining == 0 {
        return Ok(body::whole(first));
    }
    let start = (Some(first), Some(rest), threads);
    Ok(Box::pin(stream::unfold(start, |(ready, rest, threads)| async move {
        match (ready, rest) {
            (Some(first), rest) => Some((Ok(first), (None, rest, threads))),
            (None, Some(rest)) if rest.remaining > 0 => Some(match rest.next_on(&threads).await {
                Ok((chunk, rest)) => (Ok(chunk), (None, Some(rest), threads)),
                Err(error) => (Err(BodyError::Broken(error.to_string())), (None, None, threads)),
            }),
            (None, _) => None,
        }
    })))
}

/// Reads a small object of s3o's own from the folder that the configured path leads to now, which may not be the opened
/// one: the identity object shows which folder it is.
pub(super) fn read_small(state: &FsState, key: &str, bytes_max: u64) -> Result<Bytes, Error> {
    let root = state.root.at_path()?;
    let (file, size_bytes) = match open_below(&root.folder, key) {
        // The path may lead to another folder since the read began.
        Err(Error::NotFound) if state.root.at_path()?.id != root.id => {
            return Err(Error::Away("the root path led to another folder during the read".to_owned()));
        }
        opened => opened?,
    };
    if size_bytes > bytes_max {
        return Err(Error::Refused(format!(
            "object of s3o's own has {size_bytes} bytes, at most {bytes_max} are allowed"
        )));
    }
    let whole = FileSpan { file, offset: 0, remaining: size_bytes };
    let buffer = buffer(size_bytes)?;
    whole.read(size_bytes, buffer)
}

pub(super) fn probe(state: &FsState, key: &str) -> Probe {
    match stat(state, key) {
        Ok(found) => {
            let (size_bytes, file) = (size_of(&found), Some(stamp(&found)));
            Probe::Present(Present { size_bytes, etag: None, version_id: None, file })
        }
        Err(Error::NotFound) => Probe::Absent,
        Err(error) => Probe::Unknown(error.to_string()),
    }
}

fn stat(state: &FsState, key: &str) -> Result<Stat, Error> {
    let path = KeyPath::parse(key)?;
    let root = state.root.enter()?;
    let found =
        open_parent(&root, &path).and_then(|parent| rustix::fs::statat(&parent, path.name, AtFlags::SYMLINK_NOFOLLOW));
    match found {
        Ok(stat) if is_file(&stat) => Ok(stat),
        // A folder of that name holds other keys; the key itself does not exist.
        Ok(stat) if is_folder(&stat) => Err(not_found(state)),
        Ok(_) => Err(Error::Unknown("neither a file nor a folder".to_owned())),
        Err(errno) if is_missing(errno) => Err(not_found(state)),
        Err(errno) => Err(failure("reading the metadata of a file", errno)),
    }
}

/// Checks the root again: the name may be missing because the disk was unmounted.
fn not_found(state: &FsState) -> Error {
    match state.root.enter() {
        Ok(_) => Error::NotFound,
        Err(away) => away,
    }
}

fn open_file(state: &FsState, key: &str) -> Result<(OwnedFd, u64), Error> {
    let root = state.root.enter()?;
    match open_below(&root, key) {
        Err(Error::NotFound) => Err(not_found(state)),
        opened => opened,
    }
}

fn open_below(root: &OwnedFd, key: &str) -> Result<(OwnedFd, u64), Error> {
    let path = KeyPath::parse(key)?;
    // Without NONBLOCK, opening a named pipe would block forever.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = open_parent(root, &path)
        .and_then(|parent| rustix::fs::openat(&parent, path.name, flags, Mode::empty()))
        .and_then(|file| rustix::fs::fstat(&file).map(|stat| (file, stat)));
    match opened {
        Ok((file, stat)) if is_file(&stat) => Ok((file, size_of(&stat))),
        Ok((_, stat)) if is_folder(&stat) => Err(Error::NotFound),
        Ok(_) => Err(Error::Unknown("neither a file nor a folder".to_owned())),
        Err(errno) if is_missing(errno) => Err(Error::NotFound),
        Err(errno) => Err(failure("opening a file", errno)),
    }
}

fn open_at(state: &FsState, key: &str, span: Option<Span>) -> Result<(Bytes, FileSpan), Error> {
    let (file, size_bytes) = open_file(state, key)?;
    let Span { offset, length } = span.unwrap_or(Span { offset: 0, length: size_bytes });
    if offset.checked_add(length).is_none_or(|end| end > size_bytes) {
        return Err(Error::Refused("the span reaches beyond the end of the object".to_owned()));
    }
    let span = FileSpan { file, offset, remaining: length };
    let buffer = buffer(span.next_length())?;
    span.next(buffer)
}

/// Memory for so many bytes.
fn buffer(length: u64) -> Result<Vec<u8>, Error> {
    let capacity =
        usize::try_from(length).map_err(|_| Error::Refused("the chunk does not fit into memory".to_owned()))?;
    Ok(Vec::with_capacity(capacity))
}

/// The unread part of a span of an open file.
struct FileSpan {
    file: OwnedFd,
    offset: u64,
    remaining: u64,
}

impl FileSpan {
    fn next_length(&self) -> u64 {
        self.remaining.min(CHUNK_BYTES)
    }

    /// Reads the next chunk on a blocking thread. The calling thread allocates the memory: the allocator keeps pages
    /// for each thread that allocates, and there are many blocking threads.
    async fn next_on(self, threads: &DiskThreads) -> Result<(Bytes, Self), Error> {
        let buffer = buffer(self.next_length())?;
        threads.run(move || self.next(buffer)).await
    }

    fn next(mut self, buffer: Vec<u8>) -> Result<(Bytes, Self), Error> {
        let length = self.next_length();
        let chunk = self.read(length, buffer)?;
        self.offset += length;
        self.remaining -= length;
        Ok((chunk, self))
    }

    fn read(&self, length: u64, mut buffer: Vec<u8>) -> Result<Bytes, Error> {
        while (buffer.len() as u64) < length {
            let position = self.offset + buffer.len() as u64;
            match rustix::io::pread(&self.file, spare_capacity(&mut buffer), position) {
                Ok(0) => return Err(Error::Unknown("the file was truncated during the read".to_owned())),
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(failure("reading", errno)),
            }
        }
        // The buffer may be larger than requested.
        buffer.truncate(usize::try_from(length).unwrap_or(usize::MAX));
        Ok(Bytes::from(buffer))
    }
}

pub(super) fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

fn is_folder(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// What distinguishes this file from another one under its name.
pub(super) fn stamp(stat: &Stat) -> FileStamp {
    let nanoseconds = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
    FileStamp {
        modified_ns: stat.st_mtime.saturating_mul(1_000_000_000).saturating_add(nanoseconds),
        inode: stat.st_ino,
        links: stat.st_nlink,
    }
}

pub(super) fn size_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}
