//! Invariants that a catalog can check alone. They are checked after every test of the suite.

use s3o_model::ids::BucketId;

use super::fixture::{Fixture, first_text};
use super::verification;
use crate::params;

/// Name of an invariant, and the query that returns the rows that break it.
const INVARIANTS: &[(&str, &str)] = &[
    (
        "a count equals the rows that refer",
        "SELECT 'content ' || id FROM (SELECT c.id, c.ref_count, \
         (SELECT count(*) FROM objects WHERE content_id = c.id) \
         + (SELECT count(*) FROM multipart_parts WHERE content_id = c.id) \
         + (SELECT count(*) FROM content_parts WHERE whole_id = c.id) \
         + (SELECT count(*) FROM pending_objects WHERE pin_content_id = c.id) AS n FROM contents c) AS counted \
         WHERE ref_count <> n",
    ),
    ("live content is referred to", "SELECT id FROM contents WHERE state = 'live' AND ref_count = 0"),
    (
        "condemned content is not referred to, and says since when",
        "SELECT id FROM contents WHERE (state = 'condemned') <> (condemned_at IS NOT NULL) \
         OR (state = 'condemned' AND ref_count <> 0)",
    ),
    (
        "live whole content lies somewhere",
        "SELECT id FROM contents WHERE state = 'live' AND kind = 'whole' \
         AND NOT EXISTS (SELECT 1 FROM object_locations WHERE content_id = contents.id)",
    ),
    (
        "only live whole content has locations",
        "SELECT l.physical_key FROM object_locations l LEFT JOIN contents c ON c.id = l.content_id \
         WHERE c.id IS NULL OR c.state <> 'live' OR c.kind <> 'whole'",
    ),
    (
        "a location is as large as its content",
        "SELECT l.physical_key FROM object_locations l JOIN contents c ON c.id = l.content_id \
         WHERE l.size_bytes <> c.size_bytes AND l.state <> 'lost'",
    ),
    (
        "an object has live content of its size",
        "SELECT o.key FROM objects o LEFT JOIN contents c ON c.id = o.content_id \
         WHERE c.id IS NULL OR c.state <> 'live' OR c.size_bytes <> o.size_bytes",
    ),
    (
        "a part lies within whole live content and belongs to an upload",
        "SELECT m.upload_id FROM multipart_parts m LEFT JOIN contents c ON c.id = m.content_id \
         LEFT JOIN multipart_uploads u ON u.id = m.upload_id WHERE c.id IS NULL OR u.id IS NULL \
         OR c.state <> 'live' OR c.kind <> 'whole' OR m.byte_offset + m.length > c.size_bytes",
    ),
    (
        "a piece lies within whole live content and belongs to joined content",
        "SELECT p.joined_id FROM content_parts p LEFT JOIN contents c ON c.id = p.whole_id \
         LEFT JOIN contents j ON j.id = p.joined_id WHERE c.id IS NULL OR j.id IS NULL OR j.kind <> 'joined' \
         OR c.state <> 'live' OR c.kind <> 'whole' OR p.byte_offset + p.length > c.size_bytes",
    ),
    (
        "the pieces of live joined content follow each other to its end",
        "SELECT j.id FROM contents j WHERE j.kind = 'joined' AND j.state = 'live' AND (j.size_bytes <> \
         (SELECT coalesce(sum(length), 0) FROM content_parts WHERE joined_id = j.id) \
         OR EXISTS (SELECT 1 FROM (SELECT start, sum(length) OVER (ORDER BY number) - length AS expected \
         FROM content_parts WHERE joined_id = j.id) AS laid WHERE start <> expected))",
    ),
    (
        "used bytes are those of locations, orphan bytes those of cleanups and dead letters, \
         reserved bytes those of intents",
        "SELECT q.backend_name FROM backend_quotas q WHERE q.used_bytes <> \
         (SELECT coalesce(sum(size_bytes), 0) FROM object_locations \
          WHERE backend_name = q.backend_name AND stripe = q.stripe) \
         OR q.orphan_bytes <> (SELECT coalesce(sum(size_bytes), 0) FROM cleanup_queue \
          WHERE backend_name = q.backend_name AND stripe = q.stripe) \
          + (SELECT coalesce(sum(size_bytes), 0) FROM cleanup_dlq \
          WHERE backend_name = q.backend_name AND stripe = q.stripe) \
         OR q.reserved_bytes <> (SELECT coalesce(sum(size_bytes), 0) FROM pending_objects \
          WHERE backend_name = q.backend_name AND stripe = q.stripe)",
    ),
    (
        "bytes are only on backends with quota rows",
        "SELECT n.physical_key FROM (SELECT backend_name, stripe, physical_key FROM object_locations \
         UNION ALL SELECT backend_name, stripe, physical_key FROM cleanup_queue \
         UNION ALL SELECT backend_name, stripe, physical_key FROM cleanup_dlq \
         UNION ALL SELECT backend_name, stripe, physical_key FROM pending_objects WHERE backend_name IS NOT NULL) AS n \
         LEFT JOIN backend_quotas q ON q.backend_name = n.backend_name AND q.stripe = n.stripe \
         WHERE q.stripe IS NULL",
    ),
    (
        "a physical key is named once",
        // Rows of two versions, or of an upload of the key, do not name the same bytes.
        "SELECT physical_key FROM (SELECT backend_name, physical_key, \
           coalesce('version:' || backend_version, '') AS target FROM object_locations \
         UNION ALL SELECT backend_name, physical_key, target FROM cleanup_queue \
         UNION ALL SELECT backend_name, physical_key, target FROM cleanup_dlq \
         UNION ALL SELECT backend_name, physical_key, target FROM findings WHERE kind = 'written_off' \
         UNION ALL SELECT backend_name, physical_key, '' FROM pending_objects WHERE backend_name IS NOT NULL) AS named \
         WHERE target = '' OR substr(target, 1, 8) = 'version:' GROUP BY backend_name, physical_key \
         HAVING count(*) > count(DISTINCT target) \
         OR (count(*) > 1 AND sum(CASE WHEN target = '' THEN 1 ELSE 0 END) > 0)",
    ),
    (
        "no unit leaves its mark behind",
        "SELECT key FROM objects WHERE token IS NOT NULL AND deletion_status = 'NOT_EXPIRED' \
         UNION ALL SELECT physical_key FROM cleanup_dlq WHERE token IS NOT NULL \
         UNION ALL SELECT key FROM pending_objects WHERE token IS NOT NULL AND state = 'open'",
    ),
    (
        "a closed upload that holds parts says so",
        "SELECT id FROM multipart_uploads WHERE (leftover = 1) <> \
         (state <> 'open' AND EXISTS (SELECT 1 FROM multipart_parts WHERE upload_id = multipart_uploads.id))",
    ),
    (
        "a claim is whole or not there",
        "SELECT physical_key FROM cleanup_queue WHERE (token IS NULL) <> (claimed_by IS NULL) \
         OR (token IS NULL) <> (claimed_at IS NULL)",
    ),
];

