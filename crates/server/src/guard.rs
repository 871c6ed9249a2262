//! Who may talk to the server.
//!
//! It listens on the loopback, which keeps other machines out but not other web pages: a page
//! from anywhere may send requests to it, or point its own name at 127.0.0.1. So the name that
//! was asked for must be a loopback one, and whatever changes something needs the token that
//! only the owner of the state folder can read.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Json, Response};

use crate::routes::Access;
use crate::wire::Problem;

/// Nothing but our own files may be loaded, and nobody may frame us.
const CONTENT_POLICY: &str =
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What every answer carries, whatever it is: each may end up in a browser.
const PROTECTION: [(HeaderName, &str); 3] = [
    (header::CONTENT_SECURITY_POLICY, CONTENT_POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
];

pub(crate) async fn guard(State(access): State<Access>, request: Request, next: Next) -> Response {
    let mut answer = admit(&access, request, next).await;
    for (name, value) in PROTECTION {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    // What is live is not shown from a cache; files say for themselves how long they keep.
    let cache = answer.headers_mut().entry(header::CACHE_CONTROL);
    cache.or_insert(HeaderValue::from_static("no-store"));
    answer
}

async fn admit(access: &Access, request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    if !host.is_some_and(is_loopback) {
        return refuse(StatusCode::FORBIDDEN, "only loopback names are served here");
    }
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    if !reads && !has_token(&request, &access.token) {
        return refuse(
            StatusCode::UNAUTHORIZED,
            "the token of this project's state folder is needed",
        );
    }
    next.run(request).await
}

fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    matches!(name, "127.0.0.1" | "localhost" | "[::1]")
}

fn has_token(request: &Request<Body>, token: &str) -> bool {
    let given = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or("");
    // Every byte is compared, so the time taken tells nothing about where they differ.
    let differ = given.bytes().zip(token.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
    given.len() == token.len() && differ == 0 && !token.is_empty()
}

fn refuse(status: StatusCode, error: &str) -> Response {
    (status, Json(Problem { error: error.to_owned() })).into_response()
}

#[cfg(test)]
mod tests {
    use super::is_loopback;

    /// A web page can make its own name resolve to 127.0.0.1; its requests carry that name.
    #[test]
    fn only_loopback_names_pass() {
        for host in ["127.0.0.1:7117", "localhost:7117", "localhost", "[::1]:7117"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["evil.example:7117", "127.0.0.1.evil.example", "", "localhost:x"] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
