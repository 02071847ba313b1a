//! The first page: is everything all right? From figures that are kept, never from counting.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use maud::{Markup, html};
use tidings_core::time::{Timestamp, iso_millis};

use super::chart::{self, Bar};
use super::door::{Page, Visitor, see_other};
use super::parts::{address, duration_ms, number};
use super::{layout, live};
use crate::app::Services;
use crate::figures::{Counts, Series, Span};
use crate::http::{Params, Problem};
use crate::incidents::state::State as Incident;
use crate::messages::counters;
use crate::tokens::{Scope, event_stream};
use crate::workers::turned_true;

/// Incidents that are counted; more are shown as that many and more.
const MOST_INCIDENTS: usize = 20;
/// How often an open page is brought up to date.
const EVERY: Duration = Duration::from_secs(2);

pub fn pages() -> Vec<Page> {
    vec![
        Page::anyone("/ui/", get(show)).params(&["span"]),
        Page::new("/ui/overview/stream", &[Scope::Read], get(stream)).params(&["span"]),
    ]
}

fn span(params: &mut Params) -> Result<Span, Problem> {
    let text = params.text("span").unwrap_or("1h").to_owned();
    Span::parse(&text).ok_or_else(|| Problem::invalid_field("span", "must be 1h, 24h or 7d"))
}

async fn show(State(services): State<Services>, visitor: Visitor, mut params: Params) -> Result<Response, Problem> {
    if !visitor.reads() {
        return Ok(elsewhere(&visitor));
    }
    let span = span(&mut params)?;
    let state = Health::read(&services, span).await?;
    let content = html! {
        div id="overview" data-refresh=(address("/ui/overview/stream", &[("span", span.name())])) { (state.markup()) }
        section aria-labelledby="latest" {
            div.heading { h2 id="latest" { "Latest events" } a href="/ui/live" { "Watch live" } }
            (live::table(&services, 8).await?)
        }
    };
    Ok(layout::page_with(&visitor, "/ui/", "Overview", spans(span), content).into_response())
}

/// Whoever may not see the overview goes to what they may see.
fn elsewhere(visitor: &Visitor) -> Response {
    if let Some(place) = layout::first_place(|scopes| visitor.may(scopes)).filter(|place| *place != "/ui/") {
        return see_other(place);
    }
    let content = html! {
        p { "You are signed in, but your token opens no page: it is meant for programs. For the dashboard it needs the "
            "scope " code { "read" } ", for one's own inbox " code { "user:ID" } "." }
    };
    layout::page(visitor, "/ui/", "Nothing to see", content).into_response()
}

fn spans(chosen: Span) -> Markup {
    html! {
        nav.choice aria-label="Time span" {
            @for span in Span::ALL {
                @if span == chosen { a href=(address("/ui/", &[("span", span.name())])) aria-current="true" { (span.name()) } }
                @else { a href=(address("/ui/", &[("span", span.name())])) { (span.name()) } }
            }
        }
    }
}

/// Everything the page shows.
struct Health {
    now: Timestamp,
    series: Series,
    /// The last hour, for what is said of right now.
    recent: Series,
    counts: counters::Counts,
    /// Waiting on the bus, and given up there.
    bus: (u64, u64),
    /// Open incidents, the first few of them.
    incidents: usize,
}

impl Health {
    async fn read(services: &Services, span: Span) -> Result<Self, Problem> {
        let series = services.figures.series(span).await?;
        let recent = match span {
            Span::Hour => series.clone(),
            Span::Day | Span::Week => services.figures.series(Span::Hour).await?,
        };
        let counts = counters::by_state(&*services.store, services.config.stage.as_str()).await?;
        let lines = services.bus.lines().into_iter().map(|line| line.figures());
        let bus = lines.fold((0, 0), |(active, dead), line| (active + line.active, dead + line.dead_lettered));
        let (open, _) = services.incidents.page(Some(Incident::Open), MOST_INCIDENTS, None).await?;
        let incidents = open.len();
        Ok(Self { now: services.clock.now(), series, recent, counts, bus, incidents })
    }

    fn count(&self, state: &str) -> u64 {
        self.counts.get(state).and_then(|count| u64::try_from(*count).ok()).unwrap_or(0)
    }

