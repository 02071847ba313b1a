//! Tokens: who may call. For administrators alone.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use maud::{Markup, html};
use serde_json::json;

use super::door::{Form, Page, Visitor, see_other};
use super::layout;
use super::parts::{self, badge, confirm, form_token, time};
use crate::app::Services;
use crate::http::{CorrelationId, Params, Problem};
use crate::tokens::http::{make, withdraw};

const SCOPES: [(&str, &str); 6] = [
    ("read", "look at everything"),
    ("operate", "retry, cancel, edit rules"),
    ("ingest", "send events"),
    ("consume", "receive from the bus"),
    ("tickets", "the ticket calls"),
    ("admin", "everything, tokens too"),
];

pub fn pages() -> Vec<Page> {
    vec![
        Page::new("/ui/tokens", &[], get(list).post(create)).params(&["done"]),
        Page::new("/ui/tokens/{id}/revoke", &[], post(revoke)),
    ]
}

async fn list(State(services): State<Services>, visitor: Visitor, params: Params) -> Result<Response, Problem> {
    let said = params.text("done").map(|_| "The token is revoked.");
    let content = html! { (parts::notice(said)) (everything(&services, &visitor, &[]).await?) };
    Ok(layout::page(&visitor, "/ui/tokens", "Tokens", content).into_response())
}

async fn everything(
    services: &Services,
    visitor: &Visitor,
    wrong: &[tidings_core::envelope::FieldError],
) -> Result<Markup, Problem> {
    let tokens = services.tokens.list().await?;
    let now = services.clock.now();
    Ok(html! {
        table.cards {
            thead { tr { th { "Name" } th { "Scopes" } th { "Made" } th { "Expires" } th { "Id" } th { span.unseen { "Revoke" } } } }
            tbody { @for token in &tokens {
                tr {
                    td data-label="Name" { (token.name) @if token.id == visitor.caller().token.id { " " span.tag { "you" } } }
                    td data-label="Scopes" { span.tags { @for scope in &token.scopes { span.tag { (scope.to_string()) } } } }
                    td data-label="Made" { (time(token.created_at)) }
                    td data-label="Expires" {
                        @match token.expires_at {
                            None => { span.faint { "never" } }
                            Some(at) if at <= now => { (badge("expired")) " " (time(at)) }
                            Some(at) => { (time(at)) }
                        }
                    }
                    td data-label="Id" { span.id { (token.id) } }
                    td data-label="" { (confirm(visitor, &format!("/ui/tokens/{}/revoke", token.id), "Revoke",
                        "Whoever uses this token is shut out at once. This cannot be undone.")) }
                }
            } }
        }
        section aria-labelledby="new" {
            h2 id="new" { "New token" }
            form.editor method="post" action="/ui/tokens" {
                (form_token(visitor))
                @if !wrong.is_empty() {
                    div.problem role="alert" { ul { @for error in wrong { li { code { (error.field) } " " (error.message) } } } }
                }
                label { span { "Name" } input name="name" maxlength="128" autocomplete="off" placeholder="who or what it is for"; }
                fieldset { legend { "Scopes" }
                    @for (scope, meaning) in SCOPES {
                        label.check { input type="checkbox" name="scope" value=(scope); span { (scope) " " span.faint { (meaning) } } }
                    }
                    label { span { "Or one user's inbox" } input name="user" autocomplete="off" placeholder="the user's id"; }
                }
                label { span { "Expires " span.faint { "empty: never" } } input name="expires_at" autocomplete="off" placeholder="2027-01-31T12:00:00Z"; }
                div.actions { button type="submit" { "Make the token" } }
            }
        }
    })
}

async fn create(
    State(services): State<Services>,
    visitor: Visitor,
    correlation: CorrelationId,
    form: Form,
) -> Result<Response, Problem> {
    let mut scopes: Vec<String> = form.all("scope").to_vec();
    let user = form.text("user").trim();
    if !user.is_empty() {
        scopes.push(format!("user:{user}"));
    }
    let mut fields = json!({ "scopes": scopes }).as_object().cloned().unwrap_or_default();
    for name in ["name", "expires_at"] {
        let text = form.text(name).trim();
        if !text.is_empty() {
            fields.insert(name.to_owned(), text.into());
        }
    }
    match make(&services, visitor.caller(), &correlation, &fields, None).await {
        Ok((token, text)) => {
            let content = html! {
                p.notice role="status" { "The token is made. Copy it now: it is not shown again." }
                pre.secret tabindex="0" { (text) }
                p { "It allows: " (token.scopes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")) "." }
                p { a.button href="/ui/tokens" { "Done" } }
            };
            Ok(layout::page(&visitor, "/ui/tokens", "New token", content).into_response())
        }
        Err(problem) if !problem.errors.is_empty() => {
            let content = everything(&services, &visitor, &problem.errors).await?;
            let page = layout::page(&visitor, "/ui/tokens", "Tokens", content);
            Ok((axum::http::StatusCode::BAD_REQUEST, page).into_response())
        }
        Err(problem) => Err(problem),
    }
}

async fn revoke(
    State(services): State<Services>,
    visitor: Visitor,
    correlation: CorrelationId,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    withdraw(&services, visitor.caller(), &correlation, &id).await?;
    Ok(see_other("/ui/tokens?done=revoked"))
}
