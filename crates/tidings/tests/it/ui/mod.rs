//! The dashboard through HTTP, and in a real browser.

mod acting;
mod browser;
mod figures;
mod pages;
mod safety;
mod sessions;

use reqwest::Method;
use reqwest::redirect::Policy;

use crate::support::{Answer, TestServer, encode};

/// Somebody with a browser that follows nothing by itself.
pub struct Visitor {
    http: reqwest::Client,
    url: String,
    pub cookie: String,
}

impl Visitor {
    pub fn stranger(server: &TestServer) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).redirect(Policy::none());
        Self { http: http.build().unwrap(), url: server.url.clone(), cookie: String::new() }
    }

    pub async fn signed_in(server: &TestServer, token: &str) -> Self {
        let mut visitor = Self::stranger(server);
        let answer = visitor.submit("/ui/login", &[("token", token)]).await.expect(303);
        let cookie = answer.header("set-cookie");
        visitor.cookie = cookie.split(';').next().unwrap().to_owned();
        visitor
    }

    /// Somebody whose token has these scopes.
    pub async fn with_scopes(server: &TestServer, scopes: &[&str]) -> Self {
        let made = server.client().post("/tokens", &serde_json::json!({ "scopes": scopes })).await.expect(201).json();
        Self::signed_in(server, made["token"].as_str().unwrap()).await
    }

    pub async fn admin(server: &TestServer) -> Self {
        Self::signed_in(server, server.admin_token()).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        Answer::to(self.request(Method::GET, path)).await
    }

    pub fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http.request(method, format!("{}{path}", self.url)).header("cookie", &self.cookie)
    }

    /// Sends a form as it is.
    pub async fn submit(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        Answer::to(self.form(path, fields)).await
    }

    pub fn form(&self, path: &str, fields: &[(&str, &str)]) -> reqwest::RequestBuilder {
        let body: Vec<_> = fields.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
        let request = self.request(Method::POST, path).header("content-type", "application/x-www-form-urlencoded");
        request.body(body.join("&"))
    }

    /// Sends a form as the page would: with what only this session's pages have.
    pub async fn act(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let token = self.form_token().await;
        self.submit(path, &[fields, &[("form", token.as_str())]].concat()).await
    }

    pub async fn form_token(&self) -> String {
        let page = self.get("/ui/").await.text();
        let start = page.split("name=\"form\" value=\"").nth(1).unwrap_or_else(|| panic!("no form: {page}"));
        start.split('"').next().unwrap().to_owned()
    }
}