    fn markup(&self) -> Markup {
        let total = &self.series.total;
        let waiting = self.count("created") + self.count("queued") + self.count("processing");
        let failed = self.count("failed");
        let rate = |of: fn(&Counts) -> u64| shown_rate(self.recent.rate(self.now, of));
        let share = total.success().map(|share| format!("{:.2} %", share * 100.0));
        let slow = total.quantile_ms(0.99).map(milliseconds);
        html! {
            ul.figures {
                (figure("Events", &rate(|c| c.events), "a second", &format!("{} in {}", number(total.events), self.series.span.name()), "", "/ui/events"))
                (figure("Notices", &rate(|c| c.notices), "a second", &format!("{} in {}", number(total.notices), self.series.span.name()), "", "/ui/messages"))
                (figure("Delivered", share.as_deref().unwrap_or("–"), "",
                    &format!("{} of {}", number(total.completed), number(total.completed + total.failed)),
                    if total.failed > 0 { "warn" } else { "" }, "/ui/messages?status=completed"))
                (figure("End to end, P99", slow.as_deref().unwrap_or("–"), "", "from event to delivery", "", "/ui/messages"))
                (figure("On their way", &number(waiting), "", &format!("{} being sent", number(self.count("processing"))), "", "/ui/messages?status=processing"))
                (figure("Failed", &number(failed), "", if failed > 0 { "look at why" } else { "no message" },
                    if failed > 0 { "bad" } else { "good" }, "/ui/messages?status=failed"))
                (figure("On the bus", &number(self.bus.0), "", &format!("{} dead letters", number(self.bus.1)),
                    if self.bus.1 > 0 { "bad" } else { "" }, "/ui/bus"))
                @let more = if self.incidents >= MOST_INCIDENTS { "+" } else { "" };
                (figure("Incidents", &format!("{}{more}", self.incidents), "", if self.incidents > 0 { "open" } else { "none open" },
                    if self.incidents > 0 { "bad" } else { "good" }, "/ui/incidents?state=open"))
            }
            div.charts { (self.charts()) }
        }
    }

    fn charts(&self) -> Markup {
        let per = match self.series.span {
            Span::Hour => "a minute",
            Span::Day => "in ten minutes",
            Span::Week => "an hour",
        };
        html! {
            (self.chart("Events", per, |c| (c.events as f64, 0.0), |v| number(v as u64)))
            (self.chart("Notices", per, |c| (c.notices as f64, 0.0), |v| number(v as u64)))
            (self.chart("Ended messages, failed ones in red", per, |c| ((c.completed + c.failed) as f64, c.failed as f64), |v| number(v as u64)))
            (self.chart("End to end, P99", "", |c| (c.quantile_ms(0.99).unwrap_or(0.0), 0.0), milliseconds))
        }
    }

    fn chart(
        &self,
        title: &str,
        unit: &str,
        of: impl Fn(&Counts) -> (f64, f64),
        show: impl Fn(f64) -> String + Copy,
    ) -> Markup {
        let bars: Vec<Bar> = (self.series.points.iter())
            .map(|point| {
                let (value, bad) = of(&point.counts);
                let at = iso_millis(point.start).replace('T', " ").chars().take(16).collect::<String>();
                let failed = if bad > 0.0 { format!(", {} failed", show(bad)) } else { String::new() };
                Bar { start: point.start, value, bad, label: format!("{at} UTC: {}{failed}", show(value)) }
            })
            .collect();
        let most = bars.iter().map(|bar| bar.value).fold(0.0, f64::max);
        let latest = bars.last().map_or(0.0, |bar| bar.value);
        let summary = format!("at most {}, now {}, over {}", show(most), show(latest), self.series.span.name());
        chart::bars(title, unit, &summary, &bars, show)
    }
}

fn milliseconds(ms: f64) -> String {
    if ms < 10.0 && ms > 0.0 {
        return format!("{ms:.1} ms");
    }
    duration_ms(ms.round() as i64)
}

fn shown_rate(rate: f64) -> String {
    match rate {
        ..0.005 => "0".to_owned(),
        ..10.0 => format!("{rate:.2}"),
        ..100.0 => format!("{rate:.1}"),
        _ => number(rate.round() as u64),
    }
}

fn figure(name: &str, value: &str, unit: &str, below: &str, kind: &str, to: &str) -> Markup {
    html! {
        li class=(kind) {
            a href=(to) {
                span.name { (name) }
                span.value { (value) @if !unit.is_empty() { span.unit { " " (unit) } } }
                span.below { (below) }
            }
        }
    }
}

/// The page's figures again and again, while it is open.
async fn stream(State(services): State<Services>, visitor: Visitor, mut params: Params) -> Result<Response, Problem> {
    let span = span(&mut params)?;
    let stop = services.workers.stopping();
    let frames = futures_util::stream::unfold((services.clone(), stop), move |(services, mut stop)| async move {
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = turned_true(&mut stop) => return None,
        }
        let frame = match Health::read(&services, span).await {
            Ok(state) => live::frame("figures", &state.markup().into_string()),
            Err(_) => ": not now\n\n".to_owned(),
        };
        Some((Ok::<_, Infallible>(Bytes::from(frame)), (services, stop)))
    });
    Ok(event_stream(&services, &visitor.session.caller, frames))
}
