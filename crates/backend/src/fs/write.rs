//! Writes: a draft file under `.s3o/tmp` is synced, then renamed without replacing an existing file.
//!
//! Dropping a draft that was not published removes it, so that a key either has all of its bytes or
//! does not exist.

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

use super::FsState;
use super::failure::{failure, io_failure};
use super::folders::{KeyPath, ParentFolder, RETRIES_MAX};
use crate::{ByteStream, DRAFTS, Error, Written, body};
use s3o_model::etag::hex;

/// Bodies up to this size are collected and written by one blocking call. For larger ones the draft is opened before
/// the first byte is read: if the disk is missing, the body can still go to another backend.
const COLLECTED_BYTES_MAX: u64 = 128 * 1024;

/// Bodies up to this size are written by one blocking call after the draft was opened.
const SINGLE_WRITE_BYTES_MAX: u64 = 1024 * 1024;

/// Number of bytes of a larger body in one blocking write.
const BATCH_BYTES: usize = 256 * 1024;

/// The name of a key's draft. It depends only on the key, so that the key's cleanup finds it.
pub(super) fn draft_name(key: &str) -> String {
    match identifier(key) {
        Some(id) => id.as_simple().to_string(),
        None => format!("k{}", &hex(&Sha256::digest(key.as_bytes()))[..32]),
    }
}

pub(super) async fn put(state: Arc<FsState>, key: String, size_bytes: u64, body: ByteStream) -> Result<Written, Error> {
    if size_bytes <= COLLECTED_BYTES_MAX {
        let bytes = body::collect(body, size_bytes).await?;
        let threads = state.threads.clone();
        let stored = threads.run(move || {
            let mut draft = DraftFile::start(&state, &draft_name(&key), IfExists::Refuse)?;
            draft.append(&bytes)?;
            draft.publish(&state, &key, IfExists::Refuse)
        });
        stored.await?;
    } else {
        let batch_bytes_max = if size_bytes <= SINGLE_WRITE_BYTES_MAX { usize::MAX } else { BATCH_BYTES };
        stream(state, key, body::exactly(body, size_bytes), batch_bytes_max).await?;
    }
    Ok(Written { size_bytes, etag: None, version_id: None })
}

/// Writes or replaces a small object of s3o's own.
pub(super) fn replace(state: &FsState, key: &str, bytes: &[u8]) -> Result<(), Error> {
    let _exclusive = state.own_writes.lock();
    let mut draft = DraftFile::start(state, &format!("own-{}", draft_name(key)), IfExists::Replace)?;
    draft.append(bytes)?;
    draft.publish(state, key, IfExists::Replace)
}

/// Streams a body into a draft. Each batch of chunks is written by its own blocking call, so that no
/// thread waits for the sender.
async fn stream(state: Arc<FsState>, key: String, mut body: ByteStream, batch_bytes_max: usize) -> Result<(), Error> {
    let (opening, name, threads) = (Arc::clone(&state), draft_name(&key), state.threads.clone());
    let mut draft = threads.run(move || DraftFile::start(&opening, &name, IfExists::Refuse)).await?;
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
    threads.run(move || draft.append_all(&batch)?.publish(&state, &key, IfExists::Refuse)).await
}

/// What to do if the file exists.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IfExists {
    Refuse,
    Replace,
}

struct DraftFile {
    root: Arc<OwnedFd>,
    folder: OwnedFd,
    name: String,
    file: File,
    published: bool,
}

impl DraftFile {
    fn start(state: &FsState, name: &str, exists: IfExists) -> Result<Self, Error> {
        // Objects of s3o's own are replaced; they are the identity, which is written before the store is trusted.
        let root = if exists == IfExists::Refuse { state.root.enter_trusted()? } else { state.root.enter()? };
        let path = format!("{DRAFTS}{name}");
        let location = KeyPath::parse(&path)?;
        let parent = create_parent(state, &root, &location)?;
        if parent.has_unsynced() {
            parent.sync(&state.unsynced_folders)?;
        }
        let if_exists = if exists == IfExists::Refuse { OFlags::EXCL } else { OFlags::TRUNC };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | if_exists;
        let file = rustix::fs::openat(&parent.folder, name, flags, Mode::from_raw_mode(0o600))
            .map_err(|errno| failure("creating a temporary file", errno))?;
        Ok(Self { root, folder: parent.folder, name: name.to_owned(), file: File::from(file), published: false })
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.file.write_all(bytes).map_err(|error| io_failure("writing", &error))
    }

    fn append_all(mut self, chunks: &[Bytes]) -> Result<Self, Error> {
        chunks.iter().try_for_each(|chunk| self.append(chunk))?;
        Ok(self)
    }

    /// Syncs the bytes, renames the draft, then syncs the folder.
    fn publish(mut self, state: &FsState, key: &str, exists: IfExists) -> Result<(), Error> {
        self.file.sync_all().map_err(|error| io_failure("syncing a temporary file", &error))?;
        let location = KeyPath::parse(key)?;
        for _ in 0..RETRIES_MAX {
            let parent = create_parent(state, &self.root, &location)?;
            match self.rename_to(&parent.folder, location.name, exists) {
                Ok(()) => {
                    self.published = true;
                    return parent.sync(&state.unsynced_folders);
                }
                // The folder was removed as empty before the rename, or the cleanup of an abandoned
                // write removed the draft.
                Err(Errno::NOENT) => self.check_exists()?,
                Err(Errno::EXIST) => return Err(Error::Refused(format!("{key} exists already"))),
                Err(errno) => return Err(failure("renaming a temporary file", errno)),
            }
        }
        Err(Error::Away("the folder was removed in every attempt to write to it".to_owned()))
    }

    fn rename_to(&self, folder: &OwnedFd, name: &str, exists: IfExists) -> Result<(), Errno> {
        if exists == IfExists::Replace {
            return rustix::fs::renameat(&self.folder, self.name.as_str(), folder, name);
        }
        match rustix::fs::renameat_with(&self.folder, self.name.as_str(), folder, name, RenameFlags::NOREPLACE) {
            // Most file systems without RENAME_NOREPLACE support hard links.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                rustix::fs::linkat(&self.folder, self.name.as_str(), folder, name, AtFlags::empty())?;
                self.remove();
                Ok(())
            }
            other => other,
        }
    }

    fn check_exists(&self) -> Result<(), Error> {
        match rustix::fs::statat(&self.folder, self.name.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(()),
            Err(errno) => Err(Error::Unknown(format!("the temporary file was removed: {errno}"))),
        }
    }

    fn remove(&self) {
        match rustix::fs::unlinkat(&self.folder, self.name.as_str(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            // The draft has the name of its key's identifier, so the key's cleanup removes it, too.
            Err(errno) => tracing::warn!(file = self.name, error = %errno, "cannot remove temporary file"),
        }
    }
}

impl Drop for DraftFile {
    fn drop(&mut self) {
        if !self.published {
            self.remove();
        }
    }
}

fn create_parent(state: &FsState, root: &OwnedFd, location: &KeyPath<'_>) -> Result<ParentFolder, Error> {
    for _ in 0..RETRIES_MAX {
        if let Some(parent) = ParentFolder::create(root, location, &state.unsynced_folders)? {
            return Ok(parent);
        }
    }
    Err(Error::Away("the folder was removed in every attempt to write to it".to_owned()))
}
