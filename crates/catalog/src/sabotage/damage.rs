//! What keeps bytes and objects when an index of the catalog leads to the wrong rows.
//!
//! Each scenario makes an index that does not fit its table: the index is created over something else, and the schema is
//! then made to say what it says in a catalog that is intact.

use std::time::Duration;

use s3o_model::ids::ContentId;

use super::Cut::{Guard, Words};
use super::{Told, broken, safeties, told};
use crate::conformance::scene::Scene;
use crate::{Audits, Cleanups, Expiries, params};

const TOO_EARLY: &str = "an object was removed before its time";
const IN_USE: &str = "bytes that an object refers to are to be deleted";
const WRITING: &str = "bytes that are being written are to be deleted";

safeties! { [sqlite]
    a_table_confirms_its_index by an_audit_meets_a_damaged_index: "read",
        [Words("UNINDEXED(content_id; version_id)", "content_id")], [broken::OBJECT, broken::COUNT, IN_USE];
    an_expiry_asks_the_row_itself by one_is_claimed_that_has_not_expired: "remove_claimed",
        [Guard("o.expires_at > coalesce(o.deletion_initiated_at")], [TOO_EARLY];
    a_location_keeps_its_bytes by a_cleanup_names_a_location: "read",
        [Words("FROM object_locations WHERE backend_name", "FROM object_locations WHERE 1 = 0 AND backend_name")],
        [IN_USE];
    an_open_write_keeps_its_bytes by a_cleanup_names_an_open_write: "read",
        [Words("AND physical_key IN TEXTS($2) AND state = 'open'", "AND 1 = 0 AND state = 'open' AND $2 = $2")],
        [WRITING];
}

/// Makes an index over something else than what the schema says.
async fn damage(scene: &Scene, drop: &'static str, create: &'static str, say: &'static str) {
    for sql in [drop, create, "PRAGMA writable_schema = ON", say, "PRAGMA writable_schema = RESET"] {
        scene.change(sql, vec![]).await;
    }
}

/// The index that leads from content to objects leads nowhere.
async fn hide_objects(scene: &Scene) {
    damage(
        scene,
        "DROP INDEX objects_content",
        "CREATE INDEX objects_content ON objects (content_id) WHERE content_id = ''",
        "UPDATE sqlite_schema SET sql = 'CREATE INDEX objects_content ON objects (content_id)' \
         WHERE name = 'objects_content'",
    )
    .await;
}

async fn audit(scene: &Scene, content: ContentId) {
    let page = scene.catalog.audit_counts(None, 9).await.expect("a page");
    let suspects = [page.miscounted, page.unreferenced].concat();
    assert_eq!(suspects, [content]);
    let Ok(seen) = scene.catalog.confirm_suspects(&suspects).await else { return };
    scene.catalog.recount(&seen).await.expect("recounted");
    scene.catalog.condemn_unreferenced(&seen).await.expect("condemned");
}

/// Two audits, as the worker does them.
async fn an_audit_meets_a_damaged_index(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let content = scene.put(bucket, "a", 5).await;
    hide_objects(scene).await;
    audit(scene, content).await;
    audit(scene, content).await;
    scene.change("REINDEX objects_content", vec![]).await;
    told(!scene.queued().await.is_empty(), IN_USE)
}

/// As if the index of expiries had led a claim to an object that has not expired.
async fn one_is_claimed_that_has_not_expired(scene: &Scene) -> Told {
    const CLAIM: &str =
        "UPDATE objects SET token = $1, deletion_status = 'DELETION_IN_PROGRESS', deletion_initiated_at = :now";
    let bucket = scene.bucket("house").await;
    scene.mortal(bucket, "a", 5, Duration::from_mins(1)).await;
    let token = scene.token();
    scene.change(CLAIM, params![token]).await;
    told(scene.catalog.remove_claimed(token).await.is_ok_and(|gone| !gone.is_empty()), TOO_EARLY)
}

/// A cleanup appears for a key that another row names; says whether it is handed out for deletion.
async fn is_handed_out(scene: &Scene, physical_key: &str) -> bool {
    const QUEUE: &str = "INSERT INTO cleanup_queue \
         (backend_name, physical_key, size_bytes, stripe, reason, due, created_at) \
         VALUES ('disk', $1, 5, 0, 'delete', :now, :now)";
    scene.change(QUEUE, params![physical_key]).await;
    scene.change("UPDATE backend_quotas SET orphan_bytes = orphan_bytes + 5 WHERE stripe = 0", vec![]).await;
    let backend = "disk".parse().expect("a name");
    let claimed = scene.catalog.claim_cleanups(&backend, 9, &scene.claimant()).await.expect("claimed");
    scene.change("DELETE FROM cleanup_queue", vec![]).await;
    scene.change("UPDATE backend_quotas SET orphan_bytes = 0", vec![]).await;
    !claimed.cleanups.is_empty()
}

async fn a_cleanup_names_a_location(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    scene.put(bucket, "a", 5).await;
    let key = scene.rows("SELECT physical_key FROM object_locations", vec![]).await;
    told(is_handed_out(scene, key[0].text(0).expect("a key")).await, IN_USE)
}

async fn a_cleanup_names_an_open_write(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let intent = scene.staged(bucket, "a", 5).await;
    told(is_handed_out(scene, intent.physical_key.as_str()).await, WRITING)
}
