//! Dead letters: cleanups that a backend refused too often, and the decision to discard one.

use crate::clock::Timestamp;
use crate::ids::{CleanupId, DeadLetterId};
use crate::names::BackendName;
use crate::target::{ExpectedBytes, Target};

/// A cleanup that was refused too often. Its bytes are still on the backend and in its quota accounting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Identifier of the dead letter.
    pub id: DeadLetterId,
    /// Identifier of the cleanup when it was first queued.
    pub original_id: CleanupId,
    /// Backend that stores the bytes.
    pub backend: BackendName,
    /// Key of the bytes on that backend.
    pub physical_key: String,
    /// What would be deleted there.
    pub target: Target,
    /// The bytes to compare before every attempt, if other programs may rewrite the key.
    pub expected: Option<ExpectedBytes>,
    /// Bytes in the quota accounting.
    pub size_bytes: u64,
    /// Why the bytes are deleted, as in the queue.
    pub reason: String,
    /// Number of refusals.
    pub attempts: u32,
    /// Error of the last attempt.
    pub last_error: Option<String>,
    /// Set if the outcome of the write is unknown: before this time, an absence proves nothing.
    pub absent_ok_after: Option<Timestamp>,
    /// When the cleanup was queued.
    pub created_at: Timestamp,
    /// Time of the last refusal.
    pub dead_since: Timestamp,
}

/// Result of a probe for a dead letter's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LetterProbe {
    /// The bytes exist.
    Present,
    /// The bytes are proven absent.
    Absent,
    /// The backend gave no clear answer.
    Unknown(String),
}

/// Decision on discarding a dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiscardDecision {
    /// The bytes are absent: delete the row and release its quota.
    Gone,
    /// Delete the row and release its quota although the bytes may exist, and record a finding.
    WrittenOff(String),
    /// Keep the row: the bytes exist.
    StillThere,
    /// Keep the row: the absence of the bytes is not proven.
    NotProven(String),
}

/// Decides whether to discard a dead letter. Only `force` releases the quota of bytes that may exist.
#[must_use]
pub fn judge_discard(letter: &DeadLetter, found: LetterProbe, now: Timestamp, force: bool) -> DiscardDecision {
    let may_arrive_late = letter.absent_ok_after.is_some_and(|moment| now < moment);
    match found {
        LetterProbe::Absent if !may_arrive_late => DiscardDecision::Gone,
        LetterProbe::Present if force => DiscardDecision::WrittenOff("the bytes are there".to_owned()),
        LetterProbe::Present => DiscardDecision::StillThere,
        LetterProbe::Absent => not_proven("absent, but a late write may still arrive".to_owned(), force),
        LetterProbe::Unknown(why) => not_proven(why, force),
    }
}

fn not_proven(why: String, force: bool) -> DiscardDecision {
    if force { DiscardDecision::WrittenOff(why) } else { DiscardDecision::NotProven(why) }
}

#[cfg(test)]
mod tests {
    use super::{DeadLetter, DiscardDecision, LetterProbe, judge_discard};
    use crate::clock::Timestamp;
    use crate::ids::{CleanupId, DeadLetterId};
    use crate::target::Target;

    const NOW: Timestamp = Timestamp::from_millis(10_000);

    fn letter(absent_ok_after: Option<i64>) -> DeadLetter {
        DeadLetter {
            id: DeadLetterId(1),
            original_id: CleanupId(7),
            backend: "disk".parse().expect("valid"),
            physical_key: "b/k~1".to_owned(),
            target: Target::Key,
            expected: None,
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
    fn absent_bytes_are_discarded_without_finding_even_with_force() {
        for force in [false, true] {
            assert_eq!(judge_discard(&letter(None), LetterProbe::Absent, NOW, force), DiscardDecision::Gone);
            assert_eq!(judge_discard(&letter(Some(10_000)), LetterProbe::Absent, NOW, force), DiscardDecision::Gone);
        }
    }

    #[test]
    fn bytes_that_may_exist_are_written_off_only_with_force() {
        let judged = |found, force| judge_discard(&letter(Some(10_001)), found, NOW, force);
        assert_eq!(judged(LetterProbe::Present, false), DiscardDecision::StillThere);
        assert_eq!(judged(LetterProbe::Unknown("lost".into()), false), DiscardDecision::NotProven("lost".into()));
        assert!(
            matches!(judged(LetterProbe::Absent, false), DiscardDecision::NotProven(_)),
            "a late write may still arrive"
        );
        for found in [LetterProbe::Present, LetterProbe::Unknown("lost".into()), LetterProbe::Absent] {
            assert!(matches!(judged(found, true), DiscardDecision::WrittenOff(_)));
        }
    }
}
