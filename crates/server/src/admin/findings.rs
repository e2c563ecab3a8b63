//! Findings, a page at a time.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use s3o_workers::FindingSelection;
use serde::Deserialize;
use serde_json::Value;

use super::AdminParts;
use super::error::AdminError;
use super::lists::{self, LIMIT, LIMIT_MAX};

/// Which findings, and which page of them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FindingsQuery {
    backend: Option<String>,
    kind: Option<String>,
    limit: Option<usize>,
    after: Option<String>,
}

impl FindingsQuery {
    fn selection(&self) -> Result<FindingSelection, AdminError> {
        // An empty parameter counts as absent. A database refuses a zero byte as an error of its own.
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let which = FindingSelection { backend: given(&self.backend), kind: given(&self.kind) };
        let has_zero = |text: &Option<String>| text.as_ref().is_some_and(|text| text.contains('\0'));
        if has_zero(&which.backend) || has_zero(&which.kind) {
            return Err(invalid("zero bytes are not allowed"));
        }
        Ok(which)
    }

    fn after(&self) -> Result<i64, AdminError> {
        match self.after.as_deref().filter(|after| !after.is_empty()) {
            None => Ok(0),
            Some(text) => text.parse().map_err(|_| invalid(&format!("{text:?} is not a number"))),
        }
    }
}

fn invalid(why: &str) -> AdminError {
    AdminError::new(StatusCode::BAD_REQUEST, "invalid_query", why)
}

/// `GET /admin/api/findings`.
pub async fn list(
    State(parts): State<AdminParts>,
    query: Result<Query<FindingsQuery>, QueryRejection>,
) -> Result<Json<Value>, AdminError> {
    let query = query?.0;
    let limit = query.limit.unwrap_or(LIMIT).clamp(1, LIMIT_MAX);
    // One more than shown tells whether there is another page.
    let found = parts.queues.findings(&query.selection()?, query.after()?, limit + 1).await;
    let away = |why| AdminError::new(StatusCode::SERVICE_UNAVAILABLE, "away", why);
    Ok(lists::numbered(found.map_err(away)?, limit))
}
