//! Inspection and manipulation of the memory backend by tests.

use bytes::Bytes;
use s3o_model::physical_key::RESERVED_PREFIX;

use super::Memory;

impl Memory {
    /// All keys, including objects of s3o's own.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        self.lock().objects.current().map(|(key, _)| key.clone()).collect()
    }

    /// The bytes of a key; `None` if it does not exist.
    #[must_use]
    pub fn bytes(&self, key: &str) -> Option<Bytes> {
        self.lock().objects.find(key.into()).map(|(_, stored)| stored.bytes.clone())
    }

    /// Bytes of all versions of all keys and of unfinished uploads, without objects of s3o's own.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        let state = self.lock();
        let theirs = state.objects.all().filter(|(key, _)| !key.starts_with(RESERVED_PREFIX));
        let objects = theirs.filter_map(|(_, version)| version.object.as_ref());
        let stored: usize = objects.map(|object| object.bytes.len()).sum();
        let parts = state.uploads.values().flat_map(|upload| upload.parts.values());
        let unfinished: usize = parts.map(|(_, bytes)| bytes.len()).sum();
        (stored + unfinished) as u64
    }

    /// Number of unfinished uploads.
    #[must_use]
    pub fn uploads(&self) -> usize {
        self.lock().uploads.len()
    }

    /// Number of calls of a trait method, by its name.
    #[must_use]
    pub fn calls(&self, operation: &str) -> u64 {
        self.lock().calls.get(operation).copied().unwrap_or(0)
    }

    /// Keys with more than one attempt to write them; empty in a correct run.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.lock().violations.clone()
    }

    /// Stores or replaces bytes without a write by s3o, like a foreign program.
    pub fn plant(&self, key: &str, bytes: Bytes) {
        let stored = self.stored(bytes, None);
        self.lock().objects.store(key, Some(stored));
    }

    /// Keeps every version that is written from now on.
    pub fn keep_versions(&self) {
        self.lock().objects.keep_versions();
    }

    /// Adds a delete marker, like a delete by a foreign program on a backend that keeps versions.
    pub fn plant_delete_marker(&self, key: &str) {
        self.lock().objects.store(key, None);
    }

    /// The versions of a key, oldest first: the ID and the bytes, `None` for a delete marker.
    #[must_use]
    pub fn versions(&self, key: &str) -> Vec<(String, Option<Bytes>)> {
        let state = self.lock();
        let of_key = state.objects.all().filter(|(name, _)| *name == key);
        let bytes = |object: &super::MemoryObject| object.bytes.clone();
        of_key.map(|(_, version)| (version.id.clone(), version.object.as_ref().map(bytes))).collect()
    }

    /// Replaces bytes, or removes them with `None`, like a failing disk.
    pub fn corrupt(&self, key: &str, bytes: Option<Bytes>) {
        let stored = bytes.map(|bytes| self.stored(bytes, None));
        self.lock().objects.damage(key, stored);
    }
}
