//! Guards of removals: a copy goes only if others were found that replace it, and a backend only if it holds nothing.

use std::time::Duration;

use s3o_model::cleanup::Reason;
use s3o_model::clock::Timestamp;
use s3o_model::content::Location;
use s3o_model::ids::{BucketId, ContentId};

use super::Cut::{Guard, Words};
use super::{Damage, damage_if, guards};
use crate::conformance::fixture::{Fixture, LEASE, backend};
use crate::{
    Acceptance, Ended, IdentityRecord, Late, PlannedMark, RemoveCopy, ReplacedCopy, ReplicaSource, UnhealthyRule,
};

const REMOVED: &str = "a copy was removed from a backend that may be lost or another store";
const UNPROVEN: &str = "a copy was removed although no other one was found";
const ANNOUNCED: &str = "a copy was announced that cannot be used";
const OVER: &str = "the limit was exceeded";
const HELD: &str = "a backend that holds bytes does not count any more";
const PARKED: &str = "a delete is queued on a backend that was removed";
const ACCEPTED: &str = "a backend was removed after an operator accepted it";
const EARLY: &str = "copies stopped counting before every instance could answer";

guards! { [sqlite]
    a_copy_on_an_unhealthy_backend_is_kept in the_removed_copy_is_on_an_unhealthy_backend: "remove_copy",
        [Words("AND k.unhealthy_since IS NULL AND k.frozen_reason IS NULL", "AND k.frozen_reason IS NULL")], [REMOVED];
    a_copy_on_a_frozen_backend_is_kept in the_removed_copy_is_on_a_frozen_backend: "remove_copy",
        [Words(" AND k.frozen_reason IS NULL", "")], [REMOVED];
    a_copy_on_a_disputed_backend_is_kept in the_removed_copy_is_on_a_disputed_backend: "remove_copy",
        [Words("k.frozen_reason IS NULL AND NOT EXISTS (SELECT 1 FROM identity_records WHERE ",
            "k.frozen_reason IS NULL AND NOT EXISTS (SELECT 1 FROM identity_records WHERE 1 = 0 AND ")], [REMOVED];
    a_copy_on_a_disputed_backend_replaces_none in the_other_copy_is_on_a_disputed_backend: "remove_copy",
        [Words("coalesce(k.trust_from, 0)) AND NOT EXISTS (SELECT 1 FROM identity_records WHERE ",
            "coalesce(k.trust_from, 0)) AND NOT EXISTS (SELECT 1 FROM identity_records WHERE 1 = 0 AND ")], [UNPROVEN];
    a_copy_that_was_moved_meanwhile_replaces_none in the_other_copy_is_moved_away_and_back: "remove_copy",
        [Words(" AND t.value ->> 1 = l.physical_key", "")], [UNPROVEN];
    a_copy_is_announced_only_where_writes_are_taken in a_copy_is_announced_on_a_draining_backend: "stage_replica",
        [Guard("FROM backend_changes WHERE backend_name = $1")], [ANNOUNCED];
    a_copy_of_deleted_content_is_not_announced in a_copy_is_announced_after_the_delete: "stage_replica",
        [Words(" AND state = 'live' ON CONFLICT", " ON CONFLICT")], [ANNOUNCED];
    a_copy_needs_capacity_on_its_backend in a_copy_is_announced_on_a_full_backend: "stage_replica",
        [Words(" AND (share_bytes IS NULL OR used_bytes + orphan_bytes + reserved_bytes + $2 <= share_bytes)", "")],
        [OVER];
    a_removal_begins_on_an_empty_backend in a_backend_with_a_copy_is_removed: "begin_removal",
        [Guard("AND NOT EXISTS (SELECT 1 FROM object_locations")], [HELD];
    a_removal_ends_on_an_empty_backend in a_delete_is_queued_during_a_removal: "finish_removal",
        [Guard("AND NOT EXISTS (SELECT 1 FROM object_locations")], [PARKED];
    an_accepted_backend_is_not_removed in a_backend_is_accepted_during_its_removal: "finish_removal",
        [Words(" AND removing_since IS NOT NULL", "")], [ACCEPTED];
    an_outage_must_last in a_backend_fails_for_a_moment: "begin_unhealthy",
        [Words("min(v.failing_ms) >= $2", "min(v.failing_ms) >= $2 - $2")], [EARLY];
    other_instances_get_time_to_answer in the_first_view_is_recorded: "begin_unhealthy",
        [Words("min(v.since) <= :now - $3", "min(v.since) <= :now - $3 + $3")], [EARLY];
}

/// Removes the copy on `disk`; only the copy at `kept` was found.
async fn remove(fixture: &Fixture, content: ContentId, kept: &Location) {
    let (copy, kept) = (fixture.copy_on(content, "disk").await, vec![kept.clone()]);
    let remove = RemoveCopy { content, copy, kept, reason: Reason::Replication, grace: Duration::ZERO };
    fixture.catalog.remove_copy(&remove).await.unwrap_or_default();
}

/// A content of factor 1 with a copy on `disk` and one on `east`.
async fn two_copies_of_one(fixture: &Fixture) -> ContentId {
    let bucket = fixture.bucket_with_factor(1).await;
    fixture.put_copies(bucket, &["disk", "east"], 1).await
}

/// Changes the state of backends, and removes the copy on `disk`.
async fn removed_after(fixture: &Fixture, change: &'static str) -> bool {
    let content = two_copies_of_one(fixture).await;
    fixture.change(change, vec![]).await;
    remove(fixture, content, &fixture.copy_on(content, "east").await).await;
    fixture.places_of(content).await != ["disk", "east"]
}

async fn the_removed_copy_is_on_an_unhealthy_backend(fixture: &Fixture) -> Damage {
    let change = "UPDATE backends SET unhealthy_since = 1 WHERE name = 'disk'";
    damage_if(removed_after(fixture, change).await, REMOVED)
}

