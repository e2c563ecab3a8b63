//! Decides what a writer does after a write failed, or after the outcome of its commit is unknown.

/// How the bytes of a write are held until its commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BytesHeld {
    /// Intents name the written bytes.
    Announced,
    /// Direct mode: no row names the written bytes.
    Unannounced,
    /// Nothing was written: an intent pins existing content.
    Pinned,
}

/// How a write failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteFailure {
    /// It failed before its commit, or the commit was refused: it is certainly not committed.
    NotCommitted,
    /// The commit was refused because the pinned content no longer has a good copy.
    PinnedCopyLost,
    /// The commit was refused because the reaper has claimed the intents.
    Fenced,
    /// The answer to the commit was lost.
    CommitUnknown,
}

/// The answer of the catalog to dropping the intents of the write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropAnswer {
    /// The intents were open and are dropped now: the write will never be committed.
    WereOpen,
    /// The intents did not exist, although the lease still held: the write was committed, because nothing else deletes
    /// them before the lease expires.
    GoneWithinLease,
    /// The intents did not exist after the lease had expired: the reaper may have resolved them.
    Gone,
    /// The catalog did not answer.
    Unanswered,
}

/// The outcome of a write that its client is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitFate {
    /// The object is visible to readers.
    Committed,
    /// The write is not committed, or its outcome is unknown; the client must repeat the request.
    NotCommitted,
    /// This process did not commit the write. The reaper has or may have claimed it, and may have promoted it.
    Fenced,
    /// The write is not committed, because the stored copy is not readable; the client must send the body again.
    PinnedCopyLost,
}

/// How the metrics count the end of the write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountedEnd {
    /// The write was not announced.
    Uncounted,
    /// This process dropped the write.
    Dropped,
    /// This process committed the write.
    Committed,
    /// The process whose reaper claimed the write counts it.
    ByReaper,
    /// Dropped by this process, unless a later lookup finds the intents.
    DroppedInDoubt,
    /// Committed by this process, unless a later lookup finds the intents.
    CommittedInDoubt,
}

/// What to do with the bytes of a failed write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftBytes {
    /// Nothing: a row names the bytes, or there are none.
    Named,
    /// Queue the bytes for deletion, unless a row names them.
    Requeue,
    /// Report the bytes. They may be committed, so queueing them could delete the only copy of an object.
    Report,
}

/// How a failed write ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteEnd {
    /// The outcome that the client is shown.
    pub fate: CommitFate,
    /// How metrics count the end of the write.
    pub counted: CountedEnd,
    /// Applies to bytes that were written by this process.
    pub bytes: LeftBytes,
}

/// True if the intents of the failed write must be dropped before [`end_of_write`] can decide.
#[must_use]
pub fn must_drop_intents(held: BytesHeld, failure: WriteFailure) -> bool {
    held != BytesHeld::Unannounced && failure != WriteFailure::Fenced
}

/// Decides how a failed write ends. `dropped` is the answer to dropping its intents; `None` if
/// [`must_drop_intents`] returned false.
#[must_use]
pub fn end_of_write(held: BytesHeld, failure: WriteFailure, dropped: Option<DropAnswer>) -> WriteEnd {
    let end = |fate, counted, bytes| WriteEnd { fate, counted, bytes };
    // The reaper queued the bytes during the write; that cleanup may have been settled before they were stored.
    let requeued = if held == BytesHeld::Pinned { LeftBytes::Named } else { LeftBytes::Requeue };
    let Some(dropped) = dropped else {
        return match (held, failure) {
            (BytesHeld::Unannounced, WriteFailure::CommitUnknown) => {
                end(CommitFate::NotCommitted, CountedEnd::Uncounted, LeftBytes::Report)
            }
            (BytesHeld::Unannounced, _) => end(CommitFate::NotCommitted, CountedEnd::Uncounted, LeftBytes::Requeue),
            (_, _) => end(CommitFate::Fenced, CountedEnd::ByReaper, requeued),
        };
    };
    if failure == WriteFailure::CommitUnknown {
        return match dropped {
            DropAnswer::WereOpen => end(CommitFate::NotCommitted, CountedEnd::Dropped, LeftBytes::Named),
            DropAnswer::GoneWithinLease => end(CommitFate::Committed, CountedEnd::Committed, LeftBytes::Named),
            DropAnswer::Gone => end(CommitFate::Fenced, CountedEnd::CommittedInDoubt, requeued),
            DropAnswer::Unanswered => end(CommitFate::NotCommitted, CountedEnd::CommittedInDoubt, LeftBytes::Named),
        };
    }
    let refused = match (failure, held) {
        (WriteFailure::PinnedCopyLost, BytesHeld::Pinned) => CommitFate::PinnedCopyLost,
        (_, BytesHeld::Pinned) => CommitFate::NotCommitted,
        // The commit may have failed because the reaper claimed the intents.
        (_, _) => CommitFate::Fenced,
    };
    match dropped {
        DropAnswer::WereOpen if held == BytesHeld::Announced => {
            end(CommitFate::NotCommitted, CountedEnd::Dropped, LeftBytes::Named)
        }
        DropAnswer::WereOpen => end(refused, CountedEnd::Dropped, LeftBytes::Named),
        DropAnswer::GoneWithinLease | DropAnswer::Gone => end(refused, CountedEnd::ByReaper, requeued),
        DropAnswer::Unanswered => end(refused, CountedEnd::DroppedInDoubt, LeftBytes::Named),
    }
}

