//! Pages of an inbox: which index serves a filter, and where the next page begins.
//!
//! A page is asked for by the time of the entry it comes after, not by what the store calls a place: the same entry has
//! other keys once it is read, but always the same time.

use std::collections::BTreeMap;

use serde::Serialize;
use tidings_store::{Error, Item, Query, Range, Store};

use super::record::{self, ALL, Kind, Status, table};
use super::view;

const BY_STATUS: &str = "xxnc_2022";
const BY_KIND: &str = "xxnc_2022_v1";
/// Entries looked at together where only some of them are wanted.
const PORTION: usize = 200;

/// Which entries a reader wants.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Filter {
    pub user: String,
    /// Absent: all, archived ones included.
    pub status: Option<Status>,
    pub kind: Option<Kind>,
    /// The last read first instead of the newest; of those that are read.
    pub by_reading: bool,
}

/// Entries, newest first, and whether more follow.
#[derive(Debug, Default)]
pub struct Entries {
    pub items: Vec<Item>,
    pub more: bool,
}

/// One range of the table or of an index, in the order of time.
struct Strand {
    index: Option<&'static str>,
    /// What its sort keys have before the time.
    prefix: String,
}

impl Filter {
    /// The ranges that together have what is wanted, and nothing else.
    fn strands(&self) -> Vec<Strand> {
        let by_kind = |kind, status| Strand { index: Some(BY_KIND), prefix: record::kind_key(kind, status, "") };
        match (self.kind, self.status) {
            (None, None) => vec![Strand { index: None, prefix: ALL.to_owned() }],
            (None, Some(status)) => {
                vec![Strand { index: Some(BY_STATUS), prefix: record::status_key(status, "") }]
            }
            (Some(kind), Some(status)) => vec![by_kind(kind, status)],
            // An index of kinds alone is not in the seed's table; its three parts are merged (S001-69). Unread first:
            // what is marked as read meanwhile shows in both, and once in the page.
            (Some(kind), None) => {
                [Status::Unread, Status::Read, Status::Archived].map(|status| by_kind(kind, status)).into()
            }
        }
    }

    /// Whether reading a page takes several looks, between which something may change.
    #[must_use]
    pub fn is_merged(&self) -> bool {
        self.kind.is_some() && self.status.is_none()
    }
}

impl Strand {
    fn query(&self, user: &str, limit: usize, after: Option<&str>) -> Query {
        let query = Query::new(user).range(Range::Prefix(self.prefix.clone())).descending().limit(limit);
        let query = match self.index {
            Some(index) => query.index(index),
            None => query,
        };
        let sort = match self.index {
            Some(BY_STATUS) => Some("status_ordenar"),
            Some(_) => Some("tipo_ordenar"),
            None => None,
        };
        query.after(after.map(|time| {
            let place = Item::new().with("cod_chav_patc", user).with("cod_ordenar_chav", format!("{ALL}{time}"));
            match sort {
                Some(sort) => place.with(sort, format!("{}{time}", self.prefix)),
                None => place,
            }
        }))
    }
}

impl Filter {
    /// The place of an entry in the list, by which a page is asked for that comes after it.
    #[must_use]
    pub fn place_of<'i>(&self, item: &'i Item) -> Option<&'i str> {
        if self.by_reading { item.str(record::READING) } else { view::time_of(item) }
    }
}

/// Entries by when they were read (S001-80). The index knows no kinds, so others are passed over.
async fn by_reading(store: &dyn Store, filter: &Filter, limit: usize, after: Option<&str>) -> Result<Entries, Error> {
    let mut entries = Entries::default();
    let mut place = after.and_then(|place| {
        let (_, time) = place.split_once('#')?;
        let own = Item::new().with("cod_chav_patc", &filter.user).with("cod_ordenar_chav", format!("{ALL}{time}"));
        Some(own.with(record::READING, place))
    });
    loop {
        let ask = if filter.kind.is_some() { PORTION } else { limit + 1 };
        let query = Query::new(&filter.user).index(record::BY_READING).descending().limit(ask).after(place);
        let page = store.query(table(), &query).await?;
        for item in page.items {
            if filter.kind.is_some_and(|kind| item.str("event_type") != Some(kind.as_str())) {
                continue;
            }
            if entries.items.len() >= limit {
                entries.more = true;
                return Ok(entries);
            }
            entries.items.push(item);
        }
        place = page.next;
        if place.is_none() {
            return Ok(entries);
        }
    }
}

/// One page: at most `limit` entries that come after the one of that time.
pub async fn read(store: &dyn Store, filter: &Filter, limit: usize, after: Option<&str>) -> Result<Entries, Error> {
    if filter.by_reading {
        return by_reading(store, filter, limit, after).await;
    }
    let mut strands = filter.strands();
    let single = if strands.len() == 1 { strands.pop() } else { None };
    // One more than wanted tells whether there is a next page.
    if let Some(strand) = single {
        let page = store.query(table(), &strand.query(&filter.user, limit + 1, after)).await?;
        let cut_short = page.next.is_some();
        let mut items = page.items;
        let more = items.len() > limit || (cut_short && items.len() < limit + 1);
        items.truncate(limit);
        return Ok(Entries { items, more });
    }
    merged(store, filter, &strands, limit, after).await
}

async fn merged(
    store: &dyn Store,
    filter: &Filter,
    strands: &[Strand],
    limit: usize,
    after: Option<&str>,
) -> Result<Entries, Error> {
    let mut by_time: BTreeMap<String, Item> = BTreeMap::new();
    // A strand that was cut short may have more right below its last entry, so nothing below that can be shown yet.
    let mut sure_from = String::new();
    for strand in strands {
        let page = store.query(table(), &strand.query(&filter.user, limit + 1, after)).await?;
        let last = page.items.last().and_then(view::time_of).map(ToOwned::to_owned);
        if let (Some(_), Some(last)) = (&page.next, last) {
            sure_from = sure_from.max(last);
        }
        for item in page.items {
            let Some(time) = view::time_of(&item).map(ToOwned::to_owned) else { continue };
            by_time.entry(time).or_insert(item);
        }
    }
    let sure = by_time.split_off(&sure_from);
    let more = !by_time.is_empty() || !sure_from.is_empty() || sure.len() > limit;
    let items: Vec<Item> = sure.into_values().rev().take(limit).collect();
    Ok(Entries { more: more && !items.is_empty(), items })
}
