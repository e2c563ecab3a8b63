//! Claims: the right to work on rows until a moment.

use crate::ids::{ClaimToken, InstanceId};

/// Who takes a claim, and the proof it gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claimant {
    /// The process that works.
    pub instance: InstanceId,
    /// Fresh for every claim; a settlement with another token changes nothing.
    pub token: ClaimToken,
}
