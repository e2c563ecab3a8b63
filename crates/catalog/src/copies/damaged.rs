//! Copies whose bytes are missing or not what was written. Content without a good copy is a finding until it has one
//! again or is deleted.

use std::sync::LazyLock;

use s3o_model::clock::Timestamp;
use s3o_model::content::Location;
use s3o_model::etag::{Md5, Sha256};
use s3o_model::ids::ContentId;

use super::remove::ON_REMOVABLE;
use super::work::settle;
use super::{COUNTS, note_work};
use crate::error::{Error, Verdict};
use crate::quotas::{Counter, lock_quota_rows, move_bytes};
use crate::unit::{LockRank, Unit};
use crate::write_offs::{LOST_COPIES, report};
use crate::{Catalog, params};

/// The digests of the bytes that a whole content has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenDigests {
    /// MD5 of its bytes; `None` for joined content.
    pub md5: Option<Md5>,
    /// SHA-256 of its bytes; `None` for joined content and for content of old versions.
    pub sha256: Option<Sha256>,
    /// When they were read, by the clock of the catalog.
    pub read_at: Timestamp,
}

/// Kind of the finding about content without a good copy. It names the content by its ID, and no backend.
pub(crate) const NO_GOOD_COPY: &str = "no_good_copy";

/// True for live content `c` all of whose copies are suspect, or lost.
pub(crate) const HAS_NO_GOOD_COPY: &str = "c.state = 'live' \
     AND EXISTS (SELECT 1 FROM object_locations g WHERE g.content_id = c.id AND g.state = 'suspect') \
     AND NOT EXISTS (SELECT 1 FROM object_locations g WHERE g.content_id = c.id AND g.state = 'present')";

const SUSPECT: &str = "UPDATE object_locations SET state = 'suspect' \
     WHERE content_id = $1 AND backend_name = $2 AND physical_key = $3 AND state = 'present'";

/// Notes that content `$1` has no good copy, with the name of an object that has it.
static NOTE_DAMAGE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "INSERT INTO findings (kind, backend_name, physical_key, size_bytes, detail, created_at) \
         SELECT '{NO_GOOD_COPY}', '', c.id, c.size_bytes, coalesce(\
         (SELECT b.name || '/' || o.key FROM objects o JOIN buckets b ON b.id = o.bucket_id \
         WHERE o.content_id = c.id LIMIT 1), \
         (SELECT b.name || '/' || o.key FROM content_parts p JOIN objects o ON o.content_id = p.joined_id \
         JOIN buckets b ON b.id = o.bucket_id WHERE p.whole_id = c.id LIMIT 1), ''), :now \
         FROM contents c WHERE c.id = $1 AND {HAS_NO_GOOD_COPY} \
         ON CONFLICT (backend_name, physical_key, target, kind) DO NOTHING"
    )
});

/// Removes the finding of content `$1` if it has a good copy again, or if nothing of it is left to repair.
static FORGET_DAMAGE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "DELETE FROM findings WHERE backend_name = '' AND physical_key = $1 AND kind = '{NO_GOOD_COPY}' \
         AND NOT EXISTS (SELECT 1 FROM contents c WHERE c.id = $1 AND {HAS_NO_GOOD_COPY})"
    )
});

/// Adds the statement that removes the finding of a locked content if it no longer holds.
pub(super) fn forget_damage(unit: &mut Unit, content: ContentId) {
    unit.run(&FORGET_DAMAGE, params![content]);
}

/// The suspect copy of content `$2` at `$1`, `$3`.
const ABSENT: &str =
    "object_locations WHERE backend_name = $1 AND content_id = $2 AND physical_key = $3 AND state = 'suspect'";

/// Returns a row if the copy was last found before the store of its backend was accepted, and the accept precedes
/// `$4`: it was looked for on the accepted store.
static IS_OLDER_THAN_ACCEPT: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT l.content_id FROM object_locations l JOIN backends t ON t.name = l.backend_name \
         WHERE l.backend_name = $1 AND l.content_id = $2 AND l.physical_key = $3 AND l.state = 'suspect' \
         AND coalesce(l.verified_at, 0) < t.trust_from AND t.trust_from <= $4 AND t.removing_since IS NULL AND {}",
        *ON_REMOVABLE
    )
});

