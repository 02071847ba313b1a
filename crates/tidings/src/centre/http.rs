//! `POST /ingest/dynamodb-stream`: the event that a Lambda function gets, and the answer it gives (S001-10, S001-41).

use axum::extract::State;
use axum::http::{Method, StatusCode};
use axum::response::IntoResponse;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use tidings_core::envelope::FieldError;
use tidings_core::json;

use super::batch::{self, Outcome};
use super::change;
use crate::app::Services;
use crate::http::{CorrelationId, Json, JsonText, Param, Params, Problem, Route};
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
            .answer::<BatchAnswer>(200, "Which records must come again; all others are on disk"),
    ]
}

/// Records: `eventID`, `eventName` (INSERT, MODIFY, REMOVE) and `dynamodb` with `NewImage` and `OldImage`; values typed as in
/// {"S": "x"}, or plain.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "describes the body")]
enum BatchBody {
    Named {
        #[schemars(rename = "Records")]
        records: Vec<Map<String, Value>>,
    },
    List(Vec<Map<String, Value>>),
}

#[derive(Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct BatchAnswer {
    /// Records that the store did not take, which should come again, and those after them. What cannot be understood is
    /// not among them: it is kept as a dead letter, and would be no better another time.
    batch_item_failures: Vec<Failure>,
    records: usize,
    accepted: usize,
    duplicates: usize,
    rejected: usize,
    /// Of the accepted ones, those that no rule matched.
    filtered: usize,
    /// Why, for each record that was rejected or not taken.
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
    let outcomes = batch::take(&services, records, &correlation.0).await?;
    let mut answer = BatchAnswer { records: records.len(), ..BatchAnswer::default() };
    for (record, outcome) in records.iter().zip(outcomes) {
        let comes_again = matches!(outcome, Outcome::NotStored(_));
        if let Some(message) = answer.count(outcome) {
            let item_identifier = identifier(record, by_number);
            if comes_again {
                answer.batch_item_failures.push(Failure { item_identifier: item_identifier.clone() });
            }
            answer.errors.push(Reason { item_identifier, message });
        }
    }
    Ok(Json(StatusCode::OK, answer))
}

impl BatchAnswer {
    /// Counts what became of a record; gives the reason if it was not taken.
    fn count(&mut self, outcome: Outcome) -> Option<String> {
        match outcome {
            Outcome::Accepted { matched } => {
                self.accepted += 1;
                self.filtered += usize::from(!matched);
                None
            }
            Outcome::Duplicate => {
                self.duplicates += 1;
                None
            }
            Outcome::Rejected(why) => {
                self.rejected += 1;
                Some(why)
            }
            Outcome::NotStored(error) => Some(format!("it could not be stored: {error}")),
        }
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
