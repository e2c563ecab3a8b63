//! The admin token: requests without it do not reach the admin API.

use std::fmt;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use s3o_model::shared::Shared;
use subtle::ConstantTimeEq as _;

use super::error::AdminError;

/// The admin token. Clones share it. An empty token rejects every request.
#[derive(Clone)]
pub struct AdminToken(Shared<String>);

impl AdminToken {
    /// A token that [`Self::replace`] can change.
    #[must_use]
    pub fn new(token: &str) -> Self {
        Self(Shared::new(token.to_owned()))
    }

    /// Replaces the token for all clones.
    pub fn replace(&self, token: &str) {
        self.0.replace(token.to_owned());
    }

    /// Compares in constant time, so that response times do not reveal how much of a guess is right.
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

/// Middleware: answers 401 unless the request carries the token.
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
    fn only_the_exact_token_is_accepted() {
        let token = AdminToken::new("secret");
        assert!(token.accepts(b"secret"));
        for guess in [&b""[..], b"secre", b"secrets", b"SECRET"] {
            assert!(!token.accepts(guess));
        }
        assert!(!AdminToken::new("").accepts(b""));
    }

    #[test]
    fn replaced_token_applies_to_all_clones() {
        let token = AdminToken::new("old");
        let clone = token.clone();
        token.replace("new");
        assert!(clone.accepts(b"new") && !clone.accepts(b"old"));
    }
}
