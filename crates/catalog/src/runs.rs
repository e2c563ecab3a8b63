//! State and recorded runs of workers.
//!
//! Ages are measured with the catalog's clock, so that instances need not agree on the time.

use std::collections::BTreeMap;
use std::time::Duration;

use s3o_model::clock::{Timestamp, millis_of};

use crate::error::Error;
use crate::unit::{Row, Unit, json};
use crate::{Catalog, params};

/// Rows that one step deletes.
const STEP_ITEMS: usize = 1000;
/// Outcome of a run that did not take place.
const SKIPPED: &str = "skipped";
/// Outcome of a successful run.
const OK: &str = "ok";

/// One run of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRow {
    /// IDs sort by start time.
    pub run_id: String,
    /// Name of the worker.
    pub worker: String,
    /// ID of the process that ran it.
    pub instance: String,
    /// By the host's clock.
    pub started_at: Timestamp,
    /// By the host's clock.
    pub finished_at: Timestamp,
    /// `ok`, `error`, `skipped` or `panicked`.
    pub outcome: String,
    /// Number of items by result.
    pub items: BTreeMap<String, u64>,
    /// Message of a failed run.
    pub error: Option<String>,
}

/// Pause and last runs of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerState {
    /// Name of the worker.
    pub worker: String,
    /// True if its scheduled runs are skipped.
    pub paused: bool,
    /// When its row was inserted.
    pub seen_at: Timestamp,
    /// Start of its last run.
    pub last_started_at: Option<Timestamp>,
    /// End of its last run, successful or not; the start of a run that an earlier version recorded.
    pub last_finished_at: Option<Timestamp>,
    /// End of its last successful run.
    pub last_success_at: Option<Timestamp>,
    /// The catalog's clock when the row was read.
    pub read_at: Timestamp,
}

/// `$1` is the worker, `$2` the duration of the run, `$3` is 1 if it was successful. A run that started before the last
/// known one does not change `last_started_at`.
const UPDATE_STATE: &str = "INSERT INTO worker_state (worker, seen_at, last_started_at, last_success_at, \
     last_finished_at) \
     VALUES ($1, :now, :now - $2, CASE WHEN $3 = 1 THEN :now END, :now) ON CONFLICT (worker) DO UPDATE SET \
     last_finished_at = excluded.last_finished_at, \
     last_started_at = CASE WHEN worker_state.last_started_at > excluded.last_started_at \
         THEN worker_state.last_started_at ELSE excluded.last_started_at END, \
     last_success_at = coalesce(excluded.last_success_at, worker_state.last_success_at)";

fn update_state(unit: &mut Unit, worker: &str, took: Duration, success: bool) {
    unit.run(UPDATE_STATE, params![worker, millis_of(took), i64::from(success)]);
}

fn state(row: &Row) -> Result<WorkerState, Error> {
    Ok(WorkerState {
        worker: row.string("worker")?,
        paused: row.int("paused")? != 0,
        seen_at: row.time("seen_at")?,
        last_started_at: row.opt_time("last_started_at")?,
        last_success_at: row.opt_time("last_success_at")?,
        read_at: row.time("now")?,
        last_finished_at: row.opt_time("finished_at")?,
    })
}

fn run(row: &Row) -> Result<RunRow, Error> {
    Ok(RunRow {
        run_id: row.string("run_id")?,
        worker: row.string("worker")?,
        instance: row.string("instance")?,
        started_at: row.time("started_at")?,
        finished_at: row.time("finished_at")?,
        outcome: row.string("outcome")?,
        items: row.json("items")?,
        error: row.opt_string("error")?,
    })
}

impl Catalog {
    /// The state of every worker, with one query.
    pub async fn worker_states(&self) -> Result<Vec<WorkerState>, Error> {
        const SQL: &str = "SELECT worker, paused, seen_at, last_started_at, last_success_at, :now AS now, \
             coalesce(last_finished_at, last_started_at) AS finished_at FROM worker_state ORDER BY worker";
        self.survey(SQL, vec![]).await?.iter().map(state).collect()
    }

    /// Inserts rows for workers that have none.
    pub async fn insert_workers(&self, workers: &[&str]) -> Result<(), Error> {
        let mut unit = Unit::new("insert_workers");
        for worker in workers {
            unit.run(
                "INSERT INTO worker_state (worker, seen_at) VALUES ($1, :now) ON CONFLICT (worker) DO NOTHING",
                params![*worker],
            );
        }
        self.write(unit).await.map(drop)
    }

    /// Updates the state of a worker after a successful run without recording the run.
    pub async fn note_run(&self, worker: &str, took: Duration) -> Result<(), Error> {
        let mut unit = Unit::new("note_run");
        update_state(&mut unit, worker, took, true);
        self.write(unit).await.map(drop)
    }

    /// Records a run and updates the state of its worker, unless the run was skipped.
    pub async fn record_run(&self, run: &RunRow) -> Result<(), Error> {
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
            update_state(&mut unit, &run.worker, run.finished_at.since(run.started_at), run.outcome == OK);
        }
        self.write(unit).await.map(drop)
    }

    /// Pauses a worker, or resumes it.
    pub async fn set_paused(&self, worker: &str, paused: bool) -> Result<(), Error> {
        let mut unit = Unit::new("set_paused");
        unit.run(
            "INSERT INTO worker_state (worker, seen_at, paused) VALUES ($1, :now, $2) \
             ON CONFLICT (worker) DO UPDATE SET paused = excluded.paused",
            params![worker, i64::from(paused)],
        );
        self.write(unit).await.map(drop)
    }

    /// Recorded runs, of one worker or of all, newest first; `after` is the last run of the previous page.
    pub async fn runs(&self, worker: Option<&str>, after: Option<&str>, limit: usize) -> Result<Vec<RunRow>, Error> {
        const ALL: &str = "SELECT run_id, worker, instance, started_at, finished_at, outcome, items, error \
             FROM worker_runs WHERE run_id < $1 ORDER BY run_id DESC LIMIT $2";
        const OF_ONE: &str = "SELECT run_id, worker, instance, started_at, finished_at, outcome, items, error \
             FROM worker_runs WHERE run_id < $1 AND worker = $3 ORDER BY run_id DESC LIMIT $2";
        // Greater than every ID.
        let after = after.unwrap_or("~");
        let sql = if worker.is_some() { OF_ONE } else { ALL };
        self.survey(sql, params![after, limit, worker]).await?.iter().map(run).collect()
    }

    /// Deletes runs of a worker beyond the newest `rows_max`, and runs of any worker that finished longer ago than
    /// `keep`. A bounded step; returns the number of deleted runs.
    pub async fn forget_runs(&self, worker: &str, keep: Duration, rows_max: usize) -> Result<usize, Error> {
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
