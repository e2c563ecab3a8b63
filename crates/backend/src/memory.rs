//! A backend in memory for tests, which can inspect it.
//!
//! It records every key that was ever written. A second write to a key, even after a delete, is refused and recorded as
//! a violation.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use md5::{Digest, Md5};
use parking_lot::{Mutex, MutexGuard};
use s3o_model::clock::Clock;
use s3o_model::names::BackendName;
use s3o_model::physical_key::NameStyle;
use s3o_model::target::{ExpectedBytes, KeyVersion};

use crate::{
    Backend, ByteStream, DeleteAnswer, DeleteKey, Error, ExpectedDelete, Page, PartOf, Probe, Span, Traits,
    UnfinishedUpload, UploadedPart, UploadsPage, VersionPosition, VersionsPage, Written, body,
};
use s3o_model::etag::hex;
use versions::{MemoryObject, MemoryObjects};

mod inspect;
#[cfg(test)]
mod tests;
mod versions;

/// Maximum number of unfinished uploads of a page.
const UPLOADS_PAGE_MAX: usize = 1000;

/// Keeps all bytes in memory; implements the whole contract except durability.
pub struct Memory {
    name: BackendName,
    put_bytes_max: u64,
    clock: Option<Arc<dyn Clock>>,
    state: Mutex<MemoryState>,
}

#[derive(Default)]
struct MemoryState {
    objects: MemoryObjects,
    uploads: BTreeMap<String, MemoryUpload>,
    uploads_started: u64,
    ever_written: BTreeSet<String>,
    violations: Vec<String>,
    calls: BTreeMap<&'static str, u64>,
}

struct MemoryUpload {
    key: String,
    parts: BTreeMap<u32, (String, Bytes)>,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Memory {
    /// An empty backend without limits.
    #[must_use]
    pub fn new(name: BackendName) -> Self {
        Self { name, put_bytes_max: u64::MAX, clock: None, state: Mutex::default() }
    }

    /// Limits the size of one `put`, so that larger bodies need an upload.
    #[must_use]
    pub fn with_put_bytes_max(mut self, put_bytes_max: u64) -> Self {
        self.put_bytes_max = put_bytes_max;
        self
    }

    /// Sets the modification time of keys from this clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Keeps every version that is written, like a versioned bucket.
    #[must_use]
    pub fn with_versions(self) -> Self {
        self.keep_versions();
        self
    }

    fn lock(&self) -> MutexGuard<'_, MemoryState> {
        self.state.lock()
    }

    fn count(&self, operation: &'static str) {
        *self.lock().calls.entry(operation).or_default() += 1;
    }

    fn stored(&self, bytes: Bytes, etag: Option<String>) -> MemoryObject {
        let etag = etag.unwrap_or_else(|| hex(&Md5::digest(&bytes)));
        MemoryObject { bytes, etag, modified: self.clock.as_ref().map(|clock| clock.now()) }
    }

    fn store_once(&self, key: &str, stored: MemoryObject) -> Result<Written, Error> {
        let mut state = self.lock();
        if !state.ever_written.insert(key.to_owned()) || state.objects.find(key.into()).is_some() {
            state.violations.push(key.to_owned());
            return Err(Error::Refused(format!("{key} was written before")));
        }
        let (size_bytes, etag) = (stored.bytes.len() as u64, Some(stored.etag.clone()));
        let version_id = state.objects.store(key, Some(stored));
        Ok(Written { size_bytes, etag, version_id })
    }
}

fn slice(bytes: &Bytes, span: Option<Span>) -> Result<Bytes, Error> {
    let Some(Span { offset, length }) = span else { return Ok(bytes.clone()) };
    match offset.checked_add(length) {
        Some(end) if end <= bytes.len() as u64 => {
            let (start, end) = (usize::try_from(offset), usize::try_from(end));
            Ok(bytes.slice(start.unwrap_or(usize::MAX)..end.unwrap_or(usize::MAX)))
        }
        _ => Err(Error::Refused("the span reaches beyond the end of the object".to_owned())),
    }
}

/// Joins the named parts and computes the ETag of the upload.
fn join(upload: &MemoryUpload, named: &[UploadedPart]) -> Result<(Bytes, String), Error> {
    let (mut bytes, mut digests) = (BytesMut::new(), Md5::new());
    let mut previous = 0;
    for part in named {
        let Some((etag, content)) = upload.parts.get(&part.number).filter(|(etag, _)| *etag == part.etag) else {
            return Err(Error::Refused(format!("part {} does not exist", part.number)));
        };
        if part.number <= previous {
            return Err(Error::Refused("parts are not in order".to_owned()));
        }
        previous = part.number;
        bytes.extend_from_slice(content);
        digests.update(etag.as_bytes());
    }
    Ok((bytes.freeze(), format!("{}-{}", hex(&digests.finalize()), named.len())))
}

#[async_trait]
impl Backend for Memory {
    fn name(&self) -> &BackendName {
        &self.name
    }

    fn put_bytes_max(&self) -> u64 {
        self.put_bytes_max
    }

    async fn probe_traits(&self) -> Result<Traits, Error> {
        self.count("probe_traits");
        let keeps_versions = self.lock().objects.keeps_versions();
        Ok(Traits { name_style: NameStyle::Exact, etag_is_md5: true, keeps_versions, clock_skew_ms: None })
    }

