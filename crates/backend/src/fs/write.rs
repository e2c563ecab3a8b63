//! Writing: a draft under `.s3o/tmp`, made durable, then given its name without replacing anything.
//!
//! A draft that is not published is removed when it is dropped, whatever went wrong, so a name
//! either leads to all of its bytes or to nothing.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use s3o_model::physical_key::identifier;
use sha2::{Digest, Sha256};

use super::Shared;
use super::failure::{failure, io_failure};
use super::folders::{Location, Parent, VANISHED_MAX};
use crate::hex::hex;
use crate::{ByteStream, DRAFTS, Error, Written, body};

/// Bodies up to this size are collected and written by one blocking call. For larger ones the disk is visited before their
/// first byte is taken: if it is not there, another backend can still have them.
const COLLECTED_BYTES_MAX: u64 = 128 * 1024;

/// Bodies up to this size are gathered whole behind that visit.
const GATHERED_BYTES_MAX: u64 = 1024 * 1024;

/// How much of a larger body is gathered before the disk is visited again.
const BATCH_BYTES: usize = 256 * 1024;

/// The name of a key's draft, the same for whoever looks for it later.
pub(super) fn draft_name(key: &str) -> String {
    match identifier(key) {
        Some(id) => id.as_simple().to_string(),
        None => format!("k{}", &hex(&Sha256::digest(key.as_bytes()))[..32]),
    }
}

pub(super) async fn put(shared: Arc<Shared>, key: String, size_bytes: u64, body: ByteStream) -> Result<Written, Error> {
    if size_bytes <= COLLECTED_BYTES_MAX {
        let bytes = body::collect(body, size_bytes).await?;
        let threads = shared.threads.clone();
        let stored = threads.run(move || {
            let mut draft = Draft::start(&shared, &draft_name(&key), Exists::Refused)?;
            draft.append(&bytes)?;
            draft.publish(&shared, &key, Exists::Refused)
        });
        stored.await?;
    } else {
        let batch_bytes_max = if size_bytes <= GATHERED_BYTES_MAX { usize::MAX } else { BATCH_BYTES };
        stream(shared, key, body::exactly(body, size_bytes), batch_bytes_max).await?;
    }
    Ok(Written { size_bytes, etag: None, version_id: None })
}

/// Writes or replaces a small object of s3o's own.
pub(super) fn replace(shared: &Shared, key: &str, bytes: &[u8]) -> Result<(), Error> {
    let _alone = shared.own_writes.lock();
    let mut draft = Draft::start(shared, &format!("own-{}", draft_name(key)), Exists::Replaced)?;
    draft.append(bytes)?;
    draft.publish(shared, key, Exists::Replaced)
}

/// Streams a body into a draft. The disk is visited for each batch of chunks and never waits for the
/// sender: a thread that waited would be one less for other reads and writes.
async fn stream(shared: Arc<Shared>, key: String, mut body: ByteStream, batch_bytes_max: usize) -> Result<(), Error> {
    let (place, name, threads) = (Arc::clone(&shared), draft_name(&key), shared.threads.clone());
    let mut draft = threads.run(move || Draft::start(&place, &name, Exists::Refused)).await?;
    let (mut batch, mut batch_bytes) = (Vec::new(), 0);
    while let Some(chunk) = body.next().await {
        let chunk = chunk?;
        batch_bytes += chunk.len();
        batch.push(chunk);
        if batch_bytes >= batch_bytes_max {
            let full = std::mem::take(&mut batch);
            draft = threads.run(move || draft.append_all(&full)).await?;
            batch_bytes = 0;
        }
    }
    threads.run(move || draft.append_all(&batch)?.publish(&shared, &key, Exists::Refused)).await
}

/// What to do with a name that is taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Exists {
    Refused,
    Replaced,
}

struct Draft {
    root: Arc<OwnedFd>,
    folder: OwnedFd,
    name: String,
    file: File,
    published: bool,
}

impl Draft {
    fn start(shared: &Shared, name: &str, exists: Exists) -> Result<Self, Error> {
        let root = shared.root.enter()?;
        let path = format!("{DRAFTS}{name}");
        let location = Location::parse(&path)?;
        let parent = make_parent(shared, &root, &location)?;
        if parent.is_fresh() {
            parent.sync(&shared.fresh)?;
        }
        let fate = if exists == Exists::Refused { OFlags::EXCL } else { OFlags::TRUNC };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | fate;
        let file = rustix::fs::openat(&parent.folder, name, flags, Mode::from_raw_mode(0o600))
            .map_err(|errno| failure("starting a draft", errno))?;
        Ok(Self { root, folder: parent.folder, name: name.to_owned(), file: File::from(file), published: false })
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.file.write_all(bytes).map_err(|error| io_failure("writing", &error))
    }

    fn append_all(mut self, chunks: &[Bytes]) -> Result<Self, Error> {
        chunks.iter().try_for_each(|chunk| self.append(chunk))?;
        Ok(self)
    }

    /// Makes the bytes durable, then the name, then answers.
    fn publish(mut self, shared: &Shared, key: &str, exists: Exists) -> Result<(), Error> {
        self.file.sync_all().map_err(|error| io_failure("making bytes durable", &error))?;
        let location = Location::parse(key)?;
        for _ in 0..VANISHED_MAX {
            let parent = make_parent(shared, &self.root, &location)?;
            match self.give_name(&parent.folder, location.name, exists) {
                Ok(()) => {
                    self.published = true;
                    return parent.sync(&shared.fresh);
                }
                // The folder was removed as empty between opening and naming; or the draft was,
                // by the cleanup of a write that was given up.
                Err(Errno::NOENT) => self.still_there()?,
                Err(Errno::EXIST) => return Err(Error::Refused(format!("{key} was written before"))),
                Err(errno) => return Err(failure("naming the bytes", errno)),
            }
        }
        Err(Error::Away("the folder keeps vanishing".to_owned()))
    }

    fn give_name(&self, folder: &OwnedFd, name: &str, exists: Exists) -> Result<(), Errno> {
        if exists == Exists::Replaced {
            return rustix::fs::renameat(&self.folder, self.name.as_str(), folder, name);
        }
        match rustix::fs::renameat_with(&self.folder, self.name.as_str(), folder, name, RenameFlags::NOREPLACE) {
            // File systems that cannot rename without replacing can usually link.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                rustix::fs::linkat(&self.folder, self.name.as_str(), folder, name, AtFlags::empty())?;
                self.remove();
                Ok(())
            }
            other => other,
        }
    }

    fn still_there(&self) -> Result<(), Error> {
        match rustix::fs::statat(&self.folder, self.name.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(()),
            Err(errno) => Err(Error::Unknown(format!("the draft was removed: {errno}"))),
        }
    }

    fn remove(&self) {
        match rustix::fs::unlinkat(&self.folder, self.name.as_str(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            // It is named by its key's identifier, so the key's cleanup removes it too.
            Err(errno) => tracing::warn!(draft = self.name, error = %errno, "a draft could not be removed"),
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.published {
            self.remove();
        }
    }
}

fn make_parent(shared: &Shared, root: &OwnedFd, location: &Location<'_>) -> Result<Parent, Error> {
    for _ in 0..VANISHED_MAX {
        if let Some(parent) = Parent::make(root, location, &shared.fresh)? {
            return Ok(parent);
        }
    }
    Err(Error::Away("the folder keeps vanishing".to_owned()))
}
