//! Signing in with a token, signing out, and the choice of colours.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use maud::html;

use super::door::{Form, Guesses, Page, Theme, Visitor, see_other};
use super::{layout, session};
use crate::app::Services;
use crate::http::{CorrelationId, Params, Peer, Problem};

pub fn pages() -> Vec<Page> {
    vec![
        Page::public("/ui/login", get(show).post(sign_in)).params(&["next"]),
        Page::anyone("/ui/logout", post(sign_out)),
        Page::anyone("/ui/theme", post(theme)),
    ]
}

async fn show(theme: Theme, params: Params) -> Response {
    form(theme, params.text("next").unwrap_or_default(), None)
}

fn form(theme: Theme, next: &str, wrong: Option<&str>) -> Response {
    let page = layout::bare(
        theme,
        "Sign in",
        html! {
            h1 { "Sign in" }
            form.login method="post" action="/ui/login" {
                input type="hidden" name="next" value=(next);
                label for="token" { "Token" }
                input id="token" name="token" type="password" required autofocus autocomplete="current-password"
                    spellcheck="false" aria-describedby="hint" aria-invalid=[wrong.map(|_| "true")];
                @if let Some(wrong) = wrong { p.wrong role="alert" { (wrong) } }
                button type="submit" { "Sign in" }
                p.faint id="hint" {
                    "The administrator's token is in the file " code { "admin.token" } " of the data directory. "
                    "More are made with " code { "tidings token create" } "."
                }
            }
        },
    );
    let status = if wrong.is_some() { StatusCode::UNAUTHORIZED } else { StatusCode::OK };
    (status, page).into_response()
}

async fn sign_in(
    State(services): State<Services>,
    theme: Theme,
    Guesses(guesses): Guesses,
    correlation: CorrelationId,
    fields: Form,
    request: Request,
) -> Result<Response, Problem> {
    let now = services.clock.monotonic();
    let peer = peer_of(&request);
    let next = fields.text("next");
    match services.tokens.recognise(fields.text("token").trim()).await? {
        Some(caller) => {
            let cookie = session::begin(&services, &caller, peer, &correlation).await?;
            let home = layout::first_place(|scopes| caller.may(scopes)).unwrap_or("/ui/");
            let place = if is_ours(next) { next } else { home };
            let mut response = see_other(place);
            response.headers_mut().insert(header::SET_COOKIE, cookie);
            Ok(response)
        }
        None => {
            if let Some(seconds) = peer.and_then(|peer| guesses.blocked(peer, now)) {
                let detail = "too many unknown tokens came from this address; wait a moment";
                let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "too-many-requests", detail);
                return Err(problem.retry_after(seconds));
            }
            if let Some(peer) = peer {
                guesses.note(peer, now);
                // As many as the limit on guesses lets through: nobody fills the log by guessing.
                if services.config.limits.failed_auth_attempts > 0 {
                    session::refused(&services, peer, &correlation).await?;
                }
            }
            Ok(form(theme, next, Some("This token is unknown, revoked or expired.")))
        }
    }
}

fn peer_of(request: &Request) -> Option<IpAddr> {
    request.extensions().get::<Peer>().map(|peer| peer.0.ip())
}

/// Only pages of our own are gone on to: a path, and none that a browser takes for another host.
pub fn is_ours(path: &str) -> bool {
    path.starts_with("/ui/") && !path.contains(['\\', '\r', '\n', '\t']) && path.is_ascii()
}

async fn sign_out(
    State(services): State<Services>,
    visitor: Visitor,
    correlation: CorrelationId,
    request: Request,
) -> Result<Response, Problem> {
    let cookie = session::end(&services, &visitor.session, peer_of(&request), &correlation).await?;
    let mut response = see_other("/ui/login");
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    Ok(response)
}

async fn theme(fields: Form) -> Response {
    let back = fields.text("back");
    let mut response = see_other(if is_ours(back) { back } else { "/ui/" });
    if let Some(theme) = Theme::parse(fields.text("theme")) {
        response.headers_mut().insert(header::SET_COOKIE, theme.cookie());
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_to_another_site() {
        assert!(is_ours("/ui/events?type=a%20b"));
        for path in ["", "/", "//evil.example/ui/", "https://evil.example/ui/", "/ui/\\evil", "/ui/\r\nset-cookie: a"] {
            assert!(!is_ours(path), "{path:?}");
        }
    }
}