    async fn put(&self, key: &str, size_bytes: u64, body: ByteStream) -> Result<Written, Error> {
        self.count("put");
        if size_bytes > self.put_bytes_max {
            return Err(Error::Refused(format!(
                "a put of {size_bytes} bytes exceeds the limit of {}",
                self.put_bytes_max
            )));
        }
        let bytes = body::collect(body, size_bytes).await?;
        self.store_once(key, self.stored(bytes, None))
    }

    async fn get(&self, at: KeyVersion<'_>, span: Option<Span>) -> Result<ByteStream, Error> {
        self.count("get");
        let state = self.lock();
        let (_, stored) = state.objects.find(at).ok_or(Error::NotFound)?;
        slice(&stored.bytes, span).map(body::whole)
    }

    async fn probe(&self, at: KeyVersion<'_>) -> Probe {
        self.count("probe");
        self.lock().objects.present(at).map_or(Probe::Absent, Probe::Present)
    }

    async fn delete_batch(&self, doomed: &[DeleteKey]) -> Vec<DeleteAnswer> {
        self.count("delete_batch");
        let mut state = self.lock();
        doomed.iter().map(|doomed| state.objects.delete(doomed)).collect()
    }

    async fn delete_expected(&self, target: &DeleteKey, expected: &ExpectedBytes) -> ExpectedDelete {
        self.count("delete_expected");
        let mut state = self.lock();
        let at = KeyVersion::new(&target.key, target.version_id.as_deref());
        let Some(found) = state.objects.present(at) else { return ExpectedDelete::Answered(DeleteAnswer::Absent) };
        match expected.difference(&found.expected()) {
            Some(why) => ExpectedDelete::Changed(why),
            None => ExpectedDelete::Answered(state.objects.delete(target)),
        }
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, Error> {
        self.count("list");
        Ok(self.lock().objects.list(prefix, after, limit))
    }

    async fn list_versions(
        &self,
        prefix: &str,
        after: Option<&VersionPosition>,
        limit: usize,
    ) -> Result<VersionsPage, Error> {
        self.count("list_versions");
        let state = self.lock();
        if !state.objects.keeps_versions() {
            return Err(Error::Unsupported("versions on a backend in memory without them"));
        }
        Ok(state.objects.list_versions(prefix, after, limit))
    }

    async fn start_upload(&self, key: &str) -> Result<String, Error> {
        self.count("start_upload");
        let mut state = self.lock();
        state.uploads_started += 1;
        let upload = format!("upload-{}", state.uploads_started);
        state.uploads.insert(upload.clone(), MemoryUpload { key: key.to_owned(), parts: BTreeMap::new() });
        Ok(upload)
    }

    async fn put_part(&self, part: PartOf<'_>, size_bytes: u64, body: ByteStream) -> Result<UploadedPart, Error> {
        self.count("put_part");
        if size_bytes > self.put_bytes_max {
            return Err(Error::Refused(format!(
                "a part of {size_bytes} bytes exceeds the limit of {}",
                self.put_bytes_max
            )));
        }
        let bytes = body::collect(body, size_bytes).await?;
        let etag = hex(&Md5::digest(&bytes));
        let mut state = self.lock();
        let upload = state.uploads.get_mut(part.upload).filter(|upload| upload.key == part.key);
        let upload = upload.ok_or_else(|| Error::Refused("no such upload".to_owned()))?;
        upload.parts.insert(part.number, (etag.clone(), bytes));
        Ok(UploadedPart { number: part.number, etag })
    }

    async fn finish_upload(&self, key: &str, upload: &str, parts: &[UploadedPart]) -> Result<Written, Error> {
        self.count("finish_upload");
        let (bytes, etag) = {
            let state = self.lock();
            let found = state.uploads.get(upload).filter(|found| found.key == key);
            join(found.ok_or_else(|| Error::Refused("no such upload".to_owned()))?, parts)?
        };
        let written = self.store_once(key, self.stored(bytes, Some(etag)))?;
        self.lock().uploads.remove(upload);
        Ok(written)
    }

    async fn abort_upload(&self, key: &str, upload: &str) -> DeleteAnswer {
        self.count("abort_upload");
        let mut state = self.lock();
        if state.uploads.get(upload).is_none_or(|found| found.key != key) {
            return DeleteAnswer::Absent;
        }
        state.uploads.remove(upload);
        DeleteAnswer::Deleted
    }

    async fn uploads_of(&self, key: &str) -> Result<Vec<String>, Error> {
        self.count("uploads_of");
        let state = self.lock();
        let of_key = state.uploads.iter().filter(|(_, upload)| upload.key == key);
        Ok(of_key.map(|(id, _)| id.clone()).collect())
    }

    async fn list_uploads(&self, from: Option<&UnfinishedUpload>) -> Result<UploadsPage, Error> {
        self.count("list_uploads");
        let state = self.lock();
        let unfinished =
            |(id, upload): (&String, &MemoryUpload)| UnfinishedUpload { key: upload.key.clone(), upload: id.clone() };
        let mut items: Vec<_> = state.uploads.iter().map(unfinished).filter(|found| Some(found) > from).collect();
        items.sort();
        let more = items.len() > UPLOADS_PAGE_MAX;
        items.truncate(UPLOADS_PAGE_MAX);
        let next = if more { items.last().cloned() } else { None };
        Ok(UploadsPage { items, next })
    }

    async fn read_own(&self, key: &str) -> Result<Option<Bytes>, Error> {
        self.count("read_own");
        Ok(self.bytes(key))
    }

    async fn write_own(&self, key: &str, body: Bytes) -> Result<(), Error> {
        self.count("write_own");
        self.plant(key, body);
        Ok(())
    }
}
