//! `GET /admin/api/findings`.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use s3o_catalog::{Finding, FindingSelection};
use serde::{Deserialize, Serialize};

use super::AdminState;
use super::error::AdminError;
use super::lists::{AdminPage, after_row, limit, present};

/// Selects findings, and a page of them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FindingsQuery {
    backend: Option<String>,
    kind: Option<String>,
    limit: Option<usize>,
    after: Option<String>,
}

/// A finding as the admin API shows it; times in RFC 3339.
#[derive(Debug, Serialize)]
pub struct FindingRow {
    id: i64,
    kind: String,
    backend: String,
    physical_key: String,
    target: String,
    size_bytes: u64,
    detail: String,
    created_at: String,
}

impl From<Finding> for FindingRow {
    fn from(finding: Finding) -> Self {
        let Finding { id, kind, backend, physical_key, target, size_bytes, detail, created_at } = finding;
        Self { id, kind, backend, physical_key, target, size_bytes, detail, created_at: created_at.to_string() }
    }
}

fn selection(query: &FindingsQuery) -> Result<FindingSelection, AdminError> {
    let given = |text: &Option<String>| present(text.as_deref()).map(str::to_owned);
    let which = FindingSelection { backend: given(&query.backend), kind: given(&query.kind) };
    // PostgreSQL cannot store a zero byte and would answer with an error of its own.
    let has_zero = |text: &Option<String>| text.as_ref().is_some_and(|text| text.contains('\0'));
    if has_zero(&which.backend) || has_zero(&which.kind) {
        return Err(AdminError::invalid_query("backend and kind must not contain zero bytes"));
    }
    Ok(which)
}

/// Answers with a page of findings.
pub async fn list(
    State(state): State<Arc<AdminState>>,
    query: Result<Query<FindingsQuery>, QueryRejection>,
) -> Result<Json<AdminPage<FindingRow>>, AdminError> {
    let Query(query) = query?;
    let (which, after, limit) = (selection(&query)?, after_row(query.after.as_deref())?, limit(query.limit));
    let found = state.catalog.findings(&which, after, limit + 1).await?;
    let rows = found.into_iter().map(FindingRow::from).collect();
    Ok(Json(AdminPage::new(rows, limit, |row: &FindingRow| row.id.to_string())))
}
