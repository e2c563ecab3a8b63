//! Guards of moves between backends that are in use: each keeps a copy that must not be released yet.

use std::time::Duration;

use s3o_model::content::Location;

use super::Cut::Words;
use super::{Damage, damage_if, guards};
use crate::conformance::fixture::{Fixture, backend};
use crate::{IdentityRecord, ReplacedCopy, ReplicaSource};

const RELEASED: &str = "a copy was released although a backend has changed since the move was planned";
const SURPLUS: &str = "a content has more copies than its factor";

guards! { [sqlite]
    a_draining_source_is_left_to_the_drain in source_drains: "commit_replica",
        [Words("s.draining = 0 AND ", "")], [RELEASED];
    an_unhealthy_source_keeps_its_copy in source_is_unhealthy_meanwhile: "commit_replica",
        [Words(" AND s.unhealthy_since IS NULL", "")], [RELEASED];
    a_source_that_is_removed_keeps_its_copy in source_is_being_removed: "commit_replica",
        [Words(" AND s.removing_since IS NULL AND s.removed_at IS NULL", "")], [RELEASED];
    a_frozen_source_keeps_its_copy in source_is_frozen: "commit_replica",
        [Words(" AND s.frozen_reason IS NULL", "")], [RELEASED];
    a_disputed_source_keeps_its_copy in source_is_disputed: "commit_replica",
        [Words("identity_records.backend_name = s.name", "identity_records.backend_name = ''")], [RELEASED];
    a_draining_target_replaces_no_copy in target_drains: "commit_replica",
        [Words("name = $2 AND draining = 0", "name = $2")], [RELEASED];
    an_unhealthy_target_replaces_no_copy in target_is_unhealthy_meanwhile: "commit_replica",
        [Words(" AND unhealthy_since IS NULL AND removing", " AND removing")], [RELEASED];
    a_target_that_is_removed_replaces_no_copy in target_is_being_removed: "commit_replica",
        [Words(" AND removing_since IS NULL AND removed_at IS NULL", "")], [RELEASED];
    a_frozen_target_replaces_no_copy in target_is_frozen: "commit_replica",
        [Words(" AND frozen_reason IS NULL", "")], [RELEASED];
    a_disputed_target_replaces_no_copy in target_is_disputed: "commit_replica",
        [Words("identity_records.backend_name = backends.name", "identity_records.backend_name = ''")], [RELEASED];
    a_disputed_target_replaces_no_drained_copy in target_of_a_drain_is_disputed: "commit_replica",
        [Words("identity_records.backend_name = backends.name", "identity_records.backend_name = ''")], [RELEASED];
    a_move_replaces_only_the_copy_that_it_named in copy_is_moved_away_and_back: "commit_replica",
        [Words(" AND o.physical_key = $4", "")], [SURPLUS];
}

fn rebalanced(copy: &Location) -> ReplicaSource {
    ReplicaSource::Rebalanced(ReplacedCopy { copy: copy.clone(), grace: Duration::ZERO })
}

/// Changes a backend after a move from `disk` to `east` was staged, and commits the move.
async fn moved_after(fixture: &Fixture, change: &'static str) -> Damage {
    let bucket = fixture.bucket_with_factor(1).await;
    let content = fixture.put_copies(bucket, &["disk"], 1).await;
    let source = fixture.copy_on(content, "disk").await;
    let staged = fixture.stage_replica(content, "east").await.expect("staged");
    fixture.change(change, vec![]).await;
    fixture.commit_replica(&staged, &source, rebalanced(&source)).await.unwrap_or_default();
    damage_if(fixture.places_of(content).await != ["disk"], RELEASED)
}

async fn source_drains(fixture: &Fixture) -> Damage {
    moved_after(fixture, "UPDATE backends SET draining = 1 WHERE name = 'disk'").await
}

async fn source_is_unhealthy_meanwhile(fixture: &Fixture) -> Damage {
    moved_after(fixture, "UPDATE backends SET unhealthy_since = 1 WHERE name = 'disk'").await
}

async fn source_is_being_removed(fixture: &Fixture) -> Damage {
    moved_after(fixture, "UPDATE backends SET removing_since = 1 WHERE name = 'disk'").await
}

async fn source_is_frozen(fixture: &Fixture) -> Damage {
    moved_after(fixture, "UPDATE backends SET frozen_reason = 'wrong disk' WHERE name = 'disk'").await
}

async fn target_drains(fixture: &Fixture) -> Damage {
    moved_after(fixture, "UPDATE backends SET draining = 1 WHERE name = 'east'").await
}

async fn target_is_unhealthy_meanwhile(fixture: &Fixture) -> Damage {
    moved_after(fixture, "UPDATE backends SET unhealthy_since = 1 WHERE name = 'east'").await
}

async fn target_is_being_removed(fixture: &Fixture) -> Damage {
    moved_after(fixture, "UPDATE backends SET removing_since = 1 WHERE name = 'east'").await
}

async fn target_is_frozen(fixture: &Fixture) -> Damage {
    moved_after(fixture, "UPDATE backends SET frozen_reason = 'wrong disk' WHERE name = 'east'").await
}

/// Another instance finds another store at this backend.
async fn dispute(fixture: &Fixture, name: &str) {
    let record = IdentityRecord {
        host: "other".to_owned(),
        found: "null".to_owned(),
        hash: "h".to_owned(),
        reason: Some("another cluster".to_owned()),
        dismissed: false,
        age: Duration::ZERO,
    };
    fixture.catalog.record(&backend(name), &record, Duration::from_hours(1)).await.expect("recorded");
}

async fn source_is_disputed(fixture: &Fixture) -> Damage {
    dispute(fixture, "disk").await;
    moved_after(fixture, "UPDATE cluster SET factor = 1").await
}

async fn target_is_disputed(fixture: &Fixture) -> Damage {
    dispute(fixture, "east").await;
    moved_after(fixture, "UPDATE cluster SET factor = 1").await
}

async fn target_of_a_drain_is_disputed(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket_with_factor(1).await;
    let content = fixture.put_copies(bucket, &["disk"], 1).await;
    let copy = fixture.copy_on(content, "disk").await;
    let staged = fixture.stage_replica(content, "east").await.expect("staged");
    fixture.change("UPDATE backends SET draining = 1 WHERE name = 'disk'", vec![]).await;
    dispute(fixture, "east").await;
    let replaces = ReplicaSource::Drained(ReplacedCopy { copy: copy.clone(), grace: Duration::ZERO });
    fixture.commit_replica(&staged, &copy, replaces).await.unwrap_or_default();
    damage_if(fixture.places_of(content).await != ["disk"], RELEASED)
}

async fn copy_is_moved_away_and_back(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket_with_factor(1).await;
    let content = fixture.put_copies(bucket, &["disk"], 1).await;
    let source = fixture.copy_on(content, "disk").await;
    let late = fixture.stage_replica(content, "east").await.expect("staged");
    let mut from = source.clone();
    for name in ["west", "disk"] {
        let staged = fixture.stage_replica(content, name).await.expect("staged");
        fixture.commit_replica(&staged, &from, rebalanced(&from)).await.expect("moved");
        from = staged.target;
    }
    fixture.commit_replica(&late, &source, rebalanced(&source)).await.unwrap_or_default();
    damage_if(fixture.places_of(content).await.len() > 1, SURPLUS)
}
