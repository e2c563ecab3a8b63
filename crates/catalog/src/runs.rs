//! What the catalog knows of the workers: whether they are paused, when they ran, what they did.
//!
//! Ages are told by the catalog's clock, so that instances need not agree on the time.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use s3o_model::clock::{Timestamp, millis_of};

use crate::error::Error;
use crate::unit::{Row, Unit, json};
use crate::{Catalog, params};

/// How many rows one step forgets.
const STEP_ITEMS: usize = 1000;
/// The outcome of a run that did not take place.
const SKIPPED: &str = "skipped";
/// The outcome of a run that went well.
const OK: &str = "ok";

/// One run of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRow {
    /// The run; identifiers sort by age.
    pub run_id: String,
    /// The worker.
    pub worker: String,
    /// Which process ran it.
    pub instance: String,
    /// When it started.
    pub started_at: Timestamp,
    /// When it finished.
    pub finished_at: Timestamp,
    /// `ok`, `error`, `skipped` or `panicked`.
    pub outcome: String,
    /// How many items came to which end.
    pub items: BTreeMap<String, u64>,
    /// What went wrong.
    pub error: Option<String>,
}

/// Where a worker stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerState {
    /// The worker.
    pub worker: String,
    /// Whether its scheduled runs are left out.
    pub paused: bool,
    /// When the catalog first heard of it.
    pub seen_at: Timestamp,
    /// When its last run started.
    pub last_started_at: Option<Timestamp>,
    /// When its last run ended, well or not; of a run recorded by an earlier version, when it started.
    pub last_finished_at: Option<Timestamp>,
    /// When its last good run finished.
    pub last_success_at: Option<Timestamp>,
    /// What the catalog's clock showed when this was read.
    pub read_at: Timestamp,
}

/// What is known of the workers.
#[async_trait]
pub trait Runs: Send + Sync {
    /// Where every worker stands; one look, not a transaction.
    async fn worker_states(&self) -> Result<Vec<WorkerState>, Error>;

    /// Enters workers that the catalog has not heard of yet; those it has stay as they are.
    async fn enter_workers(&self, workers: &[&str]) -> Result<(), Error>;

    /// Notes a good run that is not worth a row: only where the worker stands changes.
    async fn note_run(&self, worker: &str, took: Duration) -> Result<(), Error>;

    /// Records a run. Where the worker stands changes with it, unless the run was skipped; a run
    /// that started before the last known one does not set the clock back.
    async fn record_run(&self, run: &RunRow) -> Result<(), Error>;

    /// Pauses a worker, or lets it go on.
    async fn set_paused(&self, worker: &str, paused: bool) -> Result<(), Error>;

    /// Recorded runs, of one worker or of all, newest first; `after` is the last one already seen.
    async fn runs(&self, worker: Option<&str>, after: Option<&str>, limit: usize) -> Result<Vec<RunRow>, Error>;

    /// Forgets runs of a worker beyond the newest `rows_max`, and runs of anybody that finished
    /// longer ago than `keep`. A bounded step; how many went is returned.
    async fn forget_runs(&self, worker: &str, keep: Duration, rows_max: usize) -> Result<usize, Error>;
}

/// `$1` worker, `$2` how long ago it started, `$3` whether it went well.
const STAND: &str = "INSERT INTO worker_state (worker, seen_at, last_started_at, last_success_at, last_finished_at) \
     VALUES ($1, :now, :now - $2, CASE WHEN $3 = 1 THEN :now END, :now) ON CONFLICT (worker) DO UPDATE SET \
     last_finished_at = excluded.last_finished_at, \
     last_started_at = CASE WHEN worker_state.last_started_at > excluded.last_started_at \
         THEN worker_state.last_started_at ELSE excluded.last_started_at END, \
     last_success_at = coalesce(excluded.last_success_at, worker_state.last_success_at)";

fn stand(unit: &mut Unit, worker: &str, took: Duration, success: bool) {
    unit.run(STAND, params![worker, millis_of(took), i64::from(success)]);
}

fn state(row: &Row) -> Result<WorkerState, Error> {
    let moment = |column| row.opt_int(column).map(|millis| millis.map(Timestamp::from_millis));
    Ok(WorkerState {
        worker: row.text(0)?.to_owned(),
        paused: row.int(1)? != 0,
        seen_at: Timestamp::from_millis(row.int(2)?),
        last_started_at: moment(3)?,
        last_success_at: moment(4)?,
        read_at: Timestamp::from_millis(row.int(5)?),
        last_finished_at: moment(6)?,
    })
}

