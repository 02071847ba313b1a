//! What all pages share: head, navigation, and the frame around the content.

use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};

use super::assets;
use super::door::{Theme, Visitor};
use super::parts::form_token;
use crate::http::{CorrelationId, Problem};
use crate::tokens::{ANY_USER, Scope};

/// A page of the navigation.
struct Place {
    path: &'static str,
    name: &'static str,
    scopes: &'static [Scope],
}

const PLACES: [Place; 13] = [
    Place { path: "/ui/", name: "Overview", scopes: &[Scope::Read] },
    Place { path: "/ui/live", name: "Live", scopes: &[Scope::Read] },
    Place { path: "/ui/events", name: "Events", scopes: &[Scope::Read] },
    Place { path: "/ui/messages", name: "Messages", scopes: &[Scope::Read] },
    Place { path: "/ui/inbox", name: "Inbox", scopes: &[Scope::Read, ANY_USER] },
    Place { path: "/ui/bus", name: "Bus", scopes: &[Scope::Read] },
    Place { path: "/ui/incidents", name: "Incidents", scopes: &[Scope::Read] },
    Place { path: "/ui/alerts", name: "Process changes", scopes: &[Scope::Read] },
    Place { path: "/ui/tickets", name: "Tickets", scopes: &[Scope::Read, Scope::Tickets] },
    Place { path: "/ui/rules", name: "Rules", scopes: &[Scope::Read] },
    Place { path: "/ui/schedules", name: "Schedules", scopes: &[Scope::Read] },
    Place { path: "/ui/audit", name: "Audit", scopes: &[Scope::Read] },
    Place { path: "/ui/tokens", name: "Tokens", scopes: &[] },
];

/// The first page that a visitor may see.
#[must_use]
pub fn first_place(may: impl Fn(&[Scope]) -> bool) -> Option<&'static str> {
    PLACES.iter().find(|place| may(place.scopes)).map(|place| place.path)
}

/// A whole page: `active` is the path in the navigation, `title` also its heading.
pub fn page(visitor: &Visitor, active: &str, title: &str, content: Markup) -> Html<String> {
    page_with(visitor, active, title, html! {}, content)
}

/// The same with something beside the heading.
pub fn page_with(visitor: &Visitor, active: &str, title: &str, beside: Markup, content: Markup) -> Html<String> {
    let body = html! {
        a.skip href="#main" { "Skip to content" }
        header.top {
            a.brand href="/ui/" { span.mark aria-hidden="true" {} "Tidings" }
            @if visitor.reads() {
                form.find method="get" action="/ui/find" role="search" aria-label="Everywhere" {
                    input name="q" aria-label="Find an event, message or correlation id" placeholder="Find any id…"
                        autocomplete="off" spellcheck="false";
                }
            }
            div.who {
                (theme_button(visitor))
                form method="post" action="/ui/logout" {
                    (form_token(visitor))
                    button.plain type="submit" title=(visitor.caller().token.name) { "Sign out" }
                }
            }
        }
        (navigation(visitor, active))
        main id="main" tabindex="-1" {
            div.heading { h1 { (title) } (beside) }
            (content)
        }
    };
    Html(document(visitor.theme, title, body).into_string())
}

fn navigation(visitor: &Visitor, active: &str) -> Markup {
    let links = html! {
        ul {
            @for place in PLACES.iter().filter(|place| visitor.may(place.scopes)) {
                li {
                    @if place.path == active { a href=(place.path) aria-current="page" { (place.name) } }
                    @else { a href=(place.path) { (place.name) } }
                }
            }
        }
    };
    html! {
        nav.side aria-label="Pages" { (links) }
        details.menu { summary { "Menu" } nav aria-label="Menu" { (links) } }
    }
}

fn theme_button(visitor: &Visitor) -> Markup {
    let next = visitor.theme.next().name();
    html! {
        form method="post" action="/ui/theme" {
            (form_token(visitor))
            input type="hidden" name="theme" value=(next);
            input type="hidden" name="back" value=(visitor.here);
            button.plain type="submit" aria-label=(format!("Colours: {}; change to {next}", visitor.theme.name()))
                title=(format!("Colours: {}", visitor.theme.name())) {
                span.theme-icon data-theme=(visitor.theme.name()) aria-hidden="true" {}
            }
        }
    }
}

/// A page without navigation: the login, and problems of strangers.
pub fn bare(theme: Theme, title: &str, content: Markup) -> Html<String> {
    let body = html! {
        main.bare id="main" {
            p.brand { span.mark aria-hidden="true" {} "Tidings" }
            (content)
        }
    };
    Html(document(theme, title, body).into_string())
}

fn document(theme: Theme, title: &str, body: Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" data-theme=(theme.name()) {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · Tidings" }
                link rel="icon" href=(assets::address("icon.svg")) type="image/svg+xml";
                link rel="stylesheet" href=(assets::address("app.css"));
                script src=(assets::address("app.js")) defer {}
            }
            body { (body) }
        }
    }
}

/// A problem as a page: what is wrong, and every field that is.
#[must_use]
pub fn problem(visitor: Option<&Visitor>, theme: Theme, problem: &Problem, correlation: &CorrelationId) -> Response {
    let title = match problem.status {
        StatusCode::NOT_FOUND => "Not found",
        StatusCode::FORBIDDEN => "Not allowed",
        StatusCode::BAD_REQUEST => "That does not work",
        StatusCode::CONFLICT => "Not possible now",
        StatusCode::UNAUTHORIZED => "Please sign in",
        _ => "Something went wrong",
    };
    let content = html! {
        div.problem.calm[problem.status == StatusCode::NOT_FOUND] role="alert" {
            @if problem.errors.is_empty() { p { (problem.detail) } }
            @else {
                p { "The request is not valid:" }
                ul { @for error in &problem.errors { li { code { (error.field) } " " (error.message) } } }
            }
            p.faint { "Status " (problem.status.as_u16()) " · correlation id " code { (correlation.0) } }
        }
        p { a href="/ui/" { "Back to the overview" } }
    };
    let page = match visitor {
        Some(visitor) => page(visitor, "", title, content),
        None => bare(theme, title, html! { h1 { (title) } (content) }),
    };
    (problem.status, page).into_response()
}
