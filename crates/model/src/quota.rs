//! Room: what a backend may hold and what it holds.

use crate::names::BackendName;

/// The books of one backend, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Books {
    /// The backend.
    pub backend: BackendName,
    /// What it may hold; `None` means no limit.
    pub limit_bytes: Option<u64>,
    /// Bytes in locations.
    pub used_bytes: u64,
    /// Bytes that wait for cleanup.
    pub orphan_bytes: u64,
    /// Bytes reserved by open intents.
    pub reserved_bytes: u64,
}

impl Books {
    /// What is neither stored nor waits for cleanup, reserved or not; `None` means no limit.
    #[must_use]
    pub fn free_bytes(&self) -> Option<u64> {
        let taken = self.used_bytes.saturating_add(self.orphan_bytes);
        self.limit_bytes.map(|limit| limit.saturating_sub(taken))
    }

    /// What is still free; `None` means no limit.
    #[must_use]
    pub fn available_bytes(&self) -> Option<u64> {
        self.free_bytes().map(|free| free.saturating_sub(self.reserved_bytes))
    }
}
