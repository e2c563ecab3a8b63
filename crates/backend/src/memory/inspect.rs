//! What tests see of a backend in memory, and how they tamper with it behind s3o's back.

use bytes::Bytes;
use s3o_model::physical_key::RESERVED_PREFIX;

use super::Memory;

impl Memory {
    /// Every key that is there, s3o's own included.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        self.lock().objects.keys().cloned().collect()
    }

    /// The bytes under a key, if any.
    #[must_use]
    pub fn bytes(&self, key: &str) -> Option<Bytes> {
        self.lock().objects.get(key).map(|stored| stored.bytes.clone())
    }

    /// The bytes of all keys and of all unfinished uploads, s3o's own left out.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        let state = self.lock();
        let theirs = state.objects.iter().filter(|(key, _)| !key.starts_with(RESERVED_PREFIX));
        let stored: usize = theirs.map(|(_, stored)| stored.bytes.len()).sum();
        let parts = state.uploads.values().flat_map(|upload| upload.parts.values());
        let unfinished: usize = parts.map(|(_, bytes)| bytes.len()).sum();
        (stored + unfinished) as u64
    }

    /// How many uploads are neither finished nor aborted.
    #[must_use]
    pub fn uploads(&self) -> usize {
        self.lock().uploads.len()
    }

    /// How often an operation was called, by the name of its trait method.
    #[must_use]
    pub fn calls(&self, operation: &str) -> u64 {
        self.lock().calls.get(operation).copied().unwrap_or(0)
    }

    /// The keys that someone tried to write a second time; empty in a healthy run.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.lock().violations.clone()
    }

    /// Places bytes behind s3o's back, as a stranger would.
    pub fn plant(&self, key: &str, bytes: Bytes) {
        let stored = self.stored(bytes, None);
        self.lock().objects.insert(key.to_owned(), stored);
    }

    /// Loses or replaces bytes behind s3o's back, as a failing disk would; `None` loses them.
    pub fn corrupt(&self, key: &str, bytes: Option<Bytes>) {
        match bytes {
            Some(bytes) => self.plant(key, bytes),
            None => {
                self.lock().objects.remove(key);
            }
        }
    }
}
