//! Guards against damaged indexes: an index that returns the wrong rows must not get bytes or objects deleted.
//!
//! A scenario creates an index with another definition, then edits the schema to declare the original one, so that the
//! entries do not fit the table.

use std::time::Duration;

use s3o_model::ids::ContentId;

use super::Cut::{Guard, Words};
use super::{Damage, broken, damage_if, guards};
use crate::conformance::fixture::Fixture;
use crate::params;

const TOO_EARLY: &str = "an object was removed before it expired";
const IN_USE: &str = "bytes that an object refers to are to be deleted";
const BEING_WRITTEN: &str = "bytes of an open write are to be deleted";

guards! { [sqlite]
    suspects_are_confirmed_without_an_index in an_audit_reads_a_damaged_index: "read",
        [Words("UNINDEXED(content_id; version_id)", "content_id")], [broken::OBJECT, broken::COUNT, IN_USE];
    a_removal_checks_the_expiration_of_the_row in an_unexpired_object_is_claimed: "remove_claimed",
        [Guard("o.expires_at > coalesce(o.deletion_initiated_at")], [TOO_EARLY];
    a_cleanup_of_located_bytes_is_not_handed_out in a_cleanup_names_a_location: "read",
        [Words("FROM object_locations WHERE backend_name", "FROM object_locations WHERE 1 = 0 AND backend_name")],
        [IN_USE];
    a_cleanup_of_an_open_write_is_not_handed_out in a_cleanup_names_an_open_write: "read",
        [Words("AND physical_key IN TEXTS($2) AND state = 'open'", "AND 1 = 0 AND state = 'open' AND $2 = $2")],
        [BEING_WRITTEN];
}

/// Replaces an index by one whose entries differ from what the schema declares.
async fn create_damaged_index(fixture: &Fixture, drop: &'static str, create: &'static str, declare: &'static str) {
    for sql in [drop, create, "PRAGMA writable_schema = ON", declare, "PRAGMA writable_schema = RESET"] {
        fixture.change(sql, vec![]).await;
    }
}

/// Empties the index that finds objects by content.
async fn hide_objects(fixture: &Fixture) {
    create_damaged_index(
        fixture,
        "DROP INDEX objects_content",
        "CREATE INDEX objects_content ON objects (content_id) WHERE content_id = ''",
        "UPDATE sqlite_schema SET sql = 'CREATE INDEX objects_content ON objects (content_id)' \
         WHERE name = 'objects_content'",
    )
    .await;
}

async fn audit(fixture: &Fixture, content: ContentId) {
    let page = fixture.catalog.audit_counts(None, 9).await.expect("a page");
    let suspects = [page.miscounted, page.unreferenced].concat();
    assert_eq!(suspects, [content]);
    let Ok(seen) = fixture.catalog.confirm_suspects(&suspects).await else { return };
    fixture.catalog.recount(&seen).await.expect("recounted");
    fixture.catalog.condemn_unreferenced(&seen).await.expect("condemned");
}

/// The worker audits twice.
async fn an_audit_reads_a_damaged_index(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let content = fixture.put(bucket, "a", 5).await;
    hide_objects(fixture).await;
    audit(fixture, content).await;
    audit(fixture, content).await;
    fixture.change("REINDEX objects_content", vec![]).await;
    damage_if(!fixture.queued().await.is_empty(), IN_USE)
}

/// Claims an object as a damaged index on `expires_at` would.
async fn an_unexpired_object_is_claimed(fixture: &Fixture) -> Damage {
    const CLAIM: &str =
        "UPDATE objects SET token = $1, deletion_status = 'DELETION_IN_PROGRESS', deletion_initiated_at = :now";
    let bucket = fixture.bucket("data").await;
    fixture.put_expiring(bucket, "a", 5, Duration::from_mins(1)).await;
    let token = fixture.token();
    fixture.change(CLAIM, params![token]).await;
    damage_if(fixture.catalog.remove_claimed(token).await.is_ok_and(|removed| !removed.is_empty()), TOO_EARLY)
}

/// Inserts a cleanup for a key that another row names; true if a claim returns it.
async fn is_handed_out(fixture: &Fixture, physical_key: &str) -> bool {
    const QUEUE: &str = "INSERT INTO cleanup_queue \
         (backend_name, physical_key, size_bytes, stripe, reason, due, created_at) \
         VALUES ('disk', $1, 5, 0, 'delete', :now, :now)";
    fixture.change(QUEUE, params![physical_key]).await;
    fixture.change("UPDATE backend_quotas SET orphan_bytes = orphan_bytes + 5 WHERE stripe = 0", vec![]).await;
    let backend = "disk".parse().expect("a name");
    let claimed = fixture.catalog.claim_cleanups(&backend, 9, &fixture.claimant()).await.expect("claimed");
    fixture.change("DELETE FROM cleanup_queue", vec![]).await;
    fixture.change("UPDATE backend_quotas SET orphan_bytes = 0", vec![]).await;
    !claimed.cleanups.is_empty()
}

async fn a_cleanup_names_a_location(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    fixture.put(bucket, "a", 5).await;
    let key = fixture.rows("SELECT physical_key FROM object_locations", vec![]).await;
    damage_if(is_handed_out(fixture, key[0].text("physical_key").expect("a key")).await, IN_USE)
}

async fn a_cleanup_names_an_open_write(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let intent = fixture.staged(bucket, "a", 5).await;
    damage_if(is_handed_out(fixture, intent.physical_key.as_str()).await, BEING_WRITTEN)
}
