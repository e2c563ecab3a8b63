//! Shows the audit log of this instance, and records admin requests in it.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts as _, MatchedPath, Query, RawPathParams, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::AdminState;
use super::error::AdminError;
use super::lists::{AdminPage, limit};
use crate::audit::{AuditFilter, Cause};

/// The actor of every request with the admin token.
pub const ACTOR: &str = "admin";

/// The ID of an admin request, in its answer, its log line and its audit line.
#[derive(Debug, Clone)]
pub struct AdminRequestId(pub String);

/// Selects audit lines.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditQuery {
    event: Option<String>,
    since: Option<String>,
    limit: Option<usize>,
}

/// `GET /admin/api/audit`: the newest selected lines of this instance's file, newest last.
pub async fn show(
    State(state): State<Arc<AdminState>>,
    query: Result<Query<AuditQuery>, QueryRejection>,
) -> Result<Json<AdminPage<Value>>, AdminError> {
    let Query(query) = query?;
    let mut filter = AuditFilter::newest(limit(query.limit));
    if let Some(since) = &query.since {
        let invalid =
            |error: &dyn ToString| AdminError::new(StatusCode::BAD_REQUEST, "invalid_since", error.to_string());
        filter = filter.since(since).map_err(|error| invalid(&error))?;
    }
    filter.event = query.event.filter(|event| !event.is_empty());
    let read = tokio::task::spawn_blocking(move || state.audit.latest(&filter)).await;
    let lines = read.map_err(|error| AdminError::internal(&error))?.map_err(|error| AdminError::internal(&error))?;
    Ok(Json(AdminPage::last(lines)))
}

#[derive(Serialize)]
struct AdminAuthFailureFields<'a> {
    method: &'a str,
    path: &'a str,
    status: u16,
}

/// Assigns a request its ID. Audits requests that may change something, and requests without the token.
pub async fn record(State(state): State<Arc<AdminState>>, mut request: Request, next: Next) -> Response {
    let id = format!("{:016X}", state.entropy.next_u64());
    request.extensions_mut().insert(AdminRequestId(id.clone()));
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let action = request.extensions().get::<MatchedPath>().map(|matched| action(&method, matched.as_str()));
    let (mut parts, body) = request.into_parts();
    let parameters = path_parameters(&mut parts, &state).await;
    let mut response = next.run(Request::from_parts(parts, body)).await;
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert("x-request-id", value);
    }
    let status = response.status();
    tracing::debug!(request_id = id, %method, path, status = status.as_u16(), "admin request");
    if status == StatusCode::UNAUTHORIZED {
        let fields = AdminAuthFailureFields { method: method.as_str(), path: &path, status: status.as_u16() };
        state.audit.record("admin.AuthFailure", Cause::Request(&id), "anonymous", &fields);
    } else if let Some(action) = action.filter(|_| !matches!(method, Method::GET | Method::HEAD)) {
        let mut fields = parameters;
        fields.insert("status".to_owned(), status.as_u16().into());
        state.audit.record(&format!("admin.{action}"), Cause::Request(&id), ACTOR, &fields);
    }
    state.audit.wait_for_capacity().await;
    response
}

/// The values of the path's parameters, by parameter name.
async fn path_parameters(request: &mut Parts, state: &Arc<AdminState>) -> Map<String, Value> {
    let Ok(found) = RawPathParams::from_request_parts(request, state).await else { return Map::new() };
    found.iter().map(|(name, value)| (name.to_owned(), Value::from(value))).collect()
}

/// The fixed segments of a path, joined by dots: `/workers/{name}/run` is `workers.run`. DELETE appends `delete`.
fn action(method: &Method, matched: &str) -> String {
    let path = matched.strip_prefix("/admin/api").unwrap_or(matched);
    let mut words: Vec<&str> = path.split('/').filter(|word| !word.is_empty() && !word.starts_with('{')).collect();
    if *method == Method::DELETE {
        words.push("delete");
    }
    words.join(".")
}

#[cfg(test)]
mod tests {
    use super::action;
    use axum::http::Method;

    #[test]
    fn action_joins_the_fixed_segments_of_the_path() {
        assert_eq!(action(&Method::POST, "/admin/api/workers/{name}/run"), "workers.run");
        assert_eq!(action(&Method::PUT, "/log-level"), "log-level");
        assert_eq!(action(&Method::DELETE, "/admin/api/backends/{name}"), "backends.delete");
    }
}
