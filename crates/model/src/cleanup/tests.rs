//! Tests of the decision after an attempt.

use super::{Attempt, BackendUpload, Cleanup, Outcome, Retries, judge};
use crate::backoff::Backoff;
use crate::clock::Timestamp;
use crate::ids::CleanupId;
use crate::target::Target;
use std::time::Duration;

const NOW: Timestamp = Timestamp::from_millis(10_000);
const BACKOFF: Backoff = Backoff { min: Duration::from_mins(1), max: Duration::from_hours(1) };
const RETRIES: Retries = Retries { backoff: BACKOFF, max_attempts: 10 };

fn cleanup(attempts: u32, absent_ok_after: Option<i64>) -> Cleanup {
    Cleanup {
        id: CleanupId(1),
        backend: "disk".parse().expect("valid"),
        physical_key: "b/k~1".to_owned(),
        target: Target::Key,
        expected: None,
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
fn absence_is_not_judged_while_the_clock_is_not_trusted() {
    let passed = cleanup(0, Some(1));
    assert_eq!(verdict(&passed, Attempt::Absent), Outcome::DoneAbsent);
    let untrusted = |row: &Cleanup, attempt| judge(row, attempt, None, &RETRIES, 1.0);
    assert!(matches!(untrusted(&passed, Attempt::Absent), Outcome::Wait { .. }));
    assert_eq!(untrusted(&passed, Attempt::Deleted), Outcome::Done);
    assert_eq!(untrusted(&cleanup(0, None), Attempt::Absent), Outcome::DoneAbsent, "no late write is expected");
}

#[test]
fn outage_counts_no_attempt() {
    assert_eq!(verdict(&cleanup(3, None), Attempt::Away), Outcome::Deferred);
}

#[test]
fn delay_after_refusals_doubles() {
    let wait = |attempts| match verdict(&cleanup(attempts, None), Attempt::Refused("no".into())) {
        Outcome::Retry { delay, .. } => delay.as_secs(),
        other => panic!("{other:?}"),
    };
    assert_eq!([wait(0), wait(1), wait(2)], [60, 120, 240]);
}

#[test]
fn last_refusal_makes_a_dead_letter() {
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
fn absence_counts_only_after_the_late_write_window() {
    assert_eq!(verdict(&cleanup(0, None), Attempt::Absent), Outcome::DoneAbsent);
    assert_eq!(verdict(&cleanup(0, Some(10_000)), Attempt::Absent), Outcome::DoneAbsent);
    let older = Cleanup { older_than_accept: true, ..cleanup(0, None) };
    assert_eq!(verdict(&older, Attempt::Absent), Outcome::AbsentAfterAccept);
    assert_eq!(verdict(&older, Attempt::Deleted), Outcome::Done);
    let Outcome::Wait { delay, .. } = verdict(&cleanup(0, Some(12_500)), Attempt::Absent) else { panic!() };
    assert_eq!(delay, Duration::from_millis(2_500));
}

#[test]
fn deleted_late_write_is_done() {
    assert_eq!(verdict(&cleanup(0, Some(99_999)), Attempt::Deleted), Outcome::Done);
}

#[test]
fn backend_upload_reads_back_from_its_column() {
    for upload in [BackendUpload::None, BackendUpload::Starting, BackendUpload::Started("?".into())] {
        assert_eq!(BackendUpload::from_column(upload.to_column()), upload);
    }
}

#[test]
fn changed_bytes_end_the_cleanup_without_a_retry() {
    let outcome = verdict(&cleanup(0, Some(20_000)), Attempt::Changed("written again".into()));
    assert_eq!(outcome, Outcome::Changed { why: "written again".into() });
    assert!(outcome.leaves());
}
