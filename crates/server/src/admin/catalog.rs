//! Backs up the catalog, accepts contradictions between its rows, and reports damage.

use std::path::PathBuf;
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use s3o_catalog::{Catalog, Integrity};
use s3o_workers::{Report, Worker as _};
use serde::{Deserialize, Serialize};

use super::AdminState;
use super::error::AdminError;
use crate::audit::{Audit, Cause};

const ACCEPT_HINT: &str = "run `s3o verify`; `s3o catalog accept` lets quota_audit repair the counts that it confirms";

/// `path` names a file on the server's machine that does not exist yet.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackupQuery {
    path: PathBuf,
}

/// A finished backup.
#[derive(Debug, Serialize)]
pub struct BackupAnswer {
    path: PathBuf,
    size_bytes: u64,
}

/// `POST /admin/api/catalog/backup`: writes a copy of the catalog while it is in use.
pub async fn backup(
    State(state): State<Arc<AdminState>>,
    query: Result<Query<BackupQuery>, QueryRejection>,
) -> Result<Json<BackupAnswer>, AdminError> {
    let Query(BackupQuery { path }) = query?;
    if !path.is_absolute() {
        let message = format!("path: {} is not an absolute path", path.display());
        return Err(AdminError::new(StatusCode::BAD_REQUEST, "invalid_path", message));
    }
    let failed = |error: s3o_catalog::Error| AdminError::new(StatusCode::CONFLICT, "no_backup", error.to_string());
    let size_bytes = state.catalog.backup(&path).await.map_err(failed)?;
    // Raised marks let a later start recognise that this copy, once restored, is older than the backends.
    if let Err(error) = state.identity.tick(&mut Report::default()).await {
        tracing::warn!(%error, "cannot raise marks after catalog backup, identity worker retries");
    }
    Ok(Json(BackupAnswer { path, size_bytes }))
}

/// The contradiction is accepted.
#[derive(Debug, Serialize)]
pub struct CatalogAccepted {
    accepted: bool,
}

/// `POST /admin/api/catalog/accept`: lets repairs continue although rows contradict each other.
pub async fn accept(State(state): State<Arc<AdminState>>) -> Result<Json<CatalogAccepted>, AdminError> {
    if state.catalog.condition().accept_doubt() {
        return Ok(Json(CatalogAccepted { accepted: true }));
    }
    let message = "the catalog is not doubtful, so there is nothing to accept";
    Err(AdminError::new(StatusCode::CONFLICT, "nothing_to_accept", message))
}

/// What an operator can do about the state of the catalog; None if nothing is wrong.
pub fn remedy(integrity: &Integrity, restore_hint: &'static str) -> Option<&'static str> {
    match integrity {
        Integrity::Sound | Integrity::Checking => None,
        Integrity::Doubtful(_) => Some(ACCEPT_HINT),
        Integrity::Damaged(_) => Some(restore_hint),
    }
}

/// Logs and audits damage of the catalog, found so far or later, in a task that ends with the catalog.
pub fn report_damage(catalog: &Catalog, audit: &Arc<Audit>, restore_hint: &'static str) {
    let audit = Arc::clone(audit);
    let mut changes = catalog.condition().watch();
    tokio::spawn(async move {
        loop {
            report(&changes.borrow_and_update().clone(), &audit, restore_hint);
            if changes.changed().await.is_err() {
                return;
            }
        }
    });
}

#[derive(Serialize)]
struct DamageFields<'a> {
    reason: &'a str,
    remedy: &'a str,
}

fn report(integrity: &Integrity, audit: &Audit, restore_hint: &'static str) {
    let event = match integrity {
        Integrity::Sound | Integrity::Checking => return,
        Integrity::Doubtful(_) => "catalog.doubtful",
        Integrity::Damaged(_) => "catalog.degraded",
    };
    let (reason, remedy) =
        (integrity.reason().unwrap_or_default(), remedy(integrity, restore_hint).unwrap_or_default());
    tracing::error!(state = integrity.as_str(), reason, remedy, "catalog damaged or inconsistent");
    audit.record(event, Cause::Program, "catalog", &DamageFields { reason, remedy });
}
