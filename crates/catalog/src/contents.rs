//! What cleanup does to contents besides deleting bytes: expanding what was condemned whole, and
//! forgetting what is long gone. Each step is bounded.

use std::sync::LazyLock;
use std::time::Duration;

use async_trait::async_trait;
use s3o_model::cleanup::Reason;
use s3o_model::clock::millis_of;

use crate::error::{Error, Verdict};
use crate::low_water::Queue;
use crate::release::{NONE, Release, Selector};
use crate::unit::Unit;
use crate::{Catalog, params};

/// How many references one step lets go of.
const STEP_ITEMS: i64 = 1000;

/// Bounded steps of work on contents; each answers whether it found something to do.
#[async_trait]
pub trait Contents: Send + Sync {
    /// Lets go of the next pieces of condemned joined content, once readers had `grace` to finish.
    async fn expand_joined(&self, grace: Duration) -> Result<bool, Error>;

    /// Lets go of the next parts that a closed upload still holds.
    async fn expand_closed_upload(&self) -> Result<bool, Error>;

    /// Forgets uploads closed longer ago than `keep` (aborted ones at once) that hold no part.
    async fn forget_closed_uploads(&self, keep: Duration) -> Result<usize, Error>;

    /// Forgets condemned whole contents after `keep`, from where the last look found the first.
    async fn forget_condemned(&self, keep: Duration) -> Result<usize, Error>;
}

static PIECES: LazyLock<Release> = LazyLock::new(|| {
    Release::of(&Selector {
        referrers: "content_parts WHERE joined_id = $1 AND number BETWEEN $2 AND $3",
        column: "whole_id",
        dying_objects: NONE,
        dying_pieces: "p.joined_id = $1 AND p.number BETWEEN $2 AND $3",
        dying_parts: NONE,
        dying_pins: NONE,
    })
});

static PARTS: LazyLock<Release> = LazyLock::new(|| {
    Release::of(&Selector {
        referrers: "multipart_parts WHERE upload_id = $1 AND number BETWEEN $2 AND $3",
        column: "content_id",
        dying_objects: NONE,
        dying_pieces: NONE,
        dying_parts: "m.upload_id = $1 AND m.number BETWEEN $2 AND $3",
        dying_pins: NONE,
    })
});

#[async_trait]
impl Contents for Catalog {
    async fn expand_joined(&self, grace: Duration) -> Result<bool, Error> {
        const NEXT: &str = "SELECT c.id, (SELECT min(number) FROM content_parts WHERE joined_id = c.id) \
             FROM contents c WHERE c.state = 'condemned' AND c.kind = 'joined' AND c.condemned_at <= :now - $1 \
             ORDER BY c.condemned_at LIMIT 1";
        let found = self.read(NEXT, params![millis_of(grace)]).await?;
        let Some(row) = found.first() else { return Ok(false) };
        let first = row.opt_int(1)?.unwrap_or(0);
        let span = params![row.text(0)?, first, first + STEP_ITEMS - 1];
        let mut unit = Unit::new("expand_joined");
        unit.one(
            "SELECT id FROM contents WHERE id = $1 AND kind = 'joined' AND state = 'condemned' /*lock*/",
            span.clone(),
            Verdict::RunAgain,
        );
        PIECES.lock(&mut unit, &span);
        PIECES.enter(&mut unit, &span, None, None);
        PIECES.add_to(&mut unit, &span, Reason::Delete);
        unit.run("DELETE FROM content_parts WHERE joined_id = $1 AND number BETWEEN $2 AND $3", span.clone());
        unit.run(
            "DELETE FROM contents WHERE id = $1 AND NOT EXISTS (SELECT 1 FROM content_parts WHERE joined_id = $1)",
            span,
        );
        self.step(unit).await
    }

    async fn expand_closed_upload(&self) -> Result<bool, Error> {
        const NEXT: &str = "SELECT u.id, (SELECT min(number) FROM multipart_parts WHERE upload_id = u.id) \
             FROM multipart_uploads u WHERE u.leftover = 1 ORDER BY u.closed_at LIMIT 1";
        let found = self.read(NEXT, vec![]).await?;
        let Some(row) = found.first() else { return Ok(false) };
        let first = row.opt_int(1)?.unwrap_or(0);
        let span = params![row.text(0)?, first, first + STEP_ITEMS - 1];
        let mut unit = Unit::new("expand_closed_upload");
        unit.one(
            "SELECT id FROM multipart_uploads WHERE id = $1 AND state <> 'open' /*lock*/",
            span.clone(),
            Verdict::RunAgain,
        );
        PARTS.lock(&mut unit, &span);
        PARTS.enter(&mut unit, &span, None, None);
        PARTS.add_to(&mut unit, &span, Reason::Multipart);
        unit.run("DELETE FROM multipart_parts WHERE upload_id = $1 AND number BETWEEN $2 AND $3", span.clone());
        unit.run(
            "UPDATE multipart_uploads SET leftover = 0 WHERE id = $1 \
             AND NOT EXISTS (SELECT 1 FROM multipart_parts WHERE upload_id = $1)",
            span,
        );
        self.step(unit).await
    }

    async fn forget_closed_uploads(&self, keep: Duration) -> Result<usize, Error> {
        let mut unit = Unit::new("forget_closed_uploads");
        unit.run(
            "DELETE FROM multipart_uploads WHERE id IN (SELECT id FROM multipart_uploads WHERE leftover = 0 \
             AND (state = 'aborted' OR (state = 'completed' AND closed_at <= :now - $1)) LIMIT $2)",
            params![millis_of(keep), STEP_ITEMS],
        );
        Ok(self.write(unit).await?[0].changed)
    }

    async fn forget_condemned(&self, keep: Duration) -> Result<usize, Error> {
        let from = self.low_waters.from(Queue::Condemned);
        let mut unit = Unit::new("forget_condemned");
        unit.run(
            // The state is asked of the row itself, too: the index may be damaged.
            "DELETE FROM contents WHERE id IN (SELECT id FROM contents WHERE state = 'condemned' AND kind = 'whole' \
             AND condemned_at >= $3 AND condemned_at <= :now - $1 ORDER BY condemned_at LIMIT $2) AND state <> 'live'",
            params![millis_of(keep), STEP_ITEMS, from],
        );
        Ok(self.write(unit).await?[0].changed)
    }
}

impl Catalog {
    /// Takes a step. Where another worker took it meanwhile, there may be a next one.
    async fn step(&self, unit: Unit) -> Result<bool, Error> {
        match self.write(unit).await {
            Ok(_) | Err(Error::Guard(Verdict::RunAgain)) => Ok(true),
            Err(error) => Err(error),
        }
    }
}
