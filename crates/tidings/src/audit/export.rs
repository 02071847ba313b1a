//! The whole log, or what fits a filter, as a stream: oldest first, however long it is.

use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use tidings_store::{Error, Item};

use super::http::{EntryView, filter_of, header_row, row};
use super::{Audit, Filter, Order};
use crate::app::Services;
use crate::http::{Params, Problem};

/// Entries read at a time.
const PORTION: usize = 500;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Csv,
    /// One object to a line.
    Jsonl,
}

/// Where the export stands.
struct Progress {
    services: Services,
    filter: Filter,
    format: Format,
    after: Option<Item>,
    started: bool,
    ended: bool,
}

pub async fn export(State(services): State<Services>, mut params: Params) -> Result<Response, Problem> {
    let filter = filter_of(&mut params);
    let format = match params.text("format").unwrap_or("csv") {
        "csv" => Format::Csv,
        "jsonl" => Format::Jsonl,
        _ => {
            params.refuse("format", "must be csv or jsonl");
            Format::Csv
        }
    };
    params.finish()?;
    let (media_type, name) = match format {
        Format::Csv => ("text/csv; charset=utf-8", "attachment; filename=\"audit-log.csv\""),
        Format::Jsonl => ("application/x-ndjson", "attachment; filename=\"audit-log.jsonl\""),
    };
    let progress = Progress { services, filter, format, after: None, started: false, ended: false };
    // A failure on the way ends the stream early, which the client sees as a broken transfer.
    let pieces = futures_util::stream::unfold(progress, |mut progress| async move {
        if progress.ended {
            return None;
        }
        match progress.next(&progress.services.clone().audit).await {
            Ok(piece) => Some((Ok::<_, std::io::Error>(piece), progress)),
            Err(error) => {
                tracing::warn!(%error, "an export of the audit log broke off");
                progress.ended = true;
                Some((Err(std::io::Error::other(error)), progress))
            }
        }
    });
    let headers = [(header::CONTENT_TYPE, media_type), (header::CONTENT_DISPOSITION, name)];
    Ok((headers, Body::from_stream(pieces)).into_response())
}

impl Progress {
    async fn next(&mut self, audit: &Audit) -> Result<Bytes, Error> {
        let mut out = String::new();
        if !std::mem::replace(&mut self.started, true) && self.format == Format::Csv {
            out.push_str(&header_row());
        }
        let (entries, next) = audit.page_in_order(&self.filter, PORTION, self.after.take(), Order::OldestFirst).await?;
        for entry in entries.into_iter().map(EntryView::from) {
            match self.format {
                Format::Csv => out.push_str(&row(&entry)),
                Format::Jsonl => {
                    out.push_str(&serde_json::to_string(&entry).unwrap_or_default());
                    out.push('\n');
                }
            }
        }
        self.ended = next.is_none();
        self.after = next;
        Ok(out.into())
    }
}
