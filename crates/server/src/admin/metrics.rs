//! The metrics page.

use std::sync::Arc;

use async_trait::async_trait;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use super::AdminParts;
use super::error::AdminError;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Brings gauges up to date before they are read.
#[async_trait]
pub trait Refresh: Send + Sync {
    /// Sets every gauge that nothing else sets.
    async fn refresh(&self);
}

/// The registry, and what refreshes it before each reading.
#[derive(Clone)]
pub struct MetricsPage {
    /// The registry, shared with those who register later.
    pub registry: Arc<Mutex<Registry>>,
    /// What sets the gauges.
    pub refresh: Arc<dyn Refresh>,
}

/// Answers all metrics as text.
pub async fn page(State(parts): State<AdminParts>) -> Response {
    parts.metrics.refresh.refresh().await;
    let mut text = String::new();
    let registry = parts.metrics.registry.lock();
    match encode(&mut text, &registry) {
        Ok(()) => ([(CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => AdminError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", error.to_string()).into_response(),
    }
}
