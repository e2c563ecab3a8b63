//! The audit trail of this instance, and what admin requests themselves leave in it.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts as _, MatchedPath, Query, RawPathParams, Request, State};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::AdminParts;
use super::error::AdminError;
use super::lists::{LIMIT, LIMIT_MAX};
use crate::audit::{Cause, Filter};

/// Whoever holds the admin token.
pub const ACTOR: &str = "admin";

/// The identifier of an admin request, in its answer, its log line and its audit line.
#[derive(Debug, Clone)]
pub struct RequestId(pub String);

/// Which lines are wanted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    event: Option<String>,
    since: Option<String>,
    limit: Option<usize>,
}

/// The latest lines of this instance's file, newest last.
pub async fn show(
    State(parts): State<AdminParts>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Json<Value>, AdminError> {
    let Query(wanted) = wanted?;
    let invalid = |why: String| AdminError::new(StatusCode::BAD_REQUEST, "invalid_since", why);
    let mut filter = Filter::newest(wanted.limit.unwrap_or(LIMIT).clamp(1, LIMIT_MAX));
    if let Some(since) = &wanted.since {
        filter = filter.since(since).map_err(|error| invalid(error.to_string()))?;
    }
    filter.event = wanted.event.filter(|event| !event.is_empty());
    let audit = parts.audit;
    let failed = |why: String| AdminError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", why);
    let read = tokio::task::spawn_blocking(move || audit.latest(&filter)).await;
    let items = read.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error.to_string()))?;
    Ok(Json(json!({"items": items, "next": null})))
}

/// Gives a request its identifier; audits those that change something, and those without the token.
pub async fn follow(State(parts): State<AdminParts>, mut request: Request, next: Next) -> Response {
    let id = format!("{:016X}", parts.entropy.next_u64());
    request.extensions_mut().insert(RequestId(id.clone()));
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let action = request.extensions().get::<MatchedPath>().map(|matched| action(&method, matched.as_str()));
    let (mut parts_of, body) = request.into_parts();
    let names = names(&mut parts_of, &parts).await;
    let mut response = next.run(Request::from_parts(parts_of, body)).await;
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert("x-request-id", value);
    }
    let status = response.status();
    tracing::debug!(request_id = id, %method, path, status = status.as_u16(), "admin request");
    if status == StatusCode::UNAUTHORIZED {
        let fields = json!({"method": method.as_str(), "path": path, "status": status.as_u16()});
        parts.audit.record("admin.AuthFailure", Cause::Request(&id), "anonymous", &fields);
    } else if let Some(action) = action.filter(|_| !matches!(method, Method::GET | Method::HEAD)) {
        let mut fields = names;
        fields.insert("status".to_owned(), status.as_u16().into());
        parts.audit.record(&format!("admin.{action}"), Cause::Request(&id), ACTOR, &fields);
    }
    parts.audit.room().await;
    response
}

/// The values in a path, by their names there.
async fn names(request: &mut axum::http::request::Parts, state: &AdminParts) -> Map<String, Value> {
    let Ok(found) = RawPathParams::from_request_parts(request, state).await else { return Map::new() };
    found.iter().map(|(name, value)| (name.to_owned(), Value::from(value))).collect()
}

/// The words of a path: `/workers/{name}/run` is `workers.run`; deleting what a path names adds a word.
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
    fn actions_are_the_words_of_the_path() {
        assert_eq!(action(&Method::POST, "/admin/api/workers/{name}/run"), "workers.run");
        assert_eq!(action(&Method::PUT, "/log-level"), "log-level");
        assert_eq!(action(&Method::DELETE, "/admin/api/backends/{name}"), "backends.delete");
    }
}