#[cfg(test)]
mod tests {
    use super::BytesHeld::{Announced, Pinned, Unannounced};
    use super::DropAnswer::{Gone, GoneWithinLease, Unanswered, WereOpen};
    use super::WriteFailure::{self, CommitUnknown, Fenced, NotCommitted, PinnedCopyLost};
    use super::{BytesHeld, CommitFate, CountedEnd, DropAnswer, LeftBytes, WriteEnd, end_of_write, must_drop_intents};

    const HELD: [BytesHeld; 3] = [Announced, Unannounced, Pinned];
    const FAILURES: [WriteFailure; 4] = [NotCommitted, PinnedCopyLost, Fenced, CommitUnknown];
    const ANSWERS: [DropAnswer; 4] = [WereOpen, GoneWithinLease, Gone, Unanswered];

    /// The ends of all combinations of arguments.
    fn ends() -> Vec<(BytesHeld, WriteFailure, Option<DropAnswer>, WriteEnd)> {
        let mut ends = Vec::new();
        for (held, failure) in HELD.into_iter().flat_map(|held| FAILURES.map(|failure| (held, failure))) {
            let answers: Vec<_> =
                if must_drop_intents(held, failure) { ANSWERS.map(Some).to_vec() } else { vec![None] };
            ends.extend(answers.into_iter().map(|answer| (held, failure, answer, end_of_write(held, failure, answer))));
        }
        ends
    }

    #[test]
    fn only_missing_intents_within_the_lease_prove_an_unanswered_commit() {
        for (held, failure, answer, end) in ends() {
            let proven = failure == CommitUnknown && answer == Some(GoneWithinLease);
            assert_eq!(end.fate == CommitFate::Committed, proven, "{held:?} {failure:?} {answer:?}");
            assert_eq!(end.counted == CountedEnd::Committed, proven, "{held:?} {failure:?} {answer:?}");
        }
    }

    #[test]
    fn written_bytes_are_requeued_if_the_reaper_may_have_resolved_the_write() {
        for (held, failure, answer, end) in ends() {
            let taken = answer == Some(Gone) || (answer == Some(GoneWithinLease) && failure != CommitUnknown);
            let expected = match held {
                Unannounced if failure == CommitUnknown => LeftBytes::Report,
                Unannounced => LeftBytes::Requeue,
                Announced if taken || failure == Fenced => LeftBytes::Requeue,
                Announced | Pinned => LeftBytes::Named,
            };
            assert_eq!(end.bytes, expected, "{held:?} {failure:?} {answer:?}");
        }
    }

    #[test]
    fn fenced_commit_is_counted_by_the_reaper() {
        for held in [Announced, Pinned] {
            let end = end_of_write(held, Fenced, None);
            assert_eq!((end.fate, end.counted), (CommitFate::Fenced, CountedEnd::ByReaper));
        }
    }

    #[test]
    fn failed_write_is_fenced_unless_its_intents_were_open() {
        let fate = |answer| end_of_write(Announced, NotCommitted, Some(answer)).fate;
        assert_eq!(ANSWERS.map(fate)[0], CommitFate::NotCommitted);
        assert!(ANSWERS.map(fate)[1..].iter().all(|fate| *fate == CommitFate::Fenced));
    }

    #[test]
    fn failed_pin_is_not_committed_for_any_drop_answer() {
        for answer in ANSWERS {
            assert_eq!(end_of_write(Pinned, NotCommitted, Some(answer)).fate, CommitFate::NotCommitted);
            assert_eq!(end_of_write(Pinned, PinnedCopyLost, Some(answer)).fate, CommitFate::PinnedCopyLost);
        }
    }

    #[test]
    fn unanswered_drop_leaves_the_end_in_doubt() {
        for held in [Announced, Pinned] {
            let counted = |failure| end_of_write(held, failure, Some(Unanswered)).counted;
            assert_eq!(counted(NotCommitted), CountedEnd::DroppedInDoubt);
            assert_eq!(counted(CommitUnknown), CountedEnd::CommittedInDoubt);
            assert_eq!(end_of_write(held, CommitUnknown, Some(Gone)).counted, CountedEnd::CommittedInDoubt);
        }
    }
}
