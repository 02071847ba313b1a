//! One correlation id as a timeline: the event, the rules, the entries, the messages with every attempt, and whatever
//! else shares the id. Each step stands beside its place on one common axis of time.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use maud::{Markup, html};
use tidings_core::time::Timestamp;

use super::door::{Page, Visitor};
use super::layout;
use super::parts::{self, asked_for, duration_ms, page_of, time};
use super::steps::{Shown, shown};
use crate::app::Services;
use crate::http::{Params, Problem, paging};
use crate::tokens::Scope;
use crate::trace::Trace;

const PAGE: usize = 40;
/// Width of the axis in the drawing's own units.
const WIDTH: f64 = 1000.0;

pub fn pages() -> Vec<Page> {
    vec![
        Page::new("/ui/trace/{correlationId}", &[Scope::Read], get(show)).params(&["cursor"]),
        Page::new("/ui/by-id/trace", &[Scope::Read], get(show)).params(&["id", "cursor"]),
    ]
}

async fn show(
    State(services): State<Services>,
    visitor: Visitor,
    path: Option<Path<String>>,
    params: Params,
) -> Result<Response, Problem> {
    let correlation_id = asked_for(path, &params);
    let cursor = params.text("cursor").map(ToOwned::to_owned);
    params.finish()?;
    tidings_core::envelope::check_name(&correlation_id, tidings_core::limits::CORRELATION_CHARS)
        .map_err(|why| Problem::invalid_field("correlationId", why))?;
    let context = paging::context(visitor.caller(), "/ui/trace", &correlation_id);
    let after = paging::open(&services.sealer, &context, cursor.as_deref())?;
    let trace = Trace { store: &*services.store, stage: services.config.stage.as_str(), bus: &services.bus };
    let (steps, next) = trace.page(&correlation_id, PAGE, after).await?;
    let next = paging::seal(&services.sealer, &context, next.as_ref());
    let steps: Vec<Shown> = steps.iter().map(|step| shown(step, services.clock.now(), &services.rules.book)).collect();
    let content = html! {
        p.subtitle { span.id { (correlation_id) } }
        @if steps.is_empty() {
            (parts::empty("Nothing is known of this id", html! {
                "It may have expired, or not arrived yet. Every answer to " code { "POST /events" }
                " says its " code { "correlationId" } "."
            }))
        } @else {
            (summary(&steps))
            (timeline(&steps))
            (parts::pager(&page_of("trace", &correlation_id), &[], cursor.as_deref(), next))
        }
    };
    Ok(layout::page(&visitor, "/ui/events", "Trace", content).into_response())
}

/// The stretch of time that all steps lie in.
fn stretch(steps: &[Shown]) -> (Timestamp, Timestamp) {
    let first = steps.iter().map(|step| step.at).min().unwrap_or(Timestamp::MIN);
    let last = steps.iter().map(|step| step.until.unwrap_or(step.at)).max().unwrap_or(first);
    (first, last)
}

fn between(from: Timestamp, to: Timestamp) -> i64 {
    to.as_millisecond() - from.as_millisecond()
}

fn summary(steps: &[Shown]) -> Markup {
    let (first, last) = stretch(steps);
    let count = |kind: &str| steps.iter().filter(|step| step.kind == kind).map(|step| step.count).sum::<u64>();
    let state = |wanted: &str| steps.iter().filter(|step| step.state == Some(wanted)).count();
    let (failed, waiting) = (state("failed"), steps.iter().filter(|step| step.waits()).count());
    let (word, kind) = match (failed, waiting) {
        (0, 0) if count("message") == 0 => ("Recorded".to_owned(), "good"),
        (0, 0) => ("All delivered".to_owned(), "good"),
        (0, n) => (format!("{n} on the way"), "warn"),
        (n, _) => (format!("{n} failed"), "bad"),
    };
    html! {
        dl.summary {
            div { dt { "State" } dd { span class=(format!("badge {kind}")) { (word) } } }
            div { dt { "Began" } dd { (time(first)) } }
            div { dt { "Took" } dd { (duration_ms(between(first, last))) } }
            div { dt { "What came of it" } dd { (story(count)) } }
        }
    }
}

/// `2 events, 1 rule, 3 inbox entries`
fn story(count: impl Fn(&str) -> u64) -> String {
    let kinds = [
        ("event", "event", "events"),
        ("rule", "rule", "rules"),
        ("notification", "inbox entry", "inbox entries"),
        ("bus", "on the bus", "on the bus"),
        ("message", "message", "messages"),
        ("audit", "audit entry", "audit entries"),
    ];
    let told = kinds.into_iter().filter_map(|(kind, one, many)| match count(kind) {
        0 => None,
        1 => Some(format!("1 {one}")),
        n => Some(format!("{n} {many}")),
    });
    told.collect::<Vec<_>>().join(", ")
}

fn timeline(steps: &[Shown]) -> Markup {
    let (first, last) = stretch(steps);
    html! {
        ol.timeline {
            @for step in steps {
                li class=(step.kind) {
                    div.when { (time(step.at)) span.offset { "+" (duration_ms(between(first, step.at))) } }
                    div.card {
                        div.line {
                            span.kind { (step.label) }
                            (step.headline)
                            @if let Some(state) = step.state { (parts::badge(state)) }
                        }
                        (axis(step, first, last))
                        (step.body)
                    }
                }
            }
        }
    }
}

/// Where on the axis a step lies, and for how long.
#[expect(clippy::cast_precision_loss, reason = "a drawing needs no more than 53 bits")]
fn axis(step: &Shown, first: Timestamp, last: Timestamp) -> Markup {
    let whole = between(first, last).max(1) as f64;
    let place = |at: Timestamp| (between(first, at) as f64 / whole * WIDTH).clamp(0.0, WIDTH);
    let bar = |from: Timestamp, to: Timestamp| {
        let width = (place(to) - place(from)).max(4.0);
        (place(from).min(WIDTH - width), width)
    };
    let (x, width) = bar(step.at, step.until.unwrap_or(step.at));
    html! {
        svg.axis viewBox="0 0 1000 6" preserveAspectRatio="none" aria-hidden="true" {
            rect.rail x="0" y="2" width="1000" height="2" {}
            rect.whole x=(format!("{x:.1}")) y="1" width=(format!("{width:.1}")) height="4" {}
            @for (from, to, good) in &step.tries {
                @let (x, width) = bar(*from, *to);
                rect class=(if *good { "good" } else { "bad" }) x=(format!("{x:.1}")) y="0" width=(format!("{width:.1}")) height="6" {}
            }
        }
    }
}
