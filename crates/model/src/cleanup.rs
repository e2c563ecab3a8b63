//! Cleanups: queued deletions of bytes, and the decision after each attempt.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::backoff::Backoff;
use crate::clock::Timestamp;
use crate::ids::CleanupId;
use crate::names::BackendName;
use crate::target::{ExpectedBytes, Target};

/// Why bytes are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The object was deleted.
    Delete,
    /// The object was overwritten.
    Overwrite,
    /// A write was not committed.
    PutOrphan,
    /// A part was replaced, not listed in Complete, or its upload was aborted.
    Multipart,
    /// A lifecycle rule deleted the object.
    Lifecycle,
    /// A deduplicated write found an existing copy, or bytes pinned for an abandoned write were released.
    Dedup,
    /// The object expired.
    Expiry,
    /// The content has more copies than its factor, or a copy of it was not finished.
    Replication,
    /// The copy was moved away from a draining backend.
    Drain,
    /// The copy was moved to another backend to balance the backends.
    Rebalance,
    /// A reconcile pass found bytes that no row names.
    Reconcile,
    /// A sweep removes the keys of a dead folder.
    Sweep,
}

impl Reason {
    /// Value in the catalog and in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Delete => "delete",
            Self::Overwrite => "overwrite",
            Self::PutOrphan => "put_orphan",
            Self::Multipart => "multipart",
            Self::Lifecycle => "lifecycle",
            Self::Dedup => "dedup",
            Self::Expiry => "expiry",
            Self::Replication => "replication",
            Self::Drain => "drain",
            Self::Rebalance => "rebalance",
            Self::Reconcile => "reconcile",
            Self::Sweep => "sweep",
        }
    }
}

/// A claimed cleanup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleanup {
    /// Identifier of the cleanup.
    pub id: CleanupId,
    /// Backend that stores the bytes.
    pub backend: BackendName,
    /// Key of the bytes on that backend.
    pub physical_key: String,
    /// What is deleted there; nothing else is.
    pub target: Target,
    /// The bytes to compare before every attempt, if other programs may rewrite the key.
    pub expected: Option<ExpectedBytes>,
    /// Bytes in the quota accounting.
    pub size_bytes: u64,
    /// Why the bytes are deleted; a [`Reason`] as stored.
    pub reason: String,
    /// Number of refusals so far.
    pub attempts: u32,
    /// Set if the outcome of the write is unknown: before this time, an absence proves nothing.
    pub absent_ok_after: Option<Timestamp>,
    /// True if the row is older than the last accept of its backend: the bytes may be on the store
    /// that the path led to before.
    pub older_than_accept: bool,
}

/// Filter for rows of the cleanup queue or the dead-letter queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only rows of this backend.
    pub backend: Option<BackendName>,
    /// Only rows with this reason.
    pub reason: Option<String>,
}

/// Backend upload of a physical key, as recorded in the catalog.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum BackendUpload {
    /// No upload was started.
    #[default]
    None,
    /// An upload was about to start; its ID may be lost.
    Starting,
    /// An upload with this ID was started.
    Started(String),
}

impl BackendUpload {
    const STARTING: &'static str = "?";

    /// Value of the catalog column.
    #[must_use]
    pub fn to_column(&self) -> Option<String> {
        match self {
            Self::None => None,
            Self::Starting => Some(Self::STARTING.to_owned()),
            Self::Started(id) => Some(format!("id:{id}")),
        }
    }

    /// Reads a value of `to_column`.
    #[must_use]
    pub fn from_column(column: Option<String>) -> Self {
        match column {
            None => Self::None,
            Some(text) => match text.strip_prefix("id:") {
                Some(id) => Self::Started(id.to_owned()),
                None => Self::Starting,
            },
        }
    }
}