async fn the_removed_copy_is_on_a_frozen_backend(fixture: &Fixture) -> Damage {
    let change = "UPDATE backends SET frozen_reason = 'wrong disk' WHERE name = 'disk'";
    damage_if(removed_after(fixture, change).await, REMOVED)
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
    fixture.attach(name, None).await;
    fixture.catalog.record(&backend(name), &record, Duration::from_hours(1)).await.expect("recorded");
}

async fn the_removed_copy_is_on_a_disputed_backend(fixture: &Fixture) -> Damage {
    dispute(fixture, "disk").await;
    damage_if(removed_after(fixture, "UPDATE cluster SET factor = 1").await, REMOVED)
}

async fn the_other_copy_is_on_a_disputed_backend(fixture: &Fixture) -> Damage {
    dispute(fixture, "east").await;
    damage_if(removed_after(fixture, "UPDATE cluster SET factor = 1").await, UNPROVEN)
}

/// The copy on `east` was found, then moved away and back: its new bytes were not looked for.
async fn the_other_copy_is_moved_away_and_back(fixture: &Fixture) -> Damage {
    let content = two_copies_of_one(fixture).await;
    let found = fixture.copy_on(content, "east").await;
    let mut from = found.clone();
    for name in ["west", "east"] {
        let staged = fixture.stage_replica(content, name).await.expect("staged");
        let replaces = ReplicaSource::Rebalanced(ReplacedCopy { copy: from.clone(), grace: Duration::ZERO });
        fixture.commit_replica(&staged, &from, replaces).await.expect("moved");
        from = staged.target;
    }
    remove(fixture, content, &found).await;
    damage_if(fixture.places_of(content).await != ["disk", "east"], UNPROVEN)
}

/// A content of factor 2 that lacks the copy on `east`.
async fn one_copy_of_two(fixture: &Fixture) -> (BucketId, ContentId) {
    let bucket = fixture.bucket_with_factor(2).await;
    (bucket, fixture.put_copies(bucket, &["disk"], 2).await)
}

async fn a_copy_is_announced_on_a_draining_backend(fixture: &Fixture) -> Damage {
    let (_, content) = one_copy_of_two(fixture).await;
    fixture.change("UPDATE backends SET draining = 1 WHERE name = 'east'", vec![]).await;
    damage_if(fixture.stage_replica(content, "east").await.is_ok(), ANNOUNCED)
}

async fn a_copy_is_announced_after_the_delete(fixture: &Fixture) -> Damage {
    let (bucket, content) = one_copy_of_two(fixture).await;
    assert!(fixture.delete(bucket, "a").await);
    damage_if(fixture.stage_replica(content, "east").await.is_ok(), ANNOUNCED)
}

async fn a_copy_is_announced_on_a_full_backend(fixture: &Fixture) -> Damage {
    let (_, content) = one_copy_of_two(fixture).await;
    fixture.catalog.set_limit(&backend("east"), Some(1)).await.expect("set");
    damage_if(fixture.stage_replica(content, "east").await.is_ok(), OVER)
}

async fn a_backend_with_a_copy_is_removed(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket_with_factor(1).await;
    fixture.put_copies(bucket, &["disk"], 1).await;
    damage_if(fixture.catalog.begin_removal(&backend("disk")).await.is_ok(), HELD)
}

/// A write that no intent announced ends between the two steps of the removal.
async fn a_delete_is_queued_during_a_removal(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket_with_factor(1).await;
    let disk = backend("disk");
    let intent = fixture.copy_intents(bucket, &["disk"]).remove(0);
    fixture.catalog.begin_removal(&disk).await.expect("begun");
    let ended = Ended { late: Late::Within(LEASE), ..Ended::default() };
    fixture.catalog.requeue(&intent.place(), intent.size_bytes, &ended).await.expect("queued");
    damage_if(fixture.catalog.finish_removal(&disk).await.is_ok(), PARKED)
}

async fn a_backend_is_accepted_during_its_removal(fixture: &Fixture) -> Damage {
    fixture.bucket_with_factor(1).await;
    let disk = backend("disk");
    fixture.catalog.begin_removal(&disk).await.expect("begun");
    let known = fixture.catalog.known_backend(&disk).await.expect("known");
    let next = PlannedMark { mark: "next".to_owned(), sequence: 1 };
    let acceptance = Acceptance { expected: &known, hash: "h", next: &next, upto: Timestamp::from_millis(0) };
    fixture.catalog.accept_mark(&disk, acceptance).await.expect("accepted");
    damage_if(fixture.catalog.finish_removal(&disk).await.is_ok(), ACCEPTED)
}

const RULE: UnhealthyRule = UnhealthyRule { after: Duration::from_mins(10), answer_wait: Duration::from_secs(10) };

/// An instance has been unable to use a backend for `failing`, and reported it `known` ago.
async fn is_unhealthy_after(fixture: &Fixture, failing: Duration, known: Duration) -> bool {
    let names = [fixture.attach("a", None).await, fixture.attach("b", None).await];
    fixture.catalog.record_view(fixture.instance(), &names[0], Some(failing)).await.expect("recorded");
    fixture.clock.advance(known);
    fixture.catalog.begin_unhealthy(&names[0], &names, RULE).await.is_ok()
}

async fn a_backend_fails_for_a_moment(fixture: &Fixture) -> Damage {
    damage_if(is_unhealthy_after(fixture, Duration::from_mins(9), RULE.answer_wait).await, EARLY)
}

async fn the_first_view_is_recorded(fixture: &Fixture) -> Damage {
    damage_if(is_unhealthy_after(fixture, RULE.after, Duration::from_secs(9)).await, EARLY)
}
