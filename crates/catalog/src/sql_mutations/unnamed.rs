//! Guards of keys that no row names: a key is queued only if nothing names it, and a commit that names one excludes it.

use s3o_model::cleanup::{Outcome, Reason};
use s3o_model::conditions::WriteCondition;
use s3o_model::intent::Intent;
use s3o_model::target::Target;

use super::Cut::{Guard, Words};
use super::{Damage, broken, damage_if, guards};
use crate::conformance::fixture::{Fixture, backend, unannounced};
use crate::{CommitPut, Discard, Late, UNNAMED_UNIT_MAX, UNNAMED_WAITING_MAX, UnnamedKey};

const CLOSED: &str = "a key was queued on a backend that is being removed";
const TOO_MANY: &str = "more keys wait than allowed";
const DRAFT: &str = "the draft of an open write was queued";
const QUEUED: &str = "FROM cleanup_queue WHERE backend_name = $1 AND physical_key";
const DELETED: &str = "a commit names bytes that were deleted";
const UPLOAD: &str = "an upload was queued twice";

guards! { [sqlite]
    bytes_of_a_location_are_no_stray in a_location_is_found: "enqueue_unnamed",
        [Words("FROM object_locations WHERE", "FROM object_locations WHERE 1 = 0 AND")], [broken::NAMED];
    bytes_of_an_open_write_are_no_stray in an_open_write_is_found: "enqueue_unnamed",
        [Words("FROM pending_objects WHERE", "FROM pending_objects WHERE 1 = 0 AND")], [broken::NAMED];
    bytes_of_a_dead_letter_are_no_stray in a_dead_letter_is_found: "enqueue_unnamed",
        [Words("FROM cleanup_dlq WHERE", "FROM cleanup_dlq WHERE 1 = 0 AND")], [broken::NAMED];
    written_off_bytes_are_no_stray in written_off_bytes_are_found: "enqueue_unnamed",
        [Words("FROM findings WHERE", "FROM findings WHERE 1 = 0 AND")], [broken::NAMED];
    an_upload_that_waits_for_its_cleanup_is_no_stray in an_upload_is_found: "enqueue_unnamed",
        [Words(QUEUED, "FROM cleanup_queue WHERE 1 = 0 AND physical_key")], [UPLOAD];
    a_draft_of_an_open_write_is_no_stray in a_draft_is_found: "enqueue_unnamed",
        [Words("FROM pending_objects WHERE", "FROM pending_objects WHERE 1 = 0 AND")], [DRAFT];
    a_backend_that_is_removed_takes_no_keys in a_backend_is_removed: "enqueue_unnamed",
        [Words("removing_since IS NULL AND removed_at IS NULL", "1 = 1")], [CLOSED];
    the_number_of_waiting_keys_is_limited in too_many_keys_are_found: "enqueue_unnamed",
        [Words("ELSE 0 END", "ELSE 1000 END")], [TOO_MANY];
    unnamed_bytes_are_orphan_bytes in a_stray_is_queued: "enqueue_unnamed",
        [Words("orphan_bytes = orphan_bytes + s.n", "orphan_bytes = orphan_bytes + s.n - s.n")], [broken::QUOTAS];
    a_direct_commit_names_no_queued_key in a_queued_key_is_committed: "commit_put",
        [Guard("AS named WHERE NOT")], [broken::NAMED];
    a_direct_commit_names_no_deleted_key in a_deleted_key_is_committed: "commit_put",
        [Words("queued_upto >= CAST($3 AS BIGINT)", "1 = 0")], [DELETED];
}

fn found(physical_key: &str, target: Target) -> UnnamedKey {
    UnnamedKey { physical_key: physical_key.to_owned(), target, size_bytes: 5, expected: None }
}

async fn enqueue(fixture: &Fixture, keys: &[UnnamedKey]) -> usize {
    let queued = fixture.catalog.enqueue_unnamed(&backend("disk"), Reason::Reconcile, keys, fixture.token()).await;
    queued.map_or(0, |queued| queued.len())
}

async fn staged(fixture: &Fixture) -> Intent {
    let bucket = fixture.bucket("data").await;
    fixture.staged(bucket, "a", 5).await
}

async fn a_location_is_found(fixture: &Fixture) -> Damage {
    let intent = staged(fixture).await;
    fixture.commit(&intent, WriteCondition::None).await.expect("committed");
    enqueue(fixture, &[found(&intent.physical_key, Target::Key)]).await;
    Damage::new()
}

