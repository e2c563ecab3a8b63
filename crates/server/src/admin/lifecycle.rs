//! Shows what the lifecycle rules in force would delete now.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use s3o_workers::{PreviewTotal, RulePreview};
use serde::Serialize;

use super::AdminState;
use super::error::AdminError;
use super::lists::AdminPage;

/// A list of rules, and their sums.
#[derive(Debug, Serialize)]
pub struct PreviewAnswer {
    #[serde(flatten)]
    page: AdminPage<RulePreview>,
    left_out: u64,
    total: PreviewTotal,
}

/// `GET /admin/api/lifecycle/preview`: deletes nothing.
pub async fn preview(State(state): State<Arc<AdminState>>) -> Result<Json<PreviewAnswer>, AdminError> {
    let found = s3o_workers::preview(state.catalog.as_ref(), &state.lifecycle_rules).await?;
    Ok(Json(PreviewAnswer { page: AdminPage::last(found.items), left_out: found.left_out, total: found.total }))
}
