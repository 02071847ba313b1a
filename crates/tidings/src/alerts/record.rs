//! The seed's `ProcessChangeEvent`: its table, its keys, and its attributes by name.

use std::sync::LazyLock;

use tidings_core::time::Timestamp;
use tidings_store::{Error, Item, Key, KeyKind, Store, Table, Write};
use uuid::Uuid;

use super::digest;
use super::entry::{AREA, Change};
use super::limits::RAW_INLINE_BYTES;

/// The seed's attributes in the seed's order: also the columns of an export.
pub const ATTRIBUTES: [&str; 22] = [
    "PartitionKey",
    "SortKey",
    "Timestamp",
    "EventTimestamp",
    "ActorId",
    "ActorDisplayName",
    "ActorIP",
    "Action",
    "Area",
    "Category",
    "Details",
    "ProcessName",
    "WorkItemType",
    "FieldReferenceName",
    "StateName",
    "CorrelationId",
    "AlertSent",
    "AlertSentTimestamp",
    "AlertFailed",
    "RetryCount",
    "TTL",
    "RawEventJson",
];
/// The account whose change it is, if that keeps it from being alerted.
pub const SUPPRESSED_BY: &str = "SuppressedBy";
/// The message that tells of it together with others (S000-48).
pub const DELIVERY_ID: &str = "DeliveryId";
/// Says of an alert that it waits for the next digest, and where.
pub const DIGEST_PLACE: &str = "DigestPlace";
/// Says of the few events that are too large for one item that the rest of them stands beside it.
const CONTINUED: &str = "RawEventContinued";
/// The event that it is, where its own text does not say it: its carrier's id stands for it, or another event has its id.
pub const EVENT_ID: &str = "EventId";

/// In the row of a source's id: what the event is called, if that is something else.
pub const ROW_EVENT_ID: &str = "eventId";

pub const BY_TIME: &str = "EventTimestamp-index";
pub const BY_ACTOR: &str = "ActorId-index";
/// Alerts up to this size are read in the order of time without being looked for one by one.
const BESIDE_BYTES: usize = 8 * 1024;

/// S000-01, S000-29; and, so that looking for an actor is no scan, S000-33.
#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        let at = || Some(("EventTimestamp".into(), KeyKind::N));
        Table::new("ProcessChangeAlerts", "PartitionKey", KeyKind::S)
            .sort("SortKey", KeyKind::S)
            .index(BY_TIME, ("PartitionKey".into(), KeyKind::S), at())
            .index(BY_ACTOR, ("ActorId".into(), KeyKind::S), at())
            .read_whole(BY_TIME, BESIDE_BYTES)
            .ttl("TTL")
    });
    &TABLE
}

/// Which events are known, by their own ids: what recognises one that comes again, however late.
#[must_use]
pub fn sources_table() -> &'static Table {
    static TABLE: LazyLock<Table> =
        LazyLock::new(|| Table::new("tidings-alert-sources", "sourceId", KeyKind::S).ttl("ttl"));
    &TABLE
}

/// The ends of events that are too large for one item.
#[must_use]
pub fn rest_table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        Table::new("tidings-alert-rest", "PartitionKey", KeyKind::S).sort("SortKey", KeyKind::S).ttl("TTL")
    });
    &TABLE
}

/// An alert about to be stored.
#[derive(Debug, Clone)]
pub struct NewAlert {
    pub change: Change,
    /// What recognises the event: its own id, or what stands for it.
    pub source_id: String,
    /// What it is called as an event of the house: the same, unless an event that is no alert is called so.
    pub event_id: String,
    pub correlation_id: String,
    pub raw: String,
    pub suppressed_by: Option<String>,
    pub received_at: Timestamp,
    /// Second since 1970.
    pub expires_at: i64,
    /// Counts those of one correlation id in one second, from 1.
    pub number: usize,
    /// The second at which it is told together with others; absent: it is told at once, if at all.
    pub digest_at: Option<i64>,
}

impl NewAlert {
    /// The month of the event in UTC (S000-02, S000-25).
    #[must_use]
    pub fn partition(&self) -> String {
        month_of(self.change.at.as_second())
    }

    /// The sort key of the first one of its correlation id in its second (S000-03).
    #[must_use]
    pub fn base(&self) -> String {
        format!("{}-{}", self.correlation_id, self.change.at.as_second())
    }

    #[must_use]
    pub fn sort(&self) -> String {
        numbered(self.base(), self.number)
    }

