//! Gives every error of the admin listener the same JSON form, including those of the router and its extractors.

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{ALLOW, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http_body_util::{BodyExt as _, Limited};

use super::error::AdminError;

/// Longer error texts are replaced by the status.
const MESSAGE_BYTES_MAX: usize = 4096;

/// Rewrites errors that are not JSON. Health checks keep their plain text.
pub async fn rewrite(request: Request, next: Next) -> Response {
    let is_health = request.uri().path().starts_with("/health/");
    let response = next.run(request).await;
    let is_error = response.status().is_client_error() || response.status().is_server_error();
    if is_health || !is_error || is_json(&response) {
        return response;
    }
    as_json(response).await
}

fn is_json(response: &Response) -> bool {
    let is_json = |value: &HeaderValue| value.as_bytes().starts_with(b"application/json");
    response.headers().get(CONTENT_TYPE).is_some_and(is_json)
}

async fn as_json(response: Response) -> Response {
    let (parts, body) = response.into_parts();
    let message = text_of(body).await.unwrap_or_else(|| parts.status.to_string());
    let mut answer = AdminError::new(parts.status, code(parts.status), message).into_response();
    if let Some(allowed) = parts.headers.get(ALLOW) {
        answer.headers_mut().insert(ALLOW, allowed.clone());
    }
    answer
}

async fn text_of(body: Body) -> Option<String> {
    let bytes = Limited::new(body, MESSAGE_BYTES_MAX).collect().await.ok()?.to_bytes();
    String::from_utf8(bytes.to_vec()).ok().filter(|text| !text.is_empty())
}

fn code(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST => "invalid_request",
        StatusCode::NOT_FOUND => "not_found",
        StatusCode::METHOD_NOT_ALLOWED => "method_not_allowed",
        StatusCode::PAYLOAD_TOO_LARGE => "too_large",
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "unsupported_media_type",
        status if status.is_server_error() => "internal",
        _ => "refused",
    }
}