/// Result of an attempt to delete the bytes of a cleanup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attempt {
    /// The bytes were deleted.
    Deleted,
    /// The bytes are proven absent.
    Absent,
    /// The backend is unavailable.
    Away,
    /// The outcome is unknown, for this reason.
    Unknown(String),
    /// The backend refused, for this reason.
    Refused(String),
    /// Other bytes than the expected ones are there, for this reason.
    Changed(String),
}

/// What to do with a cleanup after an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Delete the row: the bytes were deleted.
    Done,
    /// Delete the row: the bytes are absent.
    DoneAbsent,
    /// Turn the row into a finding: the bytes are absent, and the backend was accepted after the row
    /// was queued.
    AbsentAfterAccept,
    /// Turn the row into a finding: other bytes than the expected ones are there, and stay.
    Changed {
        /// How they differ.
        why: String,
    },
    /// Release the claim and keep the row: the backend is unavailable.
    Deferred,
    /// Retry later without counting an attempt.
    Wait {
        /// Delay before the retry.
        delay: Duration,
        /// Reason, stored in the row.
        why: String,
    },
    /// Retry later and count one attempt.
    Retry {
        /// Delay before the retry.
        delay: Duration,
        /// Error of the backend.
        why: String,
    },
    /// Move the row to the dead-letter queue; its bytes stay in the quota accounting.
    DeadLetter {
        /// Error of the backend.
        why: String,
    },
}

/// Retry policy for refused cleanups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// Delay between attempts.
    pub backoff: Backoff,
    /// Number of refusals after which a cleanup becomes a dead letter.
    pub max_attempts: u32,
}

impl Outcome {
    /// True if the row leaves the queue.
    #[must_use]
    pub const fn leaves(&self) -> bool {
        match self {
            Self::Done
            | Self::DoneAbsent
            | Self::AbsentAfterAccept
            | Self::Changed { .. }
            | Self::DeadLetter { .. } => true,
            Self::Deferred | Self::Wait { .. } | Self::Retry { .. } => false,
        }
    }

    /// Label value in metrics.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Done => "success",
            Self::DoneAbsent => "success_absent",
            Self::AbsentAfterAccept => "absent_after_accept",
            Self::Changed { .. } => "changed",
            Self::Deferred | Self::Wait { .. } => "deferred",
            Self::Retry { .. } => "retry",
            Self::DeadLetter { .. } => "exhausted",
        }
    }
}

/// Delay of a retry if an absence cannot be judged because the clock is not trusted.
const UNTRUSTED_CLOCK_DELAY: Duration = Duration::from_mins(1);

/// Decides what to do with a cleanup after one attempt; `now` is `None` while the clock is not trusted.
#[must_use]
pub fn judge(cleanup: &Cleanup, attempt: Attempt, now: Option<Timestamp>, retries: &Retries, jitter: f64) -> Outcome {
    match attempt {
        Attempt::Deleted => Outcome::Done,
        Attempt::Absent => match cleanup.absent_ok_after {
            // The write may still be in progress: absent bytes may appear later.
            Some(moment) if now.is_none_or(|now| now < moment) => {
                let delay = now.map_or(UNTRUSTED_CLOCK_DELAY, |now| moment.since(now));
                Outcome::Wait { delay, why: "absent, but a late write may still arrive".to_owned() }
            }
            Some(_) | None if cleanup.older_than_accept => Outcome::AbsentAfterAccept,
            Some(_) | None => Outcome::DoneAbsent,
        },
        // An outage must not count as an attempt, or it would turn the whole queue into dead letters.
        Attempt::Away => Outcome::Deferred,
        Attempt::Unknown(why) => Outcome::Wait { delay: retries.backoff.delay(1, jitter), why },
        Attempt::Changed(why) => Outcome::Changed { why },
        Attempt::Refused(why) => match cleanup.attempts.saturating_add(1) {
            refusals if refusals >= retries.max_attempts => Outcome::DeadLetter { why },
            refusals => Outcome::Retry { delay: retries.backoff.delay(refusals, jitter), why },
        },
    }
}

#[cfg(test)]
mod tests;
