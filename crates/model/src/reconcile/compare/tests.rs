//! Tests of the comparison of listings with rows.

use super::{
    FirstCheck, ListedTarget, LocatedRuling, UnnamedRuling, fingerprint, is_dismissed, is_owned, rule_location,
    should_be_listed,
};
use crate::clock::Timestamp;
use crate::reconcile::FindingKind;
use crate::target::{FileStamp, Target};
use crate::verify::{NamedBy, NamingRow, Seen};

const OURS: &str = "photos/cat.jpg~0123456789abcdef0123456789abcdef";
const LOCATION: NamedBy = NamedBy::Location { lost: false };
const LOST: NamedBy = NamedBy::Location { lost: true };
const WORK: [NamedBy; 4] = [NamedBy::Intent, NamedBy::Cleanup, NamedBy::DeadLetter, NamedBy::WrittenOff];

fn row(by: NamedBy, size_bytes: u64) -> NamingRow {
    NamingRow {
        physical_key: OURS.to_owned(),
        by,
        size_bytes,
        target: Target::Key,
        verified_at: None,
        fingerprint: "tag".to_owned(),
    }
}

fn finding(kind: FindingKind, dismissed: bool, size_bytes: u64) -> NamingRow {
    row(NamedBy::Finding { kind, dismissed }, size_bytes)
}

fn version(id: &str) -> Target {
    Target::Version(id.to_owned())
}

fn listed(key: &str, size_bytes: u64) -> ListedTarget {
    let (target, fingerprint) = (Target::Key, "tag".to_owned());
    ListedTarget { key: key.to_owned(), target, size_bytes, fingerprint, is_latest: true, is_delete_marker: false }
}

fn listed_version(id: &str, is_latest: bool) -> ListedTarget {
    ListedTarget { target: version(id), is_latest, ..listed(OURS, 5) }
}

#[test]
fn unnamed_bytes_are_in_doubt_only_with_our_key_format() {
    assert_eq!(listed(OURS, 5).first_check(&[]), FirstCheck::Unnamed);
    assert_eq!(listed("theirs", 5).first_check(&[]), FirstCheck::Foreign);
    for by in WORK {
        assert_eq!(listed(OURS, 5).first_check(&[row(by, 9)]), FirstCheck::Agrees, "{by:?}");
        assert!(is_owned(&Target::Key, &[row(by, 9)]));
    }
}

#[test]
fn size_of_a_location_is_compared() {
    assert_eq!(listed(OURS, 5).first_check(&[row(LOCATION, 5)]), FirstCheck::Agrees);
    assert_eq!(listed(OURS, 4).first_check(&[row(LOCATION, 5)]), FirstCheck::WrongSize);
    assert_eq!(listed(OURS, 4).first_check(&[row(LOST, 5)]), FirstCheck::WrongSize);
    assert_eq!(listed(OURS, 5).first_check(&[row(LOST, 5)]), FirstCheck::Recovered);
    let adopted = NamingRow { physical_key: "theirs".to_owned(), ..row(LOCATION, 5) };
    assert_eq!(listed("theirs", 5).first_check(&[adopted]), FirstCheck::Agrees);
}

#[test]
fn bytes_of_an_earlier_finding_are_known_as_long_as_they_are_the_same() {
    let known = finding(FindingKind::Stray, false, 5);
    assert_eq!(listed(OURS, 5).first_check(std::slice::from_ref(&known)), FirstCheck::Known(FindingKind::Stray));
    assert_eq!(listed(OURS, 4).first_check(std::slice::from_ref(&known)), FirstCheck::Unnamed, "another size");
    let rewritten = ListedTarget { fingerprint: "other".to_owned(), ..listed(OURS, 5) };
    assert_eq!(rewritten.first_check(&[known]), FirstCheck::Unnamed, "other bytes");
}

#[test]
fn unnamed_bytes_in_both_checks_are_stray() {
    let ruled = |seen, rows: &[NamingRow]| listed(OURS, 5).rule(seen, rows);
    assert_eq!(ruled(Seen::Present(5), &[]), UnnamedRuling::Found(FindingKind::Stray));
    assert_eq!(ruled(Seen::Absent, &[]), UnnamedRuling::Agrees);
    assert_eq!(ruled(Seen::Present(5), &[row(LOCATION, 5)]), UnnamedRuling::Agrees);
    for by in WORK {
        assert_eq!(ruled(Seen::Present(5), &[row(by, 5)]), UnnamedRuling::Agrees, "{by:?}");
    }
    assert_eq!(ruled(Seen::Unknown("away".into()), &[]), UnnamedRuling::Unknown("away".into()));
}

