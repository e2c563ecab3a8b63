//! Guards of the number of copies: none too many, never fewer than the factor, and none for content that is gone.

use std::time::Duration;

use s3o_model::cleanup::Reason;
use s3o_model::names::BackendName;

use super::Cut::{Guard, Words};
use super::{Damage, broken, damage_if, guards};
use crate::conformance::fixture::{Fixture, LEASE, backend};
use crate::{RemoveCopy, ReplacedCopy, Replica, ReplicaSource, UnhealthyRule};

const SURPLUS: &str = "a content has more copies than its factor";
const TOO_FEW: &str = "a content has fewer copies than its factor";
const RELEASED: &str = "a copy that counts was released";
const WRITTEN: &str = "a write was announced on a backend that takes none";
const FEW_BACKENDS: &str = "fewer backends than the factor take writes";
const NOT_COUNTED: &str = "copies that an instance can read do not count";
const FORGOTTEN: &str = "no worker removes a damaged copy";
const BEGUN_AGAIN: &str = "a write that the reaper resolved began again";
const UNNOTED: &str = "no row says that a content lacks a copy";
const GHOST: &str = "a copy counts although its store was exchanged";
const MARKED: &str = "a mark was planned on a backend that is being removed";

guards! { [sqlite]
    a_copy_of_condemned_content_is_not_added in content_is_deleted_while_it_is_copied: "commit_replica",
        [Guard("AND state = 'live' /*lock*/")], [broken::MISPLACED];
    a_fenced_copy_is_not_added in a_copy_is_reaped_before_its_commit: "commit_replica",
        [Guard("WHERE id = $1 AND state = 'open' /*lock*/")], [SURPLUS];
    a_copy_is_added_only_if_one_is_missing in two_replicators_copy_one_content: "commit_replica",
        [Words(" > 0", " >= 0")], [SURPLUS];
    a_move_needs_a_draining_source in a_drain_is_stopped_before_the_move: "commit_replica",
        [Words(" AND d.draining = 1", ""), Words(" > 0", " >= 0")], [RELEASED];
    only_probed_copies_support_a_removal in a_copy_is_removed_with_one_probed: "remove_copy",
        [Guard("AND factor <= (")], [TOO_FEW];
    a_damaged_copy_stays_work_besides_enough_others in a_damaged_copy_is_settled: "settle_copy_work",
        [Words(" > 0) AND EXISTS", " > 9) AND EXISTS")], [FORGOTTEN];
    a_draining_backend_takes_no_intent in a_write_is_staged_during_a_drain: "stage",
        [Words(" AND draining = 0", "")], [WRITTEN];
    a_removed_backend_takes_no_intent in a_write_is_staged_during_a_removal: "stage",
        [Words(" AND removing_since IS NULL AND removed_at IS NULL", "")], [WRITTEN];
    a_drain_leaves_enough_backends in one_of_two_backends_is_drained: "start_drain",
        [Guard("SELECT 1 WHERE")], [FEW_BACKENDS];
    every_instance_must_fail in one_of_two_instances_can_use_a_backend: "begin_unhealthy",
        [Guard("HAVING count(*) = count(v.failing_ms)")], [NOT_COUNTED];
    at_most_half_of_the_backends_are_unhealthy in two_of_three_backends_fail: "begin_unhealthy",
        [Guard("SELECT 1 WHERE 2 * (")], [NOT_COUNTED];
    a_resolved_write_is_not_extended in a_copy_is_staged_after_the_reaper: "stage",
        [Guard("WHERE write_id = $1 AND state = 'open'")], [BEGUN_AGAIN];
    missing_copies_are_noted_by_the_commit in a_factor_is_raised_during_a_write: "commit_put",
        [Words(" WHERE s.f <= $6", " WHERE s.f <= $6 OR 1 = 1")], [UNNOTED];
    a_source_is_verified_when_it_was_opened in a_backend_is_accepted_during_a_copy: "commit_replica",
        [Words(" THEN $4 ELSE", " THEN :now ELSE")], [GHOST];
    a_removed_backend_gets_no_mark in a_mark_is_planned_during_a_removal: "plan_mark",
        [Words(" AND removing_since IS NULL", "")], [MARKED];
}

