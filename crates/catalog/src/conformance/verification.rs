//! Tests of the checks that verify the catalog: they find damage, and nothing while operations run.

use s3o_model::reconcile::FindingKind;
use s3o_model::target::Target;
use s3o_model::verify::{Invariant, NamedBy};

use super::fixture::reconcile::stray;
use super::fixture::{Fixture, backend};
use super::quota_usage::furnish;
use super::races::{random_operation, run_concurrently};
use crate::{Decision, checks};

/// Rows that break an invariant, found with pages of this many rows.
async fn broken(fixture: &Fixture, rows: usize) -> Vec<(Invariant, &'static str, String)> {
    let mut found = Vec::new();
    for check in checks() {
        let mut after = check.start();
        while let Some(upto) = fixture.catalog.page_end(check, &after, rows).await.expect("a page") {
            let broken = fixture.catalog.broken(check, &after, &upto).await.expect("a check");
            found.extend(broken.into_iter().map(|sample| (check.invariant, check.what, sample)));
            after = upto;
        }
    }
    let drifted = fixture.catalog.drifted().await.expect("a check");
    found.extend(drifted.into_iter().map(|sample| (Invariant::I7, "drifted", sample)));
    found
}

/// Panics with the rows that break an invariant.
pub async fn assert_nothing_is_broken(fixture: &Fixture) {
    let found = broken(fixture, 1000).await;
    assert!(found.is_empty(), "{found:#?}");
}

/// An invariant, the statement that breaks it, and the statement that repairs it.
const DAMAGE: &[(Invariant, &str, &str)] = &[
    (
        Invariant::I6,
        "UPDATE contents SET ref_count = ref_count + 1 WHERE ref_count > 0",
        "UPDATE contents SET ref_count = ref_count - 1 WHERE ref_count > 0",
    ),
    (
        Invariant::I6,
        "UPDATE contents SET state = 'condemned' WHERE condemned_at IS NULL",
        "UPDATE contents SET state = 'live' WHERE condemned_at IS NULL",
    ),
    (Invariant::I2, "UPDATE object_locations SET state = 'lost'", "UPDATE object_locations SET state = 'present'"),
    (Invariant::I1, "UPDATE objects SET size_bytes = size_bytes + 1", "UPDATE objects SET size_bytes = size_bytes - 1"),
    (Invariant::I1, "UPDATE content_parts SET start = start + 1", "UPDATE content_parts SET start = start - 1"),
    (
        Invariant::I1,
        "UPDATE content_parts SET byte_offset = byte_offset + 1",
        "UPDATE content_parts SET byte_offset = byte_offset - 1",
    ),
    (Invariant::I1, "UPDATE multipart_parts SET length = length + 1", "UPDATE multipart_parts SET length = length - 1"),
    (
        Invariant::I7,
        "UPDATE backend_quotas SET used_bytes = used_bytes + 1",
        "UPDATE backend_quotas SET used_bytes = used_bytes - 1",
    ),
    (
        Invariant::I7,
        "UPDATE backend_quotas SET stripe = stripe + 1000",
        "UPDATE backend_quotas SET stripe = stripe - 1000",
    ),
    (Invariant::I8, "UPDATE cleanup_queue SET token = 'someone'", "UPDATE cleanup_queue SET token = NULL"),
    (
        Invariant::I11,
        "UPDATE multipart_uploads SET leftover = 1 WHERE state = 'open'",
        "UPDATE multipart_uploads SET leftover = 0 WHERE state = 'open'",
    ),
    (
        Invariant::I4,
        "INSERT INTO cleanup_queue (backend_name, physical_key, size_bytes, stripe, reason, due, created_at) \
         SELECT backend_name, physical_key, 0, stripe, 'planted', 0, 0 FROM object_locations",
        "DELETE FROM cleanup_queue WHERE reason = 'planted'",
    ),
    (
        Invariant::I3,
        "INSERT INTO cleanup_queue (backend_name, physical_key, size_bytes, stripe, reason, due, created_at) \
         SELECT backend_name, physical_key, 0, stripe, 'planted', 0, 0 FROM pending_objects",
        "DELETE FROM cleanup_queue WHERE reason = 'planted'",
    ),
];

/// Pages of any size find the same, and an undamaged catalog shows nothing.
pub async fn damage_is_found_with_its_invariant(fixture: &Fixture) {
    let bucket = furnish(fixture).await;
    fixture.part(fixture.upload(bucket, "open").await, 1, 3).await;
    fixture.staged(bucket, "under way", 9).await;
    for (invariant, damage, repair) in DAMAGE {
        assert_nothing_is_broken(fixture).await;
        fixture.change(damage, vec![]).await;
        let (small, large) = (broken(fixture, 1).await, broken(fixture, 1000).await);
        assert!(large.iter().any(|(number, ..)| number == invariant), "{damage}: {large:?}");
        assert_eq!(small.len(), large.len(), "{damage}: {small:?} {large:?}");
        fixture.change(repair, vec![]).await;
    }
}

