//! Reading: exact spans by position, a small one together with its opening.
//!
//! "Not there" is said only of a name below a root that is still the verified one.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use rustix::buffer::spare_capacity;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::Shared;
use super::failure::{failure, leads_nowhere};
use super::folders::{Location, open_parent};
use crate::{BodyError, ByteStream, Error, Present, Probe, Span, body};

/// How much is read at a time.
const CHUNK_BYTES: u64 = 256 * 1024;

pub(super) async fn get(shared: Arc<Shared>, key: String, span: Option<Span>) -> Result<ByteStream, Error> {
    let threads = shared.threads.clone();
    let (first, rest) = threads.run(move || open_at(&shared, &key, span)).await?;
    if rest.remaining == 0 {
        return Ok(body::whole(first));
    }
    let start = (Some(first), Some(rest), threads);
    Ok(Box::pin(stream::unfold(start, |(ready, rest, threads)| async move {
        match (ready, rest) {
            (Some(first), rest) => Some((Ok(first), (None, rest, threads))),
            (None, Some(rest)) if rest.remaining > 0 => Some(match threads.run(move || rest.next()).await {
                Ok((chunk, rest)) => (Ok(chunk), (None, Some(rest), threads)),
                Err(error) => (Err(BodyError::Broken(error.to_string())), (None, None, threads)),
            }),
            (None, _) => None,
        }
    })))
}

/// Reads a small object of s3o's own from the folder that the path leads to now, whichever was opened before: it
/// tells whose that folder is.
pub(super) fn read_small(shared: &Shared, key: &str, bytes_max: u64) -> Result<Bytes, Error> {
    let root = shared.root.at_path()?;
    let (file, size_bytes) = match open_below(&root.folder, key) {
        // Another folder may have taken the place of this one while it was read.
        Err(Error::NotFound) if shared.root.at_path()?.place != root.place => {
            return Err(Error::Away("the root changed while it was read".to_owned()));
        }
        opened => opened?,
    };
    if size_bytes > bytes_max {
        return Err(Error::Refused(format!("{size_bytes} bytes are too many for an object of our own")));
    }
    let rest = Rest { file, offset: 0, remaining: size_bytes };
    rest.read(size_bytes)
}

pub(super) fn probe(shared: &Shared, key: &str) -> Probe {
    match stat(shared, key) {
        Ok(size_bytes) => Probe::Present(Present { size_bytes, etag: None }),
        Err(Error::NotFound) => Probe::Absent,
        Err(error) => Probe::Unknown(error.to_string()),
    }
}

fn stat(shared: &Shared, key: &str) -> Result<u64, Error> {
    let location = Location::parse(key)?;
    let root = shared.root.enter()?;
    let found = open_parent(&root, &location)
        .and_then(|parent| rustix::fs::statat(&parent, location.name, AtFlags::SYMLINK_NOFOLLOW));
    match found {
        Ok(stat) if is_file(&stat) => Ok(size_of(&stat)),
        // A folder of that name holds other keys; the key itself is not there.
        Ok(stat) if is_folder(&stat) => Err(not_found(shared)),
        Ok(_) => Err(Error::Unknown("neither a file nor a folder".to_owned())),
        Err(errno) if leads_nowhere(errno) => Err(not_found(shared)),
        Err(errno) => Err(failure("looking for a file", errno)),
    }
}

/// The root is entered again: the name may have led nowhere because the disk went away.
fn not_found(shared: &Shared) -> Error {
    match shared.root.enter() {
        Ok(_) => Error::NotFound,
        Err(away) => away,
    }
}

fn open_file(shared: &Shared, key: &str) -> Result<(OwnedFd, u64), Error> {
    let root = shared.root.enter()?;
    match open_below(&root, key) {
        Err(Error::NotFound) => Err(not_found(shared)),
        opened => opened,
    }
}

fn open_below(root: &OwnedFd, key: &str) -> Result<(OwnedFd, u64), Error> {
    let location = Location::parse(key)?;
    // Without NONBLOCK, opening a pipe that somebody left here would wait forever.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = open_parent(root, &location)
        .and_then(|parent| rustix::fs::openat(&parent, location.name, flags, Mode::empty()))
        .and_then(|file| rustix::fs::fstat(&file).map(|stat| (file, stat)));
    match opened {
        Ok((file, stat)) if is_file(&stat) => Ok((file, size_of(&stat))),
        Ok((_, stat)) if is_folder(&stat) => Err(Error::NotFound),
        Ok(_) => Err(Error::Unknown("neither a file nor a folder".to_owned())),
        Err(errno) if leads_nowhere(errno) => Err(Error::NotFound),
        Err(errno) => Err(failure("opening a file", errno)),
    }
}

fn open_at(shared: &Shared, key: &str, span: Option<Span>) -> Result<(Bytes, Rest), Error> {
    let (file, size_bytes) = open_file(shared, key)?;
    let Span { offset, length } = span.unwrap_or(Span { offset: 0, length: size_bytes });
    if offset.checked_add(length).is_none_or(|end| end > size_bytes) {
        return Err(Error::Refused("the span reaches beyond the bytes".to_owned()));
    }
    Rest { file, offset, remaining: length }.next()
}

/// What of a span is still to be read.
struct Rest {
    file: OwnedFd,
    offset: u64,
    remaining: u64,
}

impl Rest {
    fn next(mut self) -> Result<(Bytes, Self), Error> {
        let length = self.remaining.min(CHUNK_BYTES);
        let chunk = self.read(length)?;
        self.offset += length;
        self.remaining -= length;
        Ok((chunk, self))
    }

    fn read(&self, length: u64) -> Result<Bytes, Error> {
        let capacity = usize::try_from(length).map_err(|_| Error::Refused("too many bytes at once".to_owned()))?;
        let mut bytes = Vec::with_capacity(capacity);
        while bytes.len() < capacity {
            let position = self.offset + bytes.len() as u64;
            match rustix::io::pread(&self.file, spare_capacity(&mut bytes), position) {
                Ok(0) => return Err(Error::Unknown("the file shrank while it was read".to_owned())),
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(failure("reading", errno)),
            }
        }
        // The allocator may have given more than was asked for.
        bytes.truncate(capacity);
        Ok(Bytes::from(bytes))
    }
}

pub(super) fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

fn is_folder(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

pub(super) fn size_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}
