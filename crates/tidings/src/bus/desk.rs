//! The desk: looking at messages without taking them.

use std::sync::Arc;

use tidings_core::time::Timestamp;
use tidings_store::{Error, Query, Range};

use super::layout::{self, LaneId};
use super::line::Line;
use super::message::Stored;

/// Which messages to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Those that wait or are locked.
    Active,
    Scheduled,
    Deferred,
}

/// A message that was looked at.
#[derive(Debug, Clone)]
pub struct Seen {
    pub message: Stored,
    /// When it is due, if it is scheduled.
    pub due: Option<Timestamp>,
    /// Where it lies among those of its state.
    at: String,
}

impl Line {
    /// Messages from a number on; of scheduled ones, in the order of time.
    pub async fn peek(self: &Arc<Self>, which: Which, from: u64, limit: usize) -> Result<Vec<Seen>, Error> {
        match which {
            Which::Active => {
                // Those that came back are few, and have numbers of earlier.
                let mut seen = self.peek_lane(LaneId::Front, 0, from, limit).await?;
                seen.extend(self.peek_lane(LaneId::Main, from, from, limit).await?);
                seen.sort_by_key(|seen| seen.message.sequence);
                seen.truncate(limit);
                Ok(seen)
            }
            Which::Deferred => {
                let range = Range::AtLeast(layout::digits(from).into());
                let query = Query::new(self.layout.partition("f")).range(range).limit(limit);
                self.peek_all(query, limit, 0).await
            }
            Which::Scheduled => Ok(self.peek_scheduled(None, from, limit).await?.0),
        }
    }

    /// Scheduled messages in the order of time, with numbers from `from` on, behind the place that the page before ended
    /// at; and the place that this one ends at, if there are more.
    pub async fn peek_scheduled(
        &self,
        after: Option<&str>,
        from: u64,
        limit: usize,
    ) -> Result<(Vec<Seen>, Option<String>), Error> {
        let mut query = Query::new(self.layout.partition("s")).limit((limit + 1).max(100));
        if let Some(after) = after {
            // No key begins with another one.
            query = query.range(Range::AtLeast(format!("{after}!").into()));
        }
        let mut seen = self.peek_all(query, limit + 1, from).await?;
        let more = seen.len() > limit;
        seen.truncate(limit);
        let end = seen.last().filter(|_| more).map(|last| last.at.clone());
        Ok((seen, end))
    }

    async fn peek_lane(&self, lane: LaneId, start: u64, from: u64, limit: usize) -> Result<Vec<Seen>, Error> {
        let range = Range::AtLeast(layout::digits(start.max(1)).into());
        let mut query = Query::new(self.layout.partition(lane.letter())).range(range).limit(limit.max(1));
        let mut found: Vec<(u64, Stored)> = Vec::new();
        while found.len() < limit {
            let page = self.shared.store.query(layout::table(), &query).await?;
            for item in &page.items {
                let stored = Stored::from_item(item)?;
                if let Some(position) = layout::number_of(item).filter(|_| stored.sequence >= from) {
                    found.push((position, stored));
                }
            }
            if page.next.is_none() {
                break;
            }
            query = query.after(page.next);
        }
        found.truncate(limit);
        self.add_deliveries(lane, &mut found, false).await?;
        let seen = |(position, message)| Seen { message, due: None, at: layout::digits(position) };
        Ok(found.into_iter().map(seen).collect())
    }

    async fn peek_all(&self, mut query: Query, limit: usize, from: u64) -> Result<Vec<Seen>, Error> {
        let mut seen = Vec::new();
        loop {
            let page = self.shared.store.query(layout::table(), &query).await?;
            for item in &page.items {
                let at = item.str("at").unwrap_or_default().to_owned();
                let due = at.split_once('#').and_then(|(due, _)| due.parse().ok()).map(layout::from_micros);
                let message = Stored::from_item(item)?;
                let due = due.or(message.not_before);
                if message.sequence >= from {
                    seen.push(Seen { message, due, at });
                }
                if seen.len() >= limit {
                    return Ok(seen);
                }
            }
            if page.next.is_none() {
                return Ok(seen);
            }
            query = query.after(page.next);
        }
    }
}