/// One of eight workers checks while the others write.
pub async fn concurrent_operations_break_no_invariant(fixture: &Fixture) {
    let bucket = fixture.bucket("mixed").await;
    run_concurrently(fixture, 8, move |fixture, worker, choice| async move {
        match worker {
            0 => assert_nothing_is_broken(&fixture).await,
            _ => random_operation(&fixture, bucket, choice).await,
        }
    })
    .await;
    assert_nothing_is_broken(fixture).await;
}

/// Committed bytes name no draft.
pub async fn rows_are_found_by_physical_key_and_identifier(fixture: &Fixture) {
    let bucket = fixture.bucket("names").await;
    let disk = backend("disk");
    let (located, staged) = (fixture.staged(bucket, "a", 5).await, fixture.staged(bucket, "b", 7).await);
    fixture.commit(&located, s3o_model::conditions::WriteCondition::None).await.expect("committed");
    let keys = [located.physical_key.as_str(), staged.physical_key.as_str(), "theirs"];
    let mut rows = fixture.catalog.naming_rows(&disk, &keys).await.expect("rows");
    rows.sort_by_key(|row| row.size_bytes);
    let found: Vec<_> = rows.iter().map(|row| (row.physical_key.as_str(), row.by)).collect();
    assert_eq!(found, [(keys[0], NamedBy::Location { lost: false }), (keys[1], NamedBy::Intent)]);
    assert!(fixture.catalog.naming_rows(&backend("other"), &keys).await.expect("rows").is_empty());
    let ids = keys.map(|key| key.rsplit('~').next().unwrap_or_default());
    let named = fixture.catalog.named_identifiers(&disk, &ids).await.expect("identifiers");
    assert_eq!(named.into_iter().collect::<Vec<_>>(), [ids[1]], "no row names the draft of committed bytes");
}

/// Rows of all tables, in the order of their keys and within their bounds. A lost copy has the size of its content.
pub async fn rows_of_a_range_are_listed_in_order(fixture: &Fixture) {
    let bucket = fixture.bucket("names").await;
    let disk = backend("disk");
    for name in ["a", "b", "c"] {
        fixture.put(bucket, name, 7).await;
    }
    fixture.staged(bucket, "b", 1).await;
    fixture.change("UPDATE object_locations SET state = 'lost', size_bytes = 0", vec![]).await;
    let rows = async |after: &str, upto: Option<&str>, limit: usize| {
        let rows = fixture.catalog.rows_between(&disk, (after, upto), limit).await.expect("rows");
        rows.into_iter().map(|row| (row.physical_key.clone(), row)).unzip::<_, _, Vec<_>, Vec<_>>()
    };
    let (keys, found) = rows("", None, 10).await;
    assert!(keys.len() == 4 && keys.is_sorted(), "{keys:?}");
    let sizes: Vec<_> = found.iter().map(|row| (row.size_bytes, row.verified_at.is_some())).collect();
    assert!(sizes.contains(&(1, false)) && sizes.iter().filter(|size| **size == (7, true)).count() == 3, "{sizes:?}");
    assert_eq!(rows(&keys[0], Some(&keys[2]), 10).await.0, keys[1..3]);
    assert_eq!(rows(&keys[0], None, 2).await.0, keys[1..3]);
    fixture.change("UPDATE object_locations SET state = 'present', size_bytes = 7", vec![]).await;
}

/// Findings of passes name what they saw; the other findings name nothing here.
pub async fn findings_of_passes_are_rows_of_their_keys(fixture: &Fixture) {
    fixture.attach("disk", None).await;
    let pass = fixture.listed_pass(vec![stray("a~1")]).await;
    fixture.fold(&pass, Some("held")).await;
    for found in fixture.findings().await.iter().filter(|found| found.kind == "stray") {
        fixture.catalog.decide_finding(found.id, Decision::Dismiss).await.expect("decided").expect("accepted");
    }
    let rows = fixture.catalog.naming_rows(&backend("disk"), &["a~1", ""]).await.expect("rows");
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!(row.by, NamedBy::Finding { kind: FindingKind::Stray, dismissed: true });
    assert_eq!((row.size_bytes, row.fingerprint.as_str(), &row.target), (5, "tag", &Target::Key));
    let between = fixture.catalog.rows_between(&backend("disk"), ("", None), 9).await.expect("rows");
    assert_eq!(between, rows);
}

/// It differs also if the sum of the bytes is the same as before.
pub async fn pulse_differs_after_every_change(fixture: &Fixture) {
    let bucket = fixture.bucket("pulse").await;
    let pulse = || async { fixture.catalog.pulse(&backend("disk")).await.expect("a pulse") };
    fixture.put(bucket, "a", 5).await;
    let before = pulse().await;
    assert_eq!((before.unsettled, before.bytes), (false, 5));
    assert_eq!(pulse().await, before);
    fixture.clock.advance(std::time::Duration::from_secs(1));
    fixture.put(bucket, "a", 5).await;
    assert!(pulse().await.unsettled, "the displaced bytes wait for cleanup");
    fixture.clean_up().await;
    let after = pulse().await;
    assert_eq!((after.unsettled, after.bytes), (false, 5));
    assert_ne!(after, before);
}
