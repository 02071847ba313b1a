//! Digests: the changes of a while in one mail, if the operator prefers that (S000-48).
//!
//! An alert that is to be told with others leaves a note in its own transaction: when, and what the mail will say of it.
//! When that time has come, a message takes the place of up to forty notes in one transaction, and every alert of them
//! gets its id; from then on they follow it as they would follow a message of their own.

use std::fmt::Write as _;
use std::sync::LazyLock;
use std::time::Duration;

use serde_json::{Map, Value as Json, json};
use tidings_core::time::Timestamp;
use tidings_store::{Change, Condition, Error, Item, Key, KeyKind, Query, Range, Store, Table, Write};
use uuid::Uuid;

use super::Alerts;
use super::mail::{self, CREATED_BY, Letterhead};
use super::record::{self, DELIVERY_ID, DIGEST_PLACE};
use crate::app::Services;
use crate::channel::email::escape;
use crate::messages::record::ALERT_NOTIFICATION;
use crate::messages::{Message, Messages, NewMessage};

/// The field of a message's payload that leads back to the alerts it is about.
pub const ABOUT_MANY: &str = "process_changes";
/// The partition of the notes.
const OPEN: &str = "open";
/// Alerts in one mail: two writes for each when it is made, one when it is sent.
const MOST: usize = 40;
/// Bytes of what the notes say, in one mail.
const MOST_BYTES: usize = 150_000;
/// Characters of one attribute, and of the details, in a digest.
const ATTRIBUTE_CHARS: usize = 200;
const DETAILS_CHARS: usize = 500;
/// How often somebody looks whether a digest is due.
const EVERY: Duration = Duration::from_secs(5);
/// Others that may make the same digest at the same time before we give up.
const TRIES: usize = 20;

#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> =
        LazyLock::new(|| Table::new("tidings-alert-digests", "state", KeyKind::S).sort("place", KeyKind::S).ttl("ttl"));
    &TABLE
}

/// When what comes now is told, if it is to be told with others: at the end of its stretch of so many seconds.
#[must_use]
pub fn next(seconds: u64, now: Timestamp) -> Option<i64> {
    let seconds = i64::try_from(seconds).ok().filter(|seconds| *seconds > 0)?;
    Some(now.as_second().div_euclid(seconds).saturating_add(1).saturating_mul(seconds))
}

/// Where the note about an alert is: within its digest in the order in which things happened, then came.
#[must_use]
pub fn place(at: i64, happened: Timestamp, received: Timestamp, partition: &str, sort: &str) -> String {
    let name = Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("digest\n{partition}\n{sort}").as_bytes());
    let [happened, received] = [happened, received].map(|at| at.as_microsecond().max(0));
    format!("{at:020}#{happened:017}#{received:017}#{name}")
}

/// The write that leaves a note about an alert.
#[must_use]
pub fn member(alert: &Item) -> Write {
    let text = |name: &str| alert.str(name).unwrap_or_default();
    let title = mail::title(alert);
    let mut plain = format!("{title}\n{}\n", cut(text("Details"), DETAILS_CHARS));
    let mut html = format!("<h3>{}</h3><p>{}</p><table>", escape(&title), escape(&cut(text("Details"), DETAILS_CHARS)));
    for (name, value) in mail::rows(alert).filter(|(name, _)| *name != "Details") {
        let value = cut(&value, ATTRIBUTE_CHARS);
        let _ = writeln!(plain, "  {name}: {value}");
        let _ = write!(html, "<tr><th align=\"left\">{name}</th><td>{}</td></tr>", escape(&value));
    }
    html.push_str("</table>");
    let note = Item::new()
        .with("state", OPEN)
        .with("place", text(DIGEST_PLACE))
        .with("PartitionKey", text("PartitionKey"))
        .with("SortKey", text("SortKey"))
        .with("CorrelationId", text("CorrelationId"))
        .with("TTL", alert.int("TTL").unwrap_or_default())
        .with("title", &title)
        .with("text", plain)
        .with("html", html)
        .with("ttl", alert.int("TTL").unwrap_or_default());
    Write::put(table(), note)
}

fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Starts the worker that makes digests when they are due.
pub fn start(services: &Services) {
    let services = services.clone();
    let workers = &services.clone().workers;
    workers.spawn("digests", EVERY, move || {
        let services = services.clone();
        async move { services.alerts.make_digests(&services.messages).await.map(drop).map_err(|e| e.to_string()) }
    });
}

