//! Views of the instances: which of them can use a backend, and for how long others could not. They decide when a
//! backend is unhealthy, so that its copies no longer count and are written elsewhere.
//!
//! Rows are written only while an instance cannot use a backend: that one writes its row, and the others answer. An
//! instance whose row is old is not counted, because it cannot reach the catalog or has ended.

use std::sync::LazyLock;
use std::time::Duration;

use s3o_model::clock::millis_of;
use s3o_model::ids::InstanceId;
use s3o_model::names::BackendName;

use crate::error::{Error, Verdict};
use crate::unit::{LockRank, Unit, json};
use crate::{Catalog, params};

/// SQL that is true for a recent row of `backend_views`. A row from the future was written with a wrong clock.
fn recent(view: &str) -> String {
    format!("{view}.seen_at BETWEEN :now - 30000 AND :now + 30000")
}

/// SQL for columns of a query on `backends` that summarize the recent views of each: how many instances can use it, how
/// many cannot, and the shortest time for which one of these could not.
pub(crate) fn summary_of_views() -> String {
    let of =
        |what: &str| format!("(SELECT {what} FROM backend_views v WHERE v.backend_name = name AND {}", recent("v"));
    format!(
        "{} AND v.failing_ms IS NULL) AS usable_views, {}) AS failing_views, {}) AS failing_ms",
        of("count(*)"),
        of("count(v.failing_ms)"),
        of("min(v.failing_ms)")
    )
}

/// Returns a row if at most half of the backends in `$1` fail: they are unhealthy, or no instance with a recent view
/// can use them. If more do, the fault is more likely the network of the instances, and new copies would not help.
static FEW_FAIL: LazyLock<String> = LazyLock::new(|| {
    let (failing, usable) = (recent("f"), recent("u"));
    format!(
        "SELECT 1 WHERE 2 * (SELECT count(*) FROM backends b WHERE b.name IN TEXTS($1) \
         AND (b.unhealthy_since IS NOT NULL OR (EXISTS (SELECT 1 FROM backend_views f \
         WHERE f.backend_name = b.name AND f.failing_ms IS NOT NULL AND {failing}) \
         AND NOT EXISTS (SELECT 1 FROM backend_views u \
         WHERE u.backend_name = b.name AND u.failing_ms IS NULL AND {usable})))) \
         <= (SELECT count(*) FROM backends WHERE name IN TEXTS($1))"
    )
});

/// Returns a row if every instance with a recent view has been unable to use backend `$1` for `$2`, and the others had
/// the time `$3` to answer the first of them.
static UNANIMOUS: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT count(*) AS views FROM backend_views v WHERE v.backend_name = $1 AND {} \
         HAVING count(*) = count(v.failing_ms) AND min(v.failing_ms) >= $2 AND min(v.since) <= :now - $3",
        recent("v")
    )
});

const RECORD: &str = "INSERT INTO backend_views (backend_name, instance, failing_ms, since, seen_at) \
     VALUES ($1, $2, $3, :now, :now) ON CONFLICT (backend_name, instance) DO UPDATE SET \
     since = CASE WHEN (backend_views.failing_ms IS NULL) = (excluded.failing_ms IS NULL) \
     THEN backend_views.since ELSE excluded.since END, \
     failing_ms = excluded.failing_ms, seen_at = excluded.seen_at";

const FORGET_OLD: &str = "DELETE FROM backend_views WHERE seen_at < :now - 3600000 OR seen_at > :now + 3600000";

const LOCK: &str = "SELECT name FROM backends WHERE name = $1 AND removing_since IS NULL /*lock*/";

/// What must hold for a backend to become unhealthy.
#[derive(Debug, Clone, Copy)]
pub struct UnhealthyRule {
    /// How long each instance must have been unable to use it.
    pub after: Duration,
    /// How long the other instances have to answer the first one that cannot.
    pub answer_wait: Duration,
}

impl Catalog {
    /// Records whether an instance can use a backend, or for how long it could not.
    pub async fn record_view(
        &self,
        instance: InstanceId,
        backend: &BackendName,
        failing_for: Option<Duration>,
    ) -> Result<(), Error> {
        let mut unit = Unit::new("record_view");
        unit.run(FORGET_OLD, vec![]);
        unit.run(RECORD, params![backend, instance, failing_for.map(millis_of)]);
        self.write(unit).await.map(drop)
    }

    /// Deletes the view of an instance, because no instance has trouble with that backend any more.
    pub async fn close_view(&self, instance: InstanceId, backend: &BackendName) -> Result<(), Error> {
        let mut unit = Unit::new("close_view");
        unit.run("DELETE FROM backend_views WHERE backend_name = $1 AND instance = $2", params![backend, instance]);
        self.write(unit).await.map(drop)
    }

    /// Makes a backend unhealthy: its copies do not count from now on. Fails as `NotNeeded` if it is already, or if an
    /// instance can use it, or if more than half of the `configured` backends fail; as `Closed` if it is being removed.
    pub async fn begin_unhealthy(
        &self,
        name: &BackendName,
        configured: &[BackendName],
        rule: UnhealthyRule,
    ) -> Result<(), Error> {
        self.announce_change(name).await?;
        let UnhealthyRule { after, answer_wait } = rule;
        let mut unit = Unit::new("begin_unhealthy");
        // One at a time: two that do not see each other could leave less than half of the backends.
        unit.lock(LockRank::Bucket, "SELECT only_row FROM cluster /*lock*/", vec![]);
        unit.at(LockRank::Backend).one(LOCK, params![name], Verdict::Closed);
        unit.one(&UNANIMOUS, params![name, millis_of(after), millis_of(answer_wait)], Verdict::NotNeeded);
        unit.one(&FEW_FAIL, params![json(&configured)], Verdict::NotNeeded);
        unit.one(
            "UPDATE backends SET unhealthy_since = :now WHERE name = $1 AND unhealthy_since IS NULL",
            params![name],
            Verdict::NotNeeded,
        );
        self.change_backend(name, unit).await
    }

    /// Ends the unhealthy state of a backend that an instance has been able to use for long enough: its copies count
    /// again. Fails as `NotNeeded` if it is not unhealthy.
    pub async fn end_unhealthy(&self, name: &BackendName) -> Result<(), Error> {
        let mut unit = Unit::new("end_unhealthy");
        unit.at(LockRank::Backend).one(LOCK, params![name], Verdict::Closed);
        unit.one(
            "UPDATE backends SET unhealthy_since = NULL WHERE name = $1 AND unhealthy_since IS NOT NULL",
            params![name],
            Verdict::NotNeeded,
        );
        self.change_backend(name, unit).await
    }
}