#[test]
fn other_versions_of_a_located_key_are_old_versions() {
    let located = [NamingRow { target: version("1"), ..row(LOCATION, 5) }];
    assert_eq!(listed_version("1", false).first_check(&located), FirstCheck::Agrees, "the copy itself");
    assert_eq!(listed_version("2", true).first_check(&located), FirstCheck::Unnamed, "a foreign overwrite");
    let over = listed_version("2", true).rule(Seen::Present(5), &located);
    assert_eq!(over, UnnamedRuling::Found(FindingKind::OldVersion));
    assert_eq!(
        listed_version("2", true).rule(Seen::Present(5), &[]),
        UnnamedRuling::Found(FindingKind::Stray),
        "no location"
    );
    let cleanup = NamingRow { target: version("2"), ..row(NamedBy::Cleanup, 5) };
    assert_eq!(listed_version("2", false).first_check(&[cleanup]), FirstCheck::Agrees);
}

#[test]
fn location_without_a_version_is_the_latest_one() {
    let located = [row(LOCATION, 5)];
    assert_eq!(listed_version("2", true).first_check(&located), FirstCheck::Agrees);
    assert_eq!(listed_version("1", false).first_check(&located), FirstCheck::Unnamed);
    let marker = ListedTarget { is_delete_marker: true, ..listed_version("3", true) };
    assert_eq!(marker.first_check(&located), FirstCheck::Unnamed);
}

#[test]
fn location_without_bytes_in_both_checks_is_missing() {
    let ruled = |seen, rows: &[NamingRow]| rule_location(&Target::Key, seen, rows);
    assert_eq!(ruled(Seen::Absent, &[row(LOCATION, 5)]), LocatedRuling::Missing);
    assert_eq!(ruled(Seen::Absent, &[row(LOST, 5)]), LocatedRuling::Missing);
    assert_eq!(ruled(Seen::Absent, &[row(NamedBy::Cleanup, 5)]), LocatedRuling::Agrees);
    assert_eq!(ruled(Seen::Absent, &[]), LocatedRuling::Agrees);
    assert_eq!(ruled(Seen::Present(5), &[row(LOCATION, 5)]), LocatedRuling::Present);
    assert_eq!(ruled(Seen::Present(5), &[row(LOST, 5)]), LocatedRuling::Recovered);
    let wrong = LocatedRuling::WrongSize { expected: 5, found: 4 };
    assert_eq!(ruled(Seen::Present(4), &[row(LOCATION, 5)]), wrong);
    assert_eq!(ruled(Seen::Unknown("away".into()), &[row(LOCATION, 5)]), LocatedRuling::Unknown("away".into()));
}

#[test]
fn location_that_was_verified_since_the_cut_off_need_not_be_listed() {
    let cut_off = Timestamp::from_millis(100);
    let verified = |millis| NamingRow { verified_at: Some(Timestamp::from_millis(millis)), ..row(LOCATION, 5) };
    assert!(should_be_listed(&verified(99), cut_off) && should_be_listed(&row(LOCATION, 5), cut_off));
    assert!(!should_be_listed(&verified(100), cut_off));
    assert!(!should_be_listed(&row(NamedBy::Intent, 5), cut_off));
}

#[test]
fn dismissal_ends_when_size_or_fingerprint_change() {
    let rows = [finding(FindingKind::Stray, true, 5)];
    let dismissed = |size, fingerprint| is_dismissed(&Target::Key, FindingKind::Stray, (size, fingerprint), &rows);
    assert!(dismissed(5, "tag"));
    assert!(!dismissed(4, "tag") && !dismissed(5, "other"));
    assert!(!is_dismissed(&Target::Key, FindingKind::Missing, (5, "tag"), &rows), "another kind");
}

#[test]
fn fingerprint_of_a_file_does_not_depend_on_its_number_of_names() {
    let stamp = |links| FileStamp { modified_ns: 7, inode: 9, links };
    assert_eq!(fingerprint(None, Some(&stamp(1))), fingerprint(None, Some(&stamp(2))));
    assert_eq!(fingerprint(Some("tag"), None), "tag");
    assert_eq!(fingerprint(None, None), "");
}
