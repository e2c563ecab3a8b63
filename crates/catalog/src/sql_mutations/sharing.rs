//! Guards of shared content: a good copy is not discarded for a bad one, and pins count as references.

use std::time::Duration;

use s3o_model::content::Location;
use s3o_model::intent::Intent;

use super::Cut::{Guard, Words};
use super::{Damage, broken, damage_if, guards};
use crate::conformance::fixture::sharing::BODY_BYTES;
use crate::conformance::fixture::{Fixture, LEASE, announced, backend};
use crate::{CommitPut, Late};

const NEW_DISCARDED: &str = "a good new copy was discarded for a bad old one";
const GOOD_DISCARDED: &str = "a good old copy was discarded";
const SURPLUS: &str = "a surplus copy was kept";
const REFUSED: &str = "a write of known content failed";
const STORED_TWICE: &str = "equal content is stored twice";
const MARKED_BAD: &str = "a good copy was marked suspect because of the copy before it";
const NO_GOOD_COPY: &str = "a write was acknowledged without a good copy";

guards! { [sqlite]
    a_bad_copy_is_not_counted in a_write_shares_content_with_a_bad_copy: "commit_put",
        [Words("l.state = 'present' AND ", "")], [NEW_DISCARDED];
    surplus_copies_are_not_kept in a_write_shares_content_with_a_good_copy: "commit_put",
        [Words("m.factor - m.n ELSE 0", "m.factor - m.n ELSE 1")], [SURPLUS];
    only_bad_copies_are_replaced in a_write_brings_two_copies: "commit_put",
        [Words(" AND state <> 'present'", "")], [GOOD_DISCARDED];
    a_backend_has_one_copy in a_write_brings_two_copies: "commit_put",
        [Words(" AND backend_name NOT IN (SELECT backend_name FROM object_locations WHERE content_id = $1)", "")],
        [REFUSED];
    a_lookup_finds_only_live_content in content_is_written_again_after_its_delete: "read",
        [Words(" AND c.state = 'live'", "")], [STORED_TWICE];
    only_the_copy_that_was_read_is_marked_suspect in a_reader_reports_a_replaced_copy: "suspect",
        [Words("AND physical_key = $3", "AND $3 <> ''")], [MARKED_BAD];
    a_pinned_write_needs_its_open_pin in a_reaped_pin_is_committed: "commit_put",
        [Guard("AND pin_content_id = $2 AND state = 'open'")], [broken::COUNT];
    a_pinned_write_needs_a_good_copy in a_pinned_copy_is_marked_suspect: "commit_put",
        [Guard("AND l.state = 'present' LIMIT $2")], [NO_GOOD_COPY];
    a_pin_is_counted_as_a_reference in content_is_pinned: "pin",
        [Words("ref_count = ref_count + 1", "ref_count = ref_count + 0")], [broken::COUNT];
    dropping_the_last_pin_condemns_the_content in the_last_pin_is_dropped: "drop_write",
        [Words(" AND NOT (q.write_id = $1 AND q.state = 'open')", "")], [broken::UNREFERENCED];
    reaping_the_last_pin_condemns_the_content in the_last_pin_is_reaped: "abandon",
        [Words(" AND NOT (q.token IS NOT NULL AND q.token = $1 AND q.write_id = $2)", "")], [broken::UNREFERENCED];
    dropping_a_pin_decrements_the_count in a_pin_is_dropped: "drop_write",
        [Words("ref_count = ref_count - s.n", "ref_count = ref_count - s.n + s.n")], [broken::COUNT];
}

async fn a_write_shares_content_with_a_bad_copy(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let content = fixture.share(bucket, "a", 1).await;
    fixture.set_copy_states(content, "suspect").await;
    fixture.share(bucket, "b", 1).await;
    damage_if(fixture.copies_of(content).await.iter().all(|(_, state)| state != "present"), NEW_DISCARDED)
}

async fn a_write_shares_content_with_a_good_copy(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let content = fixture.share(bucket, "a", 1).await;
    fixture.share_on("cloud", bucket, "b", 1).await;
    damage_if(fixture.copies_of(content).await.len() > 1, SURPLUS)
}

