//! Errors of the admin API, as JSON: `{"error": {"code", "message"}}`.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// An admin request that was not carried out.
#[derive(Debug)]
pub struct AdminError {
    status: StatusCode,
    body: ErrorBody,
}

/// The value of `error` in an answer.
#[derive(Debug, Serialize)]
pub struct ErrorBody {
    /// For programs; never changes.
    pub code: &'static str,
    /// For people.
    pub message: String,
}

#[derive(Serialize)]
struct ErrorAnswer {
    error: ErrorBody,
}

impl AdminError {
    /// An error with this status, code and message.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, body: ErrorBody { code, message: message.into() } }
    }

    /// 400 `invalid_query`.
    pub fn invalid_query(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_query", message)
    }

    /// 503 `away`: the catalog or a backend does not answer, and a later attempt may succeed.
    fn away(error: &impl ToString) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "away", error.to_string())
    }

    /// 500 `internal`.
    pub fn internal(error: &impl ToString) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", error.to_string())
    }
}

impl From<QueryRejection> for AdminError {
    fn from(rejection: QueryRejection) -> Self {
        Self::invalid_query(rejection.body_text())
    }
}

impl From<s3o_catalog::Error> for AdminError {
    fn from(error: s3o_catalog::Error) -> Self {
        Self::away(&error)
    }
}

impl From<s3o_workers::Error> for AdminError {
    fn from(error: s3o_workers::Error) -> Self {
        match error {
            s3o_workers::Error::NoSuchBackend(_) => {
                Self::new(StatusCode::NOT_FOUND, "no_such_backend", error.to_string())
            }
            s3o_workers::Error::Backend { .. }
            | s3o_workers::Error::Catalog(_)
            | s3o_workers::Error::Listing { .. } => Self::away(&error),
        }
    }
}

impl IntoResponse for AdminError {
    fn into_response(self) -> Response {
        (self.status, Json(ErrorAnswer { error: self.body })).into_response()
    }
}

/// Answers requests for unknown paths.
pub async fn not_found() -> AdminError {
    AdminError::new(StatusCode::NOT_FOUND, "not_found", "no such path")
}

/// Answers methods that a path does not support.
pub async fn method_not_allowed() -> AdminError {
    AdminError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "this path does not support this method")
}