static LOCK_QUOTAS: LazyLock<String> = LazyLock::new(|| lock_quota_rows("object_locations WHERE content_id = $1"));

/// The copy goes if another one counts. Otherwise it stays as a lost copy of zero bytes, and is reported if no other
/// copy may be good.
static LOSE: LazyLock<[String; 4]> = LazyLock::new(|| {
    let (_, chosen) = ABSENT.split_once(" WHERE ").expect("a table and a condition");
    let without = |others: &str| {
        format!(
            "{chosen} AND NOT EXISTS (SELECT 1 FROM object_locations l WHERE l.content_id = $2 \
             AND l.backend_name <> $1 AND {others})"
        )
    };
    [
        report(LOST_COPIES, &format!("object_locations WHERE {}", without("l.state <> 'lost'"))),
        move_bytes(Counter::Used, None, ABSENT),
        format!("UPDATE object_locations SET state = 'lost', size_bytes = 0 WHERE {}", without(COUNTS)),
        format!("DELETE FROM {ABSENT}"),
    ]
});

impl Catalog {
    /// Marks a copy as suspect: its bytes are proven to be missing or not what was written. `false` if it is no longer
    /// a copy of that content, or no longer in state `present`. If the content has no good copy then, that is a
    /// finding.
    pub async fn suspect(&self, content: ContentId, copy: &Location) -> Result<bool, Error> {
        let mut unit = Unit::new("suspect");
        // A commit that joins the content locks it and counts its good copies in several statements.
        unit.lock(LockRank::Content, "SELECT id FROM contents WHERE id = $1 /*lock*/", params![content]);
        let marked = unit.run(SUSPECT, params![content, &copy.backend, copy.physical_key.as_str()]);
        unit.run(&NOTE_DAMAGE, params![content]);
        note_work(&mut unit, content);
        Ok(self.write(unit).await?[marked].changed > 0)
    }

    /// Removes a suspect copy, or marks it as lost if no other one counts: a probe that began at `since` or later, by
    /// the clock of the catalog, proved that the store which an operator accepted lacks it. Fails as `NotNeeded` if the
    /// copy was found there since, if no operator accepted its store, or if instances see different stores there.
    pub async fn lose_absent_copy(&self, content: ContentId, copy: &Location, since: Timestamp) -> Result<(), Error> {
        let Location { backend, physical_key, .. } = copy;
        let place = params![backend, content, physical_key.as_str()];
        let mut unit = Unit::new("lose_absent_copy");
        unit.lock(LockRank::Content, "SELECT id FROM contents WHERE id = $1 /*lock*/", params![content]);
        let values = [place.clone(), params![since.millis()]].concat();
        unit.one(&IS_OLDER_THAN_ACCEPT, values, Verdict::NotNeeded);
        unit.lock(LockRank::Quota, &LOCK_QUOTAS, params![content]);
        for sql in LOSE.iter() {
            unit.run(sql, place.clone());
        }
        settle(&mut unit, content);
        self.write(unit).await.map(drop)
    }

    /// The digests of live content; `None` if it was deleted.
    pub async fn written_digests(&self, content: ContentId) -> Result<Option<WrittenDigests>, Error> {
        const DIGESTS: &str = "SELECT md5, sha256, :now AS read_at FROM contents WHERE id = $1 AND state = 'live'";
        let rows = self.read(DIGESTS, params![content]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let has = |column| row.opt_text(column).map(|text| text.is_some());
        Ok(Some(WrittenDigests {
            md5: has("md5")?.then(|| row.parse("md5")).transpose()?,
            sha256: has("sha256")?.then(|| row.parse("sha256")).transpose()?,
            read_at: row.time("read_at")?,
        }))
    }
}
