//! Dead letters: cleanups that were refused too often, and what discarding one means.

use crate::cleanup::BackendUpload;
use crate::clock::Timestamp;
use crate::ids::{CleanupId, DeadLetterId};
use crate::names::BackendName;

/// A cleanup that was refused too often. Its bytes still are on the backend and in its books.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Its identifier.
    pub id: DeadLetterId,
    /// The number under which the cleanup was first queued.
    pub original_id: CleanupId,
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
    /// What the backend said last.
    pub last_error: Option<String>,
    /// Set when the write's outcome was unknown: before this moment, absence proves nothing.
    pub absent_ok_after: Option<Timestamp>,
    /// When the bytes were condemned.
    pub created_at: Timestamp,
    /// When the last attempt was spent.
    pub dead_since: Timestamp,
}

/// What a look at a dead letter's bytes found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// They are there.
    Present,
    /// They are not there, and that is proven.
    Absent,
    /// Nobody can tell.
    Unknown(String),
}

/// What discarding a dead letter comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Discarding {
    /// The bytes are gone: the row goes, and its bytes leave the books.
    Gone,
    /// The row goes and its bytes leave the books, though they may be on the backend: a finding says so.
    WrittenOff(String),
    /// The bytes are there.
    StillThere,
    /// Nobody proved that they are gone.
    NotProven(String),
}

/// Decides whether a dead letter may be discarded. Only `force` parts the books from the bytes.
#[must_use]
pub fn judge_discard(letter: &DeadLetter, found: Found, now: Timestamp, force: bool) -> Discarding {
    let late = letter.absent_ok_after.is_some_and(|moment| now < moment);
    match found {
        Found::Absent if !late => Discarding::Gone,
        Found::Present if force => Discarding::WrittenOff("the bytes are there".to_owned()),
        Found::Present => Discarding::StillThere,
        Found::Absent => not_proven("absent, but a late write may still land".to_owned(), force),
        Found::Unknown(why) => not_proven(why, force),
    }
}

fn not_proven(why: String, force: bool) -> Discarding {
    if force { Discarding::WrittenOff(why) } else { Discarding::NotProven(why) }
}

#[cfg(test)]
mod tests {
    use super::{DeadLetter, Discarding, Found, judge_discard};
    use crate::cleanup::BackendUpload;
    use crate::clock::Timestamp;
    use crate::ids::{CleanupId, DeadLetterId};

    const NOW: Timestamp = Timestamp::from_millis(10_000);

    fn letter(absent_ok_after: Option<i64>) -> DeadLetter {
        DeadLetter {
            id: DeadLetterId(1),
            original_id: CleanupId(7),
            backend: "disk".parse().expect("valid"),
            physical_key: "b/k~1".to_owned(),
            backend_version: None,
            upload: BackendUpload::None,
            size_bytes: 1,
            reason: "delete".to_owned(),
            attempts: 10,
            last_error: None,
            absent_ok_after: absent_ok_after.map(Timestamp::from_millis),
            created_at: NOW,
            dead_since: NOW,
        }
    }

    #[test]
    fn what_is_gone_leaves_no_finding_even_by_force() {
        for force in [false, true] {
            assert_eq!(judge_discard(&letter(None), Found::Absent, NOW, force), Discarding::Gone);
            assert_eq!(judge_discard(&letter(Some(10_000)), Found::Absent, NOW, force), Discarding::Gone);
        }
    }

    #[test]
    fn what_may_be_there_is_written_off_only_by_force() {
        let judged = |found, force| judge_discard(&letter(Some(10_001)), found, NOW, force);
        assert_eq!(judged(Found::Present, false), Discarding::StillThere);
        assert_eq!(judged(Found::Unknown("lost".into()), false), Discarding::NotProven("lost".into()));
        assert!(matches!(judged(Found::Absent, false), Discarding::NotProven(_)), "a late write may still land");
        for found in [Found::Present, Found::Unknown("lost".into()), Found::Absent] {
            assert!(matches!(judged(found, true), Discarding::WrittenOff(_)));
        }
    }
}
