//! Asks Azure DevOps for its audit log, for organisations that have no stream (`[[sources]] kind = "azure-devops"`).
//!
//! Each turn reads a window of time, page by page, and notes after each page how far it came. Windows overlap, because
//! the log itself is late at times; what comes twice is a duplicate.

use std::borrow::Cow;
use std::sync::LazyLock;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::Method;
use http::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::Url;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidings_core::json;
use tidings_core::time::{self, Timestamp};
use tidings_store::{Item, Key, KeyKind, Table, Write};

use super::Refused;
use super::shapes::Found;
use crate::app::Services;
use crate::channel::answer::retry_after;
use crate::config::sources::{Source, Start};
use crate::outbound::{Outbound, Request, Response};
use crate::sources::{self, Failed, Trouble, Turn};

const HOST: &str = "https://auditservice.dev.azure.com";
const API_VERSION: &str = "7.1-preview.1";
/// Entries asked for at once, and bytes of an answer.
const BATCH: usize = 200;
const ANSWER_BYTES: usize = 32 * 1024 * 1024;
/// How far a window reaches back into the one before.
const OVERLAP: Duration = Duration::from_secs(600);
/// How far back the log goes.
const LOG_DAYS: u64 = 90;
/// Pages of one turn; the next one goes on from there.
const PAGES: usize = 1000;

/// How far each source has been read.
#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| Table::new("tidings-audit-checkpoints", "source", KeyKind::S));
    &TABLE
}

/// Where a source stands: a window, and the page in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Checkpoint {
    source: String,
    /// Everything before is read.
    since: String,
    /// The window under way, if one is: its ends, and the token of its next page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    window: Option<Window>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Window {
    start: String,
    end: String,
    token: String,
}

/// What a turn came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Polled {
    pub pages: usize,
    pub entries: usize,
    pub accepted: usize,
    /// Whether there is more to read at once.
    pub unfinished: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    #[serde(borrow)]
    decorated_audit_log_entries: Option<Vec<&'a RawValue>>,
    continuation_token: Option<String>,
    #[serde(default)]
    has_more: bool,
    /// The documentation's own sample has the page in here.
    #[serde(borrow)]
    value: Option<&'a RawValue>,
}

struct Page<'a> {
    entries: Vec<&'a RawValue>,
    /// Leads to the page after it, if there is one.
    next: Option<String>,
}

/// One source.
pub struct Poller {
    services: Services,
    source: Source,
    outbound: Outbound,
    url: Url,
}

impl Poller {
    /// # Errors
    ///
    /// What is wrong with the source, as a sentence.
    pub fn new(services: &Services, source: Source) -> Result<Self, String> {
        let outbound = Outbound::trusted().map_err(|error| error.to_string())?;
        let endpoint = source.endpoint.as_deref().unwrap_or(HOST).trim_end_matches('/');
        let mut url = outbound.check(endpoint).map_err(|error| format!("source {}: {error}", source.name))?;
        let organization = source.organization.clone().unwrap_or_default();
        url.path_segments_mut()
            .map_err(|()| format!("source {}: the address takes no path", source.name))?
            .pop_if_empty()
            .extend([organization.as_str(), "_apis", "audit", "auditlog"]);
        Ok(Self { services: services.clone(), source, outbound, url })
    }

    /// Reads one window, or what is left of one that was broken off.
    ///
    /// # Errors
    ///
    /// If the log cannot be read or its events not be stored. What was read is stored and noted.
    pub async fn activate(&self) -> Result<Polled, Failed> {
        let now = self.services.clock.now();
        let mut checkpoint = self.checkpoint(now).await?;
        let mut polled = Polled::default();
        let fresh = || {
            let since = checkpoint.since.parse().unwrap_or(now);
            let start = since.saturating_sub(OVERLAP).unwrap_or(since);
            Window { start: time::iso_micros(start), end: time::iso_micros(now), token: String::new() }
        };
        let mut window = checkpoint.window.clone().unwrap_or_else(fresh);
        while polled.pages < PAGES {
            let response = match self.ask(&window).await {
                Err(failed) if matches!(failed.trouble, Trouble::Refused | Trouble::Missing) => {
                    return Err(self.begin_again(checkpoint, window, failed).await?);
                }
                answer => answer?,
            };
            let text = json::text(&response.body).map_err(|why| Failed::new(Trouble::Unreadable, why.0))?;
            let page = read_page(text)?;
            polled.pages += 1;
            polled.entries += page.entries.len();
            polled.accepted += self.store(&page).await?;
            match page.next {
                Some(token) if token == window.token => {
                    let why = format!("the audit log gives the token {token:?} for the page after itself");
                    return Err(self.begin_again(checkpoint, window, Failed::new(Trouble::Unreadable, why)).await?);
                }
                Some(token) => {
                    window.token = token;
                    checkpoint.window = Some(window.clone());
                    self.note(&checkpoint).await?;
                }
                None => {
                    checkpoint = Checkpoint { since: window.end, window: None, ..checkpoint };
                    self.note(&checkpoint).await?;
                    return Ok(polled);
                }
            }
        }
        Ok(Polled { unfinished: true, ..polled })
    }

    /// A token that leads nowhere is forgotten, for tokens do not last and nobody says how long: the next turn reads the
    /// window from its start, and what it has stored is known. Gives the failure back.
    async fn begin_again(&self, checkpoint: Checkpoint, window: Window, failed: Failed) -> Result<Failed, Failed> {
        if !window.token.is_empty() {
            let window = Some(Window { token: String::new(), ..window });
            self.note(&Checkpoint { window, ..checkpoint }).await?;
        }
        Ok(failed)
    }

