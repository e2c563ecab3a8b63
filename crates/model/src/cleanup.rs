//! Cleanups: rows that say which bytes must go, and what becomes of them after an attempt.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::backoff::Backoff;
use crate::clock::Timestamp;
use crate::ids::CleanupId;
use crate::names::BackendName;

/// Why bytes must go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The object was deleted.
    Delete,
    /// The object was overwritten.
    Overwrite,
    /// A write was not committed.
    PutOrphan,
    /// A part was replaced, left out or given up.
    Multipart,
    /// A lifecycle rule removed the object.
    Lifecycle,
    /// The same bytes were there already, or were kept for a write that came to nothing.
    Dedup,
    /// The object expired.
    Expiry,
}

impl Reason {
    /// The word stored in the catalog and shown in metrics.
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
        }
    }
}

/// A claimed cleanup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleanup {
    /// Its identifier.
    pub id: CleanupId,
    /// The backend that holds the bytes.
    pub backend: BackendName,
    /// Their physical key.
    pub physical_key: String,
    /// The backend's version id, where one was recorded.
    pub backend_version: Option<String>,
    /// What is known of a backend upload under that key.
    pub upload: BackendUpload,
    /// How many bytes the books hold for it.
    pub size_bytes: u64,
    /// Why the bytes must go, in the queue's words.
    pub reason: String,
    /// How often the backend refused.
    pub attempts: u32,
    /// Set when the write's outcome was unknown: before this moment, absence proves nothing.
    pub absent_ok_after: Option<Timestamp>,
    /// Whether the row is older than an operator's accept of the backend as it was found: the bytes
    /// may be on the store that was there before.
    pub older_than_accept: bool,
}

/// Which rows of the queue, or of the dead letters, are meant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only those of this backend.
    pub backend: Option<BackendName>,
    /// Only those with this reason.
    pub reason: Option<String>,
}

/// What the catalog knows of a backend upload.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum BackendUpload {
    /// There is none.
    #[default]
    None,
    /// One was about to start; its id may have been lost.
    Starting,
    /// One was started under this id.
    Started(String),
}

impl BackendUpload {
    const STARTING: &'static str = "?";

    /// The text stored in the catalog.
    #[must_use]
    pub fn to_column(&self) -> Option<String> {
        match self {
            Self::None => None,
            Self::Starting => Some(Self::STARTING.to_owned()),
            Self::Started(id) => Some(format!("id:{id}")),
        }
    }

    /// Reads what `to_column` wrote.
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

/// What an attempt to delete came to, in the words of the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attempt {
    /// The bytes are gone.
    Deleted,
    /// There was nothing to delete, and that is proven.
    Absent,
    /// The backend is away.
    Away,
    /// Nobody can tell.
    Unknown(String),
    /// The backend refuses.
    Refused(String),
}

/// What becomes of a cleanup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The row goes; the bytes are off the bill.
    Done,
    /// The row goes; the bytes were never there or went before.
    DoneAbsent,
    /// The row becomes a finding: the bytes are not there, and the backend was accepted as it was
    /// found after they had to go.
    AbsentAfterAccept,
    /// The backend is away: the claim goes, the row stays as it was.
    Deferred,
    /// Look again later; no attempt is spent.
    Wait {
        /// How long.
        delay: Duration,
        /// Why.
        why: String,
    },
    /// Try again later; one attempt is spent.
    Retry {
        /// How long.
        delay: Duration,
        /// What the backend said.
        why: String,
    },
    /// The last attempt is spent: the row becomes a dead letter, its bytes stay in the books.
    DeadLetter {
        /// What the backend said.
        why: String,
    },
}

/// How refused cleanups are tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// How long they wait.
    pub backoff: Backoff,
    /// The refusal that is the last.
    pub max_attempts: u32,
}

impl Outcome {
    /// Whether the row has left the queue.
    #[must_use]
    pub const fn leaves(&self) -> bool {
        match self {
            Self::Done | Self::DoneAbsent | Self::AbsentAfterAccept | Self::DeadLetter { .. } => true,
            Self::Deferred | Self::Wait { .. } | Self::Retry { .. } => false,
        }
    }

    /// The word for it in metrics.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Done => "success",
            Self::DoneAbsent => "success_absent",
            Self::AbsentAfterAccept => "absent_after_accept",
            Self::Deferred | Self::Wait { .. } => "deferred",
            Self::Retry { .. } => "retry",
            Self::DeadLetter { .. } => "exhausted",
        }
    }
}

/// When a row is looked at again whose absence cannot be judged because the clock is not trusted.
const UNTRUSTED_CLOCK_REST: Duration = Duration::from_mins(1);

