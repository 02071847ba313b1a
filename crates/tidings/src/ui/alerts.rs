//! Process change alerts: who changed what, filters, one of them, sending its mail again, and the export.

use std::convert::Infallible;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use maud::{Markup, html};
use tidings_core::time::Timestamp;
use tidings_store::{Item, Value as Attribute};

use super::door::{Page, Visitor, see_other};
use super::layout;
use super::parts::{self, Field, act, address, badge, choice, encode, facts, short, time, trace_link};
use crate::alerts::history::{self, Selection};
use crate::alerts::http::history::selection;
use crate::alerts::limits::RANGE_DAYS;
use crate::alerts::record::SUPPRESSED_BY;
use crate::alerts::resend::{By, Refused};
use crate::alerts::view;
use crate::app::Services;
use crate::http::{CorrelationId, Params, Problem, paging};
use crate::tokens::Scope;

const PAGE: usize = 50;
/// Read at a time for an export.
const EXPORTED: usize = 1000;
const FILTERS: [&str; 6] = ["startDate", "endDate", "actorId", "action", "correlationId", "suppressed"];

pub fn pages() -> Vec<Page> {
    vec![
        Page::new("/ui/alerts", &[Scope::Read], get(list)).params(&[
            "startDate",
            "endDate",
            "actorId",
            "action",
            "correlationId",
            "suppressed",
            "cursor",
        ]),
        Page::new("/ui/alerts/export", &[Scope::Read], get(export)).params(&FILTERS),
        Page::new("/ui/alerts/{partition}/{sort}", &[Scope::Read], get(show)).params(&["done"]),
        Page::new("/ui/alerts/{partition}/{sort}/resend", &[Scope::Operate], post(resend)),
    ]
}

async fn list(State(services): State<Services>, visitor: Visitor, mut params: Params) -> Result<Response, Problem> {
    let texts = FILTERS.map(|name| (name, params.text(name).unwrap_or_default().to_owned()));
    let selection = selection(&mut params, services.clock.now(), RANGE_DAYS);
    let cursor = params.text("cursor").map(ToOwned::to_owned);
    params.finish()?;
    let context = paging::context(visitor.caller(), "/ui/alerts", &selection);
    let after = paging::open(&services.sealer, &context, cursor.as_deref())?;
    let rows = history::page(&*services.store, &selection, PAGE, after).await?;
    let next = paging::seal(&services.sealer, &context, rows.next.as_ref());
    let query: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let labels = [
        ("From", "2026-01-01"),
        ("To", "2026-01-31"),
        ("Actor id", ""),
        ("Action", "Process.Field.*"),
        ("Correlation id", ""),
    ];
    let fields: Vec<Field<'_>> =
        (query.iter().zip(labels)).map(|((name, value), (label, hint))| Field { name, label, value, hint }).collect();
    let suppressed = query.last().map_or("", |(_, value)| *value);
    let options = [("", "alerted"), ("true", "of authorised accounts")];
    let beside = html! { a.button href=(address("/ui/alerts/export", &query)) { "Export CSV" } };
    let content = html! {
        (parts::filter("/ui/alerts", &fields, choice("suppressed", "Which", suppressed, &options)))
        @if rows.items.is_empty() {
            (parts::empty("No process changes here", html! {
                "They come from Azure DevOps by " code { "POST /ingest/azure-devops" } ". Without dates, the last "
                (RANGE_DAYS) " days are shown."
            }))
        } @else {
            (table(&rows.items))
            (parts::pager("/ui/alerts", &query, cursor.as_deref(), next))
        }
    };
    Ok(layout::page_with(&visitor, "/ui/alerts", "Process changes", beside, content).into_response())
}

fn text<'a>(item: &'a Item, name: &str) -> &'a str {
    item.str(name).unwrap_or_default()
}

fn happened(item: &Item) -> Markup {
    match item.int("EventTimestamp").and_then(|second| Timestamp::from_second(second).ok()) {
        Some(at) => time(at),
        None => html! {},
    }
}

fn link(item: &Item) -> String {
    format!("/ui/alerts/{}/{}", encode(text(item, "PartitionKey")), encode(text(item, "SortKey")))
}

/// Whether somebody was told.
fn told(item: &Item) -> Markup {
    let is = |name: &str| item.get(name) == Some(&Attribute::Bool(true));
    match () {
        () if item.get(SUPPRESSED_BY).is_some() => badge("suppressed"),
        () if is("AlertSent") => html! { span.badge.good { "mail sent" } },
        () if is("AlertFailed") => html! { span.badge.bad { "mail failed" } },
        () => html! { span.badge { "not mailed" } },
    }
}

