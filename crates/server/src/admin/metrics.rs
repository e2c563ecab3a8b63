//! `GET /metrics`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use prometheus_client::encoding::text::encode;

use super::AdminState;
use super::error::AdminError;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers with all metrics as `OpenMetrics` text.
pub async fn page(State(state): State<Arc<AdminState>>) -> Response {
    state.gauges.refresh().await;
    let mut text = String::new();
    let registry = state.registry.lock();
    match encode(&mut text, &registry) {
        Ok(()) => ([(CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => AdminError::internal(&error).into_response(),
    }
}