/// Decides what becomes of a cleanup after one attempt; `now` is absent while the clock is not trusted.
#[must_use]
pub fn judge(cleanup: &Cleanup, attempt: Attempt, now: Option<Timestamp>, retries: &Retries, jitter: f64) -> Outcome {
    match attempt {
        Attempt::Deleted => Outcome::Done,
        Attempt::Absent => match cleanup.absent_ok_after {
            // The write may still be on its way: what is absent now can appear later.
            Some(moment) if now.is_none_or(|now| now < moment) => {
                let delay = now.map_or(UNTRUSTED_CLOCK_REST, |now| moment.since(now));
                Outcome::Wait { delay, why: "absent, but a late write may still land".to_owned() }
            }
            Some(_) | None if cleanup.older_than_accept => Outcome::AbsentAfterAccept,
            Some(_) | None => Outcome::DoneAbsent,
        },
        // An outage must not spend the row's attempts, or it would give up on everything.
        Attempt::Away => Outcome::Deferred,
        Attempt::Unknown(why) => Outcome::Wait { delay: retries.backoff.delay(1, jitter), why },
        Attempt::Refused(why) => match cleanup.attempts.saturating_add(1) {
            refusals if refusals >= retries.max_attempts => Outcome::DeadLetter { why },
            refusals => Outcome::Retry { delay: retries.backoff.delay(refusals, jitter), why },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::{Attempt, BackendUpload, Cleanup, Outcome, Retries, judge};
    use crate::backoff::Backoff;
    use crate::clock::Timestamp;
    use crate::ids::CleanupId;
    use std::time::Duration;

    const NOW: Timestamp = Timestamp::from_millis(10_000);
    const BACKOFF: Backoff = Backoff { min: Duration::from_mins(1), max: Duration::from_hours(1) };
    const RETRIES: Retries = Retries { backoff: BACKOFF, max_attempts: 10 };

    fn cleanup(attempts: u32, absent_ok_after: Option<i64>) -> Cleanup {
        Cleanup {
            id: CleanupId(1),
            backend: "disk".parse().expect("valid"),
            physical_key: "b/k~1".to_owned(),
            backend_version: None,
            upload: BackendUpload::None,
            size_bytes: 1,
            reason: "delete".to_owned(),
            attempts,
            absent_ok_after: absent_ok_after.map(Timestamp::from_millis),
            older_than_accept: false,
        }
    }

    fn verdict(row: &Cleanup, attempt: Attempt) -> Outcome {
        judge(row, attempt, Some(NOW), &RETRIES, 1.0)
    }

    #[test]
    fn an_absence_is_not_judged_by_a_clock_that_is_not_trusted() {
        let passed = cleanup(0, Some(1));
        assert_eq!(verdict(&passed, Attempt::Absent), Outcome::DoneAbsent);
        let doubted = |row: &Cleanup, attempt| judge(row, attempt, None, &RETRIES, 1.0);
        assert!(matches!(doubted(&passed, Attempt::Absent), Outcome::Wait { .. }));
        assert_eq!(doubted(&passed, Attempt::Deleted), Outcome::Done);
        assert_eq!(doubted(&cleanup(0, None), Attempt::Absent), Outcome::DoneAbsent, "no late write is expected");
    }

    #[test]
    fn an_outage_spends_no_attempt() {
        assert_eq!(verdict(&cleanup(3, None), Attempt::Away), Outcome::Deferred);
    }

    #[test]
    fn refusals_back_off_further_each_time() {
        let wait = |attempts| match verdict(&cleanup(attempts, None), Attempt::Refused("no".into())) {
            Outcome::Retry { delay, .. } => delay.as_secs(),
            other => panic!("{other:?}"),
        };
        assert_eq!([wait(0), wait(1), wait(2)], [60, 120, 240]);
    }

    #[test]
    fn the_last_refusal_makes_a_dead_letter() {
        let refused = || Attempt::Refused("no".into());
        assert!(matches!(verdict(&cleanup(8, None), refused()), Outcome::Retry { .. }));
        for attempts in [9, 10, u32::MAX] {
            let dead = verdict(&cleanup(attempts, None), refused());
            assert_eq!(dead, Outcome::DeadLetter { why: "no".into() });
            assert!(dead.leaves() && dead.as_str() == "exhausted");
        }
    }

    #[test]
    fn only_refusals_make_dead_letters() {
        for attempt in [Attempt::Away, Attempt::Unknown("lost".into())] {
            assert!(!verdict(&cleanup(9, None), attempt).leaves());
        }
        assert_eq!(verdict(&cleanup(9, None), Attempt::Deleted), Outcome::Done);
    }

    #[test]
    fn absence_counts_only_once_no_late_write_can_land() {
        assert_eq!(verdict(&cleanup(0, None), Attempt::Absent), Outcome::DoneAbsent);
        assert_eq!(verdict(&cleanup(0, Some(10_000)), Attempt::Absent), Outcome::DoneAbsent);
        let older = Cleanup { older_than_accept: true, ..cleanup(0, None) };
        assert_eq!(verdict(&older, Attempt::Absent), Outcome::AbsentAfterAccept);
        assert_eq!(verdict(&older, Attempt::Deleted), Outcome::Done);
        let Outcome::Wait { delay, .. } = verdict(&cleanup(0, Some(12_500)), Attempt::Absent) else { panic!() };
        assert_eq!(delay, Duration::from_millis(2_500));
    }

    #[test]
    fn a_late_write_that_was_found_is_done() {
        assert_eq!(verdict(&cleanup(0, Some(99_999)), Attempt::Deleted), Outcome::Done);
    }

    #[test]
    fn what_is_known_of_an_upload_survives_the_catalog() {
        for upload in [BackendUpload::None, BackendUpload::Starting, BackendUpload::Started("?".into())] {
            assert_eq!(BackendUpload::from_column(upload.to_column()), upload);
        }
    }
}
