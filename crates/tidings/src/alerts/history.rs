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
/// Alerts asked for at once where a filter leaves most of them out.
const FILTERED: usize = 1000;

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
    let mut walk = Walk { selection, after, rows: Rows::default(), looked_at: 0, bytes: 0 };
    let mut part = Some(walk.first_part());
    while let Some(present) = part {
        if walk.part(store, &present, limit).await? {
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
    item.0.insert("RawEventJson".into(), whole.into());
    Ok(())
}

struct Walk<'a> {
    selection: &'a Selection,
    after: Option<Item>,
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

    /// Takes from one partition; says whether the page is done.
    async fn part(&mut self, store: &dyn Store, part: &str, limit: usize) -> Result<bool, Error> {
        let table = record::table();
        let index = self.selection.index().map(|name| table.index_named(name)).transpose()?;
        loop {
            // One more than is wanted shows whether there is a next page.
            let wanted = (limit + 1).saturating_sub(self.rows.items.len()).max(1);
            let ask = if self.selection.is_narrow() { wanted.max(FILTERED) } else { wanted };
            let query = self.selection.query(part).limit(ask).after(self.after.take());
            let page = store.query(table, &query).await?;
            for item in page.items {
                self.looked_at += 1;
                let fits = self.selection.fits(&item);
                let full = self.rows.items.len() >= limit || self.bytes >= PAGE_BYTES;
                if fits && full {
                    self.rows.next = self.rows.items.last().map(|last| cursor_of(table, index, last));
                    return Ok(true);
                }
                if self.looked_at >= LOOKED_AT {
                    self.rows.next = Some(cursor_of(table, index, &item));
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

    fn query(&self, part: &str) -> Query {
        let query = Query::new(part).descending();
        match (self.index(), &self.correlation_id) {
            (None, Some(id)) => query.prefix(format!("{id}-")),
            (None, None) => query,
            (Some(index), _) => query.index(index).range(Range::Between(self.from.into(), self.to.into())),
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

fn first_second(month: &str) -> Option<i64> {
    format!("{month}-01T00:00:00Z").parse::<Timestamp>().ok().map(Timestamp::as_second)
}
