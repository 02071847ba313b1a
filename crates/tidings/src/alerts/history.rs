//! The history: which alerts, newest first, a page at a time, merged over the months they lie in.

use serde::Serialize;
use tidings_core::time::Timestamp;
use tidings_store::query::cursor_of;
use tidings_store::{Error, Item, Query, Range, Store};

use super::record::{self, BY_ACTOR, BY_TIME, SUPPRESSED_BY};

/// Alerts looked at for one page at the most, so that a filter that fits little still answers soon.
const LOOKED_AT: usize = 50_000;
/// Bytes of one page at the most, about: a page of large events is shorter, and its token leads on.
const PAGE_BYTES: usize = 8 * 1024 * 1024;
/// Alerts asked for at once where a filter leaves most of them out, or one second has many.
const FILTERED: usize = 1002;

/// Alerts of one second that are put into order. An index keeps those of a second in an order of its own; where there are
/// more of them than this, it is that order.
const OF_ONE_SECOND: usize = 1000;
/// In a place after which a page begins: it is one in the index's own order.
const AS_KEPT: &str = "as_kept";

/// Which alerts a reader wants. Times are whole seconds, both included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Selection {
    pub from: i64,
    pub to: i64,
    pub actor_id: Option<String>,
    /// An action, or the start of one followed by `*`.
    pub action: Option<String>,
    pub correlation_id: Option<String>,
    /// Those of authorised accounts, or the others; `None` takes both.
    pub suppressed: Option<bool>,
}

/// A page, and the place after its end.
#[derive(Debug, Default)]
pub struct Rows {
    pub items: Vec<Item>,
    pub next: Option<Item>,
}

/// One page of at most `limit` alerts.
pub async fn page(store: &dyn Store, selection: &Selection, limit: usize, after: Option<Item>) -> Result<Rows, Error> {
    // A correlation id is looked for by the table's own keys, which are in order.
    let as_kept = selection.index().is_none() || after.as_ref().is_some_and(|place| place.get(AS_KEPT).is_some());
    let mut walk = Walk { selection, after, as_kept, limit, rows: Rows::default(), looked_at: 0, bytes: 0 };
    let mut part = Some(walk.first_part());
    while let Some(present) = part {
        let done = if walk.as_kept {
            walk.part(store, &present, selection.to).await?
        } else {
            walk.part_in_order(store, &present).await?
        };
        if done {
            break;
        }
        part = selection.part_before(&present);
    }
    for item in &mut walk.rows.items {
        complete(store, item).await?;
    }
    Ok(walk.rows)
}

/// Puts the whole event into the item of one that is too large for it.
pub async fn complete(store: &dyn Store, item: &mut Item) -> Result<(), Error> {
    if !record::is_continued(item) {
        return Ok(());
    }
    let key = record::table().key_of(item)?;
    let rest = store.get(record::rest_table(), &key).await?;
    let rest = rest.as_ref().and_then(|rest| rest.str("rest")).unwrap_or_default();
    let whole = format!("{}{rest}", item.str("RawEventJson").unwrap_or_default());
    item.0.insert("RawEventJson", whole);
    Ok(())
}

struct Walk<'a> {
    selection: &'a Selection,
    after: Option<Item>,
    /// In the order in which the table or the index has them.
    as_kept: bool,
    limit: usize,
    rows: Rows,
    looked_at: usize,
    bytes: usize,
}

