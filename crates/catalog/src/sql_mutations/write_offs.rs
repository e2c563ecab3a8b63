//! Guards of write-offs: nothing of a backend in use is written off, and nothing waits on a removed one.

use std::time::Duration;

use super::Cut::{Guard, Words};
use super::{Damage, broken, damage_if, guards};
use crate::conformance::fixture::{Fixture, LEASE, backend};
use crate::{Ended, Late};

const IN_USE: &str = "copies on a backend in use were written off";
const FALSE_COMMIT: &str = "a writer takes a write that was written off for committed";
const PARKED: &str = "a delete is queued on a backend that was removed";

guards! { [sqlite]
    only_a_backend_that_is_removed_is_written_off in a_backend_in_use_is_written_off: "write_off_copies",
        [Guard("AND removing_since IS NOT NULL")], [IN_USE];
    a_copy_on_a_removed_backend_replaces_none in the_last_copy_is_written_off: "write_off_copies",
        [Words(" AND k.removing_since IS NULL", "")], [broken::NO_LOCATION];
    an_intent_is_written_off_after_its_lease in a_write_under_way_is_written_off: "write_off_intents",
        [Words(" AND lease_until <= :now", "")], [FALSE_COMMIT];
    a_late_write_queues_nothing_on_a_removed_backend in a_write_ends_after_the_removal: "requeue",
        [Words(" AND NOT EXISTS (SELECT 1 FROM backends WHERE name = $1 AND removed_at IS NOT NULL)", "")],
        [PARKED];
    a_lost_copy_is_not_queued in a_lost_object_is_deleted: "delete_object",
        [Words(" AND (object_locations.state <> 'lost' OR", " AND (1 = 1 OR")], [PARKED];
}

async fn write_off(fixture: &Fixture) {
    let disk = backend("disk");
    fixture.catalog.begin_write_off(&disk).await.expect("begun");
    while fixture.catalog.write_off_copies(&disk, "").await.expect("written off").is_some() {}
    while fixture.catalog.write_off_queues(&disk).await.expect("written off") {}
    fixture.catalog.finish_removal(&disk).await.expect("removed");
}

async fn is_parked(fixture: &Fixture) -> bool {
    !fixture.queued().await.is_empty()
}

async fn a_backend_in_use_is_written_off(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket_with_factor(2).await;
    let content = fixture.put_copies(bucket, &["disk", "east"], 2).await;
    fixture.catalog.write_off_copies(&backend("disk"), "").await.map(drop).unwrap_or_default();
    let sql = "SELECT 1 FROM object_locations WHERE content_id = $1 AND state = 'present'";
    damage_if(fixture.rows(sql, crate::params![content]).await.len() < 2, IN_USE)
}

async fn the_last_copy_is_written_off(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket_with_factor(1).await;
    fixture.put_copies(bucket, &["disk"], 1).await;
    write_off(fixture).await;
    Damage::new()
}

/// The writer lost the answer of its COMMIT; it looks for its intent.
async fn a_write_under_way_is_written_off(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket_with_factor(1).await;
    let disk = backend("disk");
    let intents = fixture.copy_intents(bucket, &["disk"]);
    fixture.stage_copies(&intents).await.expect("staged");
    let until = fixture.now().after(LEASE);
    fixture.catalog.begin_write_off(&disk).await.expect("begun");
    fixture.catalog.write_off_queues(&disk).await.expect("an answer");
    let dropped = fixture.catalog.drop_write(intents[0].write, Late::No).await.expect("an answer");
    damage_if(!dropped.was_open && dropped.now < until, FALSE_COMMIT)
}

async fn a_write_ends_after_the_removal(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket_with_factor(1).await;
    let intents = fixture.copy_intents(bucket, &["disk"]);
    fixture.stage_copies(&intents).await.expect("staged");
    fixture.clock.advance(LEASE);
    write_off(fixture).await;
    let ended = Ended { late: Late::Within(Duration::from_hours(1)), ..Ended::default() };
    fixture.catalog.requeue(&intents[0].place(), intents[0].size_bytes, &ended).await.expect("recorded");
    damage_if(is_parked(fixture).await, PARKED)
}

async fn a_lost_object_is_deleted(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket_with_factor(1).await;
    fixture.put_copies(bucket, &["disk"], 1).await;
    write_off(fixture).await;
    assert!(fixture.delete(bucket, "a").await);
    damage_if(is_parked(fixture).await, PARKED)
}
