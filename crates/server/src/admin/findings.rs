//! Lists findings, and records what an operator decides about them.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use s3o_catalog::{Decision, DecisionRefused, Finding, FindingSelection};
use s3o_model::clock::Timestamp;
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
    /// Number of valid passes that saw it as it is; 0 if no pass reports it.
    passes: u64,
    first_seen_at: Option<String>,
    seen_at: Option<String>,
    approved: bool,
    dismissed: bool,
}

impl From<Finding> for FindingRow {
    fn from(finding: Finding) -> Self {
        let time = |time: Option<Timestamp>| time.map(|time| time.to_string());
        Self {
            id: finding.id,
            kind: finding.kind,
            backend: finding.backend,
            physical_key: finding.physical_key,
            target: finding.target,
            size_bytes: finding.size_bytes,
            detail: finding.detail,
            created_at: finding.created_at.to_string(),
            passes: finding.passes,
            first_seen_at: time(finding.first_seen_at),
            seen_at: time(finding.seen_at),
            approved: finding.is_approved,
            dismissed: finding.is_dismissed,
        }
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

/// What was decided about a finding.
#[derive(Debug, Serialize)]
pub struct FindingDecided {
    id: i64,
    approved: bool,
    dismissed: bool,
}

/// `POST /admin/api/findings/{id}/approve`: act on it without waiting for another pass.
pub async fn approve(State(state): State<Arc<AdminState>>, Path(id): Path<String>) -> DecisionAnswer {
    decide(&state, &id, Decision::Approve).await
}

/// `POST /admin/api/findings/{id}/dismiss`: leave the bytes as they are.
pub async fn dismiss(State(state): State<Arc<AdminState>>, Path(id): Path<String>) -> DecisionAnswer {
    decide(&state, &id, Decision::Dismiss).await
}

type DecisionAnswer = Result<Json<FindingDecided>, AdminError>;

async fn decide(state: &AdminState, id: &str, decision: Decision) -> DecisionAnswer {
    let unknown = || AdminError::new(StatusCode::NOT_FOUND, "no_such_finding", format!("there is no finding {id}"));
    let number: i64 = id.parse().map_err(|_| unknown())?;
    match state.catalog.decide_finding(number, decision).await? {
        Ok(()) => {
            let approved = decision == Decision::Approve;
            Ok(Json(FindingDecided { id: number, approved, dismissed: !approved }))
        }
        Err(DecisionRefused::NoSuchFinding) => Err(unknown()),
        Err(DecisionRefused::Kind(kind)) => {
            let message = format!("nothing can be decided about findings of kind {kind}");
            Err(AdminError::new(StatusCode::CONFLICT, "not_decidable", message))
        }
    }
}
