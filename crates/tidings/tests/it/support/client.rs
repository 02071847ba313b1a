//! An HTTP client for tests: every answer is read whole, and checked for what all answers must have.

use bytes::Bytes;
use reqwest::header::HeaderMap;
use reqwest::{Body, Method, RequestBuilder};
use serde_json::Value;

use super::described;

#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    url: String,
    token: Option<String>,
}

/// An answer, read to its end.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Client {
    pub fn new(url: &str, token: Option<&str>) -> Self {
        // reqwest takes the process's provider; whoever comes second finds it there.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // A connection for each request: none that the server is about to close is used again.
        let http = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().unwrap();
        Self { http, url: url.to_owned(), token: token.map(ToOwned::to_owned) }
    }

    /// The same client with another token.
    pub fn with_token(&self, token: Option<&str>) -> Self {
        Self { token: token.map(ToOwned::to_owned), ..self.clone() }
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.url));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    pub async fn get(&self, path: &str) -> Answer {
        Answer::to(self.request(Method::GET, path)).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        Answer::to(self.request(Method::DELETE, path)).await
    }

    /// Puts JSON.
    pub async fn put(&self, path: &str, body: &Value) -> Answer {
        let request = self.request(Method::PUT, path).header("content-type", "application/json");
        Answer::to(request.body(body.to_string())).await
    }

    /// Patches with JSON.
    pub async fn patch(&self, path: &str, body: &Value) -> Answer {
        let request = self.request(Method::PATCH, path).header("content-type", "application/json");
        Answer::to(request.body(body.to_string())).await
    }

    /// Posts JSON.
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_as(path, "application/json", body.to_string()).await
    }

    pub async fn post_as(&self, path: &str, content_type: &str, body: impl Into<Body>) -> Answer {
        self.post_with(path, &[("content-type", content_type)], body).await
    }

    pub async fn post_with(&self, path: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Answer {
        let mut request = self.request(Method::POST, path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Answer::to(request.body(body)).await
    }

    /// Sends one event that must be accepted; gives its receipt.
    pub async fn send(&self, event: &Value) -> Value {
        let answer = self.post("/events", event).await.expect(202).json();
        assert_eq!(answer["accepted"], 1, "{answer}");
        answer["events"][0].clone()
    }

    /// The ids of all stored events, newest first.
    pub async fn stored(&self) -> Vec<String> {
        self.ids("/events?limit=1000").await
    }

    /// The event ids of a list.
    pub async fn ids(&self, path: &str) -> Vec<String> {
        self.get(path).await.expect(200).ids()
    }

    /// The event ids of every page of a list, page by page.
    pub async fn pages(&self, path: &str) -> Vec<Vec<String>> {
        let mut pages = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let after = cursor.as_ref().map_or_else(String::new, |cursor| format!("&cursor={cursor}"));
            let page = self.get(&format!("{path}{after}")).await.expect(200);
            pages.push(page.ids());
            cursor = page.cursor();
            if cursor.is_none() {
                return pages;
            }
        }
    }
}

impl Answer {
    pub async fn to(request: RequestBuilder) -> Self {
        let (http, request) = request.build_split();
        let request = request.unwrap();
        // A body that is a stream is nothing to look at afterwards.
        let sent = request.try_clone();
        let response = http.execute(request).await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let answer = Self { status, headers, body: response.bytes().await.unwrap() };
        if let Some(sent) = sent {
            described::check(&sent, &answer);
        }
        // SX-03, S003-69: on every answer. SX-20: no browser guesses at content.
        assert!(!answer.header("x-correlation-id").is_empty(), "{answer:?}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{answer:?}");
        answer
    }

    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text());
        self
    }

    /// Checks that it is a problem document of that status (SX-24), and gives it.
    #[track_caller]
    pub fn problem(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.header("content-type"), "application/problem+json");
        let problem = self.json();
        assert_eq!(problem["status"], status);
        assert!(problem["type"].as_str().unwrap().starts_with("urn:tidings:problem:"), "{problem}");
        assert!(!problem["title"].as_str().unwrap().is_empty(), "{problem}");
        assert!(!problem["detail"].as_str().unwrap().is_empty(), "{problem}");
        assert_eq!(problem["correlationId"], self.header("x-correlation-id"));
        problem
    }

    /// The fields that a problem of status 400 names.
    #[track_caller]
    pub fn bad_fields(&self) -> Vec<String> {
        let problem = self.problem(400);
        let errors = problem["errors"].as_array().cloned().unwrap_or_default();
        errors.iter().map(|error| error["field"].as_str().unwrap().to_owned()).collect()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn ids(&self) -> Vec<String> {
        let list = self.json();
        list["items"].as_array().unwrap().iter().map(|item| item["eventId"].as_str().unwrap().to_owned()).collect()
    }

    pub fn cursor(&self) -> Option<String> {
        self.json()["cursor"].as_str().map(ToOwned::to_owned)
    }
}