async fn content_is_deleted_while_it_is_copied(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket_with_factor(2).await;
    let content = fixture.put_copies(bucket, &["disk"], 2).await;
    let source = fixture.copy_on(content, "disk").await;
    let staged = fixture.stage_replica(content, "east").await.expect("staged");
    assert!(fixture.delete(bucket, "a").await);
    fixture.commit_replica(&staged, &source, ReplicaSource::Nothing).await.unwrap_or_default();
    Damage::new()
}

async fn a_copy_is_reaped_before_its_commit(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket_with_factor(2).await;
    let content = fixture.put_copies(bucket, &["disk"], 2).await;
    let source = fixture.copy_on(content, "disk").await;
    let staged = fixture.stage_replica(content, "east").await.expect("staged");
    fixture.clock.advance(LEASE);
    let token = fixture.claim_expired_writes(1).await;
    let added = fixture.commit_replica(&staged, &source, ReplicaSource::Nothing).await.is_ok();
    let abandoned = fixture.catalog.abandon(token, staged.write, Duration::ZERO).await.expect("an answer");
    damage_if(added || !abandoned, SURPLUS)
}

async fn two_replicators_copy_one_content(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket_with_factor(2).await;
    let content = fixture.put_copies(bucket, &["disk"], 2).await;
    let source = fixture.copy_on(content, "disk").await;
    for name in ["east", "west"] {
        let staged = fixture.stage_replica(content, name).await.expect("staged");
        fixture.commit_replica(&staged, &source, ReplicaSource::Nothing).await.unwrap_or_default();
    }
    damage_if(fixture.places_of(content).await.len() > 2, SURPLUS)
}

async fn a_drain_is_stopped_before_the_move(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket_with_factor(1).await;
    let content = fixture.put_copies(bucket, &["disk"], 1).await;
    let copy = fixture.copy_on(content, "disk").await;
    let staged = fixture.stage_replica(content, "east").await.expect("staged");
    let replaces = ReplicaSource::Drained(ReplacedCopy { copy: copy.clone(), grace: Duration::ZERO });
    fixture.commit_replica(&staged, &copy, replaces).await.unwrap_or_default();
    damage_if(fixture.places_of(content).await != ["disk"], RELEASED)
}

async fn a_copy_is_removed_with_one_probed(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket_with_factor(2).await;
    let content = fixture.put_copies(bucket, &["disk", "east"], 2).await;
    let (copy, kept) = (fixture.copy_on(content, "disk").await, vec![fixture.copy_on(content, "east").await]);
    let remove = RemoveCopy { content, copy, kept, reason: Reason::Replication, grace: Duration::ZERO };
    fixture.catalog.remove_copy(&remove).await.unwrap_or_default();
    damage_if(fixture.places_of(content).await.len() < 2, TOO_FEW)
}

async fn a_damaged_copy_is_settled(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket_with_factor(1).await;
    let content = fixture.put_copies(bucket, &["disk", "east"], 1).await;
    let copy = fixture.copy_on(content, "east").await;
    assert!(fixture.catalog.suspect(content, &copy).await.expect("an answer"));
    fixture.catalog.settle_copy_work(content).await.expect("an answer");
    damage_if(fixture.copy_work(true).await.is_empty(), FORGOTTEN)
}

async fn a_factor_is_raised_during_a_write(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket_with_factor(1).await;
    let intents = fixture.copy_intents(bucket, &["disk"]);
    fixture.stage_copies(&intents).await.expect("staged");
    fixture.set_factors(2).await;
    let committed = fixture.commit_put(fixture.put_of_copies(&intents, Vec::new(), 1)).await.is_ok();
    damage_if(committed && fixture.copy_work(false).await.is_empty(), UNNOTED)
}

