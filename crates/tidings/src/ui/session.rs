//! Sessions: a browser that has shown a token once. The cookie holds a random secret and nothing else; the store holds
//! its hash and which token it stands for, so that a session ends with its token, when somebody signs out, or after
//! twelve hours.

use std::net::IpAddr;
use std::sync::LazyLock;

use axum::http::{HeaderMap, HeaderValue, header};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use subtle::ConstantTimeEq;
use tidings_store::{Error, Item, Key, KeyKind, Table, Write};

use crate::app::Services;
use crate::audit::Action;
use crate::http::CorrelationId;
use crate::tokens::Caller;

const COOKIE: &str = "tidings_session";
const SECRET_BYTES: usize = 32;
const LASTS_SECONDS: i64 = 12 * 3600;

#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| Table::new("tidings-sessions", "id", KeyKind::S).ttl("ttl"));
    &TABLE
}

/// A session, as long as its request lasts.
#[derive(Clone)]
pub struct Session {
    pub caller: Caller,
    secret: String,
}

/// Begins a session; gives the cookie that carries it. That somebody signed in is on record with it (S003-42).
pub async fn begin(
    services: &Services,
    caller: &Caller,
    peer: Option<IpAddr>,
    correlation: &CorrelationId,
) -> Result<HeaderValue, Error> {
    let mut bytes = [0; SECRET_BYTES];
    services.ids.random(&mut bytes);
    let secret = BASE64_URL_SAFE_NO_PAD.encode(bytes);
    let now = services.clock.now().as_second();
    let item = Item::new()
        .with("id", id_of(&secret))
        .with("tokenId", &caller.token.id)
        .with("since", now)
        .with("ttl", now.saturating_add(LASTS_SECONDS));
    let action = Action::new("login", "session", &caller.token.id).details(from(peer));
    services.audit.record_with(&caller.name(), &correlation.0, action, vec![Write::insert(table(), item)]).await?;
    Ok(cookie(services, &secret, LASTS_SECONDS))
}

/// The session of a request, if its cookie is of one that has not ended.
pub async fn of(services: &Services, headers: &HeaderMap) -> Result<Option<Session>, Error> {
    let Some(secret) = read_cookie(headers, COOKIE).filter(|secret| secret.len() == 43) else { return Ok(None) };
    let Some(item) = services.store.get(table(), &Key::new(id_of(secret))).await? else { return Ok(None) };
    let Some(token) = item.str("tokenId") else { return Ok(None) };
    let caller = services.tokens.holder(token).await?;
    Ok(caller.map(|caller| Session { caller, secret: secret.to_owned() }))
}

/// Ends the session; gives the cookie that takes its own away.
pub async fn end(
    services: &Services,
    session: &Session,
    peer: Option<IpAddr>,
    correlation: &CorrelationId,
) -> Result<HeaderValue, Error> {
    let ended = Write::delete(table(), Key::new(id_of(&session.secret)));
    let action = Action::new("logout", "session", &session.caller.token.id).details(from(peer));
    services.audit.record_with(&session.caller.name(), &correlation.0, action, vec![ended]).await?;
    Ok(cookie(services, "", 0))
}

/// Puts on record that somebody could not sign in. What they showed is not.
pub async fn refused(services: &Services, peer: IpAddr, correlation: &CorrelationId) -> Result<(), Error> {
    let action = Action::new("login.failed", "session", "unknown").details(from(Some(peer)));
    services.audit.record_with("unknown", &correlation.0, action, Vec::new()).await.map(drop)
}

fn from(peer: Option<IpAddr>) -> Value {
    json!({ "address": peer })
}

impl Session {
    /// What every form of this session carries, and no other site can know.
    #[must_use]
    pub fn form_token(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(digest(&SHA256, format!("form {}", self.secret).as_bytes()))
    }

    #[must_use]
    pub fn is_form_token(&self, given: &str) -> bool {
        self.form_token().as_bytes().ct_eq(given.as_bytes()).into()
    }
}

/// A cookie's value.
#[must_use]
pub fn read_cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let all = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|text| text.split(';')).find_map(|pair| {
        let (known, value) = pair.trim().split_once('=')?;
        (known == name).then_some(value)
    })
}

fn cookie(services: &Services, secret: &str, seconds: i64) -> HeaderValue {
    let secure = if services.config.public_url.starts_with("https:") { "; Secure" } else { "" };
    let text = format!("{COOKIE}={secret}; Path=/ui; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}");
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""))
}

fn id_of(secret: &str) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(digest(&SHA256, secret.as_bytes()))
}
