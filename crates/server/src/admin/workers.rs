//! Shows and steers workers.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::AdminError;
use super::lists::{self, Page};
use super::{AdminParts, WorkerError};

/// Every worker.
pub async fn list(
    State(parts): State<AdminParts>,
    page: Result<Query<Page>, QueryRejection>,
) -> Result<Json<Value>, AdminError> {
    let Query(page) = page?;
    let workers = parts.workers.list().await.map_err(|error| refuse(&error, ""))?;
    Ok(lists::page(workers, "name", &page))
}

/// How a worker is run. A word that is not known is refused: it may have been meant to hold it back.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manner {
    #[serde(default)]
    dry_run: bool,
}

/// Runs a worker and answers with its report.
pub async fn run(
    State(parts): State<AdminParts>,
    Path(name): Path<String>,
    manner: Result<Query<Manner>, QueryRejection>,
) -> Result<Json<Value>, AdminError> {
    let Query(manner) = manner?;
    if manner.dry_run {
        return rehearse(&parts, &name).await;
    }
    let report = parts.workers.run(&name).await;
    report.map(Json).ok_or_else(|| refuse(&WorkerError::NotFound, &name))
}

async fn rehearse(parts: &AdminParts, name: &str) -> Result<Json<Value>, AdminError> {
    let told = parts.workers.rehearse(name).await.map_err(|error| refuse(&error, name))?;
    told.map(Json).ok_or_else(|| {
        let message = format!("{name} cannot tell beforehand what it would do; nothing was run");
        AdminError::new(StatusCode::BAD_REQUEST, "no_dry_run", message)
    })
}

/// Keeps a worker from running on its own.
pub async fn pause(State(parts): State<AdminParts>, Path(name): Path<String>) -> Result<Json<Value>, AdminError> {
    set_paused(&parts, &name, true).await
}

/// Lets a worker run on its own again.
pub async fn resume(State(parts): State<AdminParts>, Path(name): Path<String>) -> Result<Json<Value>, AdminError> {
    set_paused(&parts, &name, false).await
}

async fn set_paused(parts: &AdminParts, name: &str, paused: bool) -> Result<Json<Value>, AdminError> {
    parts.workers.set_paused(name, paused).await.map_err(|error| refuse(&error, name))?;
    Ok(Json(json!({"worker": name, "paused": paused})))
}

fn refuse(error: &WorkerError, name: &str) -> AdminError {
    match error {
        WorkerError::NotFound => {
            AdminError::new(StatusCode::NOT_FOUND, "no_such_worker", format!("there is no worker {name}"))
        }
        WorkerError::Away(_) => AdminError::new(StatusCode::SERVICE_UNAVAILABLE, "away", error.to_string()),
    }
}
