//! Quota accounting of backends.

use crate::names::BackendName;

/// Quota accounting of one backend, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaUsage {
    /// Name of the backend.
    pub backend: BackendName,
    /// Configured limit; `None` means no limit.
    pub limit_bytes: Option<u64>,
    /// Bytes of locations.
    pub used_bytes: u64,
    /// Bytes that wait for their cleanup.
    pub orphan_bytes: u64,
    /// Bytes reserved by open intents.
    pub reserved_bytes: u64,
}

impl QuotaUsage {
    /// Limit minus used and orphan bytes; reservations count as free. `None` means no limit.
    #[must_use]
    pub fn free_bytes(&self) -> Option<u64> {
        let taken = self.used_bytes.saturating_add(self.orphan_bytes);
        self.limit_bytes.map(|limit| limit.saturating_sub(taken))
    }

    /// Free bytes minus reservations; `None` means no limit.
    #[must_use]
    pub fn available_bytes(&self) -> Option<u64> {
        self.free_bytes().map(|free| free.saturating_sub(self.reserved_bytes))
    }
}
