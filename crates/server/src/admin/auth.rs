//! The admin token: no request reaches the admin API without it.

use std::fmt;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use s3o_model::shared::Shared;
use subtle::ConstantTimeEq as _;

use super::error::AdminError;

/// What opens the admin API; clones are the same. An empty token opens it to nobody.
#[derive(Clone)]
pub struct AdminToken(Shared<String>);

impl AdminToken {
    /// This token.
    #[must_use]
    pub fn new(token: &str) -> Self {
        Self(Shared::new(token.to_owned()))
    }

    /// Another one opens it from now on.
    pub fn replace(&self, token: &str) {
        self.0.replace(token.to_owned());
    }

    /// Compares in constant time, so that answers do not tell how much of a guess was right.
    fn accepts(&self, given: &[u8]) -> bool {
        let token = self.0.current();
        !token.is_empty() && bool::from(token.as_bytes().ct_eq(given))
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminToken(..)")
    }
}

/// Lets a request pass only with the token.
pub async fn require(State(token): State<AdminToken>, request: Request, next: Next) -> Response {
    if given(request.headers()).is_some_and(|given| token.accepts(given)) {
        return next.run(request).await;
    }
    let mut response = AdminError::new(StatusCode::UNAUTHORIZED, "unauthorized", "the admin token is missing or wrong")
        .into_response();
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

fn given(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    bearer.or_else(|| headers.get("x-admin-token").map(HeaderValue::as_bytes))
}

#[cfg(test)]
mod tests {
    use super::AdminToken;

    #[test]
    fn only_the_exact_token_opens() {
        let token = AdminToken::new("secret");
        assert!(token.accepts(b"secret"));
        for guess in [&b""[..], b"secre", b"secrets", b"SECRET"] {
            assert!(!token.accepts(guess));
        }
        assert!(!AdminToken::new("").accepts(b""));
    }

    #[test]
    fn a_new_token_counts_at_once_everywhere() {
        let token = AdminToken::new("old");
        let elsewhere = token.clone();
        token.replace("new");
        assert!(elsewhere.accepts(b"new") && !elsewhere.accepts(b"old"));
    }
}
