//! Shows and changes the log level of the process.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;

use super::AdminState;
use super::error::AdminError;

/// A text that is not a log level.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a log level such as info, or a list such as info,s3o_workers=debug")]
pub struct InvalidLevel(pub String);

/// Applies a log level to the process's subscriber.
type Apply = Box<dyn Fn(&str) -> Result<(), InvalidLevel> + Send + Sync>;

/// The log level in force, and the function that changes it.
pub struct LogLevel {
    current: Mutex<String>,
    apply: Apply,
}

impl LogLevel {
    /// A level that is in force already; `apply` puts another one in force, or rejects it.
    pub fn new(level: &str, apply: impl Fn(&str) -> Result<(), InvalidLevel> + Send + Sync + 'static) -> Self {
        Self { current: Mutex::new(level.to_owned()), apply: Box::new(apply) }
    }

    fn current(&self) -> String {
        self.current.lock().clone()
    }

    fn set(&self, level: &str) -> Result<(), InvalidLevel> {
        let mut current = self.current.lock();
        (self.apply)(level)?;
        level.clone_into(&mut current);
        Ok(())
    }
}

/// The log level in force.
#[derive(Debug, Serialize)]
pub struct LevelAnswer {
    level: String,
}

/// `GET /admin/api/log-level`.
pub async fn show(State(state): State<Arc<AdminState>>) -> Json<LevelAnswer> {
    Json(LevelAnswer { level: state.log_level.current() })
}

/// `PUT /admin/api/log-level`: the body is `{"level": "debug"}` or the bare level.
pub async fn change(State(state): State<Arc<AdminState>>, body: String) -> Result<Json<LevelAnswer>, AdminError> {
    let level = requested(&body);
    let invalid = |error: InvalidLevel| AdminError::new(StatusCode::BAD_REQUEST, "invalid_level", error.to_string());
    state.log_level.set(&level).map_err(invalid)?;
    tracing::warn!(level, "log level changed");
    Ok(show(State(state)).await)
}

fn requested(body: &str) -> String {
    let json: Option<Value> = serde_json::from_str(body).ok();
    let level = json.as_ref().and_then(|value| value.as_str().or_else(|| value["level"].as_str()));
    level.unwrap_or(body).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::requested;

    #[test]
    fn level_is_read_from_json_or_bare_text() {
        for body in [r#"{"level": "debug"}"#, "\"debug\"", "debug", " debug\n"] {
            assert_eq!(requested(body), "debug");
        }
        assert_eq!(requested("{}"), "{}");
    }
}