fn run(row: &Row) -> Result<RunRow, Error> {
    Ok(RunRow {
        run_id: row.text(0)?.to_owned(),
        worker: row.text(1)?.to_owned(),
        instance: row.text(2)?.to_owned(),
        started_at: Timestamp::from_millis(row.int(3)?),
        finished_at: Timestamp::from_millis(row.int(4)?),
        outcome: row.text(5)?.to_owned(),
        items: row.json(6)?,
        error: row.opt_text(7)?.map(str::to_owned),
    })
}

#[async_trait]
impl Runs for Catalog {
    async fn worker_states(&self) -> Result<Vec<WorkerState>, Error> {
        const SQL: &str = "SELECT worker, paused, seen_at, last_started_at, last_success_at, :now, \
             coalesce(last_finished_at, last_started_at) FROM worker_state ORDER BY worker";
        self.survey(SQL, vec![]).await?.iter().map(state).collect()
    }

    async fn enter_workers(&self, workers: &[&str]) -> Result<(), Error> {
        let mut unit = Unit::new("enter_workers");
        for worker in workers {
            unit.run(
                "INSERT INTO worker_state (worker, seen_at) VALUES ($1, :now) ON CONFLICT (worker) DO NOTHING",
                params![*worker],
            );
        }
        self.write(unit).await.map(drop)
    }

    async fn note_run(&self, worker: &str, took: Duration) -> Result<(), Error> {
        let mut unit = Unit::new("note_run");
        stand(&mut unit, worker, took, true);
        self.write(unit).await.map(drop)
    }

    async fn record_run(&self, run: &RunRow) -> Result<(), Error> {
        let mut unit = Unit::new("record_run");
        let (started, finished) = (run.started_at.millis(), run.finished_at.millis());
        unit.run(
            "INSERT INTO worker_runs (run_id, worker, instance, started_at, finished_at, outcome, items, error) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (run_id) DO NOTHING",
            params![
                &run.run_id,
                &run.worker,
                &run.instance,
                started,
                finished,
                &run.outcome,
                json(&run.items),
                run.error.as_deref(),
            ],
        );
        if run.outcome != SKIPPED {
            stand(&mut unit, &run.worker, run.finished_at.since(run.started_at), run.outcome == OK);
        }
        self.write(unit).await.map(drop)
    }

    async fn set_paused(&self, worker: &str, paused: bool) -> Result<(), Error> {
        let mut unit = Unit::new("set_paused");
        unit.run(
            "INSERT INTO worker_state (worker, seen_at, paused) VALUES ($1, :now, $2) \
             ON CONFLICT (worker) DO UPDATE SET paused = excluded.paused",
            params![worker, i64::from(paused)],
        );
        self.write(unit).await.map(drop)
    }

    async fn runs(&self, worker: Option<&str>, after: Option<&str>, limit: usize) -> Result<Vec<RunRow>, Error> {
        const ALL: &str = "SELECT run_id, worker, instance, started_at, finished_at, outcome, items, error \
             FROM worker_runs WHERE run_id < $1 ORDER BY run_id DESC LIMIT $2";
        const OF_ONE: &str = "SELECT run_id, worker, instance, started_at, finished_at, outcome, items, error \
             FROM worker_runs WHERE run_id < $1 AND worker = $3 ORDER BY run_id DESC LIMIT $2";
        // Behind every identifier.
        let after = after.unwrap_or("~");
        let sql = if worker.is_some() { OF_ONE } else { ALL };
        self.survey(sql, params![after, limit, worker]).await?.iter().map(run).collect()
    }

    async fn forget_runs(&self, worker: &str, keep: Duration, rows_max: usize) -> Result<usize, Error> {
        let mut unit = Unit::new("forget_runs");
        unit.run(
            "DELETE FROM worker_runs WHERE run_id IN (SELECT run_id FROM worker_runs WHERE worker = $1 \
             AND run_id <= (SELECT run_id FROM worker_runs WHERE worker = $1 ORDER BY run_id DESC \
             LIMIT 1 OFFSET $2) ORDER BY run_id LIMIT $3)",
            params![worker, rows_max, STEP_ITEMS],
        );
        unit.run(
            "DELETE FROM worker_runs WHERE run_id IN (SELECT run_id FROM worker_runs \
             WHERE finished_at <= :now - $1 ORDER BY finished_at LIMIT $2)",
            params![millis_of(keep), STEP_ITEMS],
        );
        let answers = self.write(unit).await?;
        Ok(answers.iter().map(|answer| answer.changed).sum())
    }
}
