//! A folder as a backend.
//!
//! All calls work below one directory handle and never follow a symbolic link. A file has all of its
//! bytes or does not exist. Acknowledged writes survive a power cut. A disk that is not mounted is
//! reported as away, never as empty.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use s3o_model::entropy::{Entropy, SystemEntropy};
use s3o_model::names::BackendName;
use s3o_model::target::{ExpectedBytes, KeyVersion};

use tokio::sync::Semaphore;

use crate::{
    Backend, ByteStream, DeleteAnswer, DeleteKey, Error, ExpectedDelete, Page, PartOf, Probe, Span, Traits,
    UnfinishedUpload, UploadedPart, UploadsPage, VersionPosition, VersionsPage, Written,
};

mod attributes;
mod cached;
mod failure;
mod folders;
mod list;
mod list_windows;
mod read;
mod remove;
mod remove_expected;
mod root;
mod syncs;
mod write;

/// Largest size of an object of s3o's own.
const OWN_BYTES_MAX: u64 = 1024 * 1024;

const NO_VERSIONS: &str = "versions on a folder, which has one file for each key";
const NO_UPLOADS: &str = "backend uploads on a folder, which takes any body in one put";

/// Options of a folder backend.
#[derive(Clone)]
pub struct FsOptions {
    /// True to create a missing root. Only for a root that the catalog never knew: a known root
    /// that is missing is a disk that is not mounted.
    pub create: bool,
    /// Source of names for probe files.
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
    state: Arc<FsState>,
}

/// State that blocking calls use on their thread.
struct FsState {
    /// Limits the threads that wait for this disk.
    threads: DiskThreads,
    root: root::RootFolder,
    unsynced_folders: folders::UnsyncedFolders,
    /// Each object of s3o's own has one draft file, so they are written one at a time.
    own_writes: Mutex<()>,
    /// Names that listings have read and not returned yet.
    list_windows: list_windows::ListWindows,
    entropy: Arc<dyn Entropy>,
}

impl fmt::Debug for Fs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fs").field("name", &self.name).field("root", &self.state.root).finish_non_exhaustive()
    }
}

impl Fs {
    /// A backend in the folder at `root`. A disk that is not mounted yet is no error: calls return
    /// `Away` until it is.
    #[must_use]
    pub fn open(name: BackendName, root: PathBuf, options: FsOptions) -> Self {
        let state = FsState {
            threads: DiskThreads::default(),
            root: root::RootFolder::new(root, options.create),
            unsynced_folders: folders::UnsyncedFolders::default(),
            own_writes: Mutex::new(()),
            list_windows: list_windows::ListWindows::default(),
            entropy: options.entropy,
        };
        Self { name, state: Arc::new(state) }
    }

    async fn with<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&FsState) -> Result<T, Error> + Send + 'static,
    {
        let state = Arc::clone(&self.state);
        self.state.threads.run(move || work(&state)).await
    }
}

/// Largest number of threads per folder. A disk that hangs blocks each of them, even after the request was
/// cancelled; the runtime has several times as many for everything else.
const THREADS_MAX: usize = 128;

/// Runs blocking calls on a bounded number of threads.
#[derive(Clone)]
struct DiskThreads(Arc<Semaphore>);

impl Default for DiskThreads {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(THREADS_MAX)))
    }
}

impl DiskThreads {
    /// Runs a blocking call on its own thread.
    async fn run<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce() -> Result<T, Error> + Send + 'static,
    {
        let permit = Arc::clone(&self.0).acquire_owned().await.expect("the semaphore is never closed");
        let call = tokio::task::spawn_blocking(move || {
            let answer = work();
            drop(permit);
            answer
        });
        match call.await {
            Ok(answer) => answer,
            Err(lost) => Err(Error::Unknown(format!("the blocking call panicked: {lost}"))),
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
        write::put(Arc::clone(&self.state), key.to_owned(), size_bytes, body).await
    }

    async fn get(&self, at: KeyVersion<'_>, span: Option<Span>) -> Result<ByteStream, Error> {
        if at.version_id.is_some() {
            return Err(Error::Unsupported(NO_VERSIONS));
        }
        read::get(Arc::clone(&self.state), at.key.to_owned(), span).await
    }

    async fn probe(&self, at: KeyVersion<'_>) -> Probe {
        if at.version_id.is_some() {
            return Probe::Unknown(NO_VERSIONS.to_owned());
        }
        let key = at.key.to_owned();
        let answer = self.with(move |state| Ok(read::probe(state, &key))).await;
        answer.unwrap_or_else(|error| Probe::Unknown(error.to_string()))
    }

    async fn delete_batch(&self, targets: &[DeleteKey]) -> Vec<DeleteAnswer> {
        let files: Vec<String> =
            targets.iter().filter(|target| target.version_id.is_none()).map(|target| target.key.clone()).collect();
        let count = files.len();
        let answers = self.with(move |state| Ok(remove::delete_batch(state, &files))).await;
        let mut answers =
            answers.unwrap_or_else(|error| vec![DeleteAnswer::Unknown(error.to_string()); count]).into_iter();
        let answer = |target: &DeleteKey| match target.version_id {
            Some(_) => DeleteAnswer::Refused(NO_VERSIONS.to_owned()),
            None => answers.next().unwrap_or_else(|| DeleteAnswer::Unknown("no answer for this key".to_owned())),
        };
        targets.iter().map(answer).collect()
    }

    async fn delete_expected(&self, target: &DeleteKey, expected: &ExpectedBytes) -> ExpectedDelete {
        if target.version_id.is_some() {
            return ExpectedDelete::Answered(DeleteAnswer::Refused(NO_VERSIONS.to_owned()));
        }
        let (key, expected) = (target.key.clone(), expected.clone());
        let answer = self.with(move |state| Ok(remove_expected::delete(state, &key, &expected))).await;
        answer.unwrap_or_else(|error| ExpectedDelete::Answered(DeleteAnswer::Unknown(error.to_string())))
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, Error> {
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        self.with(move |state| list::list(state, &prefix, after.as_deref(), limit)).await
    }

    async fn list_versions(
        &self,
        _prefix: &str,
        _after: Option<&VersionPosition>,
        _limit: usize,
    ) -> Result<VersionsPage, Error> {
        Err(Error::Unsupported(NO_VERSIONS))
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
        match self.with(move |state| read::read_small(state, &own, OWN_BYTES_MAX)).await {
            Ok(body) => Ok(Some(body)),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn write_own(&self, key: &str, body: Bytes) -> Result<(), Error> {
        let own = key.to_owned();
        self.with(move |state| write::replace(state, &own, &body)).await
    }

    async fn store_changed(&self) -> bool {
        self.with(|state| Ok(state.root.has_changed())).await.unwrap_or(false)
    }

    async fn reopen_store(&self) -> Result<(), Error> {
        self.with(|state| state.root.reopen()).await
    }

    async fn trust_store(&self) {
        self.state.root.trust();
    }
}

#[cfg(test)]
mod tests;
