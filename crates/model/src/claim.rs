//! Claims: the right to work on rows until a deadline.

use crate::ids::{ClaimToken, InstanceId};

/// The owner of a claim, and the token that proves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claimant {
    /// The process that holds the claim.
    pub instance: InstanceId,
    /// New for every claim; a settlement with another token changes nothing.
    pub token: ClaimToken,
}
