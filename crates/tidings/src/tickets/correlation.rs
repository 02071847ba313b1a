//! Tickets by correlation id (SX-03). The seed's item has no room for one (S004-39), so whoever opens, comments or moves a
//! ticket leaves a row beside it, in the same transaction, that leads there.

use std::sync::LazyLock;

use tidings_core::time::{self, Timestamp};
use tidings_store::{Error, Item, KeyKind, Query, Table, Write, limits};

use super::{Origin, Ticket, Tickets, record};

/// Rows looked at for one page at the most, so that a caller who has few of them is still answered soon.
const LOOKED_AT: usize = 1000;
/// A row is kept for so long at least, whatever becomes of the ticket.
const LEAST_SECONDS: i64 = 400 * 86_400;

/// By correlation id, in the order in which the tickets were opened.
#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        Table::new("tidings-ticket-correlations", "correlation_id", KeyKind::S).sort("ticket", KeyKind::S).ttl("ttl")
    });
    &TABLE
}

/// A ticket as a list has it.
pub struct Found {
    pub item: Item,
    /// Where the list goes on after it.
    pub cursor: Item,
}

impl Tickets {
    /// The row that leads from what somebody did to the ticket it was done to.
    pub(super) fn found_by(&self, ticket: &Ticket, origin: Origin<'_>, now: Timestamp) -> Option<Write> {
        let id = origin.correlation_id;
        let row = Item::new()
            .with("correlation_id", id)
            .with("ticket", format!("{}#{}", time::iso_micros(ticket.created_at), ticket.ticket_id))
            .with("ticket_id", &ticket.ticket_id)
            .with("caller_id", &ticket.caller_id)
            .with("ttl", now.as_second().saturating_add(self.keep_seconds.max(LEAST_SECONDS)));
        (1..=limits::PARTITION_KEY_BYTES).contains(&id.len()).then(|| Write::put(table(), row))
    }

    /// A page of the tickets of a correlation id, of this caller if one is given, newest first. A page that looked at
    /// much and found little may be short, and still have a cursor.
    pub async fn of_correlation(
        &self,
        correlation_id: &str,
        caller_id: Option<&str>,
        limit: usize,
        mut after: Option<Item>,
    ) -> Result<(Vec<Found>, Option<Item>), Error> {
        let (mut found, mut looked_at) = (Vec::new(), 0);
        loop {
            let query = Query::new(correlation_id).descending().limit(limit).after(after);
            let page = self.store.query(table(), &query).await?;
            looked_at += page.items.len();
            for row in page.items {
                if caller_id.is_some_and(|wanted| row.str("caller_id") != Some(wanted)) {
                    continue;
                }
                let Some(ticket_id) = row.str("ticket_id") else { continue };
                // It may be gone before its row.
                let Some(item) = self.store.get(super::table(), &record::key(ticket_id)).await? else { continue };
                let cursor = table().key_item(&table().key_of(&row)?);
                found.push(Found { item, cursor: cursor.clone() });
                if found.len() >= limit {
                    return Ok((found, Some(cursor)));
                }
            }
            after = page.next;
            if after.is_none() || looked_at >= LOOKED_AT {
                return Ok((found, after));
            }
        }
    }
}