impl Alerts {
    /// Makes the mails that are due; gives their number. Two at once make each once.
    pub async fn make_digests(&self, messages: &Messages) -> Result<usize, Error> {
        let (mut made, mut tries) = (0, 0);
        loop {
            let now = self.clock.now();
            let due = Range::Below(format!("{:020}", now.as_second().saturating_add(1)).into());
            let notes = self.store.query(table(), &Query::new(OPEN).range(due).limit(MOST)).await?.items;
            let notes = together(notes);
            if notes.is_empty() {
                return Ok(made);
            }
            let message = self.letterhead().digest(&notes, now);
            let mut writes = Vec::with_capacity(2 * notes.len() + 3);
            for note in &notes {
                writes.extend(taken(note, message.as_ref()));
            }
            if let Some(message) = &message {
                writes.extend(messages.creation(std::slice::from_ref(message))?);
            }
            match self.store.transact(writes).await {
                Ok(()) => {
                    made += usize::from(message.is_some());
                    messages.signals.created(&message);
                }
                // Another node was faster; what is left is looked at again.
                Err(Error::Conflict { .. }) if tries < TRIES => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }
}

/// The mail that tells of an event together with others, if there is one by now.
pub async fn told_by(store: &dyn Store, event_id: &str) -> Result<Option<String>, Error> {
    let Some((partition, sort)) = record::place_of(store, event_id).await? else { return Ok(None) };
    let alert = store.get(record::table(), &record::key(&partition, &sort)).await?;
    Ok(alert.and_then(|alert| alert.str(DELIVERY_ID).map(ToOwned::to_owned)))
}

/// As many notes as one mail takes.
fn together(notes: Vec<Item>) -> Vec<Item> {
    let mut bytes = 0;
    let fits = |note: &Item| {
        bytes += note.size();
        bytes <= MOST_BYTES
    };
    notes.into_iter().take_while(fits).collect()
}

/// The writes that take a note away, and let its alert know who tells of it; without a message nobody does.
fn taken(note: &Item, message: Option<&Message>) -> [Write; 2] {
    let text = |name: &str| note.str(name).unwrap_or_default();
    let mut changes = vec![
        Change::Remove(DIGEST_PLACE.into()),
        // As in `follow`: an alert that has expired stays so.
        Change::Set("TTL".into(), note.int("TTL").unwrap_or_default().into()),
    ];
    changes.extend(message.map(|message| Change::Set(DELIVERY_ID.into(), message.message_id.as_str().into())));
    let key = record::key(text("PartitionKey"), text("SortKey"));
    [
        Write::delete(table(), Key::with_sort(OPEN, text("place"))).when(Condition::Exists),
        Write::update(record::table(), key, changes),
    ]
}

impl Letterhead {
    /// One message about all of these, unless nobody is to be told any more.
    fn digest(&self, notes: &[Item], now: Timestamp) -> Option<Message> {
        if self.recipients.is_empty() {
            return None;
        }
        let all = |name: &str| notes.iter().filter_map(|note| note.str(name)).collect::<Vec<_>>();
        // The same notes make the same message, whoever makes it.
        let id = Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("process-digest\n{}", all("place").join("\n")).as_bytes());
        let count = notes.len();
        // One alone is what it would be without a digest.
        let alone = notes.first().filter(|_| count == 1).and_then(|note| note.str("title"));
        let title = alone.map_or_else(|| format!("Process changes: {count}"), ToOwned::to_owned);
        let (mut text, mut html) = (String::new(), "<!doctype html><html><body>".to_owned());
        if alone.is_none() {
            let _ = writeln!(text, "{title}");
            let _ = write!(html, "<h2>{}</h2>", escape(&title));
        }
        for note in notes {
            let part = |name: &str| note.str(name).unwrap_or_default();
            let link = self.link(part("CorrelationId"));
            let _ = write!(text, "\n{}  See what became of it: {link}\n", part("text"));
            let _ = write!(html, "{}<p><a href=\"{}\">See what became of it</a></p>", part("html"), escape(&link));
        }
        html.push_str("</body></html>");
        let about = |note: &Item| json!({ "PartitionKey": note.str("PartitionKey"), "SortKey": note.str("SortKey"), "TTL": note.int("TTL") });
        let mut payload = Map::new();
        payload.insert("text".to_owned(), text.into());
        payload.insert("html".to_owned(), html.into());
        payload.insert("title".to_owned(), title.into());
        payload.insert("click_url".to_owned(), format!("{}/ui/alerts", self.public_url.trim_end_matches('/')).into());
        payload.insert(ABOUT_MANY.to_owned(), notes.iter().map(about).collect::<Vec<Json>>().into());
        payload.insert("notice_id".to_owned(), id.to_string().into());
        // What belongs together in the trace stays together.
        let correlations = all("CorrelationId");
        let own = id.to_string();
        let correlation_id = match correlations.split_first() {
            Some((first, rest)) if rest.iter().all(|id| id == first) => first,
            _ => own.as_str(),
        };
        let new = NewMessage {
            message_id: id,
            created_by: CREATED_BY.to_owned(),
            stage: &self.stage,
            message_type: ALERT_NOTIFICATION,
            payload,
            correlation_id,
            channel: "email",
            target: Map::from_iter([("to".to_owned(), Json::from(self.recipients.clone()))]),
            secret: None,
            event_id: None,
            rule: None,
            deliver_at: None,
            keep_seconds: self.keep_seconds,
        };
        Some(Message::new(new, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_ends_with_its_last_second() {
        let at = |second: i64| next(60, Timestamp::from_second(second).unwrap()).unwrap();
        assert_eq!((at(0), at(59), at(60), at(61)), (60, 60, 120, 120));
        assert_eq!(next(0, Timestamp::UNIX_EPOCH), None);
    }
}
