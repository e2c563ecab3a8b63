//! Tests of what follows from a finding.

use std::time::Duration;

use super::{ActionRules, Evidence, FindingAction, FindingKind, can_be_stored, identifier_time};
use crate::clock::Timestamp;
use crate::target::Target;

const HOUR: i64 = 3_600_000;
const REMOVED: [FindingKind; 4] =
    [FindingKind::Stray, FindingKind::OldVersion, FindingKind::Upload, FindingKind::Draft];

const fn at(hours: i64) -> Timestamp {
    Timestamp::from_millis(hours * HOUR)
}

fn evidence(kind: FindingKind, passes: u64, hours: i64) -> Evidence {
    Evidence {
        kind,
        passes,
        first_seen_at: at(100),
        seen_at: at(100 + hours),
        born_at: Some(at(50)),
        is_approved: false,
        is_dismissed: false,
    }
}

fn rules() -> ActionRules {
    ActionRules { grace: Duration::from_hours(24), accepted_at: None, is_held: false }
}

#[test]
fn unnamed_bytes_are_removed_after_two_passes_a_grace_apart() {
    for kind in REMOVED {
        let action = |passes, hours| FindingAction::of(&evidence(kind, passes, hours), &rules());
        assert_eq!(action(1, 0), FindingAction::Wait, "{kind}");
        assert_eq!(action(2, 23), FindingAction::Wait, "{kind}");
        assert_eq!(action(2, 24), FindingAction::Remove, "{kind}");
        assert_eq!(action(1, 24), FindingAction::Wait, "{kind}");
    }
}

#[test]
fn missing_location_is_suspect_after_two_passes_and_one_of_wrong_size_after_one() {
    let action = |kind, passes| FindingAction::of(&evidence(kind, passes, 0), &rules());
    assert_eq!(action(FindingKind::Missing, 1), FindingAction::Wait);
    assert_eq!(action(FindingKind::Missing, 2), FindingAction::Suspect);
    assert_eq!(action(FindingKind::WrongSize, 1), FindingAction::Suspect);
}

#[test]
fn foreign_objects_are_only_reported() {
    let approved = Evidence { is_approved: true, ..evidence(FindingKind::Foreign, 9, 1000) };
    assert_eq!(FindingAction::of(&approved, &rules()), FindingAction::Report);
}

#[test]
fn bytes_that_are_older_than_the_accept_wait_for_approval() {
    let accepted = ActionRules { accepted_at: Some(at(60)), ..rules() };
    let old = evidence(FindingKind::Stray, 2, 24);
    assert_eq!(FindingAction::of(&old, &accepted), FindingAction::AwaitApproval);
    let undated = Evidence { born_at: None, ..old };
    assert_eq!(FindingAction::of(&undated, &accepted), FindingAction::AwaitApproval);
    let ahead = Evidence { born_at: Some(at(60 + 23)), ..old };
    assert_eq!(FindingAction::of(&ahead, &accepted), FindingAction::AwaitApproval, "a host whose clock was ahead");
    let young = Evidence { born_at: Some(at(60 + 24)), ..old };
    assert_eq!(FindingAction::of(&young, &accepted), FindingAction::Remove);
    let approved = Evidence { is_approved: true, ..old };
    assert_eq!(FindingAction::of(&approved, &accepted), FindingAction::Remove);
    let missing = evidence(FindingKind::Missing, 2, 24);
    assert_eq!(FindingAction::of(&missing, &accepted), FindingAction::Suspect);
}

#[test]
fn nothing_follows_from_a_held_pass_before_approval() {
    let held = ActionRules { is_held: true, ..rules() };
    for kind in FindingKind::ALL.into_iter().filter(|kind| kind.can_be_decided()) {
        let seen = evidence(kind, 2, 24);
        assert_eq!(FindingAction::of(&seen, &held), FindingAction::AwaitApproval, "{kind}");
        let approved = Evidence { is_approved: true, ..seen };
        assert_ne!(FindingAction::of(&approved, &held), FindingAction::AwaitApproval, "{kind}");
    }
}

#[test]
fn approval_replaces_the_second_pass_and_a_dismissal_ends_everything() {
    for kind in REMOVED {
        let approved = Evidence { is_approved: true, ..evidence(kind, 1, 0) };
        assert_eq!(FindingAction::of(&approved, &rules()), FindingAction::Remove);
        let dismissed = Evidence { is_dismissed: true, ..evidence(kind, 2, 24) };
        assert_eq!(FindingAction::of(&dismissed, &rules()), FindingAction::Report);
    }
}

#[test]
fn kinds_are_read_back_from_their_names() {
    for kind in FindingKind::ALL {
        assert_eq!(kind.as_str().parse(), Ok(kind));
        assert_eq!(serde_json::to_value(kind).expect("serialises"), kind.as_str());
    }
    assert!("written_off".parse::<FindingKind>().is_err());
}

#[test]
fn time_is_read_from_identifiers_that_have_one() {
    let time = |name: &str| identifier_time(name).map(Timestamp::millis);
    assert_eq!(time("photos/a~018bcfe568007000800000000000000a"), Some(1_700_000_000_000));
    assert_eq!(time(".s3o/tmp/018bcfe568007000800000000000000a"), Some(1_700_000_000_000));
    assert_eq!(time("photos/a~0123456789abcdef0123456789abcdef"), None, "another version of identifiers");
    assert_eq!(time("photos/a"), None);
}

#[test]
fn finding_with_too_long_a_name_is_only_counted() {
    let longest = "k".repeat(1024);
    assert!(can_be_stored(&longest, &Target::Version("v".repeat(1024))), "an S3 store");
    assert!(!can_be_stored(&"deep/".repeat(600), &Target::Key), "a path of a file system");
}
