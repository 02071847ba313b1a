//! The export: every alert of a question, however many, in constant memory (S000-74).
//!
//! One task reads pages ahead, the connection's own writes them out; between them lie a few pages and no more. A reader
//! that goes away ends both.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use tidings_store::{Error, Item, Store};
use tokio::sync::mpsc;

use super::history::{self, Rows, Selection};
use super::view;

/// Alerts read at once, and pages that lie ready.
const PAGE_ROWS: usize = 1000;
const PAGES_AHEAD: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Csv,
    /// One array.
    Json,
    /// One object a line.
    JsonLines,
}

impl Format {
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "csv" => Some(Self::Csv),
            "json" => Some(Self::Json),
            "jsonl" => Some(Self::JsonLines),
            _ => None,
        }
    }

    #[must_use]
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Csv => "text/csv; charset=utf-8; header=present",
            Self::Json => "application/json",
            Self::JsonLines => "application/x-ndjson",
        }
    }

    fn begin(self) -> String {
        match self {
            Self::Csv => view::csv_header(),
            Self::Json => "[".to_owned(),
            Self::JsonLines => String::new(),
        }
    }

    /// A page's text. In JSON a line break is found between alerts and nowhere else.
    fn page(self, items: &[Item], first: bool) -> String {
        let mut out = String::with_capacity(items.len() * 1600);
        for (place, item) in items.iter().enumerate() {
            match self {
                Self::Csv => view::push_csv(&mut out, item),
                Self::Json => {
                    out.push_str(if first && place == 0 { "\n" } else { ",\n" });
                    view::push_json(&mut out, item);
                }
                Self::JsonLines => {
                    view::push_json(&mut out, item);
                    out.push('\n');
                }
            }
        }
        out
    }

    const fn end(self) -> &'static str {
        match self {
            Self::Json => "\n]\n",
            Self::Csv | Self::JsonLines => "",
        }
    }
}

enum Stage {
    Begin,
    Rows { first: bool },
    Done,
}

/// The body of an answer. An error in the middle breaks the connection off, so that nobody takes a part for the whole.
pub fn body(store: Arc<dyn Store>, selection: Selection, format: Format) -> Body {
    let (sender, receiver) = mpsc::channel(PAGES_AHEAD);
    tokio::spawn(read(store, selection, sender));
    let frames = stream::unfold((Stage::Begin, receiver), move |(stage, mut receiver)| async move {
        let first = match stage {
            Stage::Begin => {
                return Some((Ok(Bytes::from(format.begin())), (Stage::Rows { first: true }, receiver)));
            }
            Stage::Rows { first } => first,
            Stage::Done => return None,
        };
        match receiver.recv().await {
            Some(Ok(items)) => {
                let text = format.page(&items, first);
                Some((Ok(Bytes::from(text)), (Stage::Rows { first: false }, receiver)))
            }
            Some(Err(error)) => {
                tracing::warn!(%error, "an export is broken off");
                Some((Err(std::io::Error::other(error.to_string())), (Stage::Done, receiver)))
            }
            None => Some((Ok(Bytes::from_static(format.end().as_bytes())), (Stage::Done, receiver))),
        }
    });
    Body::from_stream(frames)
}

/// One page, read on a thread of its own: a page is milliseconds of work, and who was just handed one is waked on the
/// thread that did it, so that reading and writing out would take turns on one processor.
async fn page(store: Arc<dyn Store>, selection: Arc<Selection>, after: Option<Item>) -> Result<Rows, Error> {
    let runtime = tokio::runtime::Handle::current();
    let read = move || runtime.block_on(history::page(&*store, &selection, PAGE_ROWS, after));
    let read = tokio::task::spawn_blocking(read).await;
    read.unwrap_or_else(|error| Err(Error::failed("a page could not be read", error)))
}

async fn read(store: Arc<dyn Store>, selection: Selection, sender: mpsc::Sender<Result<Vec<Item>, Error>>) {
    let selection = Arc::new(selection);
    let mut after = None;
    loop {
        let (items, next) = match page(Arc::clone(&store), Arc::clone(&selection), after).await {
            Ok(rows) => (rows.items, rows.next),
            Err(error) => {
                let _ = sender.send(Err(error)).await;
                return;
            }
        };
        if !items.is_empty() && sender.send(Ok(items)).await.is_err() {
            return;
        }
        match next {
            Some(next) => after = Some(next),
            None => return,
        }
    }
}
