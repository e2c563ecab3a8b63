//! The review: a walk over all contents after a factor or the state of a backend changed. It sets each factor to the
//! highest one of the buckets that refer to the content, and notes contents with too few or too many copies.
//!
//! Not all of them are noted at once, so the order of the queue does not put the last copies first. While a factor is
//! above two, a first pass notes only contents with at most one copy, and a second one the others.

use std::sync::LazyLock;

use s3o_model::ids::ContentId;
use s3o_model::names::BucketName;

use super::{counting_copies, note_work_of};
use crate::error::{Error, Verdict};
use crate::unit::{LockRank, Unit, json};
use crate::{Catalog, params};

/// The highest factor of the buckets that refer to `contents`; its own factor while only a pin refers to it. The first
/// case ends at the first reference with the highest factor of all, however many references there are.
const WANTED: &str = "CASE WHEN EXISTS (SELECT 1 FROM objects o JOIN buckets b ON b.id = o.bucket_id \
     WHERE o.content_id = contents.id AND b.factor = (SELECT max(factor) FROM buckets)) \
     THEN (SELECT max(factor) FROM buckets) \
     ELSE coalesce((SELECT max(f) FROM (\
     SELECT max(b.factor) AS f FROM objects o JOIN buckets b ON b.id = o.bucket_id WHERE o.content_id = contents.id \
     UNION ALL SELECT max(b.factor) FROM multipart_parts m JOIN multipart_uploads u ON u.id = m.upload_id \
     JOIN buckets b ON b.id = u.bucket_id WHERE m.content_id = contents.id \
     UNION ALL SELECT max(b.factor) FROM content_parts p JOIN objects o ON o.content_id = p.joined_id \
     JOIN buckets b ON b.id = o.bucket_id WHERE p.whole_id = contents.id) AS referring), factor) END";

static SET_FACTORS: LazyLock<String> =
    LazyLock::new(|| format!("UPDATE contents SET factor = {WANTED} WHERE id IN TEXTS($1) AND factor <> {WANTED}"));

static NOTE_PAGE: LazyLock<String> = LazyLock::new(|| note_work_of("id IN TEXTS($1) AND kind = 'whole'"));

/// The first pass: contents of which at most one copy counts.
static NOTE_LAST_COPIES: LazyLock<String> = LazyLock::new(|| {
    let copies = counting_copies("contents.id");
    note_work_of(&format!("id IN TEXTS($1) AND kind = 'whole' AND factor > 1 AND {copies} <= 1"))
});

/// True for content whose factor is above that of every bucket which refers to it. Ends at the first reference from a
/// bucket with that factor. Content with very many references keeps its factor, and with it perhaps further copies,
/// until the next review: the unit that lowers the factor reads all references under the lock of the content, for which
/// writes and deletes wait. It cannot be split, because a reference that is added to the pages already read would be
/// missed. A review does that only after a change of a factor or of a backend's state, an audit would every hour.
const IS_TOO_HIGH: &str = "state = 'live' AND factor > 1 AND ref_count <= 10000 \
     AND NOT EXISTS (SELECT 1 FROM objects o JOIN buckets b ON b.id = o.bucket_id \
     WHERE o.content_id = contents.id AND b.factor >= contents.factor) \
     AND NOT EXISTS (SELECT 1 FROM multipart_parts m JOIN multipart_uploads u ON u.id = m.upload_id \
     JOIN buckets b ON b.id = u.bucket_id WHERE m.content_id = contents.id AND b.factor >= contents.factor) \
     AND NOT EXISTS (SELECT 1 FROM content_parts p JOIN contents j ON j.id = p.joined_id \
     WHERE p.whole_id = contents.id AND j.factor >= contents.factor)";

static LOWER: LazyLock<String> =
    LazyLock::new(|| format!("UPDATE contents SET factor = {WANTED} WHERE id IN TEXTS($1) AND factor > {WANTED}"));

/// With factors of at most two, the second pass alone has the same order.
const START: &str = "INSERT INTO copy_review (only_row, position, pass) \
     SELECT 1, '', CASE WHEN max(factor) > 2 THEN 0 ELSE 1 END \
     FROM (SELECT factor FROM buckets UNION ALL SELECT factor FROM cluster) AS every WHERE 1 = 1 \
     ON CONFLICT (only_row) DO UPDATE SET position = '', pass = excluded.pass";

/// Makes postponed work due: what kept it from being done may have changed. It changes one row, because it is part of
/// units that hold locks which writers wait for.
const HASTEN: &str = "UPDATE copy_epoch SET epoch = epoch + 1";

/// Adds the statements that start the review from the beginning and make postponed work due.
pub(crate) fn start_review(unit: &mut Unit) {
    unit.run(START, vec![]);
    unit.run(HASTEN, vec![]);
}

/// Moves the review from `position` to the last content of a page. After the last page, the second pass begins, or the
/// review ends.
fn advance(unit: &mut Unit, position: &str, is_first_pass: bool, last: Option<&ContentId>) {
    let pass = i64::from(!is_first_pass);
    match (last, is_first_pass) {
        (Some(last), _) => unit.one(
            "UPDATE copy_review SET position = $3 WHERE position = $1 AND pass = $2",
            params![position, pass, *last],
            Verdict::RunAgain,
        ),
        (None, true) => {
            let begin_second = "UPDATE copy_review SET position = '', pass = 1 WHERE position = $1 AND pass = $2";
            unit.run(begin_second, params![position, pass])
        }
        (None, false) => unit.run("DELETE FROM copy_review WHERE position = $1 AND pass = $2", params![position, pass]),
    };
}