    /// The record without what the alerting changes later.
    #[must_use]
    pub fn item(&self) -> Item {
        let change = &self.change;
        let (raw, rest) = split(&self.raw);
        Item::new()
            .with("PartitionKey", self.partition())
            .with("SortKey", self.sort())
            .with("Timestamp", self.received_at.as_millisecond())
            .with("EventTimestamp", change.at.as_second())
            .with("ActorId", &change.actor_id)
            .with("ActorDisplayName", &change.actor_display_name)
            .with("ActorIP", &change.actor_ip)
            .with("Action", &change.action)
            .with("Area", AREA)
            .with("Category", change.category.as_str())
            .with("Details", &change.details)
            .with_some("ProcessName", change.process_name.as_ref())
            .with_some("WorkItemType", change.work_item_type.as_ref())
            .with_some("FieldReferenceName", change.field_reference_name.as_ref())
            .with_some("StateName", change.state_name.as_ref())
            .with("CorrelationId", &self.correlation_id)
            .with("AlertSent", false)
            .with("AlertFailed", false)
            .with("RetryCount", 0_i64)
            .with("TTL", self.expires_at)
            .with("RawEventJson", raw)
            .with_some(SUPPRESSED_BY, self.suppressed_by.as_ref())
            .with_some(
                DIGEST_PLACE,
                self.digest_at
                    .map(|at| digest::place(at, change.at, self.received_at, &self.partition(), &self.sort())),
            )
            .with_some(CONTINUED, (!rest.is_empty()).then_some(true))
            .with_some(EVENT_ID, (change.source_id.as_ref() != Some(&self.event_id)).then_some(&self.event_id))
    }

    /// Whether it is called otherwise as an event of the house than by its source.
    #[must_use]
    pub fn is_renamed(&self) -> bool {
        self.event_id != self.source_id
    }

    /// Calls it otherwise: by a name that follows from the one that is taken, so that whoever does this does the same.
    pub fn rename(&mut self) {
        let name = format!("audit-event\n{}\n{}", self.source_id, self.event_id);
        self.event_id = format!("audit-{}", Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()));
    }

    /// The writes that store it: the first fails if the event is known, the second if its key is taken, and the third of
    /// one that is called otherwise if that name is taken, too.
    #[must_use]
    pub fn writes(&self) -> Vec<Write> {
        let known_as = |id: &str| {
            Item::new()
                .with("sourceId", id)
                .with("PartitionKey", self.partition())
                .with("SortKey", self.sort())
                .with("correlationId", &self.correlation_id)
                .with_some(ROW_EVENT_ID, self.is_renamed().then_some(&self.event_id))
                .with("ttl", self.expires_at)
        };
        let mut writes =
            vec![Write::insert(sources_table(), known_as(&self.source_id)), Write::insert(table(), self.item())];
        writes.extend(self.is_renamed().then(|| Write::insert(sources_table(), known_as(&self.event_id))));
        let (_, rest) = split(&self.raw);
        if !rest.is_empty() {
            let rest = Item::new()
                .with("PartitionKey", self.partition())
                .with("SortKey", self.sort())
                .with("rest", rest)
                .with("TTL", self.expires_at);
            writes.push(Write::put(rest_table(), rest));
        }
        writes
    }
}

/// Where the alert is that an event of the house is about, if it is about one.
pub async fn place_of(store: &dyn Store, event_id: &str) -> Result<Option<(String, String)>, Error> {
    let Some(row) = store.get(sources_table(), &Key::new(event_id)).await? else { return Ok(None) };
    // One that is called otherwise is not the event that was here before it.
    if row.str(ROW_EVENT_ID).is_some_and(|known| known != event_id) {
        return Ok(None);
    }
    let text = |name: &str| row.str(name).map(ToOwned::to_owned);
    Ok(text("PartitionKey").zip(text("SortKey")))
}

/// The key of one of several in one second.
#[must_use]
pub fn numbered(base: String, number: usize) -> String {
    if number <= 1 { base } else { format!("{base}-{number}") }
}

/// `2025-12`
#[must_use]
pub fn month_of(second: i64) -> String {
    let at = Timestamp::from_second(second).unwrap_or_default();
    at.strftime("%Y-%m").to_string()
}

#[must_use]
pub fn key(partition: &str, sort: &str) -> Key {
    Key::with_sort(partition, sort)
}

#[must_use]
pub fn is_continued(item: &Item) -> bool {
    item.get(CONTINUED).is_some()
}

/// What stands in the item, and what stands beside it.
fn split(raw: &str) -> (&str, &str) {
    if raw.len() <= RAW_INLINE_BYTES {
        return (raw, "");
    }
    raw.split_at(raw.floor_char_boundary(RAW_INLINE_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    // S000-02, S000-25
    #[test]
    fn a_month_ends_with_its_last_second_in_utc() {
        let second = |text: &str| text.parse::<Timestamp>().unwrap().as_second();
        assert_eq!(month_of(second("2025-12-31T23:59:59Z")), "2025-12");
        assert_eq!(month_of(second("2026-01-01T00:00:00Z")), "2026-01");
        assert_eq!(month_of(second("2026-01-01T00:30:00+01:00")), "2025-12");
        // The seed's own example pairs 2025-12 with this.
        assert_eq!(month_of(1_702_387_200), "2023-12");
    }

    // S000-03, S000-04
    #[test]
    fn keys_of_one_second_are_numbered() {
        assert_eq!(numbered("corr-abc123-1702387200".to_owned(), 1), "corr-abc123-1702387200");
        assert_eq!(numbered("corr-abc123-1702387200".to_owned(), 2), "corr-abc123-1702387200-2");
    }

    #[test]
    fn a_long_event_is_split_between_letters() {
        let raw = format!("{}ä", "x".repeat(RAW_INLINE_BYTES - 1));
        let (first, rest) = split(&raw);
        assert_eq!((first.len(), rest), (RAW_INLINE_BYTES - 1, "ä"));
        assert_eq!(split("abc"), ("abc", ""));
    }
}
