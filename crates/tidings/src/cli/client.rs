//! How client commands find the server and their token, and how they talk to it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::Args;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Failure;

const URL: &str = "TIDINGS_URL";
const TOKEN: &str = "TIDINGS_TOKEN";

/// Which server to talk to
#[derive(Args, Debug, Clone)]
pub struct Target {
    /// The server's address, as in http://127.0.0.1:8787
    #[arg(long, env = URL, global = true, value_parser = address)]
    url: Option<String>,
    /// The token to use
    #[arg(long, env = TOKEN, global = true, hide_env_values = true)]
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
        // A variable that is set to nothing; see `said`.
        Err(_) if text.is_empty() && is_blank(URL) => Ok(String::new()),
        _ => Err("must be an address as in http://127.0.0.1:8787".to_owned()),
    }
}

/// Whether a variable is set, to nothing.
fn is_blank(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| value.is_empty())
}

/// What a flag or its variable says. A variable that is set to nothing says nothing.
fn said<'a>(value: Option<&'a String>, variable: &str) -> Option<&'a str> {
    value.map(String::as_str).filter(|text| !(text.is_empty() && is_blank(variable)))
}

impl Target {
    pub fn connect(&self) -> Result<Client, Failure> {
        let given = said(self.url.as_ref(), URL).map(|url| url.trim_end_matches('/').to_owned());
        let token = said(self.token.as_ref(), TOKEN).map(ToOwned::to_owned);
        // The token of a directory is for its own server: whoever answers elsewhere must not see it.
        let (url, token) = match (given, token) {
            (Some(url), Some(token)) => (url, token),
            (None, Some(token)) => (announced(&self.data)?, token),
            (None, None) => (announced(&self.data)?, read_token(&self.data)?),
            (Some(url), None) if announced(&self.data).is_ok_and(|own| own == url) => (url, read_token(&self.data)?),
            (Some(url), None) => {
                return Err(Failure(format!(
                    "no token for {url}: give one with --token or TIDINGS_TOKEN; the one in {} is for the server of that \
                     directory alone",
                    self.data.display()
                )));
            }
        };
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
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
            let why = if error.is_connect() { self.unreachable(&error) } else { error.without_url().to_string() };
            Failure(format!("cannot reach {}: {why}", self.url))
        })
    }

    /// Why no connection comes about.
    fn unreachable(&self, error: &(dyn std::error::Error + 'static)) -> String {
        let causes = || std::iter::successors(Some(error), |error| error.source());
        let kind = causes().find_map(|cause| cause.downcast_ref::<std::io::Error>()).map(std::io::Error::kind);
        // Somebody is there, and says something else than TLS says, or cannot be trusted.
        let spoken = matches!(kind, Some(ErrorKind::InvalidData | ErrorKind::UnexpectedEof | ErrorKind::Other));
        if !(spoken && self.url.starts_with("https:")) {
            return "nothing answers there".to_owned();
        }
        let last = causes().last().map(ToString::to_string).unwrap_or_default();
        format!("no TLS connection comes about ({last}); a server without TLS is at http://")
    }

    /// Sends, takes only success, and reads what comes as JSON.
    pub async fn json<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, Failure> {
        self.read(&self.expect(request).await?.bytes().await?)
    }

    /// What the server said, if it is one of ours.
    pub fn read<T: DeserializeOwned>(&self, answer: &[u8]) -> Result<T, Failure> {
        serde_json::from_slice(answer).map_err(|error| {
            Failure(format!("what answers at {} is no tidings: its answer cannot be read ({error})", self.url))
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
    let foreign = |_| "the server refused, and not in the words of tidings: is it one?".to_owned();
    Failure(format!("{} ({}){hint}", detail.unwrap_or_else(foreign), status.as_u16()))
}
