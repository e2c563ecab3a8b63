//! A folder as a backend.
//!
//! Everything happens below one directory handle and never through a symbolic link. A name leads
//! to all of its bytes or does not exist; what was acknowledged survives a power cut; and a disk
//! that is not mounted is away, never empty.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use s3o_model::entropy::{Entropy, SystemEntropy};
use s3o_model::names::BackendName;

use tokio::sync::Semaphore;

use crate::{
    Backend, ByteStream, DeleteAnswer, Doomed, Error, Page, PartOf, Probe, Span, Traits, UnfinishedUpload,
    UploadedPart, UploadsPage, Written,
};

mod attributes;
mod failure;
mod folders;
mod list;
mod read;
mod remove;
mod root;
mod write;

/// The largest object of our own that is read back.
const OWN_BYTES_MAX: u64 = 1024 * 1024;

const NO_UPLOADS: &str = "a folder takes any body in one put";

/// How a folder is opened.
#[derive(Clone)]
pub struct FsOptions {
    /// Whether a missing root is made. Only for a root that the catalog never knew: one that it
    /// knew and that is missing is a disk that is not mounted.
    pub create: bool,
    /// Names for what is tried out.
    pub entropy: Arc<dyn Entropy>,
}

impl Default for FsOptions {
    fn default() -> Self {
        Self { create: false, entropy: Arc::new(SystemEntropy) }
    }
}

impl fmt::Debug for FsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FsOptions").field("create", &self.create).finish_non_exhaustive()
    }
}

/// A folder as a backend.
pub struct Fs {
    name: BackendName,
    shared: Arc<Shared>,
}

/// What blocking calls take with them to their thread.
struct Shared {
    /// The threads that this folder may occupy.
    threads: Threads,
    root: root::Root,
    fresh: folders::Fresh,
    /// Objects of our own are replaced through one draft each, so only one at a time.
    own_writes: Mutex<()>,
    entropy: Arc<dyn Entropy>,
}

impl fmt::Debug for Fs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fs").field("name", &self.name).field("root", &self.shared.root).finish_non_exhaustive()
    }
}

impl Fs {
    /// A backend in the folder at `root`. A disk that is not mounted yet is no error: calls
    /// answer `Away` until it is.
    #[must_use]
    pub fn open(name: BackendName, root: PathBuf, options: FsOptions) -> Self {
        let shared = Shared {
            threads: Threads::default(),
            root: root::Root::new(root, options.create),
            fresh: folders::Fresh::default(),
            own_writes: Mutex::new(()),
            entropy: options.entropy,
        };
        Self { name, shared: Arc::new(shared) }
    }

    async fn with<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Shared) -> Result<T, Error> + Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        self.shared.threads.run(move || work(&shared)).await
    }
}

/// How many threads one folder occupies at most. A disk that hangs keeps each of them, whether or not the request that
/// asked has been given up; the runtime has several times as many for everything else.
const THREADS_MAX: usize = 128;

/// The threads that wait for one disk.
#[derive(Clone)]
struct Threads(Arc<Semaphore>);

impl Default for Threads {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(THREADS_MAX)))
    }
}

impl Threads {
    /// Runs work that waits for a disk on a thread of its own.
    async fn run<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce() -> Result<T, Error> + Send + 'static,
    {
        let occupied = Arc::clone(&self.0).acquire_owned().await.expect("the semaphore is never closed");
        let working = tokio::task::spawn_blocking(move || {
            let answer = work();
            drop(occupied);
            answer
        });
        match working.await {
            Ok(answer) => answer,
            Err(lost) => Err(Error::Unknown(format!("the blocking call did not return: {lost}"))),
        }
    }
}

#[async_trait]
impl Backend for Fs {
    fn name(&self) -> &BackendName {
        &self.name
    }

    fn put_bytes_max(&self) -> u64 {
        u64::MAX
    }

    async fn probe_traits(&self) -> Result<Traits, Error> {
        self.with(attributes::probe_traits).await
    }

    async fn put(&self, key: &str, size_bytes: u64, body: ByteStream) -> Result<Written, Error> {
        write::put(Arc::clone(&self.shared), key.to_owned(), size_bytes, body).await
    }

    async fn get(&self, key: &str, span: Option<Span>) -> Result<ByteStream, Error> {
        read::get(Arc::clone(&self.shared), key.to_owned(), span).await
    }

    async fn probe(&self, key: &str) -> Probe {
        let key = key.to_owned();
        let answer = self.with(move |shared| Ok(read::probe(shared, &key))).await;
        answer.unwrap_or_else(|error| Probe::Unknown(error.to_string()))
    }

    async fn delete_batch(&self, doomed: &[Doomed]) -> Vec<DeleteAnswer> {
        let keys: Vec<String> = doomed.iter().map(|doomed| doomed.key.clone()).collect();
        let answers = self.with(move |shared| Ok(remove::delete_batch(shared, &keys))).await;
        answers.unwrap_or_else(|error| vec![DeleteAnswer::Unknown(error.to_string()); doomed.len()])
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, Error> {
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        self.with(move |shared| list::list(shared, &prefix, after.as_deref(), limit)).await
    }

    async fn start_upload(&self, _key: &str) -> Result<String, Error> {
        Err(Error::Unsupported(NO_UPLOADS))
    }

    async fn put_part(&self, _part: PartOf<'_>, _size_bytes: u64, _body: ByteStream) -> Result<UploadedPart, Error> {
        Err(Error::Unsupported(NO_UPLOADS))
    }

    async fn finish_upload(&self, _key: &str, _upload: &str, _parts: &[UploadedPart]) -> Result<Written, Error> {
        Err(Error::Unsupported(NO_UPLOADS))
    }

    async fn abort_upload(&self, _key: &str, _upload: &str) -> DeleteAnswer {
        DeleteAnswer::Absent
    }

    async fn uploads_of(&self, _key: &str) -> Result<Vec<String>, Error> {
        Ok(Vec::new())
    }

    async fn list_uploads(&self, _from: Option<&UnfinishedUpload>) -> Result<UploadsPage, Error> {
        Ok(UploadsPage::default())
    }

    async fn read_own(&self, key: &str) -> Result<Option<Bytes>, Error> {
        let own = key.to_owned();
        match self.with(move |shared| read::read_small(shared, &own, OWN_BYTES_MAX)).await {
            Ok(body) => Ok(Some(body)),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn write_own(&self, key: &str, body: Bytes) -> Result<(), Error> {
        let own = key.to_owned();
        self.with(move |shared| write::replace(shared, &own, &body)).await
    }

    async fn place_changed(&self) -> bool {
        self.with(|shared| Ok(shared.root.has_changed())).await.unwrap_or(false)
    }

    async fn reopen_place(&self) -> Result<(), Error> {
        self.with(|shared| shared.root.reopen()).await
    }
}

#[cfg(test)]
mod tests;
