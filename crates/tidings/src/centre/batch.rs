//! Records of a table's stream as they come, from a Lambda function or read from the stream itself: each becomes an event,
//! or a dead letter if it cannot be understood, and each has an outcome of its own.

use std::collections::HashSet;

use serde_json::{Map, Value};
use tidings_core::time::Timestamp;
use tidings_store::{Error, Write};
use uuid::Uuid;

use super::change::{self, Change, Malformed};
use crate::app::Services;
use crate::channel::stream;
use crate::ingest::{Arrival, Companions, Receipt};
use crate::messages::{Message, NewMessage, Status, dead};

/// What became of a record.
#[derive(Debug)]
pub enum Outcome {
    Accepted {
        /// Whether a rule took note of it.
        matched: bool,
    },
    Duplicate,
    /// It never will be taken, and waits among the dead letters.
    Rejected(String),
    /// Not stored, and not the record's fault: it should come again.
    NotStored(Error),
}

/// Takes records in; answers for each, in order. Changes of one item follow each other: the next is not taken before the
/// one before it is stored, nor if that could not be.
///
/// # Errors
///
/// If the store does not answer. Some may be stored: the same again is safe.
pub async fn take(services: &Services, records: &[Value], correlation_id: &str) -> Result<Vec<Outcome>, Error> {
    let mut outcomes: Vec<Outcome> = Vec::with_capacity(records.len());
    let mut rest = records;
    while !rest.is_empty() {
        if outcomes.iter().any(|outcome| matches!(outcome, Outcome::NotStored(_))) {
            let later = |_: &Value| Outcome::NotStored(Error::Throttled("one before it was not stored".to_owned()));
            outcomes.extend(rest.iter().map(later));
            break;
        }
        let (run, after) = rest.split_at(run(rest));
        outcomes.extend(take_run(services, run, correlation_id).await?);
        rest = after;
    }
    let filtered = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Accepted { matched: false })).count();
    services.metrics.rules("unmatched", filtered as u64);
    Ok(outcomes)
}

/// How many records from the first on are of different items.
fn run(records: &[Value]) -> usize {
    let mut items = HashSet::new();
    let again = records.iter().position(|record| {
        let item = change::item_of(record).map(ToString::to_string);
        item.is_some_and(|item| !items.insert(item))
    });
    again.unwrap_or(records.len())
}

/// Takes in records that have nothing to do with each other, at once.
async fn take_run(services: &Services, records: &[Value], correlation_id: &str) -> Result<Vec<Outcome>, Error> {
    let (arrivals, malformed) = arrivals(services, records, correlation_id, services.clock.now());
    let receipts = services.ingest.accept_each(arrivals).await?;
    let mut outcomes = Vec::with_capacity(records.len());
    for ((record, why), receipt) in records.iter().zip(malformed).zip(receipts) {
        let is_buried = why.is_some();
        let mut outcome = outcome(why, receipt);
        if let (Outcome::Rejected(reason), false) = (&outcome, is_buried)
            && let Err(error) = bury(services, record, reason.clone(), correlation_id).await
        {
            outcome = Outcome::NotStored(error);
        }
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

/// Makes a dead letter of a record that could be understood but not be stored.
async fn bury(services: &Services, record: &Value, reason: String, correlation_id: &str) -> Result<(), Error> {
    let now = services.clock.now();
    let bad = Malformed::of(record, reason);
    let arrival = buried(services, record, &bad, correlation_id, now);
    match services.ingest.accept_each(vec![arrival]).await?.pop().transpose() {
        Ok(_) => Ok(()),
        Err(Error::Invalid(why)) => {
            let (id, reason) = (bad.id, bad.reason);
            tracing::error!(id, reason, why, "a record of a stream can be kept nowhere, and is lost");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

fn buried(services: &Services, record: &Value, bad: &Malformed, correlation_id: &str, now: Timestamp) -> Arrival {
    let writes = Vec::from_iter(dead_letter(services, record, bad, correlation_id, now));
    let with = Companions { writes, ..Companions::default() };
    Arrival { envelope: bad.envelope(record, correlation_id, now), with }
}

fn outcome(malformed: Option<String>, receipt: Result<Receipt, Error>) -> Outcome {
    match receipt {
        // What the store refuses now, it refuses for ever.
        Err(Error::Invalid(why)) => Outcome::Rejected(malformed.unwrap_or(why)),
        Err(error) => {
            tracing::warn!(%error, "a record of a stream was not stored");
            Outcome::NotStored(error)
        }
        Ok(receipt) if malformed.is_some() || receipt.status == "rejected" => {
            let refused = || receipt.errors.first().map(|error| error.message.clone());
            Outcome::Rejected(malformed.or_else(refused).unwrap_or_default())
        }
        Ok(receipt) if receipt.status == "duplicate" => Outcome::Duplicate,
        Ok(receipt) => Outcome::Accepted { matched: receipt.matched > 0 },
    }
}

/// What is to be stored of each record, and why some of them mean nothing.
fn arrivals(
    services: &Services,
    records: &[Value],
    correlation_id: &str,
    now: Timestamp,
) -> (Vec<Arrival>, Vec<Option<String>>) {
    let arrival = |record: &Value| match Change::read(record) {
        Ok(change) => (Arrival { envelope: change.envelope(correlation_id, now), with: Companions::default() }, None),
        Err(bad) => (buried(services, record, &bad, correlation_id, now), Some(bad.reason)),
    };
    records.iter().map(arrival).unzip()
}

/// Where somebody will look for a record that cannot be understood, mend it and send it again (S001-39).
fn dead_letter(
    services: &Services,
    record: &Value,
    bad: &Malformed,
    correlation_id: &str,
    now: Timestamp,
) -> Option<Write> {
    let name = format!("stream\n{}\n{}", bad.source, bad.id);
    let letter = |record: Value| {
        let new = NewMessage {
            message_id: Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()),
            created_by: stream::CHANNEL.to_owned(),
            stage: services.config.stage.as_str(),
            message_type: stream::MESSAGE_TYPE,
            payload: Map::from_iter([(stream::RECORD.to_owned(), record)]),
            correlation_id,
            channel: stream::CHANNEL,
            target: Map::new(),
            secret: None,
            event_id: None,
            rule: None,
            deliver_at: None,
            keep_seconds: services.messages.keep_seconds(),
        };
        let mut message = Message::new(new, now);
        message.delivery.status = Status::Failed;
        dead::letter(&message, &format!("{}: {}", bad.id, bad.reason), now)
    };
    let fits = |write: &Write| matches!(write, Write::Put { table, item, .. } if table.check_item(item).is_ok());
    // What an item cannot hold, a text can.
    let forms = [record.clone(), record.to_string().into(), "left out: too large".into()];
    forms.into_iter().find_map(|record| letter(record).ok().filter(fits))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_run_ends_before_an_item_comes_again() {
        let of = |item: &str| json!({ "dynamodb": { "Keys": { "id": { "S": item } } } });
        let nameless = json!({ "eventName": "INSERT" });
        for (records, length) in [
            (vec![], 0),
            (vec![of("a")], 1),
            (vec![of("a"), of("b"), of("a"), of("c")], 2),
            (vec![of("a"), of("a")], 1),
            (vec![nameless.clone(), nameless, of("a"), of("b")], 4),
        ] {
            assert_eq!(run(&records), length, "{records:?}");
        }
    }
}
