//! `POST /ingest/dynamodb-stream`: the event that a Lambda function gets, and the answer it gives (S001-10, S001-41).

use axum::extract::State;
use axum::http::{Method, StatusCode};
use axum::response::IntoResponse;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use tidings_core::envelope::FieldError;
use tidings_core::json;
use tidings_core::time::Timestamp;
use tidings_store::{Error, Write};
use uuid::Uuid;

use super::change::{self, Change, Malformed};
use crate::app::Services;
use crate::channel::stream;
use crate::http::{CorrelationId, Json, JsonText, Param, Params, Problem, Route};
use crate::ingest::{Arrival, Companions, Receipt};
use crate::messages::{Message, NewMessage, Status, dead};
use crate::tokens::Scope;

#[must_use]
pub fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::POST, "/ingest/dynamodb-stream", "Changes of a table, as a Lambda function gets them", take)
            .scopes(&[Scope::Ingest])
            .params(&[Param(
                "identifier",
                "What itemIdentifier is: eventID (default), or SequenceNumber, which Lambda's event source mapping wants",
            )])
            .body::<BatchBody>()
            .answer::<BatchAnswer>(200, "Which records failed; all others are on disk"),
    ]
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "describes the body")]
struct BatchBody {
    /// `eventID`, `eventName` (INSERT, MODIFY, REMOVE) and `dynamodb` with `NewImage` and `OldImage`; values typed as in
    /// {"S": "x"}, or plain.
    #[schemars(rename = "Records")]
    records: Vec<Map<String, Value>>,
}

#[derive(Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct BatchAnswer {
    /// Records that were not taken: those that cannot be understood, which are kept as dead letters, and those that the
    /// store did not take, which should come again.
    batch_item_failures: Vec<Failure>,
    records: usize,
    accepted: usize,
    duplicates: usize,
    rejected: usize,
    /// Of the accepted ones, those that no rule matched.
    filtered: usize,
    /// Why, for each failure.
    errors: Vec<Reason>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Failure {
    item_identifier: String,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Reason {
    item_identifier: String,
    message: String,
}

async fn take(
    State(services): State<Services>,
    correlation: CorrelationId,
    mut params: Params,
    body: JsonText,
) -> Result<impl IntoResponse, Problem> {
    let by_number = match params.text("identifier") {
        None | Some("eventID") => false,
        Some("SequenceNumber") => true,
        Some(_) => {
            params.refuse("identifier", "must be eventID or SequenceNumber");
            false
        }
    };
    params.finish()?;
    let body: Value = json::parse(body.text()?)?;
    let records = records(&body, services.limits.batch_events())?;
    let now = services.clock.now();
    let (arrivals, malformed) = arrivals(&services, records, &correlation.0, now);
    let receipts = services.ingest.accept_each(arrivals).await?;
    let mut answer = BatchAnswer { records: records.len(), ..BatchAnswer::default() };
    for ((record, why), receipt) in records.iter().zip(malformed).zip(receipts) {
        if let Some(message) = answer.count(why, receipt) {
            let item_identifier = identifier(record, by_number);
            answer.batch_item_failures.push(Failure { item_identifier: item_identifier.clone() });
            answer.errors.push(Reason { item_identifier, message });
        }
    }
    services.metrics.rules("unmatched", answer.filtered as u64);
    Ok(Json(StatusCode::OK, answer))
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
        Err(bad) => {
            let writes = Vec::from_iter(dead_letter(services, record, &bad, correlation_id, now));
            let with = Companions { writes, ..Companions::default() };
            (Arrival { envelope: bad.envelope(record, correlation_id, now), with }, Some(bad.reason))
        }
    };
    records.iter().map(arrival).unzip()
}

impl BatchAnswer {
    /// Counts what became of a record; gives the reason if it failed.
    fn count(&mut self, malformed: Option<String>, receipt: Result<Receipt, Error>) -> Option<String> {
        let receipt = match receipt {
            Ok(receipt) => receipt,
            // Not stored, and not the record's fault: it should come again.
            Err(error) => {
                tracing::warn!(%error, "a record of a stream was not stored");
                return Some(format!("it could not be stored: {error}"));
            }
        };
        if malformed.is_some() || receipt.status == "rejected" {
            self.rejected += 1;
            return malformed.or_else(|| receipt.errors.first().map(|error| error.message.clone()));
        }
        match receipt.status {
            "duplicate" => self.duplicates += 1,
            _ => {
                self.accepted += 1;
                self.filtered += usize::from(receipt.matched == 0);
            }
        }
        None
    }
}

/// The records of a body: `Records`, or a list without the wrapping.
fn records(body: &Value, most: usize) -> Result<&[Value], Problem> {
    let records = match body {
        Value::Array(records) => records,
        Value::Object(fields) => match fields.get("Records") {
            Some(Value::Array(records)) => records,
            Some(_) => return Err(Problem::invalid_field("Records", "must be a list of records")),
            None => return Err(Problem::invalid_field("Records", "is required")),
        },
        _ => return Err(Problem::invalid(vec![FieldError::new("", "the body must be an object with Records")])),
    };
    if records.len() > most {
        return Err(Problem::too_large(format!(
            "there are {} records, at most {most} are taken at once",
            records.len()
        )));
    }
    Ok(records)
}

fn identifier(record: &Value, by_number: bool) -> String {
    let number = record.pointer("/dynamodb/SequenceNumber").and_then(Value::as_str);
    number.filter(|_| by_number).map_or_else(|| change::id_of(record), ToOwned::to_owned)
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