impl Catalog {
    /// Sets the factor of these buckets, the factor of all others, and that of buckets created later. Starts a review
    /// if one of them changed; returns whether it did.
    pub async fn set_factors(&self, default: usize, by_bucket: &[(&BucketName, usize)]) -> Result<bool, Error> {
        const FACTOR: &str = "coalesce((SELECT CAST(t.value ->> 1 AS BIGINT) FROM json_each($2) t \
             WHERE t.value ->> 0 = buckets.name), $1)";
        static CHANGED: LazyLock<String> = LazyLock::new(|| {
            format!(
                "SELECT id FROM buckets WHERE factor <> {FACTOR} UNION ALL SELECT 0 FROM cluster WHERE factor <> $1"
            )
        });
        static LOCK: LazyLock<String> =
            LazyLock::new(|| format!("SELECT id FROM buckets WHERE factor <> {FACTOR} ORDER BY id /*lock*/"));
        static SET: LazyLock<String> =
            LazyLock::new(|| format!("UPDATE buckets SET factor = {FACTOR} WHERE factor <> {FACTOR}"));
        let values = params![default, json(&by_bucket)];
        if self.read(&CHANGED, values.clone()).await?.is_empty() {
            return Ok(false);
        }
        let mut unit = Unit::new("set_factors");
        unit.lock(LockRank::Bucket, &LOCK, values.clone());
        unit.run(&SET, values);
        unit.run("UPDATE cluster SET factor = $1", params![default]);
        start_review(&mut unit);
        self.write(unit).await.map(|_| true)
    }

    /// Lowers the factor of contents after `after` up to `last` if no bucket with that factor refers to them, and notes
    /// their excess copies. Returns how many were lowered.
    pub async fn lower_factors(&self, after: Option<ContentId>, last: ContentId) -> Result<u64, Error> {
        static CANDIDATES: LazyLock<String> = LazyLock::new(|| {
            format!("SELECT id FROM contents WHERE id > $1 AND id <= $2 AND {IS_TOO_HIGH} LIMIT 1000")
        });
        let after = after.map_or_else(String::new, |after| after.to_string());
        let rows = self.survey(&CANDIDATES, params![after, last]).await?;
        if rows.is_empty() {
            return Ok(0);
        }
        let page = json(&rows.iter().map(|row| row.parse("id")).collect::<Result<Vec<ContentId>, _>>()?);
        let mut unit = Unit::new("lower_factors");
        let lock = "SELECT id FROM contents WHERE id IN TEXTS($1) ORDER BY id /*lock*/";
        unit.lock(LockRank::Content, lock, params![&page]);
        let lowered = unit.run(&LOWER, params![&page]);
        unit.run(&NOTE_PAGE, params![&page]);
        Ok(self.write(unit).await?[lowered].changed as u64)
    }

    /// Makes postponed work due, after a backend became usable. However much there is, one row changes.
    pub async fn hasten_copy_work(&self) -> Result<(), Error> {
        let mut unit = Unit::new("hasten_copy_work");
        unit.run(HASTEN, vec![]);
        self.write(unit).await.map(drop)
    }

    /// Starts a review from the beginning.
    pub async fn start_copy_review(&self) -> Result<(), Error> {
        let mut unit = Unit::new("start_copy_review");
        start_review(&mut unit);
        self.write(unit).await.map(drop)
    }

    /// Reviews the next `limit` contents; returns `false` when the review has ended, or if it waits because the work of
    /// `ahead_max` contents is due already.
    pub async fn review_copies(&self, limit: usize, ahead_max: u64) -> Result<bool, Error> {
        const PAGE: &str = "SELECT copy_review.position, copy_review.pass, c.id FROM copy_review LEFT JOIN \
             (SELECT id FROM contents WHERE id > (SELECT position FROM copy_review) ORDER BY id LIMIT $1) c ON 1 = 1 \
             ORDER BY c.id";
        if self.due_depth(ahead_max).await? >= ahead_max {
            return Ok(false);
        }
        let rows = self.read(PAGE, params![limit]).await?;
        let Some(first) = rows.first() else { return Ok(false) };
        let (position, is_first_pass) = (first.string("position")?, first.int("pass")? == 0);
        let named = rows.iter().filter(|row| row.opt_text("id").is_ok_and(|id| id.is_some()));
        let ids = named.map(|row| row.parse("id")).collect::<Result<Vec<ContentId>, _>>()?;
        let page = json(&ids);
        let mut unit = Unit::new("review_copies");
        // Locked first: a change that restarts the review waits for this page, or this page fails.
        let is_current = "SELECT position FROM copy_review WHERE position = $1 /*lock*/";
        unit.at(LockRank::Bucket).one(is_current, params![&position], Verdict::RunAgain);
        unit.lock(
            LockRank::Content,
            "SELECT id FROM contents WHERE id IN TEXTS($1) ORDER BY id /*lock*/",
            params![&page],
        );
        unit.run(&SET_FACTORS, params![&page]);
        unit.run(if is_first_pass { &NOTE_LAST_COPIES } else { &NOTE_PAGE }, params![&page]);
        advance(&mut unit, &position, is_first_pass, ids.last());
        match self.write(unit).await {
            // Another change has restarted the review.
            Ok(_) | Err(Error::Guard(Verdict::RunAgain)) => Ok(!ids.is_empty() || is_first_pass),
            Err(error) => Err(error),
        }
    }
}