/// Rows that break an invariant, with its name.
pub async fn broken(fixture: &Fixture) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    for (invariant, sql) in INVARIANTS {
        for row in fixture.rows(sql, vec![]).await {
            found.push((*invariant, first_text(&row)));
        }
    }
    found
}

/// Panics if the rows of the catalog do not agree with each other.
pub async fn check(fixture: &Fixture) {
    let found = broken(fixture).await;
    assert!(found.is_empty(), "{found:#?}");
    // The checks of `s3o verify` must agree.
    verification::assert_nothing_is_broken(fixture).await;
}

/// An invariant, a statement that breaks it, and the statement that undoes it.
const BREAKAGES: &[(&str, &str, &str)] = &[
    (
        "a count equals the rows that refer",
        "UPDATE contents SET ref_count = ref_count + 1 WHERE ref_count > 0",
        "UPDATE contents SET ref_count = ref_count - 1 WHERE ref_count > 0",
    ),
    (
        "only live whole content has locations",
        "UPDATE contents SET state = 'condemned' WHERE kind = 'whole'",
        "UPDATE contents SET state = 'live' WHERE condemned_at IS NULL",
    ),
    (
        "an object has live content of its size",
        "UPDATE objects SET size_bytes = size_bytes + 1",
        "UPDATE objects SET size_bytes = size_bytes - 1",
    ),
    (
        "the pieces of live joined content follow each other to its end",
        "UPDATE content_parts SET start = start + 1",
        "UPDATE content_parts SET start = start - 1",
    ),
    (
        "used bytes are those of locations, orphan bytes those of cleanups and dead letters, \
         reserved bytes those of intents",
        "UPDATE backend_quotas SET orphan_bytes = orphan_bytes + 1",
        "UPDATE backend_quotas SET orphan_bytes = orphan_bytes - 1",
    ),
    (
        "bytes are only on backends with quota rows",
        "UPDATE backend_quotas SET stripe = stripe + 1000",
        "UPDATE backend_quotas SET stripe = stripe - 1000",
    ),
    ("no unit leaves its mark behind", "UPDATE objects SET token = 'someone'", "UPDATE objects SET token = NULL"),
    (
        "a claim is whole or not there",
        "UPDATE cleanup_queue SET token = 'someone'",
        "UPDATE cleanup_queue SET token = NULL",
    ),
];

/// Creates an object, the content it displaced, and an object made of parts.
pub(super) async fn furnish(fixture: &Fixture) -> BucketId {
    let bucket = fixture.bucket("quota-usage").await;
    fixture.put(bucket, "a", 5).await;
    fixture.put(bucket, "a", 6).await;
    let upload = fixture.upload(bucket, "joined").await;
    let parts = [fixture.part(upload, 1, 3).await, fixture.part(upload, 2, 4).await];
    fixture.complete(upload, &parts).await.expect("completed");
    bucket
}

/// Each statement in `BREAKAGES` is reported under the name of its invariant.
pub async fn every_broken_invariant_is_found(fixture: &Fixture) {
    furnish(fixture).await;
    for (invariant, breakage, repair) in BREAKAGES {
        check(fixture).await;
        fixture.change(breakage, vec![]).await;
        let found = broken(fixture).await;
        assert!(found.iter().any(|(name, _)| name == invariant), "{invariant}: {found:?}");
        fixture.change(repair, vec![]).await;
    }
}

/// The rows are a location and a cleanup.
pub async fn key_named_by_two_rows_is_found(fixture: &Fixture) {
    let bucket = fixture.bucket("quota-usage").await;
    fixture.put(bucket, "a", 0).await;
    let twice = "INSERT INTO cleanup_queue (backend_name, physical_key, size_bytes, stripe, reason, due, created_at) \
         SELECT backend_name, physical_key, size_bytes, stripe, 'delete', 0, 0 FROM object_locations";
    fixture.change(twice, params![]).await;
    let found = broken(fixture).await;
    assert!(matches!(found.as_slice(), [("a physical key is named once", _)]), "{found:?}");
    fixture.change("DELETE FROM cleanup_queue", vec![]).await;
}
