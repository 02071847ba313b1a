//! Events as they are kept: looking for them, and hearing of new ones.

pub mod http;
mod outcome;
pub mod record;
mod stream;

use std::sync::Arc;

use serde::Serialize;
use tidings_core::envelope::check_name;
use tidings_core::limits::{NAME_CHARS, SOURCE_CHARS};
use tidings_core::time::{self, Timestamp};
use tidings_store::query::cursor_of;
use tidings_store::{Error, Item, Query, Range, Store};

pub use record::StoredEvent;
pub use stream::{Live, LiveEvent};

/// Events looked at for one page at the most, so that a filter that fits little still answers soon.
const LOOKED_AT: usize = 10_000;
/// Bytes of events in one page at the most, about: a page of large events is shorter, and its cursor leads on.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Which events a reader wants.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Filter {
    /// A type, or the start of one followed by `*`.
    pub event_type: Option<String>,
    pub source: Option<String>,
    pub correlation_id: Option<String>,
    pub from: Option<Timestamp>,
    pub to: Option<Timestamp>,
}

/// The events in the store.
pub struct Events {
    store: Arc<dyn Store>,
}

impl Events {
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    /// The newest event of that id, or the one of that source.
    pub async fn get(&self, event_id: &str, source: Option<&str>) -> Result<Option<StoredEvent>, Error> {
        let unknown = check_name(event_id, NAME_CHARS).is_err()
            || source.is_some_and(|source| check_name(source, SOURCE_CHARS).is_err());
        if unknown {
            return Ok(None);
        }
        let query = Query::new(event_id).limit(100);
        let query = match source {
            Some(_) => query.range(Range::Equal(record::from(source).into())),
            None => query,
        };
        let ids = self.store.query(record::ids_table(), &query).await?.items;
        let Some(key) = ids.iter().max_by_key(|id| id.int("seen")).and_then(record::event_key) else { return Ok(None) };
        self.store.get(record::table(), &key).await?.map(StoredEvent::from_item).transpose()
    }

    /// The newest event of that id that came with this correlation id.
    pub async fn of_correlation(&self, event_id: &str, correlation_id: &str) -> Result<Option<StoredEvent>, Error> {
        let mut ids = self.store.query(record::ids_table(), &Query::new(event_id).limit(100)).await?.items;
        ids.sort_by_key(|id| std::cmp::Reverse(id.int("seen")));
        for key in ids.iter().filter_map(record::event_key) {
            let found = self.store.get(record::table(), &key).await?;
            if let Some(item) = found.filter(|item| item.str("correlationId") == Some(correlation_id)) {
                return StoredEvent::from_item(item).map(Some);
            }
        }
        Ok(None)
    }

    /// One page, newest first.
    pub async fn page(
        &self,
        filter: &Filter,
        limit: usize,
        after: Option<Item>,
    ) -> Result<(Vec<StoredEvent>, Option<Item>), Error> {
        match filter.index() {
            Some((index, value)) => self.page_of_index(filter, index, value, limit, after).await,
            None => self.page_by_day(filter, limit, after).await,
        }
    }

    async fn page_of_index(
        &self,
        filter: &Filter,
        index: &str,
        value: &str,
        limit: usize,
        mut after: Option<Item>,
    ) -> Result<(Vec<StoredEvent>, Option<Item>), Error> {
        let mut found = Vec::new();
        let mut looked_at = 0;
        loop {
            let query = Query::new(value).index(index).range(filter.range()).descending().limit(limit).after(after);
            let page = self.store.query(record::table(), &query).await?;
            looked_at += page.items.len();
            if let Some(end) = take_fitting(filter, page.items, limit, &mut found)? {
                let table = record::table();
                let index = table.index_named(index)?;
                return Ok((found, Some(cursor_of(table, Some(index), &end))));
            }
            after = page.next;
            if after.is_none() || looked_at >= LOOKED_AT {
                return Ok((found, after));
            }
        }
    }