fn table(items: &[Item]) -> Markup {
    html! {
        table.cards {
            thead { tr { th { "When" } th { "Who" } th { "Action" } th { "What" } th { "Process" } th { "Mail" } th { "Trace" } } }
            tbody { @for item in items {
                tr {
                    td data-label="When" { a href=(link(item)) { (happened(item)) } }
                    td data-label="Who" { a href=(address("/ui/alerts", &[("actorId", text(item, "ActorId"))])) { (short(text(item, "ActorDisplayName"), 40)) } }
                    td data-label="Action" { a href=(address("/ui/alerts", &[("action", text(item, "Action"))])) { (text(item, "Action")) } }
                    td data-label="What" { (short(text(item, "Details"), 90)) }
                    td data-label="Process" { (short(text(item, "ProcessName"), 40)) }
                    td data-label="Mail" { (told(item)) }
                    td data-label="Trace" { (trace_link(text(item, "CorrelationId"))) }
                }
            } }
        }
    }
}

async fn show(
    State(services): State<Services>,
    visitor: Visitor,
    Path((partition, sort)): Path<(String, String)>,
    params: Params,
) -> Result<Response, Problem> {
    let said = params.text("done").map(|_| "A new mail was made.");
    let alert = services.alerts.alert(&partition, &sort).await?;
    let alert = alert.ok_or_else(|| Problem::not_found(Refused::Unknown.to_string()))?;
    let mut rows = vec![
        ("Mail", told(&alert)),
        ("Happened", happened(&alert)),
        ("Who", html! { (text(&alert, "ActorDisplayName")) span.faint { " " (text(&alert, "ActorId")) } }),
        ("From", html! { (text(&alert, "ActorIP")) }),
        ("Kind", html! { (text(&alert, "Category")) }),
        ("Trace", trace_link(text(&alert, "CorrelationId"))),
    ];
    for (label, name) in [
        ("Process", "ProcessName"),
        ("Work item type", "WorkItemType"),
        ("Field", "FieldReferenceName"),
        ("State", "StateName"),
        ("Authorised account", SUPPRESSED_BY),
    ] {
        if let Some(value) = alert.str(name) {
            rows.push((label, html! { (value) }));
        }
    }
    let unsent = alert.get("AlertSent") == Some(&Attribute::Bool(false)) && alert.get(SUPPRESSED_BY).is_none();
    let raw = text(&alert, "RawEventJson");
    let content = html! {
        (parts::notice(said))
        p { (text(&alert, "Details")) }
        (facts(&rows))
        @if unsent && visitor.operates() {
            div.actions { (act(&visitor, &format!("{}/resend", link(&alert)), "Send the mail again")) }
        }
        section { h2 { "As it came" }
            @match serde_json::from_str::<serde_json::Value>(raw) {
                Ok(json) => { (parts::json(&json)) }
                Err(_) => { (parts::code_within(raw, parts::TEXT_BYTES)) }
            }
        }
    };
    Ok(layout::page(&visitor, "/ui/alerts", text(&alert, "Action"), content).into_response())
}

async fn resend(
    State(services): State<Services>,
    visitor: Visitor,
    correlation: CorrelationId,
    Path((partition, sort)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let user = visitor.caller().name();
    let by = By { user: &user, correlation_id: &correlation.0 };
    let sent = services.alerts.resend(&services.messages, &services.audit, &partition, &sort, by).await;
    match sent {
        Ok(_) => Ok(see_other(&format!("/ui/alerts/{}/{}?done=sent", encode(&partition), encode(&sort)))),
        Err(Refused::Unknown) => Err(Problem::not_found(Refused::Unknown.to_string())),
        Err(Refused::Conflict(why)) => Err(Problem::conflict(why)),
        Err(Refused::Store(error)) => Err(error.into()),
    }
}

/// All that fit the filter as one file, read and sent a page at a time.
async fn export(State(services): State<Services>, mut params: Params) -> Result<Response, Problem> {
    let selection = selection(&mut params, services.clock.now(), RANGE_DAYS);
    params.finish()?;
    let start = (services, selection, Some(None), view::csv_header());
    let pages = futures_util::stream::unfold(start, |(services, selection, place, header)| async move {
        let (text, next) = export_page(&services, &selection, place?, header).await?;
        Some((Ok::<_, Infallible>(Bytes::from(text)), (services, selection, next.map(Some), String::new())))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/csv; charset=utf-8; header=present"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"process-changes.csv\""),
    ];
    Ok((headers, Body::from_stream(pages)).into_response())
}

/// A page of the file, and where the next one begins. A store that fails ends the file early, and says so in the log.
async fn export_page(
    services: &Services,
    selection: &Selection,
    after: Option<Item>,
    mut text: String,
) -> Option<(String, Option<Item>)> {
    match history::page(&*services.store, selection, EXPORTED, after).await {
        Ok(rows) => {
            rows.items.iter().for_each(|item| view::push_csv(&mut text, item));
            Some((text, rows.next))
        }
        Err(error) => {
            tracing::error!(%error, "an export of process changes broke off");
            None
        }
    }
}
