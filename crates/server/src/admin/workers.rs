//! Lists workers, runs them on request, pauses and resumes them.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use s3o_workers::{RebalancePlan, RunOutcome, Runner, WorkerView, plan_rebalance, preview};
use serde::{Deserialize, Serialize};

use super::AdminState;
use super::error::AdminError;
use super::lists::{AdminPage, PageQuery, limit};

/// `GET /admin/api/workers`.
pub async fn list(
    State(state): State<Arc<AdminState>>,
    query: Result<Query<PageQuery>, QueryRejection>,
) -> Result<Json<AdminPage<WorkerView>>, AdminError> {
    let Query(PageQuery { limit: wanted, after }) = query?;
    let mut workers = sorted(&state.runner).await?;
    workers.retain(|worker| after.as_deref().is_none_or(|after| worker.name > after));
    Ok(Json(AdminPage::new(workers, limit(wanted), |worker| worker.name.to_owned())))
}

/// All workers, in the order of their names.
pub async fn sorted(runner: &Runner) -> Result<Vec<WorkerView>, s3o_workers::Error> {
    let mut workers = runner.list().await?;
    workers.sort_by_key(|worker| worker.name);
    Ok(workers)
}

/// An unknown parameter is an error: the client may have misspelt `dry_run`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunQuery {
    #[serde(default)]
    dry_run: bool,
}

/// `POST /admin/api/workers/{name}/run`.
pub async fn run(
    State(state): State<Arc<AdminState>>,
    Path(name): Path<String>,
    query: Result<Query<RunQuery>, QueryRejection>,
) -> Result<Response, AdminError> {
    let Query(RunQuery { dry_run }) = query?;
    if dry_run {
        return Ok(Json(dry_run_of(&state, &name).await?).into_response());
    }
    let report = state.runner.run_now(&name).await.ok_or_else(|| no_such_worker(&name))?;
    Ok(Json(report).into_response())
}

/// What a run of a worker would do, in the form of its report.
#[derive(Debug, Serialize)]
struct DryRunReport {
    worker: &'static str,
    dry_run: bool,
    outcome: RunOutcome,
    items: BTreeMap<&'static str, u64>,
    error: Option<String>,
    /// The moves of a rebalance.
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<RebalancePlan>,
}

impl DryRunReport {
    fn of(worker: &'static str, counts: &[(&'static str, u64)]) -> Self {
        let items = counts.iter().copied().filter(|(_, count)| *count > 0).collect();
        Self { worker, dry_run: true, outcome: RunOutcome::Ok, items, error: None, plan: None }
    }
}

async fn dry_run_of(state: &AdminState, name: &str) -> Result<DryRunReport, AdminError> {
    if name == "lifecycle" {
        let total = preview(state.catalog.as_ref(), &state.lifecycle_rules).await?.total;
        return Ok(DryRunReport::of("lifecycle", &[("deleted", total.count), ("aborted", total.uploads)]));
    }
    if name == "rebalancer" {
        let plan = plan_rebalance(&state.catalog, &state.engine, &state.rebalance.current()).await?;
        let moves = u64::try_from(plan.moves.len()).unwrap_or(u64::MAX);
        return Ok(DryRunReport { plan: Some(plan), ..DryRunReport::of("rebalancer", &[("moved", moves)]) });
    }
    let is_unknown = state.runner.list().await.is_ok_and(|workers| workers.iter().all(|worker| worker.name != name));
    if is_unknown {
        return Err(no_such_worker(name));
    }
    let message = format!("worker {name} does not support dry_run; nothing was run");
    Err(AdminError::new(StatusCode::BAD_REQUEST, "no_dry_run", message))
}

/// Whether scheduled runs of a worker are paused.
#[derive(Debug, Serialize)]
pub struct PauseAnswer {
    worker: String,
    paused: bool,
}

impl PauseAnswer {
    fn new(worker: String, paused: bool, is_known: bool) -> Result<Json<Self>, AdminError> {
        if is_known { Ok(Json(Self { worker, paused })) } else { Err(no_such_worker(&worker)) }
    }
}

/// `POST /admin/api/workers/{name}/pause`.
pub async fn pause(
    State(state): State<Arc<AdminState>>,
    Path(name): Path<String>,
) -> Result<Json<PauseAnswer>, AdminError> {
    let is_known = state.runner.pause(&name).await?;
    PauseAnswer::new(name, true, is_known)
}

/// `POST /admin/api/workers/{name}/resume`.
pub async fn resume(
    State(state): State<Arc<AdminState>>,
    Path(name): Path<String>,
) -> Result<Json<PauseAnswer>, AdminError> {
    let is_known = state.runner.resume(&name).await?;
    PauseAnswer::new(name, false, is_known)
}

fn no_such_worker(name: &str) -> AdminError {
    AdminError::new(StatusCode::NOT_FOUND, "no_such_worker", format!("there is no worker {name}"))
}