    async fn page_by_day(
        &self,
        filter: &Filter,
        limit: usize,
        mut after: Option<Item>,
    ) -> Result<(Vec<StoredEvent>, Option<Item>), Error> {
        let mut found = Vec::new();
        let mut looked_at = 0;
        let mut day = match after.as_ref().and_then(|cursor| cursor.str("day")) {
            Some(day) => Some(day.to_owned()),
            None => self.day_before(None, filter).await?,
        };
        while let Some(present) = day {
            let query = Query::new(&present).range(filter.range()).descending().limit(limit).after(after.take());
            let page = self.store.query(record::table(), &query).await?;
            looked_at += page.items.len();
            // A day's end is a place to go on from as well: days may be many, with little in each.
            let last = page.items.last().map(|item| cursor_of(record::table(), None, item));
            if let Some(end) = take_fitting(filter, page.items, limit, &mut found)? {
                return Ok((found, Some(cursor_of(record::table(), None, &end))));
            }
            if looked_at >= LOOKED_AT && last.is_some() {
                return Ok((found, last));
            }
            after = page.next;
            day = match after {
                Some(_) => Some(present),
                None => self.day_before(Some(&present), filter).await?,
            };
        }
        Ok((found, None))
    }

    /// The latest day with events before `day` and within the filter's times.
    async fn day_before(&self, day: Option<&str>, filter: &Filter) -> Result<Option<String>, Error> {
        let range = match (day, filter.to) {
            (Some(day), _) => Range::Below(day.into()),
            (None, Some(to)) => Range::AtMost(record::day_of(to).into()),
            (None, None) => Range::All,
        };
        let query = Query::new(record::DAYS).range(range).descending().limit(1);
        let found = self.store.query(record::days_table(), &query).await?;
        let day = found.items.first().and_then(|item| item.str("day")).map(ToOwned::to_owned);
        Ok(day.filter(|day| filter.from.is_none_or(|from| *day >= record::day_of(from))))
    }
}

/// Moves items that fit into `found` until it has `limit` or is large; gives the item at which it was full.
fn take_fitting(
    filter: &Filter,
    items: Vec<Item>,
    limit: usize,
    found: &mut Vec<StoredEvent>,
) -> Result<Option<Item>, Error> {
    let mut bytes: usize = found.iter().map(|event| event.json.len()).sum();
    for item in items {
        if filter.fits(&item) {
            let event = StoredEvent::from_item(item)?;
            bytes += event.json.len();
            found.push(event);
            if found.len() >= limit || bytes >= PAGE_BYTES {
                return Ok(found.last().map(|event| event.item.clone()));
            }
        }
    }
    Ok(None)
}

impl Filter {
    /// The index that serves the filter best: the one that leads to the fewest events.
    fn index(&self) -> Option<(&'static str, &str)> {
        let exact_type = self.event_type.as_deref().filter(|wanted| !wanted.ends_with('*'));
        (self.correlation_id.as_deref().map(|id| ("correlation-index", id)))
            .or_else(|| exact_type.map(|wanted| ("type-index", wanted)))
            .or_else(|| self.source.as_deref().map(|source| ("source-index", source)))
    }

    fn range(&self) -> Range {
        // Keys go on with `#`, which sorts below `~`: the upper bound takes in everything of its instant.
        let low = self.from.map(|from| time::iso_micros(from).into());
        let high = self.to.map(|to| format!("{}~", time::iso_micros(to)).into());
        match (low, high) {
            (Some(low), Some(high)) if low > high => Range::Equal("none".into()),
            (Some(low), Some(high)) => Range::Between(low, high),
            (Some(low), None) => Range::AtLeast(low),
            (None, Some(high)) => Range::AtMost(high),
            (None, None) => Range::All,
        }
    }

    fn fits(&self, item: &Item) -> bool {
        let same =
            |wanted: &Option<String>, name: &str| wanted.as_deref().is_none_or(|wanted| item.str(name) == Some(wanted));
        self.type_fits(item.str("eventType").unwrap_or_default())
            && same(&self.source, "source")
            && same(&self.correlation_id, "correlationId")
    }

    /// Whether an event's type is the wanted one, or starts as wanted.
    #[must_use]
    pub fn type_fits(&self, event_type: &str) -> bool {
        match self.event_type.as_deref() {
            None => true,
            Some(wanted) => match wanted.strip_suffix('*') {
                Some(prefix) => event_type.starts_with(prefix),
                None => event_type == wanted,
            },
        }
    }
}
