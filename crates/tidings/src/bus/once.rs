//! Messages that were sent with an `Idempotency-Key` (SX-09): each leaves a mark in its own transaction, so that the same
//! request, come again after a crash that its answer did not survive, finds what it has sent.

use std::collections::BTreeMap;

use tidings_store::{Error, Item, Query, Store, Value, Write};
use uuid::Uuid;

use super::layout::{self, seen_table};
use super::prepared::Sent;

/// Which message of which request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    pub claim: Uuid,
    /// Its place among the request's messages.
    pub place: usize,
    /// Until when it is to be found, in seconds since 1970.
    pub until: i64,
}

impl Mark {
    /// The write that says where the message went. Two who send it at the same time do not both succeed.
    #[must_use]
    pub fn of(&self, sent: &[Sent]) -> Write {
        let one = |sent: &Sent| {
            let item = Item::new()
                .with("message_id", &sent.message_id)
                .with("path", &sent.path)
                .with("sequence", i64::try_from(sent.sequence).unwrap_or(i64::MAX));
            Value::M(item.0)
        };
        let item = Item::new()
            .with("line", partition(&self.claim))
            .with("id", layout::digits(self.place as u64))
            .with("sent", Value::L(sent.iter().map(one).collect()))
            .with("ttl", self.until);
        Write::insert(seen_table(), item)
    }
}

/// What a request has sent so far: where each of its messages went, by its place.
pub async fn sent_before(store: &dyn Store, claim: &Uuid) -> Result<BTreeMap<usize, Vec<Sent>>, Error> {
    let mut all = BTreeMap::new();
    let mut query = Query::new(partition(claim)).limit(1000);
    loop {
        let page = store.query(seen_table(), &query).await?;
        all.extend(page.items.iter().filter_map(read));
        if page.next.is_none() {
            return Ok(all);
        }
        query = query.after(page.next);
    }
}

fn partition(claim: &Uuid) -> String {
    format!("key/{claim}")
}

fn read(item: &Item) -> Option<(usize, Vec<Sent>)> {
    let Some(Value::L(list)) = item.get("sent") else { return None };
    let one = |value: &Value| {
        let Value::M(fields) = value else { return None };
        let text = |name: &str| fields.get(name).and_then(Value::as_str).map(ToOwned::to_owned);
        let fields = Item(fields.clone());
        let sequence = fields.int("sequence").and_then(|number| u64::try_from(number).ok())?;
        Some(Sent { message_id: text("message_id")?, path: text("path")?, sequence })
    };
    Some((item.str("id")?.parse().ok()?, list.iter().filter_map(one).collect()))
}
