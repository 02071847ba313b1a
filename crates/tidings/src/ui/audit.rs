//! The audit log: what was done, by whom; and whether it is whole.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use maud::html;
use serde_json::Value;

use super::door::{Page, Visitor};
use super::layout;
use super::parts::{self, Field, address, short, time, trace_link};
use crate::app::Services;
use crate::audit::Filter;
use crate::audit::http::search;
use crate::events::http::name_param;
use crate::http::{End, Params, Problem, correlation_param, paging};
use crate::tokens::Scope;

const PAGE: usize = 50;

pub fn pages() -> Vec<Page> {
    vec![
        Page::new("/ui/audit", &[Scope::Read], get(list)).params(&[
            "user",
            "action",
            "entity",
            "entityId",
            "correlationId",
            "from",
            "to",
            "cursor",
        ]),
        Page::new("/ui/audit/verify", &[Scope::Read], post(verify)),
    ]
}

async fn list(State(services): State<Services>, visitor: Visitor, mut params: Params) -> Result<Response, Problem> {
    let given = |params: &Params, name: &str| params.text(name).unwrap_or_default().to_owned();
    let texts = ["user", "action", "entity", "entityId", "correlationId", "from", "to"]
        .map(|name| (name, given(&params, name)));
    let filter = Filter {
        user: name_param(&mut params, "user"),
        action: name_param(&mut params, "action"),
        entity: name_param(&mut params, "entity"),
        entity_id: name_param(&mut params, "entityId"),
        correlation_id: correlation_param(&mut params),
        from: params.time("from", End::Start),
        to: params.time("to", End::Finish),
    };
    let cursor = params.text("cursor").map(ToOwned::to_owned);
    params.finish()?;
    let context = paging::context(visitor.caller(), "/ui/audit", &filter);
    let after = paging::open(&services.sealer, &context, cursor.as_deref())?;
    let (entries, next) = search(&services.audit, &filter, PAGE, after).await?;
    let next = paging::seal(&services.sealer, &context, next.as_ref());
    let query: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let labels = ["Who", "Action", "Kind of thing", "Which one", "Correlation id", "From", "To"];
    let hints = ["token:…", "rule.update", "rule", "", "", "2026-01-31", "2026-01-31"];
    let fields: Vec<Field<'_>> = (query.iter().zip(labels).zip(hints))
        .map(|(((name, value), label), hint)| Field { name, label, value, hint })
        .collect();
    let content = html! {
        (parts::filter("/ui/audit", &fields, html! {}))
        @if entries.is_empty() {
            (parts::empty("No entries", html! { a href="/ui/audit" { "Show the whole log" } }))
        } @else {
            table.cards {
                thead { tr { th { "No." } th { "Time" } th { "Who" } th { "Action" } th { "What" } th { "Details" } th { "Trace" } } }
                tbody { @for entry in &entries {
                    tr {
                        td.number data-label="No." { (entry.seq) }
                        td data-label="Time" { (time(entry.at)) }
                        td data-label="Who" { a.id href=(address("/ui/audit", &[("user", &entry.user)])) { (short(&entry.user, 40)) } }
                        td data-label="Action" { a href=(address("/ui/audit", &[("action", &entry.action)])) { (entry.action) } }
                        td data-label="What" { a.id href=(address("/ui/audit", &[("entity", &entry.entity), ("entityId", &entry.entity_id)])) {
                            (entry.entity) " " (short(&entry.entity_id, 40)) } }
                        td data-label="Details" { code.clip { (brief(&entry.details)) } }
                        td data-label="Trace" { (trace_link(&entry.correlation_id)) }
                    }
                } }
            }
            (parts::pager("/ui/audit", &query, cursor.as_deref(), next))
        }
    };
    let beside = parts::act(&visitor, "/ui/audit/verify", "Verify the chain");
    Ok(layout::page_with(&visitor, "/ui/audit", "Audit", beside, content).into_response())
}

fn brief(details: &str) -> String {
    let value: Value = serde_json::from_str(details).unwrap_or_default();
    if value.as_object().is_some_and(serde_json::Map::is_empty) {
        String::new()
    } else {
        short(&value.to_string(), 200)
    }
}

async fn verify(State(services): State<Services>, visitor: Visitor) -> Result<Response, Problem> {
    let found = services.audit.verify().await?;
    let content = html! {
        @match &found.problem {
            None => { p.notice role="status" { "All " (found.entries) " entries are there, unchanged and in order." } }
            Some(problem) => { div.problem role="alert" { p { "The log is not whole: " (problem) "." } p { (found.entries) " entries before that are in order." } } }
        }
        p { a href="/ui/audit" { "Back to the log" } }
    };
    Ok(layout::page(&visitor, "/ui/audit", "Audit", content).into_response())
}
