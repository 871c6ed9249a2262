//! A client of the API, for the command line.

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::wire::{Ask, Done, Overview, Problem};

/// An overview of ten thousand tasks is a few megabytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{url} does not answer: {reason}")]
    Unreachable { url: String, reason: String },
    #[error("{url} gave an answer that is not understood: {reason}")]
    Answer { url: String, reason: String },
    /// It does not know our token.
    #[error("{url} does not take this token")]
    Unauthorised { url: String },
    /// The server's own words.
    #[error("{0}")]
    Refused(String),
}

#[derive(Debug)]
pub struct Client {
    base: String,
    token: String,
    http: legacy::Client<legacy::connect::HttpConnector, Full<Bytes>>,
}

impl Client {
    /// `url` is the dashboard's address, such as `http://127.0.0.1:7117/`.
    #[must_use]
    pub fn new(url: &str, token: &str) -> Client {
        let http = legacy::Client::builder(TokioExecutor::new()).build_http();
        Client { base: url.trim_end_matches('/').to_owned(), token: token.to_owned(), http }
    }

    pub async fn overview(&self) -> Result<Overview, Error> {
        self.request(Method::GET, "/api/v1/overview", None::<&()>).await
    }

    pub async fn ask(&self, ask: &Ask) -> Result<Done, Error> {
        self.request(Method::POST, "/api/v1/commands", Some(ask)).await
    }

    async fn request<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, Error> {
        let url = format!("{}{path}", self.base);
        let unreachable = |reason: String| Error::Unreachable { url: url.clone(), reason };
        let body = body.map(serde_json::to_vec).transpose();
        let body = body.map_err(|e| unreachable(e.to_string()))?.unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(&url)
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::from(body))
            .map_err(|e| unreachable(e.to_string()))?;
        let answer = self.http.request(request).await.map_err(|e| unreachable(e.to_string()))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|e| unreachable(e.to_string()))?.to_bytes();
        if status == StatusCode::UNAUTHORIZED {
            return Err(Error::Unauthorised { url });
        }
        if !status.is_success() {
            let problem: Option<Problem> = serde_json::from_slice(&body).ok();
            let said = problem.map_or_else(|| format!("{url} answered {status}"), |p| p.error);
            return Err(Error::Refused(said));
        }
        serde_json::from_slice(&body)
            .map_err(|e| Error::Answer { url: url.clone(), reason: e.to_string() })
    }
}
