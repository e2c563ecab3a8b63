//! Bounded steps of cleanup on contents: releasing the parts of condemned joined contents and closed uploads, and
//! deleting rows that are no longer needed.

use std::sync::LazyLock;
use std::time::Duration;

use s3o_model::cleanup::Reason;
use s3o_model::clock::millis_of;

use crate::error::{Error, Verdict};
use crate::low_water::Queue;
use crate::release::{DELETES_NOTHING, Release, Selector};
use crate::unit::{LockRank, Unit};
use crate::{Catalog, params};

/// Rows that one step releases or deletes.
const STEP_ITEMS: i64 = 1000;

static PIECES: LazyLock<Release> = LazyLock::new(|| {
    Release::of(&Selector {
        referrers: "content_parts WHERE joined_id = $1 AND number BETWEEN $2 AND $3",
        column: "whole_id",
        deleted_pieces: "p.joined_id = $1 AND p.number BETWEEN $2 AND $3",
        ..DELETES_NOTHING
    })
});

static PARTS: LazyLock<Release> = LazyLock::new(|| {
    Release::of(&Selector {
        referrers: "multipart_parts WHERE upload_id = $1 AND number BETWEEN $2 AND $3",
        column: "content_id",
        deleted_parts: "m.upload_id = $1 AND m.number BETWEEN $2 AND $3",
        ..DELETES_NOTHING
    })
});

impl Catalog {
    /// Releases the next pieces of content that was condemned longer ago than `grace`, which is the time that readers
    /// have to finish. `false` if there are none.
    pub async fn expand_joined(&self, grace: Duration) -> Result<bool, Error> {
        const NEXT: &str = "SELECT c.id, (SELECT min(number) FROM content_parts WHERE joined_id = c.id) AS first \
             FROM contents c WHERE c.state = 'condemned' AND c.kind = 'joined' AND c.condemned_at <= :now - $1 \
             ORDER BY c.condemned_at LIMIT 1";
        let found = self.read(NEXT, params![millis_of(grace)]).await?;
        let Some(row) = found.first() else { return Ok(false) };
        let first = row.opt_int("first")?.unwrap_or(0);
        let span = params![row.text("id")?, first, first + STEP_ITEMS - 1];
        let mut unit = Unit::new("expand_joined");
        unit.at(LockRank::Content).one(
            "SELECT id FROM contents WHERE id = $1 AND kind = 'joined' AND state = 'condemned' /*lock*/",
            span.clone(),
            Verdict::RunAgain,
        );
        PIECES.lock_and_release(&mut unit, &span, Reason::Delete);
        unit.run("DELETE FROM content_parts WHERE joined_id = $1 AND number BETWEEN $2 AND $3", span.clone());
        unit.run(
            "DELETE FROM contents WHERE id = $1 AND NOT EXISTS (SELECT 1 FROM content_parts WHERE joined_id = $1)",
            span,
        );
        self.step(unit).await
    }

    /// Releases the next parts of a closed upload; `false` if there are none.
    pub async fn expand_closed_upload(&self) -> Result<bool, Error> {
        const NEXT: &str = "SELECT u.id, (SELECT min(number) FROM multipart_parts WHERE upload_id = u.id) AS first \
             FROM multipart_uploads u WHERE u.leftover = 1 ORDER BY u.closed_at LIMIT 1";
        let found = self.read(NEXT, vec![]).await?;
        let Some(row) = found.first() else { return Ok(false) };
        let first = row.opt_int("first")?.unwrap_or(0);
        let span = params![row.text("id")?, first, first + STEP_ITEMS - 1];
        let mut unit = Unit::new("expand_closed_upload");
        unit.at(LockRank::Upload).one(
            "SELECT id FROM multipart_uploads WHERE id = $1 AND state <> 'open' /*lock*/",
            span.clone(),
            Verdict::RunAgain,
        );
        PARTS.lock_and_release(&mut unit, &span, Reason::Multipart);
        unit.run("DELETE FROM multipart_parts WHERE upload_id = $1 AND number BETWEEN $2 AND $3", span.clone());
        unit.run(
            "UPDATE multipart_uploads SET leftover = 0 WHERE id = $1 \
             AND NOT EXISTS (SELECT 1 FROM multipart_parts WHERE upload_id = $1)",
            span,
        );
        self.step(unit).await
    }

    /// Deletes uploads without parts that were completed longer ago than `keep`, or aborted.
    pub async fn forget_closed_uploads(&self, keep: Duration) -> Result<usize, Error> {
        let mut unit = Unit::new("forget_closed_uploads");
        unit.run(
            "DELETE FROM multipart_uploads WHERE id IN (SELECT id FROM multipart_uploads WHERE leftover = 0 \
             AND (state = 'aborted' OR (state = 'completed' AND closed_at <= :now - $1)) LIMIT $2)",
            params![millis_of(keep), STEP_ITEMS],
        );
        Ok(self.write(unit).await?[0].changed)
    }

    /// Deletes condemned whole contents after `keep`, starting at the low-water mark.
    pub async fn forget_condemned(&self, keep: Duration) -> Result<usize, Error> {
        let from = self.low_waters.from(Queue::Condemned);
        let mut unit = Unit::new("forget_condemned");
        unit.run(
            // The row itself must be condemned, too: the index may be damaged.
            "DELETE FROM contents WHERE id IN (SELECT id FROM contents WHERE state = 'condemned' AND kind = 'whole' \
             AND condemned_at >= $3 AND condemned_at <= :now - $1 ORDER BY condemned_at LIMIT $2) AND state <> 'live'",
            params![millis_of(keep), STEP_ITEMS, from],
        );
        Ok(self.write(unit).await?[0].changed)
    }
}

impl Catalog {
    /// Runs a step. `true` also if another worker did it meanwhile, since there may be a next one.
    async fn step(&self, unit: Unit) -> Result<bool, Error> {
        match self.write(unit).await {
            Ok(_) | Err(Error::Guard(Verdict::RunAgain)) => Ok(true),
            Err(error) => Err(error),
        }
    }
}
