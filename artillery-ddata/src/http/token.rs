//! The token that each request must have.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    middleware::Next,
    response::{AppendHeaders, IntoResponse, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};

/// Browsers prompt for a user and a password if the answer names this scheme.
const BASIC: &str = r#"Basic realm="artillery", charset="UTF-8""#;

/// Refuses requests without the token.
pub(super) async fn only_with_token(State(token): State<Arc<[u8]>>, request: Request, next: Next) -> Response {
    if is_given(request.headers(), &token) {
        return next.run(request).await;
    }
    let challenges = AppendHeaders([(header::WWW_AUTHENTICATE, "Bearer"), (header::WWW_AUTHENTICATE, BASIC)]);
    (StatusCode::UNAUTHORIZED, challenges, "a bearer token is needed, or the token as a password\n").into_response()
}

/// Accepts `Bearer TOKEN`, and `Basic` with the token as the password of any user, since that is how browsers sign in.
fn is_given(headers: &HeaderMap, token: &[u8]) -> bool {
    let Some(value) = headers.get(header::AUTHORIZATION).map(|value| value.as_bytes()) else { return false };
    if let Some(given) = value.strip_prefix(b"Bearer ") {
        return is_same(given, token);
    }
    let Some(encoded) = value.strip_prefix(b"Basic ") else { return false };
    let Ok(pair) = STANDARD.decode(encoded) else { return false };
    let password = pair.iter().position(|&byte| byte == b':').map(|colon| &pair[colon + 1..]);
    password.is_some_and(|given| is_same(given, token))
}

/// Compares in a time that depends only on the length, so that an attacker learns nothing else about the token. An empty
/// token, such as that of an unset variable, equals none.
fn is_same(given: &[u8], token: &[u8]) -> bool {
    !token.is_empty()
        && given.len() == token.len()
        && given.iter().zip(token).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn is_accepted(authorization: &str) -> bool {
        let headers = [(header::AUTHORIZATION, HeaderValue::from_str(authorization).unwrap())];
        is_given(&headers.into_iter().collect(), b"to:ken")
    }

    #[test]
    fn the_token_is_accepted_as_a_bearer_and_as_a_password_of_any_user() {
        assert!(is_accepted("Bearer to:ken"));
        for user in ["", "ann", "ünïcode"] {
            assert!(is_accepted(&format!("Basic {}", STANDARD.encode(format!("{user}:to:ken")))), "{user}");
        }
    }

    #[test]
    fn an_empty_token_is_never_given() {
        for given in ["Bearer ", "Basic Og=="] {
            let headers = [(header::AUTHORIZATION, HeaderValue::from_static(given))];
            assert!(!is_given(&headers.into_iter().collect(), b""), "{given}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        assert!(!is_given(&HeaderMap::new(), b"to:ken"));
        let wrong = [
            "to:ken",
            "Bearer",
            "Bearer ",
            "Bearer to:kem",
            "Bearer to:ken2",
            "bearer to:ken",
            "Digest to:ken",
            "Basic ",
            "Basic !",
        ];
        for wrong in wrong {
            assert!(!is_accepted(wrong), "{wrong}");
        }
        for pair in ["to:ken", "", ":", "ann:", "ann:to:kem", "ann:to:ken ", "ann"] {
            assert!(!is_accepted(&format!("Basic {}", STANDARD.encode(pair))), "{pair}");
        }
    }
}
