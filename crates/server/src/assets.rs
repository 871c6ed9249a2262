//! The dashboard's files, as they were when the binary was built.

use axum::body::Body;
use axum::http::{Response, StatusCode, Uri, header};
use rust_embed::RustEmbed;

#[derive(RustEmbed)]
#[folder = "../../web/dist"]
#[allow_missing = true]
struct Dashboard;

/// Shown when the binary was built without the dashboard.
const WITHOUT_DASHBOARD: &str = include_str!("without-dashboard.html");

pub(crate) async fn file(uri: Uri) -> Response<Body> {
    let path = match uri.path().trim_start_matches('/') {
        "" => "index.html",
        path => path,
    };
    match Dashboard::get(path) {
        Some(file) => {
            // Names under assets/ carry a hash of their content.
            let hashed = path.starts_with("assets/");
            let cache = if hashed { "public, max-age=31536000, immutable" } else { "no-cache" };
            answer(StatusCode::OK, content_type(path), cache, file.data.into_owned().into())
        }
        None if path == "index.html" => {
            answer(StatusCode::OK, "text/html; charset=utf-8", "no-cache", WITHOUT_DASHBOARD.into())
        }
        None => answer(StatusCode::NOT_FOUND, "text/plain", "no-cache", "not found\n".into()),
    }
}

fn answer(
    status: StatusCode,
    content_type: &'static str,
    cache: &'static str,
    body: Body,
) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = [(header::CONTENT_TYPE, content_type), (header::CACHE_CONTROL, cache)];
    for (name, value) in headers {
        response.headers_mut().insert(name, header::HeaderValue::from_static(value));
    }
    response
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("ico") => "image/x-icon",
        Some("woff2") => "font/woff2",
        Some("json" | "map") => "application/json",
        _ => "application/octet-stream",
    }
}