impl Walk<'_> {
    /// The partition in which the page begins: where the one before ended, or the latest.
    fn first_part(&self) -> String {
        let attribute = self.selection.partition_attribute();
        let at = self.after.as_ref().and_then(|cursor| cursor.str(attribute));
        at.map_or_else(|| self.selection.last_part(), ToOwned::to_owned)
    }

    /// The place of an alert, for the page after it.
    fn place(&self, item: &Item) -> Result<Item, Error> {
        let table = record::table();
        let index = self.selection.index().map(|name| table.index_named(name)).transpose()?;
        let place = cursor_of(table, index, item);
        Ok(if self.as_kept && index.is_some() { place.with(AS_KEPT, true) } else { place })
    }

    fn is_full(&self) -> bool {
        self.rows.items.len() >= self.limit || self.bytes >= PAGE_BYTES
    }

    /// Ends the page after the last of its alerts.
    fn end(&mut self) -> Result<bool, Error> {
        self.rows.next = self.rows.items.last().map(|last| self.place(last)).transpose()?;
        Ok(true)
    }

    /// Takes from one partition of an index, those of one second by their keys (S000-28); says whether the page is done.
    /// Whether a second is complete shows with the first alert of another.
    async fn part_in_order(&mut self, store: &dyn Store, part: &str) -> Result<bool, Error> {
        let shown = self.after.take().and_then(|place| Some((second_of(&place)?, place.str("SortKey")?.to_owned())));
        let latest = shown.as_ref().map_or(self.selection.to, |(at, _)| *at);
        let was_shown = |item: &Item| {
            let (at, key) = (second_of(item), item.str("SortKey").unwrap_or_default());
            shown
                .as_ref()
                .is_some_and(|(second, last)| at == Some(*second) && order(key, *second) >= order(last, *second))
        };
        let mut second: Vec<Item> = Vec::new();
        let (mut after, mut read) = (None, 0);
        loop {
            let wanted = (self.limit + 1).saturating_sub(self.rows.items.len()).max(1) + usize::from(shown.is_some());
            // Where a second has many, each look is at twice as many as the one before.
            let wanted = wanted.max(read).min(FILTERED);
            let ask = if self.selection.is_narrow() { FILTERED } else { wanted };
            let query = self.selection.query(part, latest).limit(ask).after(after);
            let page = store.query(record::table(), &query).await?;
            read += page.items.len();
            for item in page.items {
                self.looked_at += 1;
                if second.first().is_some_and(|first| second_of(first) != second_of(&item))
                    && self.take(std::mem::take(&mut second))?
                {
                    return Ok(true);
                }
                if !was_shown(&item) {
                    second.push(item);
                }
            }
            after = page.next;
            if after.is_none() {
                return self.take(second);
            }
            if self.is_full() && second.iter().any(|item| self.selection.fits(item)) {
                return self.end();
            }
            let bytes: usize = second.iter().map(Item::size).sum();
            if second.len() > OF_ONE_SECOND || bytes > PAGE_BYTES {
                if !self.rows.items.is_empty() {
                    return self.end();
                }
                self.as_kept = true;
                let latest = second.first().and_then(second_of).unwrap_or(latest);
                return self.part(store, part, latest).await;
            }
        }
    }

    /// Takes all alerts of a second; says whether the page is done.
    fn take(&mut self, mut second: Vec<Item>) -> Result<bool, Error> {
        let at = second.first().and_then(second_of).unwrap_or_default();
        second.sort_by(|a, b| {
            let [a, b] = [a, b].map(|item| order(item.str("SortKey").unwrap_or_default(), at));
            b.cmp(&a)
        });
        // Where the page ends for having looked at so many, it ends after this second.
        let enough = self.looked_at >= LOOKED_AT;
        let last = second.last().filter(|_| enough).map(|last| self.place(last)).transpose()?;
        for item in second {
            let fits = self.selection.fits(&item);
            if fits && self.is_full() {
                return self.end();
            }
            if fits {
                self.bytes += item.size();
                self.rows.items.push(item);
            }
        }
        if enough {
            self.rows.next = last;
        }
        Ok(self.rows.next.is_some())
    }

    /// Takes from one partition as it is kept; says whether the page is done.
    async fn part(&mut self, store: &dyn Store, part: &str, latest: i64) -> Result<bool, Error> {
        let table = record::table();
        if let Some(place) = &mut self.after {
            place.0.remove(AS_KEPT);
        }
        loop {
            // One more than is wanted shows whether there is a next page.
            let wanted = (self.limit + 1).saturating_sub(self.rows.items.len()).max(1);
            let ask = if self.selection.is_narrow() { wanted.max(FILTERED) } else { wanted };
            let query = self.selection.query(part, latest).limit(ask).after(self.after.take());
            let page = store.query(table, &query).await?;
            for item in page.items {
                self.looked_at += 1;
                let fits = self.selection.fits(&item);
                if fits && self.is_full() {
                    return self.end();
                }
                if self.looked_at >= LOOKED_AT {
                    self.rows.next = Some(self.place(&item)?);
                }
                if fits {
                    self.bytes += item.size();
                    self.rows.items.push(item);
                }
                if self.rows.next.is_some() {
                    return Ok(true);
                }
            }
            if page.next.is_none() {
                return Ok(false);
            }
            self.after = page.next;
        }
    }
}

