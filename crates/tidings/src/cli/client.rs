//! How client commands find the server and their token, and how they talk to it.

use std::path::{Path, PathBuf};

use clap::Args;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::Deserialize;

use super::Failure;

/// Which server to talk to
#[derive(Args, Debug, Clone)]
pub struct Target {
    /// The server's address, as in http://127.0.0.1:8787
    #[arg(long, env = "TIDINGS_URL", global = true, value_parser = address)]
    url: Option<String>,
    /// The token to use
    #[arg(long, env = "TIDINGS_TOKEN", global = true, hide_env_values = true)]
    token: Option<String>,
    /// The data directory of a server on this machine, to find both
    #[arg(long, value_name = "DIR", default_value = "tidings-data", global = true)]
    data: PathBuf,
    /// Print the result as JSON
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Deserialize)]
struct Announcement {
    url: String,
}

pub struct Client {
    http: reqwest::Client,
    url: String,
    token: String,
}

/// An address that a server can have.
fn address(text: &str) -> Result<String, String> {
    match reqwest::Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(text.to_owned()),
        _ => Err("must be an address as in http://127.0.0.1:8787".to_owned()),
    }
}

impl Target {
    pub fn connect(&self) -> Result<Client, Failure> {
        let url = match &self.url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => announced(&self.data)?,
        };
        let token = match &self.token {
            Some(token) => token.clone(),
            None => read_token(&self.data)?,
        };
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            let why = "the token is none: it has spaces, line breaks or other characters that no token has";
            return Err(Failure(why.to_owned()));
        }
        let http = reqwest::Client::builder().no_proxy().connect_timeout(std::time::Duration::from_secs(10)).build()?;
        Ok(Client { http, url, token })
    }
}

fn announced(data: &Path) -> Result<String, Failure> {
    let path = data.join("server.json");
    let text = std::fs::read_to_string(&path).map_err(|_| {
        Failure(format!(
            "no server runs on {}; start one with `tidings serve`, or name one with --url (or TIDINGS_URL)",
            data.display()
        ))
    })?;
    let announcement: Announcement = serde_json::from_str(&text)
        .map_err(|_| Failure(format!("{} cannot be read; name the server with --url", path.display())))?;
    Ok(announcement.url)
}

fn read_token(data: &Path) -> Result<String, Failure> {
    let path = data.join("admin.token");
    let token = std::fs::read_to_string(&path).map_err(|_| {
        Failure(format!("no token: give one with --token (or TIDINGS_TOKEN); {} cannot be read", path.display()))
    })?;
    Ok(token.trim().to_owned())
}

impl Client {
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.url)).bearer_auth(&self.token)
    }

    pub async fn send(&self, request: RequestBuilder) -> Result<Response, Failure> {
        request.send().await.map_err(|error| {
            let why =
                if error.is_connect() { "nothing answers there".to_owned() } else { error.without_url().to_string() };
            Failure(format!("cannot reach {}: {why}", self.url))
        })
    }

    /// Sends and takes only success; a problem becomes its sentence.
    pub async fn expect(&self, request: RequestBuilder) -> Result<Response, Failure> {
        let response = self.send(request).await?;
        if response.status().is_success() { Ok(response) } else { Err(problem(response).await) }
    }
}

/// The sentence of a problem document.
pub async fn problem(response: Response) -> Failure {
    #[derive(Deserialize)]
    struct Problem {
        detail: String,
    }
    let status = response.status();
    let text = response.text().await.unwrap_or_default();
    let detail = serde_json::from_str::<Problem>(&text).map(|problem| problem.detail);
    let hint = if status == StatusCode::UNAUTHORIZED { "; give a token with --token or TIDINGS_TOKEN" } else { "" };
    Failure(format!("{} ({}){hint}", detail.unwrap_or_else(|_| "the server refused".to_owned()), status.as_u16()))
}
