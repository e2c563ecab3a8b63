//! Facts about looking whether the rows agree: damage is found by its number, work is not.

use s3o_model::verify::{Invariant, NamedBy};

use super::books::furnish;
use super::races::{stir, storm};
use super::scene::{Scene, backend};
use crate::{Verification, checks};

/// What breaks which invariant, with pages of this many rows.
async fn broken(scene: &Scene, rows: usize) -> Vec<(Invariant, &'static str, String)> {
    let mut found = Vec::new();
    for check in checks() {
        let mut after = check.start();
        while let Some(upto) = scene.catalog.page_end(check, &after, rows).await.expect("a page") {
            let broken = scene.catalog.broken(check, &after, &upto).await.expect("a check");
            found.extend(broken.into_iter().map(|sample| (check.invariant, check.what, sample)));
            after = upto;
        }
    }
    let drifted = scene.catalog.drifted().await.expect("a check");
    found.extend(drifted.into_iter().map(|sample| (Invariant::I7, "drifted", sample)));
    found
}

/// Fails if anything is found.
pub async fn nothing_is_broken(scene: &Scene) {
    let found = broken(scene, 1000).await;
    assert!(found.is_empty(), "{found:#?}");
}

/// Damage, what finds it, and how it is undone.
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

/// Each kind of damage is found by its number, however small the pages, and nothing is without it.
pub async fn damage_is_found_by_its_number(scene: &Scene) {
    let bucket = furnish(scene).await;
    scene.part(scene.upload(bucket, "open").await, 1, 3).await;
    scene.staged(bucket, "under way", 9).await;
    for (invariant, damage, repair) in DAMAGE {
        nothing_is_broken(scene).await;
        scene.change(damage, vec![]).await;
        let (small, large) = (broken(scene, 1).await, broken(scene, 1000).await);
        assert!(large.iter().any(|(number, ..)| number == invariant), "{damage}: {large:?}");
        assert_eq!(small.len(), large.len(), "{damage}: {small:?} {large:?}");
        scene.change(repair, vec![]).await;
    }
}

/// A system at work looks as sound as one at rest.
pub async fn a_storm_raises_no_alarm(scene: &Scene) {
    let bucket = scene.bucket("storm").await;
    storm(scene, 8, move |scene, worker, choice| async move {
        match worker {
            0 => nothing_is_broken(&scene).await,
            _ => stir(&scene, bucket, choice).await,
        }
    })
    .await;
    nothing_is_broken(scene).await;
}

/// Rows are found by the keys and by the identifiers that they name.
pub async fn rows_are_found_by_what_they_name(scene: &Scene) {
    let bucket = scene.bucket("names").await;
    let disk = backend("disk");
    let (located, staged) = (scene.staged(bucket, "a", 5).await, scene.staged(bucket, "b", 7).await);
    scene.commit(&located, s3o_model::conditions::WriteCondition::None).await.expect("committed");
    let keys = [located.physical_key.as_str(), staged.physical_key.as_str(), "theirs"];
    let mut rows = scene.catalog.naming_rows(&disk, &keys).await.expect("rows");
    rows.sort_by_key(|row| row.size_bytes);
    let found: Vec<_> = rows.iter().map(|row| (row.physical_key.as_str(), row.by)).collect();
    assert_eq!(found, [(keys[0], NamedBy::Location { lost: false }), (keys[1], NamedBy::Intent)]);
    assert!(scene.catalog.naming_rows(&backend("other"), &keys).await.expect("rows").is_empty());
    let ids = keys.map(|key| key.rsplit('~').next().unwrap_or_default());
    let named = scene.catalog.named_identifiers(&disk, &ids).await.expect("identifiers");
    assert_eq!(named.into_iter().collect::<Vec<_>>(), [ids[1]], "a draft of committed bytes is nobody's");
}

/// Locations come by key, within their bounds, and the lost ones are left out.
pub async fn locations_come_by_key(scene: &Scene) {
    let bucket = scene.bucket("names").await;
    let disk = backend("disk");
    for name in ["a", "b", "c"] {
        scene.put(bucket, name, 1).await;
    }
    let all = scene.catalog.located_keys(&disk, "", None, 10).await.expect("keys");
    assert!(all.len() == 3 && all.is_sorted(), "{all:?}");
    assert_eq!(scene.catalog.located_keys(&disk, &all[0], Some(&all[1]), 10).await.expect("keys"), all[1..2]);
    assert_eq!(scene.catalog.located_keys(&disk, &all[0], None, 1).await.expect("keys"), all[1..2]);
    scene.change("UPDATE object_locations SET state = 'lost'", vec![]).await;
    assert!(scene.catalog.located_keys(&disk, "", None, 10).await.expect("keys").is_empty());
    scene.change("UPDATE object_locations SET state = 'present'", vec![]).await;
}

/// Whatever changes bytes changes the pulse, also when their sum comes out the same.
pub async fn the_pulse_tells_of_every_change(scene: &Scene) {
    let bucket = scene.bucket("pulse").await;
    let pulse = || async { scene.catalog.pulse(&backend("disk")).await.expect("a pulse") };
    scene.put(bucket, "a", 5).await;
    let before = pulse().await;
    assert_eq!((before.unsettled, before.bytes), (false, 5));
    assert_eq!(pulse().await, before);
    scene.clock.advance(std::time::Duration::from_secs(1));
    scene.put(bucket, "a", 5).await;
    assert!(pulse().await.unsettled, "the displaced bytes wait for cleanup");
    scene.clean_up().await;
    let after = pulse().await;
    assert_eq!((after.unsettled, after.bytes), (false, 5));
    assert_ne!(after, before);
}
