//! Errors of the admin door, as JSON: `{"error": {"code", "message"}}`.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// A refused admin request.
#[derive(Debug)]
pub struct AdminError {
    status: StatusCode,
    code: &'static str,
    message: String,
}

impl AdminError {
    /// A refusal with this status, code and message.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into() }
    }
}

impl From<QueryRejection> for AdminError {
    fn from(rejection: QueryRejection) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_query", rejection.body_text())
    }
}

impl IntoResponse for AdminError {
    fn into_response(self) -> Response {
        let body = json!({"error": {"code": self.code, "message": self.message}});
        (self.status, Json(body)).into_response()
    }
}

/// Answers paths that do not exist.
pub async fn not_found() -> AdminError {
    AdminError::new(StatusCode::NOT_FOUND, "not_found", "there is nothing here")
}

/// Answers methods that a path does not know.
pub async fn method_not_allowed() -> AdminError {
    AdminError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "the path does not know this method")
}
