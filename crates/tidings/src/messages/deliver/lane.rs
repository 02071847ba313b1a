//! A partition of `due-index`, read from where it was left: what lies before is done, or in somebody's hands.

use tidings_core::time::{Timestamp, iso_millis};
use tidings_store::query::cursor_of;
use tidings_store::{Error, Item, Page, Query, Range, Store, Table};

/// Walking over what was deleted long ago costs as much as walking over what is there, so a lane keeps its place.
#[derive(Debug, Clone)]
pub struct Lane {
    partition: String,
    /// Nothing before this moment is left to read …
    from: Option<String>,
    /// … nor up to this item, if it was read.
    after: Option<Item>,
}

impl Lane {
    #[must_use]
    pub const fn new(partition: String) -> Self {
        Self { partition, from: None, after: None }
    }

    /// Something was put in that is due at that moment.
    pub fn back_to(&mut self, due: Timestamp) {
        let due = iso_millis(due);
        if self.from.as_ref().is_some_and(|from| *from >= due) {
            (self.from, self.after) = (Some(due), None);
        }
    }

    /// Reads from the start again, in case somebody put in something without a word.
    pub fn rewind(&mut self) {
        (self.from, self.after) = (None, None);
    }

    /// What is due by `now`, the earliest first; `true` if that is all.
    pub async fn read(
        &mut self,
        store: &dyn Store,
        table: &Table,
        now: Timestamp,
        limit: usize,
    ) -> Result<(Vec<Item>, bool), Error> {
        let now = iso_millis(now);
        let range = match &self.from {
            Some(from) if *from > now => return Ok((Vec::new(), true)),
            Some(from) => Range::Between(from.as_str().into(), now.as_str().into()),
            None => Range::AtMost(now.as_str().into()),
        };
        let query = self.query(range, limit).after(self.after.clone());
        let Page { items, next } = store.query(table, &query).await?;
        if let Some(last) = items.last() {
            self.from = last.str("next_attempt_at").map(ToOwned::to_owned);
            self.after = Some(cursor_of(table, Some(table.index_named("due-index")?), last));
        } else {
            (self.from, self.after) = (Some(now), None);
        }
        Ok((items, next.is_none()))
    }

    /// The first moment after `now` at which something is due.
    pub async fn upcoming(&self, store: &dyn Store, table: &Table, now: Timestamp) -> Result<Option<Timestamp>, Error> {
        let page = store.query(table, &self.query(Range::Above(iso_millis(now).into()), 1)).await?;
        Ok(page.items.first().and_then(|item| item.str("next_attempt_at")?.parse().ok()))
    }

    /// Whether nothing at all waits here.
    pub async fn is_empty(&self, store: &dyn Store, table: &Table) -> Result<bool, Error> {
        Ok(store.query(table, &self.query(Range::All, 1)).await?.items.is_empty())
    }

    /// What is due between the two moments, a page of it.
    pub async fn between(
        &self,
        store: &dyn Store,
        table: &Table,
        (low, high): (Timestamp, Timestamp),
        after: Option<Item>,
    ) -> Result<Page, Error> {
        let range = Range::Between(iso_millis(low).into(), iso_millis(high).into());
        store.query(table, &self.query(range, 500).after(after)).await
    }

    fn query(&self, range: Range, limit: usize) -> Query {
        Query::new(&self.partition).index("due-index").range(range).limit(limit)
    }
}
