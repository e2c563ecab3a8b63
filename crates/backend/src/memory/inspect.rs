//! Inspection and manipulation of the memory backend by tests.

use bytes::Bytes;
use s3o_model::physical_key::RESERVED_PREFIX;

use super::Memory;

impl Memory {
    /// All keys, including objects of s3o's own.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        self.lock().objects.keys().cloned().collect()
    }

    /// The bytes of a key; `None` if it does not exist.
    #[must_use]
    pub fn bytes(&self, key: &str) -> Option<Bytes> {
        self.lock().objects.get(key).map(|stored| stored.bytes.clone())
    }

    /// Bytes of all keys and unfinished uploads, without objects of s3o's own.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        let state = self.lock();
        let theirs = state.objects.iter().filter(|(key, _)| !key.starts_with(RESERVED_PREFIX));
        let stored: usize = theirs.map(|(_, stored)| stored.bytes.len()).sum();
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
        self.lock().objects.insert(key.to_owned(), stored);
    }

    /// Replaces bytes, or removes them with `None`, like a failing disk.
    pub fn corrupt(&self, key: &str, bytes: Option<Bytes>) {
        match bytes {
            Some(bytes) => self.plant(key, bytes),
            None => {
                self.lock().objects.remove(key);
            }
        }
    }
}
