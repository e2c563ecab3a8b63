//! Shows and changes what is logged.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::AdminParts;
use super::error::AdminError;

/// The level in force.
pub async fn show(State(parts): State<AdminParts>) -> Json<Value> {
    Json(json!({"level": parts.log_level.level()}))
}

/// Another level: `{"level": "debug"}` or the bare word.
pub async fn change(State(parts): State<AdminParts>, body: String) -> Result<Json<Value>, AdminError> {
    let level = wanted(&body);
    parts
        .log_level
        .set_level(&level)
        .map_err(|error| AdminError::new(StatusCode::BAD_REQUEST, "invalid_level", error.to_string()))?;
    tracing::warn!(level, "log level changed");
    Ok(Json(json!({"level": parts.log_level.level()})))
}

fn wanted(body: &str) -> String {
    let told: Option<Value> = serde_json::from_str(body).ok();
    let level = told.as_ref().and_then(|value| value.as_str().or_else(|| value["level"].as_str()));
    level.unwrap_or(body).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::wanted;

    #[test]
    fn levels_come_as_json_or_bare() {
        for body in [r#"{"level": "debug"}"#, "\"debug\"", "debug", " debug\n"] {
            assert_eq!(wanted(body), "debug");
        }
        assert_eq!(wanted("{}"), "{}");
    }
}