impl Selection {
    /// The index that leads to the fewest alerts; a correlation id is the start of the table's own sort keys.
    fn index(&self) -> Option<&'static str> {
        match (&self.correlation_id, &self.actor_id) {
            (Some(_), _) => None,
            (None, Some(_)) => Some(BY_ACTOR),
            (None, None) => Some(BY_TIME),
        }
    }

    fn partition_attribute(&self) -> &'static str {
        if self.correlation_id.is_none() && self.actor_id.is_some() { "ActorId" } else { "PartitionKey" }
    }

    /// Whether much of what a query gives may not fit.
    fn is_narrow(&self) -> bool {
        self.action.is_some() || self.suppressed == Some(true) || self.correlation_id.is_some()
    }

    fn last_part(&self) -> String {
        match (&self.correlation_id, &self.actor_id) {
            (None, Some(actor)) => actor.clone(),
            _ => record::month_of(self.to),
        }
    }

    /// The month before, while the selection reaches into it (S000-30).
    fn part_before(&self, part: &str) -> Option<String> {
        if self.partition_attribute() == "ActorId" {
            return None;
        }
        let before = first_second(part)? - 1;
        (before >= self.from).then(|| record::month_of(before))
    }

    fn query(&self, part: &str, to: i64) -> Query {
        let query = Query::new(part).descending();
        match (self.index(), &self.correlation_id) {
            (None, Some(id)) => query.prefix(format!("{id}-")),
            (None, None) => query,
            (Some(index), _) => query.index(index).range(Range::Between(self.from.into(), to.into())),
        }
    }

    fn fits(&self, item: &Item) -> bool {
        let same =
            |wanted: &Option<String>, name| wanted.as_deref().is_none_or(|wanted| item.str(name) == Some(wanted));
        let action = item.str("Action").unwrap_or_default();
        let action_fits = self.action.as_deref().is_none_or(|wanted| match wanted.strip_suffix('*') {
            Some(start) => action.starts_with(start),
            None => action == wanted,
        });
        action_fits
            && same(&self.actor_id, "ActorId")
            && same(&self.correlation_id, "CorrelationId")
            && item.int("EventTimestamp").is_some_and(|at| (self.from..=self.to).contains(&at))
            && self.suppressed.is_none_or(|wanted| item.get(SUPPRESSED_BY).is_some() == wanted)
    }
}

fn second_of(item: &Item) -> Option<i64> {
    item.int("EventTimestamp")
}

/// The order of sort keys of one second: by correlation id, then by number, the fourteenth after the second.
fn order(key: &str, second: i64) -> (&str, u64, &str) {
    let is_second = |text: &str| text.parse() == Ok(second);
    let parts = || match key.rsplit_once('-')? {
        (correlation_id, end) if is_second(end) => Some((correlation_id, 1)),
        (base, number) => {
            let (correlation_id, _) = base.rsplit_once('-').filter(|(_, end)| is_second(end))?;
            Some((correlation_id, number.parse().ok()?))
        }
    };
    let (correlation_id, number) = parts().unwrap_or((key, 0));
    (correlation_id, number, key)
}

fn first_second(month: &str) -> Option<i64> {
    format!("{month}-01T00:00:00Z").parse::<Timestamp>().ok().map(Timestamp::as_second)
}
