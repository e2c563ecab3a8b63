//! The catalog itself: a copy of it while it is used, and what an operator says about contradictions in it.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::AdminParts;
use super::error::AdminError;

/// Backs up the catalog, and accepts contradictions in it on request.
#[async_trait]
pub trait CatalogControl: Send + Sync {
    /// Writes a whole copy to a file that is not there yet; how many bytes it has, or why there is no copy.
    async fn backup(&self, to: &Path) -> Result<u64, String>;

    /// Lets repairs go on although rows contradict each other; says whether that was in question.
    fn accept(&self) -> bool;
}

/// The file to write.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    path: PathBuf,
}

/// Writes a copy of the catalog on the machine of the server.
pub async fn backup(
    State(parts): State<AdminParts>,
    target: Result<Query<Target>, QueryRejection>,
) -> Result<Json<Value>, AdminError> {
    let Query(Target { path }) = target?;
    if !path.is_absolute() {
        let why = "the path of a backup begins with /".to_owned();
        return Err(AdminError::new(StatusCode::BAD_REQUEST, "invalid_path", why));
    }
    let failed = |why| AdminError::new(StatusCode::CONFLICT, "no_backup", why);
    let size_bytes = parts.catalog.backup(&path).await.map_err(failed)?;
    Ok(Json(json!({"path": path, "size_bytes": size_bytes})))
}

/// Lets repairs go on although rows contradict each other.
pub async fn accept(State(parts): State<AdminParts>) -> Result<Json<Value>, AdminError> {
    if parts.catalog.accept() {
        return Ok(Json(json!({"accepted": true})));
    }
    let why = "no contradiction between rows waits to be accepted".to_owned();
    Err(AdminError::new(StatusCode::CONFLICT, "nothing_to_accept", why))
}