    async fn checkpoint(&self, now: Timestamp) -> Result<Checkpoint, Failed> {
        let known = self.services.store.get(table(), &Key::new(&self.source.name)).await?;
        if let Some(item) = known {
            return Ok(item.to_record()?);
        }
        let since = match self.source.start {
            Start::Oldest => now.saturating_sub(Duration::from_secs(LOG_DAYS * 86_400)).unwrap_or(now),
            Start::Latest => now,
        };
        Ok(Checkpoint { source: self.source.name.clone(), since: time::iso_micros(since), window: None })
    }

    async fn note(&self, checkpoint: &Checkpoint) -> Result<(), Failed> {
        let item = Item::from_record(checkpoint)?;
        let fence = self.services.fence_of_source(&self.source.name);
        Ok(self.services.store.transact(std::iter::once(Write::put(table(), item)).chain(fence).collect()).await?)
    }

    /// Stores a page's entries; those that cannot be read are kept as dead letters, for they never can.
    async fn store(&self, page: &Page<'_>) -> Result<usize, Failed> {
        let correlation = self.services.ids.uuid(self.services.clock.now()).to_string();
        let entries = page.entries.iter();
        let found = entries.map(|entry| Found::Entry { text: Cow::Borrowed(entry.get()), id: None }).collect();
        let receipts = self.services.alerts.receive(&self.services.ingest, found, &correlation, Refused::Kept).await?;
        for result in ["accepted", "duplicate", "rejected"] {
            let count = receipts.iter().filter(|receipt| receipt.status == result).count();
            self.services.metrics.sources.records(&self.source.name, result, count as u64);
        }
        Ok(receipts.iter().filter(|receipt| receipt.status == "accepted").count())
    }

    async fn ask(&self, window: &Window) -> Result<Response, Failed> {
        let mut url = self.url.clone();
        url.query_pairs_mut()
            .append_pair("startTime", &window.start)
            .append_pair("endTime", &window.end)
            .append_pair("batchSize", &BATCH.to_string())
            .append_pair("api-version", API_VERSION);
        if !window.token.is_empty() {
            url.query_pairs_mut().append_pair("continuationToken", &window.token);
        }
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let token = self.source.token.as_ref().map(crate::config::Secret::expose).unwrap_or_default();
        let basic = format!("Basic {}", BASE64_STANDARD.encode(format!(":{token}")));
        if let Ok(mut value) = HeaderValue::from_str(&basic) {
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let request = Request { method: Method::GET, url, headers, body: Bytes::new() };
        let response = self.outbound.send_up_to(request, ANSWER_BYTES).await;
        let response = response.map_err(|error| Failed::new(Trouble::Unreachable, error.to_string()))?;
        match response.status {
            200 if response.body.len() < ANSWER_BYTES => Ok(response),
            200 => {
                let why = format!("the audit log's answer has more than {ANSWER_BYTES} bytes");
                Err(Failed::new(Trouble::Unreadable, why))
            }
            // Azure DevOps shows its sign-in page to whoever has no valid token, with 203 or a redirect.
            status @ (203 | 302 | 401 | 403) => {
                let why = format!("Azure DevOps answered {status}: the token is not valid, or lacks `vso.auditlog`");
                Err(Failed::new(Trouble::Denied, why))
            }
            status => {
                let trouble = match status {
                    404 => Trouble::Missing,
                    408 | 429 | 500.. => Trouble::Throttled,
                    400.. => Trouble::Refused,
                    _ => Trouble::Unreadable,
                };
                let after = retry_after(&response.headers, self.services.clock.now());
                let said = crate::channel::quote(&String::from_utf8_lossy(&response.body), &[token, &basic]);
                let colon = if said.is_empty() { "" } else { ": " };
                Err(Failed { after, ..Failed::new(trouble, format!("Azure DevOps answered {status}{colon}{said}")) })
            }
        }
    }
}

impl sources::Source for Poller {
    const LONGEST_WAIT: Duration = Duration::from_secs(900);

    async fn look(&mut self) -> Result<Turn, Failed> {
        let polled = self.activate().await?;
        let source = &self.source.name;
        tracing::debug!(source, pages = polled.pages, accepted = polled.accepted, "the audit log was read");
        let entries = u64::try_from(polled.entries).unwrap_or(u64::MAX);
        self.services.sources.note(source, |state| state.records = state.records.saturating_add(entries));
        Ok(Turn { sooner: polled.unfinished.then_some(Duration::ZERO), trouble: None })
    }
}

fn read_page(text: &str) -> Result<Page<'_>, Failed> {
    let unreadable = |why: String| Failed::new(Trouble::Unreadable, format!("the audit log's answer {why}"));
    let read =
        |text| serde_json::from_str::<Answer<'_>>(text).map_err(|why| unreadable(format!("cannot be read: {why}")));
    let mut answer = read(text)?;
    if let (None, Some(inner)) = (&answer.decorated_audit_log_entries, answer.value) {
        answer = read(inner.get())?;
    }
    let Some(entries) = answer.decorated_audit_log_entries else {
        return Err(unreadable("has no list `decoratedAuditLogEntries`".to_owned()));
    };
    let next = answer.continuation_token.filter(|token| answer.has_more && !token.is_empty());
    if answer.has_more && next.is_none() {
        // To go on would be to leave out the rest of the window.
        return Err(unreadable("says `hasMore` and has no `continuationToken`".to_owned()));
    }
    Ok(Page { entries, next })
}