async fn a_backend_is_accepted_during_a_copy(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket_with_factor(2).await;
    let content = fixture.put_copies(bucket, &["disk"], 2).await;
    let source = fixture.copy_on(content, "disk").await;
    let staged = fixture.stage_replica(content, "east").await.expect("staged");
    fixture.clock.advance(Duration::from_secs(1));
    let read_since = fixture.now();
    fixture.clock.advance(Duration::from_secs(1));
    let accepted = crate::params![fixture.now().millis()];
    fixture.change("UPDATE backends SET trust_from = $1 WHERE name = 'disk'", accepted).await;
    let (intent, backend, replaces) = (staged.intent, backend("east"), ReplicaSource::Nothing);
    let replica = Replica { intent, content, backend, backend_version: None, source, read_since, replaces };
    fixture.catalog.commit_replica(&replica).await.expect("committed");
    damage_if(fixture.copy_work(false).await.is_empty(), GHOST)
}

async fn a_mark_is_planned_during_a_removal(fixture: &Fixture) -> Damage {
    fixture.bucket_with_factor(1).await;
    fixture.catalog.begin_removal(&backend("disk")).await.expect("begun");
    damage_if(fixture.catalog.plan_mark(&backend("disk"), "m1").await.is_ok(), MARKED)
}

fn all() -> Vec<BackendName> {
    ["disk", "east", "west"].map(backend).to_vec()
}

async fn a_write_is_staged_during_a_drain(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket_with_factor(1).await;
    fixture.catalog.start_drain(&backend("disk"), &all()).await.expect("started");
    let staged = fixture.stage_copies(&fixture.copy_intents(bucket, &["disk"])).await;
    damage_if(staged.is_ok(), WRITTEN)
}

async fn a_write_is_staged_during_a_removal(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket_with_factor(1).await;
    fixture.catalog.begin_removal(&backend("disk")).await.expect("begun");
    let staged = fixture.stage_copies(&fixture.copy_intents(bucket, &["disk"])).await;
    damage_if(staged.is_ok(), WRITTEN)
}

async fn one_of_two_backends_is_drained(fixture: &Fixture) -> Damage {
    fixture.bucket_with_factor(2).await;
    let drained = fixture.catalog.start_drain(&backend("disk"), &all()[..2]).await;
    damage_if(drained.is_ok(), FEW_BACKENDS)
}

async fn a_copy_is_staged_after_the_reaper(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket_with_factor(1).await;
    let intents = fixture.copy_intents(bucket, &["disk", "east"]);
    fixture.stage_copies(&intents[..1]).await.expect("staged");
    fixture.clock.advance(LEASE);
    fixture.reap(9, Duration::ZERO).await;
    damage_if(fixture.stage_further(&intents[1], 1).await.is_ok(), BEGUN_AGAIN)
}

const UNHEALTHY: UnhealthyRule = UnhealthyRule { after: Duration::from_mins(10), answer_wait: Duration::ZERO };

async fn one_of_two_instances_can_use_a_backend(fixture: &Fixture) -> Damage {
    let names: Vec<BackendName> = vec![fixture.attach("a", None).await, fixture.attach("b", None).await];
    let [one, two] = [fixture.instance(), fixture.instance()];
    fixture.catalog.record_view(one, &names[0], Some(Duration::from_hours(1))).await.expect("recorded");
    fixture.catalog.record_view(two, &names[0], None).await.expect("recorded");
    damage_if(fixture.catalog.begin_unhealthy(&names[0], &names, UNHEALTHY).await.is_ok(), NOT_COUNTED)
}

async fn two_of_three_backends_fail(fixture: &Fixture) -> Damage {
    let mut names = Vec::new();
    let instance = fixture.instance();
    for name in ["a", "b", "c"] {
        names.push(fixture.attach(name, None).await);
    }
    for name in &names[..2] {
        fixture.catalog.record_view(instance, name, Some(Duration::from_hours(1))).await.expect("recorded");
    }
    damage_if(fixture.catalog.begin_unhealthy(&names[0], &names, UNHEALTHY).await.is_ok(), NOT_COUNTED)
}