async fn an_open_write_is_found(fixture: &Fixture) -> Damage {
    let intent = staged(fixture).await;
    enqueue(fixture, &[found(&intent.physical_key, Target::Key)]).await;
    Damage::new()
}

async fn dead_letter(fixture: &Fixture) -> Intent {
    let intent = staged(fixture).await;
    fixture.catalog.drop_write(intent.write, Late::No).await.expect("dropped");
    let (token, claimed) = fixture.claim(9).await;
    fixture.settle(token, &claimed, &Outcome::DeadLetter { why: "refused".to_owned() }).await;
    intent
}

async fn a_dead_letter_is_found(fixture: &Fixture) -> Damage {
    let intent = dead_letter(fixture).await;
    enqueue(fixture, &[found(&intent.physical_key, Target::Key)]).await;
    Damage::new()
}

async fn written_off_bytes_are_found(fixture: &Fixture) -> Damage {
    let intent = dead_letter(fixture).await;
    let id = fixture.catalog.newest_dead_letter().await.expect("an answer").expect("a dead letter");
    let discard = Discard { id, written_off: Some("{}".to_owned()) };
    fixture.catalog.discard_dead_letters(&[discard], fixture.token()).await.expect("discarded");
    enqueue(fixture, &[found(&intent.physical_key, Target::Key)]).await;
    Damage::new()
}

/// A lost upload ID waits for cleanup; a pass finds the upload by its ID.
async fn an_upload_is_found(fixture: &Fixture) -> Damage {
    fixture.bucket("data").await;
    enqueue(fixture, &[found("b/a~1", Target::StartingUpload)]).await;
    damage_if(enqueue(fixture, &[found("b/a~1", Target::Upload("u1".to_owned()))]).await > 0, UPLOAD)
}

async fn a_draft_is_found(fixture: &Fixture) -> Damage {
    let intent = staged(fixture).await;
    let identifier = intent.physical_key.rsplit('~').next().unwrap_or_default();
    damage_if(enqueue(fixture, &[found(&format!(".s3o/tmp/{identifier}"), Target::Draft)]).await > 0, DRAFT)
}

async fn a_backend_is_removed(fixture: &Fixture) -> Damage {
    fixture.bucket("data").await;
    fixture.change("UPDATE backends SET removing_since = 1", vec![]).await;
    let queued = enqueue(fixture, &[found("b/a~1", Target::Key)]).await;
    fixture.change("UPDATE backends SET removing_since = NULL", vec![]).await;
    damage_if(queued > 0, CLOSED)
}

async fn too_many_keys_are_found(fixture: &Fixture) -> Damage {
    fixture.bucket("data").await;
    let mut queued = 0;
    for unit in 0..=UNNAMED_WAITING_MAX / UNNAMED_UNIT_MAX {
        let keys: Vec<_> =
            (0..UNNAMED_UNIT_MAX).map(|number| found(&format!("b/{unit}-{number}~1"), Target::Key)).collect();
        queued += enqueue(fixture, &keys).await;
    }
    damage_if(queued > UNNAMED_WAITING_MAX, TOO_MANY)
}

async fn a_stray_is_queued(fixture: &Fixture) -> Damage {
    fixture.bucket("data").await;
    enqueue(fixture, &[found("b/a~1", Target::Key)]).await;
    Damage::new()
}

fn direct_commit(fixture: &Fixture, intent: &Intent) -> CommitPut {
    CommitPut { stored: unannounced(intent), ..fixture.put_of(intent, WriteCondition::None) }
}

async fn a_queued_key_is_committed(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let intent = fixture.intent(bucket, "a", 5);
    enqueue(fixture, &[found(&intent.physical_key, Target::Key)]).await;
    fixture.commit_put(direct_commit(fixture, &intent)).await.ok();
    Damage::new()
}

/// The writer was suspended until the bytes were queued and deleted.
async fn a_deleted_key_is_committed(fixture: &Fixture) -> Damage {
    let intent = fixture.intent(fixture.bucket("data").await, "a", 5);
    let intent = Intent { physical_key: format!("data/{}", intent.physical_key), ..intent };
    enqueue(fixture, &[found(&intent.physical_key, Target::Key)]).await;
    let (token, claimed) = fixture.claim(9).await;
    fixture.settle(token, &claimed, &Outcome::Done).await;
    damage_if(fixture.commit_put(direct_commit(fixture, &intent)).await.is_ok(), DELETED)
}