/// The copy that the reader found bad is replaced before the reader marks it suspect.
async fn a_reader_reports_a_replaced_copy(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let content = fixture.share(bucket, "a", 1).await;
    let physical_key = fixture.copies_of(content).await.remove(0).0;
    fixture.set_copy_states(content, "suspect").await;
    fixture.share(bucket, "b", 1).await;
    let read = Location { backend: backend("disk"), physical_key, backend_version: None };
    fixture.catalog.suspect(content, &read).await.expect("marked");
    damage_if(fixture.copies_of(content).await.iter().all(|(_, state)| state != "present"), MARKED_BAD)
}

/// A write with two copies shares content that has one.
async fn a_write_brings_two_copies(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    // As many as the write may add, so that no order of its copies matters.
    fixture.catalog.set_factors(3, &[]).await.expect("set");
    let content = fixture.share(bucket, "a", 1).await;
    let old = fixture.copies_of(content).await.remove(0);
    fixture.attach("cloud", None).await;
    let disk = fixture.staged(bucket, "b", BODY_BYTES).await;
    let elsewhere = fixture.intent(bucket, "b", BODY_BYTES);
    let cloud = Intent { backend: backend("cloud"), write: disk.write, ..elsewhere };
    fixture.try_stage(&cloud).await.expect("staged");
    let put = CommitPut { stored: announced(disk.write, 2), ..fixture.shared_put_of(&disk, 1) };
    if fixture.commit_put(put).await.is_err() {
        return damage_if(true, REFUSED);
    }
    damage_if(!fixture.copies_of(content).await.contains(&old), GOOD_DISCARDED)
}

/// The row of the condemned content still exists.
async fn content_is_written_again_after_its_delete(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    fixture.share(bucket, "a", 1).await;
    assert!(fixture.delete(bucket, "a").await);
    let (one, other) = (fixture.share(bucket, "b", 1).await, fixture.share(bucket, "c", 1).await);
    damage_if(one != other, STORED_TWICE)
}

async fn a_reaped_pin_is_committed(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let content = fixture.share(bucket, "a", 1).await;
    let (pin, _) = fixture.pinned(bucket, "b", 1).await;
    fixture.clock.advance(LEASE);
    assert_eq!(fixture.reap(9, Duration::ZERO).await.len(), 1);
    fixture.commit_pinned(&pin, content).await.map(drop).unwrap_or_default();
    Damage::new()
}

async fn a_pinned_copy_is_marked_suspect(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let content = fixture.share(bucket, "a", 1).await;
    let (pin, _) = fixture.pinned(bucket, "b", 1).await;
    fixture.set_copy_states(content, "suspect").await;
    damage_if(fixture.commit_pinned(&pin, content).await.is_ok(), NO_GOOD_COPY)
}

async fn content_is_pinned(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    fixture.share(bucket, "a", 1).await;
    fixture.pinned(bucket, "b", 1).await;
    Damage::new()
}

async fn the_last_pin_is_dropped(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    fixture.share(bucket, "a", 1).await;
    let (pin, _) = fixture.pinned(bucket, "b", 1).await;
    assert!(fixture.delete(bucket, "a").await);
    assert!(fixture.catalog.drop_write(pin.write, Late::No).await.expect("dropped").was_open);
    Damage::new()
}

async fn the_last_pin_is_reaped(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    fixture.share(bucket, "a", 1).await;
    fixture.pinned(bucket, "b", 1).await;
    assert!(fixture.delete(bucket, "a").await);
    fixture.clock.advance(LEASE);
    assert_eq!(fixture.reap(9, Duration::ZERO).await.len(), 1);
    Damage::new()
}

async fn a_pin_is_dropped(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    fixture.share(bucket, "a", 1).await;
    let (pin, _) = fixture.pinned(bucket, "b", 1).await;
    assert!(fixture.catalog.drop_write(pin.write, Late::No).await.expect("dropped").was_open);
    Damage::new()
}
