//! The review: a walk over all contents after a factor or the state of a backend changed. It sets each factor to the
//! highest one of the buckets that refer to the content, and notes contents with too few or too many copies.

use std::sync::LazyLock;

use s3o_model::ids::ContentId;
use s3o_model::names::BucketName;

use super::note_work_of;
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

const START: &str = "INSERT INTO copy_review (only_row, position) VALUES (1, '') \
     ON CONFLICT (only_row) DO UPDATE SET position = ''";

/// Makes postponed work due: what kept it from being done may have changed.
const HASTEN: &str = "UPDATE copy_work SET due = :now WHERE due > :now";

/// Adds the statements that start the review from the beginning and make postponed work due.
pub(crate) fn start_review(unit: &mut Unit) {
    unit.run(START, vec![]);
    unit.run(HASTEN, vec![]);
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

    /// Makes postponed work due, after a backend became usable.
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
        const PAGE: &str = "SELECT copy_review.position, c.id FROM copy_review LEFT JOIN \
             (SELECT id FROM contents WHERE id > (SELECT position FROM copy_review) ORDER BY id LIMIT $1) c ON 1 = 1 \
             ORDER BY c.id";
        if self.due_depth(ahead_max).await? >= ahead_max {
            return Ok(false);
        }
        let rows = self.read(PAGE, params![limit]).await?;
        let Some(first) = rows.first() else { return Ok(false) };
        let position = first.string("position")?;
        let named = rows.iter().filter(|row| row.opt_text("id").is_ok_and(|id| id.is_some()));
        let ids = named.map(|row| row.parse("id")).collect::<Result<Vec<ContentId>, _>>()?;
        let page = json(&ids);
        let mut unit = Unit::new("review_copies");
        unit.lock(
            LockRank::Content,
            "SELECT id FROM contents WHERE id IN TEXTS($1) ORDER BY id /*lock*/",
            params![&page],
        );
        unit.run(&SET_FACTORS, params![&page]);
        unit.run(&NOTE_PAGE, params![&page]);
        match ids.last() {
            Some(last) => unit.one(
                "UPDATE copy_review SET position = $2 WHERE position = $1",
                params![&position, *last],
                Verdict::RunAgain,
            ),
            None => unit.run("DELETE FROM copy_review WHERE position = $1", params![&position]),
        };
        match self.write(unit).await {
            // Another change has restarted the review.
            Ok(_) | Err(Error::Guard(Verdict::RunAgain)) => Ok(!ids.is_empty()),
            Err(error) => Err(error),
        }
    }
}
