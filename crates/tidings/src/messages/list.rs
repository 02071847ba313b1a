//! Looking for messages: by stage, status, type and date in every combination, each through an index (S002-19 to
//! S002-34, S002-42).

use serde::Serialize;
use tidings_core::message::Status;
use tidings_core::time::{Timestamp, iso_millis};
use tidings_store::query::cursor_of;
use tidings_store::{Error, Item, Query, Range, Store, Table};

use super::record::Message;

/// Messages looked at for one page at the most, so that a filter that fits little still answers soon.
const LOOKED_AT: usize = 10_000;

/// Which messages a reader wants. A stage is always given: it is the scope of everything.
#[derive(Debug, Clone, Serialize)]
pub struct Filter {
    pub stage: String,
    pub status: Option<Status>,
    pub message_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    pub from: Option<Timestamp>,
    pub to: Option<Timestamp>,
}

/// One page, newest first. A page that looked at much and found little may be short, and still have a cursor.
pub async fn page(
    store: &dyn Store,
    table: &Table,
    filter: &Filter,
    limit: usize,
    mut after: Option<Item>,
) -> Result<(Vec<Message>, Option<Item>), Error> {
    let (index, value) = filter.index();
    let mut found = Vec::new();
    let mut looked_at = 0;
    loop {
        let query = Query::new(value).index(index).range(filter.range()).descending().limit(limit).after(after);
        let page = store.query(table, &query).await?;
        looked_at += page.items.len();
        for item in &page.items {
            if !filter.fits(item) {
                continue;
            }
            found.push(Message::from_item(item)?);
            if found.len() >= limit {
                return Ok((found, Some(cursor_of(table, Some(table.index_named(index)?), item))));
            }
        }
        after = page.next;
        if after.is_none() || looked_at >= LOOKED_AT {
            return Ok((found, after));
        }
    }
}

impl Filter {
    /// The index that leads to the fewest messages: few are on their way or failed, most are completed.
    fn index(&self) -> (&'static str, &str) {
        if let Some(correlation_id) = &self.correlation_id {
            return ("correlation-index", correlation_id);
        }
        let by_status = |status: Status| ("status-created_date-index", status.as_str());
        match (self.status, self.message_type.as_deref()) {
            (Some(status), _) if status != Status::Completed => by_status(status),
            (_, Some(message_type)) => ("message_type-created_date-index", message_type),
            (Some(status), None) => by_status(status),
            (None, None) => ("stage-created_date-index", &self.stage),
        }
    }

    fn range(&self) -> Range {
        let low = self.from.map(|from| iso_millis(from).into());
        let high = self.to.map(|to| iso_millis(to).into());
        match (low, high) {
            (Some(low), Some(high)) => Range::Between(low, high),
            (Some(low), None) => Range::AtLeast(low),
            (None, Some(high)) => Range::AtMost(high),
            (None, None) => Range::All,
        }
    }

    fn fits(&self, item: &Item) -> bool {
        item.str("stage") == Some(&self.stage)
            && self.status.is_none_or(|status| item.str("status") == Some(status.as_str()))
            && self.correlation_id.as_deref().is_none_or(|wanted| item.str("correlation_id") == Some(wanted))
            && self.message_type.as_deref().is_none_or(|wanted| item.str("message_type") == Some(wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // S002-42: each access path has its index.
    #[test]
    fn every_combination_has_an_index() {
        let index = |status, message_type: Option<&str>| {
            let message_type = message_type.map(ToOwned::to_owned);
            let filter =
                Filter { stage: "dev".to_owned(), status, message_type, correlation_id: None, from: None, to: None };
            let (index, value) = filter.index();
            format!("{} {value}", index.split('-').next().unwrap())
        };
        assert_eq!(index(None, None), "stage dev");
        assert_eq!(index(Some(Status::Failed), None), "status failed");
        assert_eq!(index(Some(Status::Failed), Some("reminder")), "status failed");
        assert_eq!(index(Some(Status::Completed), None), "status completed");
        assert_eq!(index(Some(Status::Completed), Some("reminder")), "message_type reminder");
        assert_eq!(index(None, Some("reminder")), "message_type reminder");
    }
}
